from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from tests.catalog.databases import empty_database, new_database
from tests.cluster.running import PATIENT, Nodes

from moorline.catalog import EmbeddedPostgres


@pytest.fixture
async def dsn(postgres: EmbeddedPostgres) -> str:
    """The catalog of a cluster of the test's own."""
    return await new_database(postgres)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def calm(
    postgres: EmbeddedPostgres, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Nodes]:
    """Three nodes, a, b and c, for tests that do them no harm; each uses topics and groups of its own.

    They start together on an empty catalog, as a new cluster does.
    """
    async with Nodes(await empty_database(postgres), tmp_path_factory.mktemp("calm")) as running:
        await running.start("a", "b", "c", settings=PATIENT)
        yield running


@pytest.fixture
async def nodes(dsn: str, tmp_path: Path) -> AsyncIterator[Nodes]:
    """Nodes on one catalog; started by the test, stopped at its end."""
    async with Nodes(dsn, tmp_path) as running:
        yield running
