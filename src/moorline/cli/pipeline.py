"""Room: cli. `moor pipeline`: jobs over all the data, on Spark.

Everything of Spark's is imported by the commands: `moor --help` must be quick, and work without it.
"""

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from moorline.cli import output
from moorline.cli import pipeline_tables as tables
from moorline.cli.installed import need_spark
from moorline.cli.reach import Reach, with_node
from moorline.cli.spark_run import (
    AsJson,
    Conf,
    Master,
    Remote,
    check_every,
    spark_run,
    stoppable,
    tasks_of,
    time_us,
)
from moorline.errors import ConfigError
from moorline.limits import ARCHIVE_BATCH_MESSAGES, PIPELINE_IDS_SHOWN

app = typer.Typer(
    no_args_is_help=True,
    help="Archive, verify, replay, audit and compare, or run your own flows: jobs on Spark.",
    epilog="Example: moor pipeline archive ./archive && moor pipeline verify ./archive",
)

Where = Annotated[
    str,
    typer.Argument(
        metavar="ARCHIVE",
        show_default=False,
        help="Its folder, or a URI such as s3://… or hdfs://….",
    ),
]
Folder = Annotated[
    Path | None,
    typer.Option(
        "--path",
        show_default=False,
        help="Read this data folder, or a copy of one, in place of a running node.",
    ),
]
Continuously = Annotated[
    bool,
    typer.Option(
        "--continuously/--until-caught-up",
        help="Go on until Ctrl-C or SIGTERM, or end when all that is stored now is done.",
    ),
]
Every = Annotated[str, typer.Option(help="With --continuously: time between batches.")]
Topics = Annotated[str, typer.Option(help="Filters, with commas. The default is everything.")]
Format = Annotated[
    str,
    typer.Option(
        "--format", help="Any that the Spark session has; verify and replay need parquet."
    ),
]
BatchMessages = Annotated[
    int, typer.Option("--batch", min=1, help="Messages of a batch, at most: what a crash costs.")
]
Checkpoint = Annotated[
    str, typer.Option(show_default=False, help="Where Spark keeps its place, if not inside.")
]
Compact = Annotated[
    bool, typer.Option("--compact/--no-compact", help="Merge small files of sealed streams.")
]
AllowLoss = Annotated[
    bool,
    typer.Option("--allow-loss", help="Go past messages that are gone or damaged; name them."),
]


@app.command(epilog="Example: moor pipeline archive ./archive --topics 'orders/#' --continuously")
@with_node
def archive(
    reach: Reach,
    where: Where,
    topics: Topics = "#,$dead/#",
    format_name: Format = "parquet",
    continuously: Continuously = False,
    every: Every = "10 seconds",  # files that are not tiny, and soon enough
    batch: BatchMessages = ARCHIVE_BATCH_MESSAGES,
    checkpoint: Checkpoint = "",
    compact: Compact = True,
    allow_loss: AllowLoss = False,
    path: Folder = None,
    master: Master = None,
    remote: Remote = None,
    conf: Conf = None,
    as_json: AsJson = False,
) -> None:
    """Copy topics into Parquet, each message once; run again, it goes on where it was.

    Digests of sealed streams are kept beside the files, so that `moor pipeline verify` can prove the archive
    even when retention has taken the streams. Ends with 17 if files of the archive were changed by others.
    """
    need_spark()
    from moorline.spark.jobs import archive as job
    from moorline.spark.jobs.node_side import ask

    check_every(every)
    source = source_of(reach, path)
    if allow_loss:
        source["failOnDataLoss"] = "false"
    trigger = every if continuously else ""
    options = job.ArchiveOptions(
        where, source, topics, format_name, checkpoint, trigger, compact, batch
    )
    # What can be refused is refused before a session is started, which takes seconds.
    ask(source)
    job.opened(options)
    is_light = format_name == "parquet"
    with (
        spark_run("archiving", master, remote, conf, is_light=is_light) as (spark, seen),
        stoppable(continuously) as stopping,
    ):
        job.check_format(spark, format_name)
        done = job.archive(spark, options, lambda: ask(source).seals, seen, stopping)
    facts = {**msgspec.structs.asdict(done), "lost_messages": done.lost_messages}
    output.emit(as_json, facts, lambda: tables.show_archived(done))
    if not (continuously or done.messages or done.files or done.lost):
        output.error(f"no stored message matches {topics}: moor topic list shows the topics")
    job.check(done)


