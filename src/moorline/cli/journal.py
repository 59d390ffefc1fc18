"""Room: cli. `moor journal`: the queues in a data folder, while no node runs on it; and its checkpoint."""

import asyncio
import contextlib
import logging
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from moorline.cli import output
from moorline.cli.endpoint import Endpoint, with_node
from moorline.cli.flags import with_settings
from moorline.cli.installed import need_server
from moorline.cli.progress import progress
from moorline.config.load import Loaded
from moorline.config.settings import Config
from moorline.errors import FolderUnusable, JournalDamaged

if TYPE_CHECKING:
    from moorline.journal.disk import FileDisk
    from moorline.journal.queues.files import StoreOptions
    from moorline.journal.queues.report import Problem, Report
    from moorline.journal.queues.transfer import Moved
    from moorline.journal.queues.transfer_rows import Rows
    from moorline.journal.streams.check import StreamReport
    from moorline.journal.streams.inspection import StreamProblem
    from moorline.wire.queue import QueuesCheckpointed

app = typer.Typer(
    no_args_is_help=True,
    help="Check, repair, move, export and import the queues of a node that is stopped; checkpoint one that "
    "runs.",
    epilog="Example: moor journal check --data ./moorline-data",
)

AsJson = Annotated[bool, typer.Option("--json", help="One JSON object.")]
Target = Annotated[
    str,
    typer.Argument(metavar="FILE", help="A file that ends in .jsonl, .json or .parquet; or -."),
]


