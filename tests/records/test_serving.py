"""Clients of records over real WebSockets: first syncs, live changes, and coming back."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.records.clients import Held, client
from tests.records.site import Site, opened_site, url_of

from moorline.catalog import EmbeddedPostgres


@pytest.fixture
async def site(postgres: EmbeddedPostgres, tmp_path: Path) -> AsyncIterator[Site]:
    async with opened_site(postgres, tmp_path) as site:
        yield site


async def test_a_first_sync_and_then_what_changes(site: Site) -> None:
    await site.execute("insert into things select n, n % 3, 'NEW', 'n' from generate_series(1, 2500) n")
    node = await site.node()
    held = Held("things", where={"workspace_id": 1})
    async with client(url_of(node), held):
        await site.equal(held, "workspace_id = 1")
        assert held.hows == ["full"]
        await site.execute(
            "update things set state = 'RUNNING' where id = 1",
            "delete from things where id = 4",
            "update things set workspace_id = 2 where id = 7",
            "update things set workspace_id = 1 where id = 2",
            "insert into things values (9001, 1, 'NEW', 'new')",
        )
        await site.equal(held, "workspace_id = 1")
        assert set(held.hows[1:]) == {"live"}
        assert held.drifts == 0
