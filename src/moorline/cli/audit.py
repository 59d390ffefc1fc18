"""Room: cli. `moor audit`: who did what on a node, and who was refused.

--address, MOOR_ADDRESS   asked of a node that runs, by whoever has the right l at /admin/audit
--data, or nothing        out of the files of a data folder: also beside its node, or when that is gone
"""

import asyncio
import re
import time
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from moorline.cli import output
from moorline.cli.endpoint import Endpoint, with_node_or_folder
from moorline.core.access.audit import Kind, StoredLine, Verdict, bounded, decoded, time_text
from moorline.errors import FolderUnusable
from moorline.limits import AUDIT_FOLLOW_MS, AUDIT_PRINCIPAL_LENGTH_MAX, TEXT_LENGTH_MAX

if TYPE_CHECKING:
    from moorline.journal.audit import Wanted
    from moorline.journal.disk import FileDisk

Seen = Callable[[list[bytes], int], None]
"""Hears lines, and how many between them could not be read."""

app = typer.Typer(
    no_args_is_help=True,
    help="Show who did what on a node, and who was refused: from its data folder, or from the node itself.",
    epilog="Example: moor audit show --since 1h --verdict denied --data ./moorline-data",
)

COLUMNS = (
    "time",
    "kind",
    "principal",
    "verdict",
    "act",
    "path",
    "count",
    "address",
    "proof",
    "why",
)
_AGE = re.compile(r"(\d{1,9})([smhd])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}

Since = Annotated[
    str,
    typer.Option(
        help="From then on: an age as 30m, 2h or 7d, or a time as 2026-11-15T22:15 (UTC).",
        show_default=False,
    ),
]
Principal = Annotated[str, typer.Option(help="Of this principal alone.", show_default=False)]
VerdictText = Annotated[
    Verdict | None, typer.Option("--verdict", help="With this verdict.", show_default=False)
]
KindText = Annotated[Kind | None, typer.Option("--kind", help="Of this kind.", show_default=False)]
PathText = Annotated[
    str, typer.Option("--path", help="About this path and all below it.", show_default=False)
]
AsJson = Annotated[bool, typer.Option("--json", help="JSON, one object a line.")]


@app.command(
    epilog="Example: moor audit show --address tls://node-1.example:7411 --since 1h --json"
)
@with_node_or_folder
def show(
    source: Endpoint | Path,
    since: Since = "",
    principal: Principal = "",
    verdict: VerdictText = None,
    kind: KindText = None,
    path: PathText = "",
    limit: Annotated[
        int, typer.Option(min=1, max=100_000, help="Lines of the table: the newest. JSON has all.")
    ] = 1_000,
    is_following: Annotated[
        bool, typer.Option("--follow", help="Then print lines as they are written, until Ctrl-C.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Print lines of the audit trail, the oldest first.

    With --address a node is asked, which needs the right l at /admin/audit; else the data folder is read.
    Refusals that are alike are one line for ten seconds: `count` says how many. Lines that a crash tore are
    counted on stderr.
    """
    wanted = _wanted(since, principal, verdict, kind, path)
    if is_following:
        _read(source, wanted, _printer(as_json=as_json), is_following=True)
        return
    newest: deque[bytes] = deque(maxlen=limit)
    total = torn = 0

    def seen(lines: list[bytes], unreadable: int) -> None:
        nonlocal total, torn
        total += len(lines)
        torn += unreadable
        if as_json:
            _print_json(lines)
        else:
            newest.extend(lines)

    _read(source, wanted, seen, is_following=False)
    if not as_json:
        output.table(COLUMNS, [_row(line) for line in map(decoded, newest) if line is not None])
        if total > len(newest):
            output.error(
                f"{total - len(newest)} older lines are not shown: raise --limit, or --since"
            )
    _tell_of_torn(torn)


@app.command(epilog="Example: moor audit follow --verdict denied --data ./moorline-data")
@with_node_or_folder
def follow(
    source: Endpoint | Path,
    since: Since = "0s",
    principal: Principal = "",
    verdict: VerdictText = None,
    kind: KindText = None,
    path: PathText = "",
    as_json: AsJson = False,
) -> None:
    """Print lines of the audit trail as they are written, until Ctrl-C: as show --follow, from now on."""
    wanted = _wanted(since, principal, verdict, kind, path)
    _read(source, wanted, _printer(as_json=as_json), is_following=True)


def _read(source: Endpoint | Path, wanted: "Wanted", seen: Seen, *, is_following: bool) -> None:
    """Page by page to the end of what is there, or for ever."""
    if isinstance(source, Endpoint):
        asyncio.run(_read_node(source, wanted, seen, is_following=is_following))
    else:
        _read_folder(_disk(source), wanted, seen, is_following=is_following)


def _read_folder(disk: "FileDisk", wanted: "Wanted", seen: Seen, *, is_following: bool) -> None:
    from moorline.journal.audit import first_place, read_page

    place = first_place(disk, wanted)
    while True:
        page = read_page(disk, place, wanted)
        place = page.next
        seen(page.lines, page.unreadable)
        if not page.is_end:
            continue
        if not is_following:
            return
        output.check_reader()
        time.sleep(AUDIT_FOLLOW_MS / 1_000)


async def _read_node(
    endpoint: Endpoint, wanted: "Wanted", seen: Seen, *, is_following: bool
) -> None:
    async with endpoint.connect() as moor:
        file = offset = 0
        while True:
            page = await moor.access.read_audit(
                file,
                offset,
                since=wanted.since,
                principal=wanted.principal,
                verdict=wanted.verdict,
                kind=wanted.kind,
                path=wanted.path,
            )
            file, offset = page.file, page.offset
            seen(page.lines, page.unreadable)
            if not page.is_end:
                continue
            if not is_following:
                return
            output.check_reader()
            await asyncio.sleep(AUDIT_FOLLOW_MS / 1_000)


def _printer(*, as_json: bool) -> Seen:
    """Of lines that are printed as they come."""

    def seen(lines: list[bytes], unreadable: int) -> None:
        _tell_of_torn(unreadable)
        if as_json:
            _print_json(lines)
            return
        for line in map(decoded, lines):
            if line is not None:
                output.line("  ".join(str(cell) for cell in _row(line) if cell not in ("", None)))

    return seen


def _tell_of_torn(lines: int) -> None:
    if lines:
        output.error(
            f"{output.counted(lines, 'line')} could not be read: torn by a crash, or changed"
        )


def _disk(data: Path) -> "FileDisk":
    from moorline.journal.audit import FOLDER
    from moorline.journal.disk import FileDisk

    folder = data / FOLDER
    if not folder.is_dir():
        raise FolderUnusable(
            f"there is no audit trail in {data}: name the node's folder with --data, or its --address"
        )
    return FileDisk(folder)


def _wanted(
    since: str, principal: str, verdict: Verdict | None, kind: Kind | None, path: str
) -> "Wanted":
    from moorline.journal.audit import Wanted

    return Wanted(
        _since(since),
        # As the trail has them: what cannot be printed is escaped there too.
        bounded(principal, AUDIT_PRINCIPAL_LENGTH_MAX),
        verdict.value if verdict else "",
        kind.value if kind else "",
        bounded(path, TEXT_LENGTH_MAX),
    )


def _since(text: str) -> str:
    """A time as the lines have it."""
    if not text:
        return ""
    age = _AGE.fullmatch(text)
    try:
        if age:
            when = datetime.now(UTC) - timedelta(**{_UNITS[age[2]]: int(age[1])})
        else:
            when = datetime.fromisoformat(text)
            when = when if when.tzinfo else when.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        raise typer.BadParameter(
            f"{text!r} is no time; accepted: an age as 30m, 2h or 7d, or a time as 2026-11-15T22:15"
        ) from None
    return time_text(max(0, round(when.timestamp() * 1_000)))


def _row(line: StoredLine) -> tuple[object, ...]:
    detail = line.detail
    why = (detail.reason, detail.quota, detail.letters, detail.subject)
    return (
        line.time,
        line.kind,
        line.principal,
        line.verdict,
        line.act,
        line.path,
        line.count,
        line.address,
        line.proof,
        " ".join(word for word in why if word),
    )


def _print_json(lines: list[bytes]) -> None:
    for line in lines:
        # Escaped once more: another hand may have written into the file.
        output.emit_json(msgspec.Raw(line))
