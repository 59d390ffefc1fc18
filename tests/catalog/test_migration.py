"""Migrations on a real Postgres: once, in order, whole, and never backwards."""

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest

from moorline.catalog import migrate
from moorline.catalog.migration import MIGRATIONS, Migration
from moorline.errors import CatalogTooNew, StartError

pytestmark = pytest.mark.process

FIRST = MIGRATIONS[0]
SECOND = Migration(2, "second", "create table moorline.second (number int)")
THIRD = Migration(3, "third", "insert into moorline.second values (3)")
BROKEN = Migration(2, "broken", "create table moorline.half (number int); select 1/0")


@pytest.fixture
async def connection(dsn: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(dsn)
    yield connection
    await connection.close()


async def applied(connection: asyncpg.Connection) -> list[tuple[int, str]]:
    rows = await connection.fetch("select number, name from moorline.migration order by number")
    return [(row["number"], row["name"]) for row in rows]


async def test_all_on_an_empty_database_then_nothing(connection: asyncpg.Connection) -> None:
    assert await migrate(connection) == [migration.number for migration in MIGRATIONS]
    assert await migrate(connection) == []
    assert (await applied(connection))[0] == (1, "node")


async def test_only_the_missing_ones_in_order(connection: asyncpg.Connection) -> None:
    await migrate(connection, [FIRST])
    assert await migrate(connection, [FIRST, SECOND, THIRD]) == [2, 3]
    assert await connection.fetchval("select number from moorline.second") == 3


async def test_two_at_once_apply_each_one_once(dsn: str) -> None:
    connections = [await asyncpg.connect(dsn) for _ in range(4)]
    done = await asyncio.gather(
        *(migrate(connection, [FIRST, SECOND, THIRD]) for connection in connections)
    )
    assert sorted(number for numbers in done for number in numbers) == [1, 2, 3]
    rows = await connections[0].fetchval("select count(*) from moorline.second")
    assert rows == 1
    for connection in connections:
        await connection.close()


async def test_broken_one_leaves_nothing_and_keeps_those_before(
    connection: asyncpg.Connection,
) -> None:
    with pytest.raises(asyncpg.DivisionByZeroError):
        await migrate(connection, [FIRST, BROKEN])
    assert await applied(connection) == [(1, "node")]
    assert await connection.fetchval("select to_regclass('moorline.half') is null")
    assert await migrate(connection, [FIRST, SECOND]) == [2]


async def test_changed_file_is_refused(connection: asyncpg.Connection) -> None:
    await migrate(connection, [FIRST, SECOND])
    changed = Migration(2, "second", SECOND.sql + " -- a late thought")
    with pytest.raises(StartError, match=r"migration 2 .*start the Moorline that wrote"):
        await migrate(connection, [FIRST, changed, THIRD])
    assert await applied(connection) == [(1, "node"), (2, "second")]


async def test_newer_catalog_is_refused(connection: asyncpg.Connection) -> None:
    await migrate(connection, [FIRST, SECOND, THIRD])
    with pytest.raises(CatalogTooNew, match="at version 3, this Moorline knows up to 1"):
        await migrate(connection, [FIRST])


async def test_up_to_date_catalog_needs_no_right_to_write(
    dsn: str, connection: asyncpg.Connection
) -> None:
    await migrate(connection)
    reader = await asyncpg.connect(dsn, server_settings={"default_transaction_read_only": "on"})
    assert await migrate(reader) == []
    await reader.close()
