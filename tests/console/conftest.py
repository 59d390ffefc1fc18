"""One node and one browser for the tests of a file."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from tests.console.looking import Shown
from tests.process.nodes import NodeProcess
from tests.records.browser.chromium import chromium, why_not


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def shown(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Shown]:
    why = why_not()
    if why is not None:
        pytest.skip(why)
    async with chromium(tmp_path_factory.mktemp("profile")) as browser:
        with NodeProcess(tmp_path_factory.mktemp("node") / "data") as node:
            yield Shown(node, browser)
