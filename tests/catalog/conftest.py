from pathlib import Path

import pytest
from tests.catalog.databases import empty_database

from moorline.catalog import EmbeddedPostgres


@pytest.fixture
async def dsn(postgres: EmbeddedPostgres) -> str:
    """The address of an empty database of the test's own."""
    return await empty_database(postgres)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data" / "catalog"
