"""One set of certificates for all tests of the broker; a catalog and a node with services for each."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.catalog.databases import new_database
from tests.queues.queue_server import Certificates
from tests.services.interception import Sniffer
from tests.services.service_server import ServiceServer, service_server

from moorline.catalog import Catalog, EmbeddedPostgres

SERVICES = ("service", "other", "operator")
QUEUE_OWNERS = ("billing", "shipping", "captain")


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"), *SERVICES, *QUEUE_OWNERS)


@pytest.fixture
async def catalog(postgres: EmbeddedPostgres) -> AsyncIterator[Catalog]:
    """A database of the test's own."""
    async with Catalog.open(await new_database(postgres)) as catalog:
        yield catalog


@pytest.fixture
async def node(
    tmp_path: Path, catalog: Catalog, certificates: Certificates
) -> AsyncIterator[ServiceServer]:
    """With services; after every test the digests are those of a recompute."""
    async with service_server(tmp_path, catalog, certificates) as made:
        yield made
        await made.check_digests()


@pytest.fixture
def sniffer(monkeypatch: pytest.MonkeyPatch) -> Sniffer:
    return Sniffer(monkeypatch)
