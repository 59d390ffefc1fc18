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


MANY = "insert into things select n, n % 3, 'NEW', 'n' from generate_series(1, 1000) n"


async def came_back(site: Site, url: str, held: Held, *changes: str) -> str:
    """A client that was synced, was away for some changes, and is back: how it was synced then."""
    async with client(url, held):
        await site.equal(held, "workspace_id = 1")
    await site.execute(*changes)
    held.left()
    async with client(url, held):
        await site.equal(held, "workspace_id = 1")
    assert held.drifts == 0
    return held.hows[0]


OFFLINE = {
    "T20 an update of a known record": "update things set state = 'DONE' where id = 1",
    "T21 a deletion": "delete from things where id = 4",
    "T22 a fallout by a column that changes": "update things set workspace_id = 2 where id = 7",
    "T23 an old record falls in": "update things set workspace_id = 1 where id = 2",
}


@pytest.mark.parametrize("change", OFFLINE.values(), ids=OFFLINE)
async def test_t20_to_t23_offline_changes_by_replay(site: Site, change: str) -> None:
    await site.execute(MANY)
    node = await site.node()
    held = Held("things", where={"workspace_id": 1})
    assert await came_back(site, url_of(node), held, change) == "replay"


@pytest.mark.parametrize("change", OFFLINE.values(), ids=OFFLINE)
async def test_t20_to_t23_offline_changes_by_digest(site: Site, change: str) -> None:
    await site.execute(MANY)
    node = await site.node()
    held = Held("things", where={"workspace_id": 1})
    async with client(url_of(node), held):
        await site.equal(held, "workspace_id = 1")
    held.cursor = ""
    await site.execute(change)
    held.left()
    async with client(url_of(node), held):
        await site.equal(held, "workspace_id = 1")
    assert held.hows[0] == "digest"
    assert held.drifts == 0


async def test_t25_another_server_goes_on_where_the_first_one_died(site: Site) -> None:
    await site.execute(MANY)
    await site.node("node-1")
    second = await site.node("node-2")
    held = Held("things", where={"workspace_id": 1})
    first = url_of(await site.node("node-3"))
    async with client(first, held):
        await site.equal(held, "workspace_id = 1")
        await site.stop("node-3")
    await site.execute(*OFFLINE.values())
    held.left()
    async with client(url_of(second), held):
        await site.equal(held, "workspace_id = 1")
    assert held.hows[0] == "replay"
    assert held.drifts == 0
