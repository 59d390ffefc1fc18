"""Room: cli. `moor pipeline audit` and `diff`: sets of ids, compared on Spark; cli/pipeline.py has them."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from moorline.cli import output
from moorline.cli import pipeline_tables as tables
from moorline.cli.installed import need_spark
from moorline.cli.spark_run import AsJson, Conf, Master, Remote, spark_run, tasks_of
from moorline.errors import ConfigError
from moorline.limits import PIPELINE_IDS_SHOWN

if TYPE_CHECKING:
    from moorline.catalog.location import CatalogLocation


def audit(
    catalog: Annotated[
        str,
        typer.Option(
            envvar="MOOR_CATALOG",
            show_default=False,
            help="postgresql://… of the catalog, without a password, which PGPASSWORD or ~/.pgpass has.",
        ),
    ] = "",
    catalog_file: Annotated[
        Path | None,
        typer.Option(
            envvar="MOOR_CATALOG_FILE",
            show_default=False,
            help="A file with that address, password and all; on every machine that runs tasks.",
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            show_default=False, help="Data folder of a running node with its own catalog."
        ),
    ] = None,
    client: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SERVICE=SET",
            show_default=False,
            help="A client's list to compare with: FILE.sqlite, parquet:…, csv:…. Repeatable.",
        ),
    ] = None,
    master: Master = None,
    remote: Remote = None,
    conf: Conf = None,
    as_json: AsJson = False,
) -> None:
    """Recompute the digests of all services from their associations, and compare with those kept.

    Ends with 17 if something differs.
    """
    need_spark()
    place = _place(catalog, catalog_file, data)
    from moorline.spark.id_sets import Side, check_sides
    from moorline.spark.jobs import audit as job

    clients = {name: Side.of(text) for name, text in map(_pair, client or [])}
    job.services_of(place, clients)
    check_sides(*clients.values())
    with spark_run("auditing", master, remote, conf) as (spark, seen):
        found = job.audit(spark, place, clients, seen)
    output.emit(
        as_json, [tables.audit_facts(one) for one in found], lambda: tables.show_audit(found)
    )
    job.check(found)


def diff(
    left: Annotated[
        str,
        typer.Argument(
            show_default=False,
            help="parquet:PATH#COLUMN, csv:PATH#COLUMN, sqlite:FILE, catalog:postgresql://…#SERVICE, "
            "catalog-file:FILE#SERVICE.",
        ),
    ],
    right: Annotated[str, typer.Argument(show_default=False, help="The other set of ids.")],
    out: Annotated[
        str, typer.Option(show_default=False, help="Store all differences there, as Parquet.")
    ] = "",
    limit: Annotated[
        int, typer.Option(min=0, help="Ids that are printed, at most.")
    ] = PIPELINE_IDS_SHOWN,
    master: Master = None,
    remote: Remote = None,
    conf: Conf = None,
    as_json: AsJson = False,
) -> None:
    """Find what is missing on either side of two sets of ids, of any size.

    65,536 digests of each side are compared first; equal sets cost one look. Rows without an id are left out
    and counted. Ends with 17 if they differ, or if neither side has an id.
    """
    need_spark()
    from moorline.spark.id_sets import Side
    from moorline.spark.jobs import diff as job

    sides = Side.of(left), Side.of(right)
    job.check_before(*sides, out)
    with spark_run("comparing", master, remote, conf) as (spark, seen):
        found = job.diff(spark, *sides, tasks=tasks_of(spark), limit=limit, out=out, seen=seen)
    output.emit(as_json, tables.diff_facts(found), lambda: tables.show_diff(found))
    job.check(found)


def _place(catalog: str, catalog_file: Path | None, data: Path | None) -> "CatalogLocation":
    from moorline.catalog.location import location_of

    return location_of(
        catalog if catalog or catalog_file else _own_catalog(data),
        str(catalog_file or ""),
        dsn_name="--catalog (or MOOR_CATALOG)",
        file_name="--catalog-file",
        shown_by="every list of processes and Spark's plans show",
    )


def _own_catalog(data: Path | None) -> str:
    from moorline.catalog.datafolder import SUPERUSER
    from moorline.catalog.socket_folder import PORT

    if data is None:
        raise ConfigError(
            "which catalog? Give --catalog or --catalog-file, or --data for a node with its own"
        )
    folder = (data / "run").resolve()
    if not folder.is_dir():
        raise ConfigError(f"{data}: no node with a catalog of its own runs there: give --catalog")
    return f"postgresql://{SUPERUSER}@/{SUPERUSER}?host={folder}&port={PORT}"


def _pair(text: str) -> tuple[str, str]:
    name, equals, rest = text.partition("=")
    if not equals or not name or not rest:
        raise ConfigError(
            f"--client {text!r}: accepted: SERVICE=FILE.sqlite, SERVICE=parquet:PATH#COLUMN"
        )
    return name, rest
