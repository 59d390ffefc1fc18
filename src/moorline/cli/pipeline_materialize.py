"""Room: cli. `moor pipeline materialize`: a table in Parquet out of its topic; cli/pipeline.py has it."""

from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from moorline.cli import output
from moorline.cli.endpoint import Endpoint
from moorline.cli.installed import need_spark
from moorline.cli.spark_run import (
    AsJson,
    Conf,
    Master,
    Remote,
    check_every,
    seconds_of,
    spark_run,
    stoppable,
)
from moorline.cli.told_run import told_run
from moorline.limits import MATERIALIZED_BUCKETS, MATERIALIZED_BUCKETS_MAX

if TYPE_CHECKING:
    from moorline.spark.jobs.materialize import Kept


def materialize(
    endpoint: Endpoint,
    table: Annotated[
        str, typer.Argument(metavar="TABLE", show_default=False, help="As it is registered.")
    ],
    where: Annotated[
        str,
        typer.Argument(
            metavar="FOLDER", show_default=False, help="A folder, or a URI such as s3://…."
        ),
    ],
    topic: Annotated[
        str, typer.Option(show_default=False, help="The topic that it feeds: tables/TABLE without.")
    ] = "",
    continuously: Annotated[
        bool,
        typer.Option(
            "--continuously/--until-caught-up",
            help="Go on until Ctrl-C or SIGTERM, or end when all that is stored now is done.",
        ),
    ] = False,
    every: Annotated[
        str, typer.Option(help="With --continuously: time between rounds.")
    ] = "10 seconds",
    buckets: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=MATERIALIZED_BUCKETS_MAX,
            show_default=False,
            help=f"Files of the table, by the hash of the key; {MATERIALIZED_BUCKETS} in a new folder.",
        ),
    ] = None,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Read all of the topic anew, into another state.")
    ] = False,
    proof: Annotated[
        bool, typer.Option("--verify/--no-verify", help="Compare with the table itself, by digest.")
    ] = True,
    master: Master = None,
    remote: Remote = None,
    conf: Conf = None,
    as_json: AsJson = False,
) -> None:
    """Keep the current rows of a table in Parquet, from the topic of its changes; run again, it goes on.

    The newest change of each row counts, and rows that are gone are gone. Each run ends with the digest of
    what is kept against that of the table; with 17 if they differ, or if files were changed by others.
    """
    need_spark()
    from moorline.cli.pipeline import endpoint_options
    from moorline.spark.jobs import materialize as job
    from moorline.spark.jobs.materialized import MaterializedTable
    from moorline.spark.jobs.node_side import check_reached

    check_every(every)
    options = job.MaterializeOptions(
        where,
        endpoint_options(endpoint),
        topic or f"tables/{table}",
        table if proof else "",
        buckets or 0,
        rebuild,
        seconds_of(every) if continuously else 0.0,
    )
    # What can be refused is refused before a session is started, which takes seconds.
    job.opened(MaterializedTable(where), options)
    check_reached(options.source)
    with (
        told_run(endpoint, "materialize", f"{table} to {where}") as run,
        spark_run("materializing", master, remote, conf) as (spark, seen),
        stoppable(continuously) as stopping,
    ):
        done = job.materialize(spark, options, run.hears(seen), stopping, output.error)
        run.proves(in_words(done), is_proven=done.is_proven)
    output.emit(as_json, msgspec.structs.asdict(done), lambda: show(done))
    job.check(done)


def show(done: "Kept") -> None:
    output.line(in_words(done))


def in_words(done: "Kept") -> str:
    parts = [f"{done.messages:,} messages merged in {done.rounds} rounds", f"{done.rows:,} rows"]
    if done.strangers:
        parts.append(f"{done.strangers:,} messages are none of a table, and were passed over")
    if done.is_proven:
        parts.append(f"proven equal to the table by digest {done.digest}")
    elif done.is_proven is None:
        parts.append("not compared with the table")
    return "; ".join(parts)