@app.command(epilog="Example: moor pipeline verify ./archive --repair --json")
@with_node
def verify(
    reach: Reach,
    where: Where,
    repair: Annotated[
        bool, typer.Option("--repair", help="Fetch what is missing, remove what does not belong.")
    ] = False,
    path: Folder = None,
    master: Master = None,
    remote: Remote = None,
    conf: Conf = None,
    as_json: AsJson = False,
) -> None:
    """Compare an archive with what nodes recorded when they sealed their streams.

    Messages that are missing, extra or altered are listed. Ends with 0 if all is equal, or if --repair has
    made it so, and with 17 otherwise.
    """
    need_spark()
    from moorline.spark.jobs import verify as job
    from moorline.spark.jobs.node_side import ask
    from moorline.spark.jobs.verify_report import check

    options = job.VerifyOptions(where, source_of(reach, path), repair)
    told = ask(options.source)
    job.opened(options)
    with spark_run("verifying", master, remote, conf) as (spark, seen):
        report = job.verify(spark, options, told, seen)
    output.emit(
        as_json,
        {**msgspec.structs.asdict(report), "is_equal": report.is_equal, "lost": report.lost},
        lambda: tables.show_report(report),
    )
    check(report)


@app.command(epilog="Example: moor pipeline clean ./archive --yes")
def clean(
    where: Where,
    yes: Annotated[bool, typer.Option("--yes", help="Remove and forget what is listed.")] = False,
    as_json: AsJson = False,
) -> None:
    """List files of an archive that no entry names, and entries that are gone; --yes removes and forgets.

    A file that nobody claims may be what a crash left, or all that is left of an entry that somebody removed:
    no other command removes it. What forgotten entries had is missing from then on, and `moor pipeline verify
    --repair` fetches it from nodes that still have it. Ends with 17 if something is left.
    """
    need_spark()
    from moorline.spark.jobs import clean as job

    found = job.clean(where, is_meant=yes)
    output.emit(as_json, found, lambda: tables.show_cleaned(found))
    job.check(found)


@app.command(
    epilog="Example: moor pipeline replay ./archive --topics 'orders/#' --prefix again/ --rate 5000"
)
@with_node
def replay(
    reach: Reach,
    where: Where,
    topics: Annotated[
        str, typer.Option(help="Filters, with commas. The default is all but dead letters.")
    ] = "#",
    since: Annotated[
        str, typer.Option("--from", show_default=False, help="Time, as 2026-05-04T08:00:00Z.")
    ] = "",
    until: Annotated[
        str, typer.Option("--until", show_default=False, help="The time at which to stop.")
    ] = "",
    prefix: Annotated[
        str, typer.Option(show_default=False, help="Goes before every topic, as replayed/.")
    ] = "",
    rate: Annotated[
        int | None,
        typer.Option(min=1, show_default=False, help="Messages a second, at most, on average."),
    ] = None,
    token: Annotated[
        str,
        typer.Option(
            show_default=False,
            help="Name of this replay. The default is made of the other options.",
        ),
    ] = "",
    master: Master = None,
    remote: Remote = None,
    conf: Conf = None,
    as_json: AsJson = False,
) -> None:
    """Publish archived messages again, each of them once: the same command again adds nothing.

    What was interrupted goes on. To replay the same messages a second time, give another --token. Topic, key,
    body, headers and time to live are as they were; a message that was retained is not retained again.
    """
    need_spark()
    from moorline.spark.jobs import replay as job
    from moorline.spark.jobs.manifest import MAX_US
    from moorline.spark.jobs.node_side import check_reached

    options = job.ReplayOptions(
        where,
        reach_options(reach),
        topics,
        time_us(since, "--from", 0),
        time_us(until, "--until", MAX_US),
        prefix,
        rate or 0,
        token,
    )
    job.opened(options)
    check_reached(options.target)
    with spark_run("replaying", master, remote, conf) as (spark, seen):
        done = job.replay(spark, options, seen)
    output.emit(as_json, done, lambda: tables.show_replayed(done))


