from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from tests.records.browser.chromium import chromium, why_not
from tests.records.browser.place import Place, opened_place

from moorline.catalog import EmbeddedPostgres


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def place(
    postgres: EmbeddedPostgres, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Place]:
    """One browser and one node for all tests of a file; each has rows and a profile of its own."""
    why = why_not()
    if why is not None:
        pytest.skip(why)
    folder = tmp_path_factory.mktemp("browser")
    async with (
        chromium(tmp_path_factory.mktemp("profile")) as browser,
        opened_place(postgres, browser, folder) as place,
    ):
        yield place


@pytest_asyncio.fixture(autouse=True, loop_scope="session")
async def clean(place: Place) -> AsyncIterator[None]:
    yield
    await place.forget_profiles()
