"""Room: cli. `moor records watch`: the rows of a table as they are and become."""

import asyncio
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from moorline.cli import output
from moorline.cli.endpoint import Endpoint, with_node
from moorline.cli.records import app
from moorline.config.shown import escaped
from moorline.errors import BadFilter

if TYPE_CHECKING:
    from moorline.client.records.changes import RecordChange
    from moorline.client.records.table import RecordTable

__all__ = ["app"]

TERM = re.compile(r"(?P<column>[^=<>]+)(?P<sign>=|>=|<=|>|<)(?P<value>.*)", re.DOTALL)
DRAW_S = 0.25
"""Between two drawings of the live table: more would only be seen as flicker."""
EVENTS_SHOWN = 3


@app.command(
    epilog="Example: moor records watch experiments --where workspace_id=1 --where 'size>=10' --columns state"
)
@with_node
def watch(
    endpoint: Endpoint,
    table: Annotated[
        str,
        typer.Argument(
            metavar="TABLE", show_default=False, help="The name that it is served under."
        ),
    ],
    where: Annotated[
        list[str] | None,
        typer.Option(
            "--where",
            metavar="COLUMN=VALUE",
            show_default=False,
            help="Only rows with this: a value is JSON, or text; null is none. Given again for a column: one "
            "of them. A range is COLUMN>=VALUE, with > >= < <=.",
        ),
    ] = None,
    columns: Annotated[
        str,
        typer.Option(metavar="NAMES", show_default=False, help="Only these columns: a,b,c."),
    ] = "",
    cache: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            show_default=False,
            help="Begin with what this file has, and keep it up to date.",
        ),
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", help="End when all rows are there, and print them.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="A line of JSON for each row, and then for each change.")
    ] = False,
) -> None:
    """Show the rows of a table, and go on as they change; what is cut off is looked for again.

    On a terminal it is a live table. In a pipe, and with --json, the rows come first, then a line for each
    change.
    """
    terms = parse_where(where or [])
    chosen = [name.strip() for name in columns.split(",")] if columns else None

    async def work() -> None:
        async with (
            endpoint.connect() as moor,
            moor.records(table, where=terms, columns=chosen, cache=cache) as copy,
        ):
            if once:
                _show_rows(copy, as_json=as_json)
            elif as_json or not sys.stdout.isatty():
                await _lines(copy, as_json=as_json)
            else:
                await _live(copy)

    asyncio.run(work())


def parse_where(given: list[str]) -> dict[str, Any]:
    """The filter that terms of a command line say."""
    found: dict[str, Any] = {}
    for text in given:
        matched = TERM.fullmatch(text)
        if matched is None:
            raise BadFilter(f"--where {text[:64]!r}: accepted is COLUMN=VALUE, or with > >= < <=")
        column, sign, value = (
            matched["column"].strip(),
            matched["sign"],
            _value_of(matched["value"]),
        )
        before = found.get(column)
        if sign == "=":
            if isinstance(before, dict):
                raise BadFilter(f"--where {column}: give a range or values, not both")
            found[column] = [*before, value] if before is not None else [value]
            continue
        if isinstance(before, list):
            raise BadFilter(f"--where {column}: give a range or values, not both")
        if before is not None and sign in before:
            raise BadFilter(f"--where {column}{sign}: one end of a range is given twice")
        found[column] = {**(before or {}), sign: value}
    return {
        column: term[0] if isinstance(term, list) and len(term) == 1 else term
        for column, term in found.items()
    }


def _value_of(text: str) -> Any:
    try:
        value = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
    if isinstance(value, dict | list):
        raise BadFilter(
            f"{text[:64]!r} is compared with nothing: a value is a number, text or null"
        )
    return value


# --- lines ----------------------------------------------------------------------------------------


def _show_rows(copy: "RecordTable", *, as_json: bool) -> None:
    if as_json:
        for key in copy.rows:
            output.emit_json({"kind": "record", "key": key, "row": copy.rows[key], "how": "first"})
        return
    names = [name for name, _ in copy.columns]
    rows = [copy.rows[key] for key in copy.rows]
    output.table(names, [[_cell(row.get(name)) for name in names] for row in rows])


async def _lines(copy: "RecordTable", *, as_json: bool) -> None:
    changes = copy.changes()
    for key in copy.rows:
        _show_line({"kind": "record", "key": key, "row": copy.rows[key], "how": "first"}, as_json)
    if as_json:
        output.emit_json({"kind": "synced", "rows": len(copy.rows), "digest": str(copy.digest)})
    async for change in changes:
        if change.kind.value == "overflow":
            _show_rows(copy, as_json=as_json)
        _show_line(_facts(change), as_json)


def _facts(change: "RecordChange") -> dict[str, Any]:
    facts: dict[str, Any] = {"kind": change.kind.value}
    if change.is_of_row:
        facts["key"] = change.key
        if change.kind.value == "record":
            facts |= {"row": change.row, "seq": change.seq}
    if change.how:
        facts["how"] = change.how
    if change.why:
        facts["why"] = change.why
    return facts


def _show_line(facts: dict[str, Any], as_json: bool) -> None:
    def show() -> None:
        said = " ".join(
            _text(facts[name]) for name in ("key", "row", "why") if facts.get(name) is not None
        )
        output.line(f"{facts['kind']} {said}".rstrip())

    output.emit(as_json, facts, show)


# --- the live table -------------------------------------------------------------------------------


async def _live(copy: "RecordTable") -> None:
    from rich.live import Live

    changes = copy.changes()
    events: list[str] = []
    with Live(auto_refresh=False, screen=False) as live:
        live.update(_drawn(copy, events, live.console.height), refresh=True)
        while True:
            _note(events, await anext(changes))
            # All that came meanwhile is one drawing.
            await asyncio.sleep(DRAW_S)
            while len(changes):
                _note(events, await anext(changes))
            live.update(_drawn(copy, events, live.console.height), refresh=True)


def _note(events: list[str], change: "RecordChange") -> None:
    if not change.is_of_row:
        events.append(f"{change.kind.value} {change.how or change.why}".rstrip())
        del events[:-EVENTS_SHOWN]


def _drawn(copy: "RecordTable", events: list[str], height: int) -> Any:
    from rich import box
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    shape = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    names = [name for name, _ in copy.columns]
    for name in names:
        shape.add_column(Text(escaped(name)), overflow="ellipsis", no_wrap=True)
    # What does not fit a screen cannot be drawn again in its place.
    room = max(1, height - 6 - len(events))
    for number, key in enumerate(copy.rows):
        if number == room:
            break
        row = copy.rows[key]
        shape.add_row(*(Text(escaped(_cell(row.get(name)))) for name in names))
    count, is_cut = len(copy.rows), len(copy.rows) > room
    state = "live" if copy.is_synced else "not in sync"
    said = (
        f"{output.counted(count, 'row')}{f', the first {room} shown' if is_cut else ''} · {state}"
    )
    return Group(shape, Text(said), *(Text(escaped(one)) for one in events))


def _cell(value: Any) -> str:
    return "" if value is None else _text(value)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
