"""Rows as COPY writes them: cut at any place, of any content, and never more in memory than a part."""

import asyncio
import itertools

import asyncpg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorline.records import copying
from moorline.records.copying import copied, fields, parts
from moorline.records.database import Database

TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"))


def escaped(text: str | None) -> bytes:
    """What Postgres does (COPY, "Text Format")."""
    if text is None:
        return rb"\N"
    for plain, written in (
        ("\\", r"\\"),
        ("\b", r"\b"),
        ("\f", r"\f"),
        ("\n", r"\n"),
        ("\r", r"\r"),
        ("\t", r"\t"),
        ("\v", r"\v"),
    ):
        text = text.replace(plain, written)
    return text.encode()


async def collected(
    data: bytes, cuts: list[int], rows_max: int, bytes_max: int
) -> list[list[bytes]]:
    blocks: asyncio.Queue[bytes | None] = asyncio.Queue()
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    for start, end in itertools.pairwise(places):
        blocks.put_nowait(data[start:end])
    blocks.put_nowait(None)
    return [part async for part in parts(blocks, rows_max, bytes_max)]


@given(
    st.lists(st.lists(st.none() | TEXTS, min_size=1, max_size=3), max_size=20),
    st.lists(st.integers(0, 1 << 20), max_size=20),
    st.integers(1, 5),
    st.integers(1, 50),
    st.sampled_from((0, 10, copying.LONG_BYTES)),
)
def test_rows_come_out_as_they_went_in(
    rows: list[list[str | None]], cuts: list[int], rows_max: int, bytes_max: int, long_bytes: int
) -> None:
    data = b"".join(b"\t".join(map(escaped, row)) + b"\n" for row in rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(copying, "LONG_BYTES", long_bytes)
        found = asyncio.run(collected(data, cuts, rows_max, bytes_max))
    read = [fields(line) for part in found for line in part]
    assert read == [[None if one is None else one.encode() for one in row] for row in rows]
    assert all(len(part) <= rows_max for part in found)
    # Only the last row of a part goes beyond the bound.
    assert all(sum(map(len, part[:-1])) < bytes_max for part in found)


@pytest.mark.process
async def test_a_reader_that_leaves_ends_the_statement_and_nothing_else(database: Database) -> None:
    query = "select repeat('x', 1000) from generate_series(1, 10000000)"
    for _ in range(20):
        async with database.reading() as connection:
            stream = copied(connection, query, 100, 1 << 20)
            assert len(await anext(stream)) == 100
            await stream.aclose()
    async with database.connection() as connection:
        assert await connection.fetchval("select 1") == 1
        running = (
            "select count(*) from pg_stat_activity"
            " where query like 'COPY%generate_series%' and state = 'active' and datname = current_database()"
        )
        async with asyncio.timeout(20):
            while await connection.fetchval(running):
                await asyncio.sleep(0.05)


@pytest.mark.process
async def test_what_fails_in_the_middle_is_raised_behind_what_came(
    connection: asyncpg.Connection,
) -> None:
    query = "select 1 / (100000 - i) from generate_series(1, 200000) i"
    stream = copied(connection, query, 1_000, 1 << 20)
    assert len(await anext(stream)) == 1_000
    with pytest.raises(asyncpg.DivisionByZeroError):
        [part async for part in stream]
