"""Room: cli. What commands print: a table for people, JSON for programs, one line for an error.

Text goes out escaped, so that what a peer sent cannot steer the terminal or forge a line.
"""

import os
import re
import select
import sys
from collections.abc import Callable, Iterable, Sequence
from io import TextIOWrapper

import msgspec

from moorline.config.shown import escaped
from moorline.errors import MoorlineError

# C1 controls, direction marks and separators: allowed in JSON, not wanted on a terminal.
_NOT_FOR_TERMINALS = re.compile("[\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")


class OutputClosed(Exception):
    """Nobody reads our stdout any more: `moor … | head` has seen enough, which is no error."""


class OutputFailed(MoorlineError):
    """The output of a command could not be written: a full disk behind a redirection."""

    code = "OUTPUT"


def prepare() -> None:
    """A terminal that cannot show a character gets its escape, not a UnicodeEncodeError."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def write(text: str) -> None:
    """To stdout, at once: whoever follows a pipe sees a line when it happens."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise OutputClosed from None
    except OSError as error:
        raise OutputFailed(f"the output cannot be written: {error.strerror}") from error


def check_reader() -> None:
    """Raises `OutputClosed` if nobody reads our stdout, also where all that was written to it is gone."""
    write("")
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)  # errors are always told
    if poll.poll(0):
        raise OutputClosed


def counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def line(text: str) -> None:
    write(escaped(text) + "\n")


def emit(json_mode: bool, value: object, show: Callable[[], None]) -> None:
    """One result: as JSON where --json asks for it, else as `show` prints it."""
    if json_mode:
        emit_json(value)
    else:
        show()


def emit_json(value: object) -> None:
    """One value, on one line in a pipe and indented on a terminal."""
    encoded = msgspec.json.encode(value)
    if sys.stdout.isatty():
        encoded = msgspec.json.format(encoded, indent=2)
    text = _NOT_FOR_TERMINALS.sub(lambda match: f"\\u{ord(match[0]):04x}", encoded.decode())
    write(text + "\n")


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Numbers stand right, everything else left."""
    rows = [tuple(row) for row in rows]
    assert all(len(row) == len(columns) for row in rows)
    is_number = [
        bool(rows) and all(isinstance(row[at], int | float) for row in rows)
        for at in range(len(columns))
    ]
    cells = [[_cell(value) for value in row] for row in rows]
    if sys.stdout.isatty():
        _rich_table(columns, cells, is_number)
    else:
        _plain_table([list(columns), *cells], is_number)


def error(text: str) -> None:
    """One line on stderr. A closed stderr is no reason to fail in another way."""
    try:
        sys.stderr.write(f"moor: {escaped(text)}\n")
        sys.stderr.flush()
    except OSError:
        return


def close_stdout() -> None:
    """What Python flushes at its end must not find the closed pipe, or the full disk, again."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        return


def _cell(value: object) -> str:
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case list() | tuple():
            return ", ".join(_cell(item) for item in value)
        case _:
            return escaped(str(value))


def _plain_table(lines: list[list[str]], is_number: list[bool]) -> None:
    from rich.cells import cell_len

    widths = [max(cell_len(row[at]) for row in lines) for at in range(len(is_number))]
    out: list[str] = []
    for row in lines:
        padded: list[str] = []
        for cell, width, right in zip(row, widths, is_number, strict=True):
            pad = " " * (width - cell_len(cell))
            padded.append(pad + cell if right else cell + pad)
        out.append("  ".join(padded).rstrip() + "\n")
    write("".join(out))


def _rich_table(columns: Sequence[str], cells: list[list[str]], is_number: list[bool]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    shape = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name, right in zip(columns, is_number, strict=True):
        shape.add_column(name, justify="right" if right else "left", overflow="fold")
    for row in cells:
        shape.add_row(*(Text(cell) for cell in row))  # Text, not str: markup in it stays text
    console = Console()
    with console.capture() as capture:
        console.print(shape)
    write(capture.get())
