"""The trial by chance over every other version of Postgres that this machine has, its catalog among it."""

from pathlib import Path

import pytest
from tests.catalog.databases import empty_database
from tests.records.servers import Server
from tests.records.test_trial import Capture, check_trial

from moorline.catalog import Catalog

pytestmark = [pytest.mark.process, pytest.mark.long, pytest.mark.timeout(600)]


@pytest.mark.parametrize(("seed", "capture"), [(11, "log"), (12, "notify")])
async def test_t2_every_copy_is_its_table_on_another_version(
    postgres: Server, tmp_path: Path, seed: int, capture: Capture
) -> None:
    catalog = await empty_database(postgres)
    async with Catalog.open(catalog):
        pass
    await check_trial(catalog, await empty_database(postgres), tmp_path, seed, capture)
