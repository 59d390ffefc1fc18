"""Values are held against a real Postgres."""

import pytest

from moorline.catalog.embedded import EmbeddedPostgres


@pytest.fixture
def dsn(postgres: EmbeddedPostgres) -> str:
    return postgres.dsn