@app.command(
    epilog="Example: moor pipeline audit --data ./moorline-data --client billing=billing.sqlite"
)
def audit(
    catalog: Annotated[
        str,
        typer.Option(
            envvar="MOOR_CATALOG", show_default=False, help="postgresql://… of the catalog."
        ),
    ] = "",
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
    address = catalog or _own_catalog(data)
    need_spark()
    from moorline.spark.id_sets import Side, check_sides
    from moorline.spark.jobs import audit as job

    clients = {name: Side.of(text) for name, text in map(_pair, client or [])}
    job.services_of(address, clients)
    check_sides(*clients.values())
    with spark_run("auditing", master, remote, conf) as (spark, seen):
        found = job.audit(spark, address, clients, seen)
    output.emit(
        as_json, [tables.audit_facts(one) for one in found], lambda: tables.show_audit(found)
    )
    job.check(found)


@app.command(epilog="Example: moor pipeline diff ids.parquet#id csv:export.csv#queue --out missing")
def diff(
    left: Annotated[
        str,
        typer.Argument(
            show_default=False,
            help="parquet:PATH#COLUMN, csv:PATH#COLUMN, sqlite:FILE, catalog:postgresql://…#SERVICE.",
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


@app.command(
    epilog="Example: moor pipeline run flows.py --flow copy --address tcp://127.0.0.1:7411"
)
@with_node
def run(
    reach: Reach,
    file: Annotated[str, typer.Argument(metavar="FILE", show_default=False, help="Your flows.")],
    flow: Annotated[
        list[str] | None,
        typer.Option("--flow", show_default=False, help="Only this one. Repeatable."),
    ] = None,
    continuously: Continuously = False,
    every: Every = "1 second",
    checkpoints: Annotated[
        str, typer.Option(show_default=False, help="Folder for checkpoints; beside FILE without.")
    ] = "",
    proof: Annotated[
        bool, typer.Option("--verify/--no-verify", help="Prove the flows that copy one to one.")
    ] = True,
    master: Master = None,
    remote: Remote = None,
    conf: Conf = None,
    as_json: AsJson = False,
) -> None:
    """Run the functions of a Python file that are marked with @moorline.spark.flow.

    Flows that name no node get the one that is given here. Ends with 17 if a one-to-one copy is none.
    """
    need_spark()
    from moorline.spark.jobs import flows as job
    from moorline.spark.jobs.node_side import check_reached

    check_every(every)
    options = job.FlowsOptions(
        file, flow or [], reach_options(reach), checkpoints, every if continuously else "", proof
    )
    # What can be refused is refused before a session is started.
    flows = job.flows_in(options.file, options.names)
    if not remote:
        for one in job.nodes_of(flows, options.reach):
            check_reached(one)
    with (
        spark_run("running", master, remote, conf, is_light=False) as (spark, seen),
        stoppable(continuously) as stopping,
    ):
        reports = job.run_flows(spark, options, seen, stopping)
    output.emit(as_json, reports, lambda: tables.show_flows(reports))
    job.check(reports)


# --- what they share ------------------------------------------------------------------------------


def reach_options(reach: Reach) -> dict[str, str]:
    """How a node is reached, as options of the data source; files by paths that hold anywhere here."""
    options = {"address": reach.address}
    for name in ("ca", "certificate", "key"):
        file: Path | None = getattr(reach, name)
        if file is not None:
            options[name] = str(file.absolute())
    return options


def source_of(reach: Reach, path: Path | None) -> dict[str, str]:
    return {"path": str(path.absolute())} if path is not None else reach_options(reach)


def _own_catalog(data: Path | None) -> str:
    from moorline.catalog.datafolder import SUPERUSER
    from moorline.catalog.socket_folder import PORT

    if data is None:
        raise ConfigError("which catalog? Give --catalog, or --data for a node with its own")
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
