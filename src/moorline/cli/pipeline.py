"""Room: cli. `moor pipeline`: jobs over all the data, on Spark.

Everything of Spark's is imported by the commands: `moor --help` must be quick, and work without it.
"""

import asyncio
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from moorline.cli import output
from moorline.cli import pipeline_tables as tables
from moorline.cli.endpoint import Endpoint, with_node
from moorline.cli.installed import need_spark
from moorline.cli.pipeline_materialize import materialize
from moorline.cli.pipeline_sets import audit, diff
from moorline.cli.spark_run import (
    AsJson,
    Conf,
    Master,
    Remote,
    check_every,
    spark_run,
    stoppable,
    time_us,
)
from moorline.cli.told_run import told_run
from moorline.cli.who import KerberosFiles
from moorline.limits import ARCHIVE_BATCH_MESSAGES, PIPELINE_RUNS_PER_PAGE
from moorline.wire.pipeline_run import RunFacts

app = typer.Typer(
    no_args_is_help=True,
    help="Archive, verify, replay, keep tables, audit and compare, or run your own flows.",
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
    endpoint: Endpoint,
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
    source = source_of(endpoint, path)
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
        told_run(endpoint, "archive", f"{topics} to {where}", is_told=path is None) as run,
        spark_run("archiving", master, remote, conf, is_light=is_light) as (spark, seen),
        stoppable(continuously) as stopping,
    ):
        job.check_format(spark, format_name)
        hears = run.hears(seen)
        done = job.archive(spark, options, lambda: ask(source).seals, hears, stopping, output.error)
        run.proves(tables.archived_in_words(done), is_proven=None)
    facts = {**msgspec.structs.asdict(done), "lost_messages": done.lost_messages}
    output.emit(as_json, facts, lambda: tables.show_archived(done))
    if not (continuously or done.messages or done.files or done.lost):
        output.error(f"no stored message matches {topics}: moor topic list shows the topics")
    job.check(done)


@app.command(epilog="Example: moor pipeline verify ./archive --repair --json")
@with_node
def verify(
    endpoint: Endpoint,
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

    options = job.VerifyOptions(where, source_of(endpoint, path), repair)
    told = ask(options.source)
    job.opened(options)
    with (
        told_run(endpoint, "verify", where, is_told=path is None) as run,
        spark_run("verifying", master, remote, conf) as (spark, seen),
    ):
        report = job.verify(spark, options, told, run.hears(seen))
        run.proves(tables.report_in_words(report), is_proven=report.is_equal)
    output.emit(
        as_json,
        {**msgspec.structs.asdict(report), "is_equal": report.is_equal, "lost": report.lost},
        lambda: tables.show_report(report),
    )
    check(report)


@app.command(epilog="Example: moor pipeline runs --json")
@with_node
def runs(
    endpoint: Endpoint,
    count: Annotated[
        int, typer.Option(min=1, max=PIPELINE_RUNS_PER_PAGE, help="How many, the newest first.")
    ] = 20,
    as_json: AsJson = False,
) -> None:
    """Show runs of the pipeline: how far they are, and what they have proven.

    A run that calls a node tells it of itself, if it may write at /pipeline/runs.
    """

    async def asked() -> list[RunFacts]:
        async with endpoint.connect() as moor:
            return await moor.pipeline_runs.newest(count)

    found = asyncio.run(asked())
    output.emit(as_json, msgspec.to_builtins(found), lambda: tables.show_runs(found))


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
    endpoint: Endpoint,
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
        endpoint_options(endpoint),
        topics,
        time_us(since, "--from", 0),
        time_us(until, "--until", MAX_US),
        prefix,
        rate or 0,
        token,
    )
    job.opened(options)
    check_reached(options.target)
    with (
        told_run(endpoint, "replay", f"{topics} of {where}") as run,
        spark_run("replaying", master, remote, conf) as (spark, seen),
    ):
        done = job.replay(spark, options, run.hears(seen))
        run.proves(tables.replayed_in_words(done), is_proven=None)
    output.emit(as_json, done, lambda: tables.show_replayed(done))


