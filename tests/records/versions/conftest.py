from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from tests.records.servers import Server, found_versions

EMBEDDED = "18"
"""Everything else runs with this one."""

OTHERS = {version: place for version, place in found_versions().items() if version != EMBEDDED}


@pytest_asyncio.fixture(scope="session", loop_scope="session", params=sorted(OTHERS) or [""])
async def postgres(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Server]:
    """One real Postgres of each other version that this machine has."""
    if not request.param:
        pytest.skip("no Postgres but the embedded one is here")
    folder = tmp_path_factory.mktemp("other") / "data"
    async with Server(folder, OTHERS[request.param]) as server:
        yield server
