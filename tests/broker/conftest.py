"""One Postgres and one set of certificates for all tests of the broker; a node with services for each."""

import itertools
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest
import pytest_asyncio
from tests.broker.interception import Sniffer
from tests.broker.queue_harbour import Papers
from tests.broker.service_harbour import Harbour, harbour

from moorline.catalog import Catalog, EmbeddedPostgres

DATABASE_NUMBERS = itertools.count(1)
SERVICES = ("service", "other", "operator")
QUEUE_OWNERS = ("billing", "shipping", "captain")


@pytest.fixture(scope="session")
def papers(tmp_path_factory: pytest.TempPathFactory) -> Papers:
    return Papers(tmp_path_factory.mktemp("papers"), *SERVICES, *QUEUE_OWNERS)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def postgres(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[EmbeddedPostgres]:
    async with EmbeddedPostgres(tmp_path_factory.mktemp("data") / "catalog") as postgres:
        yield postgres


@pytest.fixture
async def catalog(postgres: EmbeddedPostgres) -> AsyncIterator[Catalog]:
    """A database of the test's own."""
    name = f"test_{next(DATABASE_NUMBERS)}"
    connection = await asyncpg.connect(postgres.dsn)
    await connection.execute(f"create database {name}")
    await connection.close()
    async with Catalog.open(postgres.dsn.replace("/postgres?", f"/{name}?")) as catalog:
        yield catalog


@pytest.fixture
async def node(tmp_path: Path, catalog: Catalog, papers: Papers) -> AsyncIterator[Harbour]:
    """With services; after every test the digests are those of a recompute."""
    async with harbour(tmp_path, catalog, papers) as made:
        yield made
        await made.check_digests()


@pytest.fixture
def sniffer(monkeypatch: pytest.MonkeyPatch) -> Sniffer:
    return Sniffer(monkeypatch)
