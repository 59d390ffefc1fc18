r"""Room: records. Rows of any number as they come out of Postgres: COPY as text, in parts that are bounded.

    async for lines in copied(connection, "select id::text, moor_seq from t", 1_000, MIB):
        for line in lines:
            key, seq = fields(line)

A line is a row, its fields are apart by tabs, null is \N; whatever could be mistaken for these is escaped.
Postgres waits while nobody reads: no more than some blocks and one row are in memory, however large the
table is.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import suppress
from typing import Any

import asyncpg

from moorline.limits import RECORDS_COPY_BLOCKS_MAX, RECORDS_STATEMENT_MS_MAX

LONG_BYTES = 1 << 20
"""Of a block: from there on it is split without a copy of all of it."""

_ESCAPE = re.compile(rb"\\(.)", re.DOTALL)
_ESCAPED = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}


async def copied(
    connection: Any, query: str, rows_max: int, bytes_max: int
) -> AsyncGenerator[list[bytes]]:
    """The rows of a query, as lines. The query takes no parameters: what it names or compares is quoted in
    it."""
    blocks: asyncio.Queue[bytes | None] = asyncio.Queue(RECORDS_COPY_BLOCKS_MAX)
    failures: list[Exception] = []

    async def copy() -> None:
        try:
            await connection.copy_from_query(
                query, output=blocks.put, format="text", timeout=RECORDS_STATEMENT_MS_MAX / 1000
            )
        except Exception as error:
            # Told to the reader behind what came before it.
            failures.append(error)
        await blocks.put(None)

    task = asyncio.create_task(copy())
    try:
        async for lines in parts(blocks, rows_max, bytes_max):
            yield lines
        if failures:
            raise failures[0]
    finally:
        if not task.done():
            # A reader that leaves early ends the connection with the statement: asyncpg cannot always go on
            # behind a COPY that is cancelled in the middle.
            with suppress(asyncpg.InterfaceError):
                # Or it was ended, and given back, before this generator was closed.
                connection.terminate()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def parts(
    blocks: "asyncio.Queue[bytes | None]", rows_max: int, bytes_max: int
) -> AsyncIterator[list[bytes]]:
    lines: list[bytes] = []
    size = 0
    rest: list[bytes] = []
    while (block := await blocks.get()) is not None:
        *whole, last = _split(block)
        if whole and rest:
            whole[0] = b"".join((*rest, whole[0]))
            rest = []
        # Kept in pieces until its end has come: a long row is put together once.
        if last:
            rest.append(last)
        for line in whole:
            lines.append(line)
            size += len(line)
            if len(lines) >= rows_max or size >= bytes_max:
                yield lines
                lines, size = [], 0
    if lines:
        yield lines


def _split(block: bytes | bytearray) -> list[bytes]:
    if len(block) < LONG_BYTES:
        return bytes(block).split(b"\n")
    # Most of it is one row, or all: what is copied, is copied once.
    view, start, found = memoryview(block), 0, []
    while (end := block.find(b"\n", start)) >= 0:
        found.append(bytes(view[start:end]))
        start = end + 1
    return [*found, bytes(view[start:])]


def fields(line: bytes) -> list[bytes | None]:
    if b"\\" not in line:
        return line.split(b"\t")  # type: ignore[return-value]
    return [_field(field) for field in line.split(b"\t")]


def _field(field: bytes) -> bytes | None:
    if field == rb"\N":
        return None
    if b"\\" not in field:
        return field
    if field.count(b"\\") == 2 * field.count(b"\\\\"):
        # Backslashes alone, as in any JSON: at once, since there may be a hundred million of them.
        return field.replace(b"\\\\", b"\\")
    return _ESCAPE.sub(lambda match: _ESCAPED.get(match[1], match[1]), field)