@app.command(epilog="Example: moor journal check --repair --data ./moorline-data")
@with_settings
def check(
    settings: Loaded[Config],
    repair: Annotated[
        bool, typer.Option("--repair", help="Put right what is wrong, and save what can be read.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Read the files of all queues and of all streams, and say what is wrong.

    Without --repair nothing on disk is changed. Ends with 0 if nothing is wrong but what a crash leaves and
    the next start puts right without a loss, or if --repair has put it right, and with 15 otherwise. Streams
    are only read: what can be done for them the next start does.
    """
    from moorline.journal.queues import check as work
    from moorline.net.clock import wall_ms
    from moorline.node.stores import missing_stores

    gone = missing_stores(Path(settings.config.data))
    with held_journal(settings.config) as (disk, options):
        with progress("checking") as seen:
            act = work.repair if repair else work.check
            report = act(disk, options, wall_ms, seen)
        left = report.problems
        if repair and report.problems:
            with progress("checking again") as seen:
                left = work.check(disk, options, wall_ms, seen).problems
        streams = checked_streams(settings.config)
    facts = {**msgspec.structs.asdict(report), "lost": report.lost, "is_clean": not left}
    facts |= {"lost_changes": report.lost_changes, "is_loss_unknown": report.is_loss_unknown}
    facts["is_lossless"] = not gone and all(problem.is_harmless for problem in left)
    if repair:
        facts["left"] = left
    if streams is not None:
        facts["streams"] = {**msgspec.to_builtins(streams), "lost": streams.lost}
        facts["is_clean"] = not left and not streams.problems
        facts["is_lossless"] = facts["is_lossless"] and not streams.problems
    if gone:
        facts |= {"gone": gone, "is_clean": False}

    def show() -> None:
        _show(report, repaired=repair)
        for name in gone:
            output.line(f"{name}/ is gone, with all messages that were in it")
        if streams is not None:
            _show_streams(streams)

    output.emit(as_json, facts, show)
    _end_with(left, streams.problems if streams is not None else [], gone, repaired=repair)


def _end_with(
    left: "list[Problem]", of_streams: "list[StreamProblem]", gone: list[str], *, repaired: bool
) -> None:
    """Raises with the numbers of what is wrong, and what helps; what a crash leaves is only shown."""
    left = [problem for problem in left if not problem.is_harmless]
    said = [f"{name}/ is gone: bring it back from a copy" for name in gone]
    if left:
        is_one = len(left) == 1
        if repaired:
            what = f"{'is' if is_one else 'are'} left after the repair"
        else:
            hint = f"`moor journal check --repair` puts {'it' if is_one else 'them'} right"
            what = f"{'was' if is_one else 'were'} found: {hint}"
        said.append(f"{output.counted(len(left), 'problem')} {what}")
    if of_streams:
        said.append(
            f"{output.counted(len(of_streams), 'problem')} of streams: the next start sets aside "
            "what is not this node's, and goes on behind what is gone"
        )
    if said:
        raise JournalDamaged("; ".join(said))


@app.command(epilog="Example: moor journal migrate --levels 2 --data ./moorline-data")
@with_settings
def migrate(
    settings: Loaded[Config],
    levels: Annotated[
        int, typer.Option(min=0, max=8, help="Levels of two characters above a queue's folder.")
    ],
    as_json: AsJson = False,
) -> None:
    """Move the queues' folders to another depth. Every message stays; what was interrupted goes on."""
    from moorline.journal.queues import offline
    from moorline.net.clock import wall_ms

    with held_journal(settings.config) as (disk, options), progress("moving") as seen:
        moved = offline.migrate(disk, options, levels, wall_ms, seen)
    output.emit(
        as_json,
        {"moved": moved, "levels": levels},
        lambda: output.line(f"{moved} folders moved; now set queues.folder_levels = {levels}"),
    )


@app.command(epilog="Example: moor journal export queues.parquet --data ./moorline-data")
@with_settings
def export(settings: Loaded[Config], target: Target, as_json: AsJson = False) -> None:
    """Write all queues and their messages into one file; - is JSON lines on stdout.

    Nothing in the data folder is changed. The summary at the end has a digest of all messages; where the
    rows go to stdout, it goes to stderr.
    """
    from moorline.journal.queues.transfer import export as work
    from moorline.journal.queues.transfer_rows import JsonWriter, is_parquet, written
    from moorline.net.clock import wall_ms

    path = None if target == "-" else Path(target)
    if path is not None:
        is_parquet(path)  # refuses another ending before anything is read
    with held_journal(settings.config) as (disk, options), progress("exporting") as seen:
        if path is None:
            writer = JsonWriter(sys.stdout.buffer)
            moved = work(disk, options, wall_ms, writer, seen)
            writer.close()
        else:
            try:
                with written(path) as writer_of_file:
                    moved = work(disk, options, wall_ms, writer_of_file, seen)
            except (FileNotFoundError, PermissionError, IsADirectoryError) as error:
                raise typer.BadParameter(f"{path} cannot be written: {error.strerror}") from error
    _summary("exported", moved, as_json=as_json, to_stderr=path is None)


@app.command("import", epilog="Example: moor journal import queues.parquet --data ./another")
@with_settings
def import_(settings: Loaded[Config], source: Target, as_json: AsJson = False) -> None:
    """Take in all queues and messages of a file that `moor journal export` wrote.

    All of it or nothing: the file is checked to its end before anything is changed, and refused if one
    line is bad or one of its queues is there already.
    """
    from moorline.journal.queues.transfer import import_rows
    from moorline.journal.queues.transfer_rows import is_parquet, read, read_json
    from moorline.net.clock import wall_ms

    path = None if source == "-" else Path(source)
    if path is not None:
        is_parquet(path)
        if not path.is_file():
            raise typer.BadParameter(f"{path} is not a file")
    with (
        held_journal(settings.config, is_made=True) as (disk, options),
        tempfile.TemporaryFile() as spool,
        progress("importing") as seen,
    ):
        if path is None:
            # Read twice, and a pipe can be read only once.
            shutil.copyfileobj(sys.stdin.buffer, spool)

        def rows() -> "Rows":
            if path is not None:
                return read(path)
            spool.seek(0)
            return read_json(spool)

        moved = import_rows(disk, options, wall_ms, rows, seen)
    _summary("imported", moved, as_json=as_json, to_stderr=False)


@app.command(epilog="Example: moor journal checkpoint --data ./moorline-data")
@with_node
def checkpoint(endpoint: Endpoint, as_json: AsJson = False) -> None:
    """Bring the log of a node that RUNS into its queues' files and index, now. The operator's.

    The node does so by itself from time to time. Afterwards a start has nothing to replay, and the disk has
    the room of the log and of what was acknowledged.
    """

    async def work() -> "QueuesCheckpointed":
        async with endpoint.connect() as moor:
            return await moor.checkpoint()

    done = asyncio.run(work())
    facts = {name: value for name, value in msgspec.structs.asdict(done).items() if name != "call"}
    text = (
        f"{done.queues} queues with changes are in their files; the log had {done.log_bytes} bytes and has "
        f"{done.log_bytes_left}; it took {done.took_ms} ms"
    )
    output.emit(as_json, facts, lambda: output.line(text))


# --- what they share ------------------------------------------------------------------------------


@contextlib.contextmanager
def held_journal(
    config: Config, *, is_made: bool = False
) -> Iterator[tuple["FileDisk", "StoreOptions"]]:
    """The folder of the queues, locked; a folder without queues is refused unless it is to be made."""
    need_server("moor journal")
    from moorline.ids import text_of
    from moorline.journal.disk import FileDisk
    from moorline.node.folder import check_room, held, identity, is_new
    from moorline.node.queues import FOLDER, options
    from moorline.node.stores import missing_stores

    # The report says it all; a line of the log beside it would only confuse.
    logging.getLogger("moorline").addHandler(logging.NullHandler())
    data = Path(config.data)
    if not is_made and FOLDER in missing_stores(data):
        raise JournalDamaged(f"{data / FOLDER} is gone: bring it back from a copy")
    if not is_made and not (data / FOLDER).is_dir():
        raise FolderUnusable(f"there are no queues in {data}: name the node's folder with --data")
    with held(data) as folder:
        if is_made:
            check_room(folder)
        node = ""
        if not is_new(folder):
            with contextlib.suppress(FolderUnusable):  # a node would say so; the queues can be read
                node = text_of(identity(folder))
        yield FileDisk(folder / FOLDER), options(config.queues, node)


def _show(report: "Report", *, repaired: bool) -> None:
    _show_findings(report, repaired=repaired)
    for path in report.kept:
        output.line(f"set aside, remove it when nobody needs it: {path}")


def _show_findings(report: "Report", *, repaired: bool) -> None:
    if report.problems:
        rows = [
            (problem.queue or None, problem.kind, _lost(problem), problem.text)
            for problem in report.problems
        ]
        output.table(("queue", "kind", "lost", "what"), rows)
    counts = f"{report.queues} queues, {report.messages} messages"
    if not report.problems:
        output.line(f"{counts}: nothing is wrong")
        return
    verb = "were saved" if repaired else "can be saved"
    twice = f", {report.doubled} may come twice" if report.doubled else ""
    aside = f", {report.aside} records are set aside" if report.aside else ""
    output.line(
        f"{counts}; {output.counted(len(report.problems), 'problem')}, {report.saved} messages of damaged "
        f"queues {verb}{twice}{aside}, {_losses(report)}"
    )
    if not repaired and all(problem.is_harmless for problem in report.problems):
        output.line("a crash leaves this: nothing is lost, and the next start puts it right")


def _lost(problem: "Problem") -> str:
    if problem.lost_changes:
        return f"up to {output.counted(problem.lost_changes, 'change')}"
    return "not known" if problem.is_loss_unknown and not problem.lost else str(problem.lost)


def _losses(report: "Report") -> str:
    """None are lost only where that is certain."""
    said = []
    if report.lost or not (report.lost_changes or report.is_loss_unknown):
        said.append(f"{report.lost} are lost")
    if report.lost_changes:
        verb = "is" if report.lost_changes == 1 else "are"
        changes = output.counted(report.lost_changes, "change")
        said.append(f"up to {changes} of the log {verb} lost")
    if report.is_loss_unknown:
        more = " more" if said else ""
        said.append(f"how many{more} are lost is not known")
    return ", ".join(said)


def checked_streams(config: Config) -> "StreamReport | None":
    """None where there are no streams."""
    from moorline.journal.disk import FileDisk
    from moorline.journal.streams.check import check_streams
    from moorline.net.clock import wall_us
    from moorline.node.folder import identity, is_new, opening
    from moorline.node.topics import FOLDER, check_owner

    data = Path(config.data)
    if not (data / FOLDER).is_dir():
        return None
    owner = None if is_new(data) else identity(data)
    if owner is not None:
        check_owner(data, owner)
    with opening(data / FOLDER), progress("checking streams") as seen:
        return check_streams(
            FileDisk(data / FOLDER), owner, wall_us, seen, sync=config.streams.sync == "power"
        )


def _show_streams(report: "StreamReport") -> None:
    if report.problems:
        rows = [
            (f"{one.shard}/{one.generation}", one.kind, one.lost, one.text)
            for one in report.problems
        ]
        output.table(("stream", "kind", "lost", "what"), rows)
    counts = f"{report.streams} streams, {report.messages} messages"
    known = f", {report.known_lost} were known to be lost" if report.known_lost else ""
    if not report.problems:
        output.line(f"{counts}: nothing is wrong{known}")
    else:
        problems = output.counted(len(report.problems), "problem")
        output.line(f"{counts}; {problems}, {report.lost} are lost{known}")


def _summary(what: str, moved: "Moved", *, as_json: bool, to_stderr: bool) -> None:
    facts = {"queues": moved.queues, "messages": moved.messages, "digest": str(moved.digest)}
    text = f"{what} {moved.queues} queues, {moved.messages} messages, digest {moved.digest}"
    if to_stderr:
        sys.stderr.write((msgspec.json.encode(facts).decode() if as_json else text) + "\n")
    else:
        output.emit(as_json, facts, lambda: output.line(text))
