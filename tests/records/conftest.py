from collections.abc import AsyncIterator

import asyncpg
import pytest
from tests.catalog.databases import empty_database
from tests.records.bed import Bed

from moorline.catalog import EmbeddedPostgres
from moorline.records.database import Database


@pytest.fixture(params=["log", "notify"])
def capture(request: pytest.FixtureRequest) -> str:
    """What every test of a capture is run with."""
    return str(request.param)


@pytest.fixture
async def dsn(postgres: EmbeddedPostgres) -> str:
    return await empty_database(postgres)


@pytest.fixture
async def connection(dsn: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(dsn)
    try:
        yield connection
    finally:
        await connection.close()


@pytest.fixture
async def database(dsn: str) -> AsyncIterator[Database]:
    async with Database.open(dsn) as database:
        yield database


@pytest.fixture
def bed(dsn: str, connection: asyncpg.Connection, database: Database, capture: str) -> Bed:
    return Bed(dsn, connection, database, capture)


@pytest.fixture
def log_bed(dsn: str, connection: asyncpg.Connection, database: Database) -> Bed:
    return Bed(dsn, connection, database, "log")
