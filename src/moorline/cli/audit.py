"""Room: cli. `moor audit`: who did what on a node, and who was refused, out of the files in its data folder.

It only reads, so that it works beside a node that runs and on the folder of one that is gone.
"""

import re
import time
from collections import deque
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from moorline.cli import output
from moorline.cli.flags import with_settings
from moorline.config.load import Loaded
from moorline.config.settings import Config
from moorline.core.access.audit import Kind, StoredLine, Verdict, bounded, decoded, time_text
from moorline.errors import FolderUnusable
from moorline.limits import AUDIT_FOLLOW_MS, AUDIT_PRINCIPAL_LENGTH_MAX, TEXT_LENGTH_MAX

if TYPE_CHECKING:
    from moorline.journal.audit import Wanted
    from moorline.journal.disk import FileDisk

app = typer.Typer(
    no_args_is_help=True,
    help="Show who did what on a node, and who was refused, from the files in its data folder.",
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


@app.command(epilog="Example: moor audit show --since 1h --principal alice --json")
@with_settings
def show(
    settings: Loaded[Config],
    since: Since = "",
    principal: Principal = "",
    verdict: VerdictText = None,
    kind: KindText = None,
    path: PathText = "",
    limit: Annotated[
        int, typer.Option(min=1, max=100_000, help="Lines of the table: the newest. JSON has all.")
    ] = 1_000,
    as_json: AsJson = False,
) -> None:
    """Print lines of the audit trail, the oldest first.

    Refusals that are alike are one line for ten seconds: `count` says how many. Lines that a crash tore are
    counted on stderr.
    """
    from moorline.journal.audit import read_all_pages

    disk = _disk(settings.config)
    wanted = _wanted(since, principal, verdict, kind, path)
    newest: deque[bytes] = deque(maxlen=limit)
    total = 0

    def seen(lines: list[bytes]) -> None:
        nonlocal total
        total += len(lines)
        if as_json:
            _print_json(lines)
        else:
            newest.extend(lines)

    _, unreadable = read_all_pages(disk, wanted, seen)
    if not as_json:
        output.table(COLUMNS, [_row(line) for line in map(decoded, newest) if line is not None])
        if total > len(newest):
            output.error(
                f"{total - len(newest)} older lines are not shown: raise --limit, or --since"
            )
    if unreadable:
        output.error(
            f"{output.counted(unreadable, 'line')} could not be read: torn by a crash, or changed"
        )


@app.command(epilog="Example: moor audit follow --verdict denied --data ./moorline-data")
@with_settings
def follow(
    settings: Loaded[Config],
    since: Since = "0s",
    principal: Principal = "",
    verdict: VerdictText = None,
    kind: KindText = None,
    path: PathText = "",
    as_json: AsJson = False,
) -> None:
    """Print lines of the audit trail as they are written, until Ctrl-C."""
    from moorline.journal.audit import first_place, read_page

    disk = _disk(settings.config)
    wanted = _wanted(since, principal, verdict, kind, path)
    place = first_place(disk, wanted)
    while True:
        page = read_page(disk, place, wanted)
        place = page.next
        if as_json:
            _print_json(page.lines)
        else:
            for line in map(decoded, page.lines):
                if line is not None:
                    output.line(
                        "  ".join(str(cell) for cell in _row(line) if cell not in ("", None))
                    )
        if page.is_end:
            output.check_reader()
            time.sleep(AUDIT_FOLLOW_MS / 1_000)


def _disk(config: Config) -> "FileDisk":
    from moorline.journal.audit import FOLDER
    from moorline.journal.disk import FileDisk

    folder = Path(config.data) / FOLDER
    if not folder.is_dir():
        raise FolderUnusable(
            f"there is no audit trail in {config.data}: name the node's folder with --data"
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
