import itertools
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest
import pytest_asyncio
from tests.cluster.running import PATIENT, Nodes

from moorline.catalog import EmbeddedPostgres

DATABASE_NUMBERS = itertools.count(1)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def postgres(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[EmbeddedPostgres]:
    """One real Postgres: the catalog of all clusters, each in a database of its own."""
    async with EmbeddedPostgres(tmp_path_factory.mktemp("shared") / "catalog") as postgres:
        yield postgres


@pytest.fixture
async def dsn(postgres: EmbeddedPostgres) -> str:
    return await empty_catalog(postgres)


async def empty_catalog(postgres: EmbeddedPostgres) -> str:
    """The address of a database of its own."""
    name = f"cluster_{next(DATABASE_NUMBERS)}"
    connection = await asyncpg.connect(postgres.dsn)
    await connection.execute(f"create database {name}")
    await connection.close()
    return postgres.dsn.replace("/postgres?", f"/{name}?")


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def calm(
    postgres: EmbeddedPostgres, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Nodes]:
    """Three nodes, a, b and c, for tests that do them no harm; each uses topics and groups of its own."""
    async with Nodes(await empty_catalog(postgres), tmp_path_factory.mktemp("calm")) as running:
        await running.start("a", "b", "c", settings=PATIENT)
        yield running


@pytest.fixture
async def nodes(dsn: str, tmp_path: Path) -> AsyncIterator[Nodes]:
    """Nodes on one catalog; started by the test, stopped at its end."""
    async with Nodes(dsn, tmp_path) as running:
        yield running
