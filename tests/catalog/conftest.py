import itertools
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest
import pytest_asyncio

from moorline.catalog import EmbeddedPostgres

DATABASE_NUMBERS = itertools.count(1)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def postgres(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[EmbeddedPostgres]:
    """One real Postgres for all tests that only need some database."""
    async with EmbeddedPostgres(tmp_path_factory.mktemp("data") / "catalog") as postgres:
        yield postgres


@pytest.fixture
async def dsn(postgres: EmbeddedPostgres) -> str:
    """The address of an empty database of the test's own."""
    name = f"test_{next(DATABASE_NUMBERS)}"
    connection = await asyncpg.connect(postgres.dsn)
    await connection.execute(f"create database {name}")
    await connection.close()
    return postgres.dsn.replace("/postgres?", f"/{name}?")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data" / "catalog"