app.command(epilog="Example: moor pipeline materialize experiments ./experiments --continuously")(
    with_node(materialize)
)
app.command(
    epilog="Example: moor pipeline audit --data ./moorline-data --client billing=billing.sqlite"
)(audit)
app.command(epilog="Example: moor pipeline diff ids.parquet#id csv:export.csv#queue --out missing")(
    diff
)


@app.command(
    epilog="Example: moor pipeline run flows.py --flow copy --address tcp://127.0.0.1:7411"
)
@with_node
def run(
    endpoint: Endpoint,
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

    Flows that name no node get the one that is given here. Ends with 17 if a one-to-one copy is none, and
    with 21 if a function of yours raises; what flows did until then is printed.
    """
    need_spark()
    from moorline.spark.jobs import flows as job
    from moorline.spark.jobs.node_side import check_reached

    check_every(every)
    options = job.FlowsOptions(
        file,
        flow or [],
        endpoint_options(endpoint),
        checkpoints,
        every if continuously else "",
        proof,
    )
    # What can be refused is refused before a session is started.
    flows = job.flows_in(options.file, options.names)
    if not remote:
        for one in job.nodes_of(flows, options.endpoint):
            check_reached(one)
    reports: list[job.FlowReport] = []
    try:
        with (
            told_run(endpoint, "flows", file) as told,
            spark_run("running", master, remote, conf, is_light=False) as (spark, seen),
            stoppable(continuously) as stopping,
        ):
            hears = told.hears(seen)
            job.run_flows(spark, options, hears, stopping, reports, output.error)
            text, is_proven = tables.flows_in_words(reports)
            told.proves(text, is_proven=is_proven)
    finally:
        # What was published before one of them failed stays published, and is told.
        if reports:
            output.emit(as_json, reports, lambda: tables.show_flows(reports))
    job.check(reports)


# --- what they share ------------------------------------------------------------------------------


def endpoint_options(endpoint: Endpoint) -> dict[str, str]:
    """How a node is reached, as options of the data source; files by paths that hold anywhere here."""
    options = {"address": endpoint.address}
    for name in ("ca", "certificate", "key"):
        file: Path | None = getattr(endpoint, name)
        if file is not None:
            options[name] = str(file.absolute())
    if endpoint.user and endpoint.password_file is None:
        raise typer.BadParameter(
            f"--user {endpoint.user}: the tasks of a job cannot be asked for a password: give "
            "--password-file, or --token-file"
        )
    # By their names alone: a task reads them where it runs.
    if endpoint.password_file is not None:
        options |= {
            "user": endpoint.user,
            "passwordFile": str(endpoint.password_file.absolute()),
        }
    if endpoint.token_file is not None:
        options["tokenFile"] = str(endpoint.token_file.absolute())
    if endpoint.kerberos is not None:
        options |= kerberos_options(endpoint.kerberos)
    return options


def kerberos_options(files: KerberosFiles) -> dict[str, str]:
    """By names of files too. A task has no default cache of its own: it is on any machine of Spark's."""
    if files.keytab is None and files.ccache is None:
        raise typer.BadParameter(
            "--kerberos: the tasks of a job do not have your ticket cache: give --keytab, or --ccache with a "
            "file that they can read"
        )
    named = {
        "keytabFile": files.keytab and str(files.keytab.absolute()),
        "ccacheFile": files.ccache and str(files.ccache.absolute()),
        "kerberosPrincipal": files.principal,
        "kerberosService": files.service,
    }
    return {name: text for name, text in named.items() if text}


def source_of(endpoint: Endpoint, path: Path | None) -> dict[str, str]:
    return {"path": str(path.absolute())} if path is not None else endpoint_options(endpoint)
