"""A sync by digest that begins anew: the questions of the first one are not taken for the second's."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.records.clients import Held, RecordClient, client
from tests.records.site import Site, opened_site, url_of
from tests.waiting import until

import moorline
from moorline.catalog import EmbeddedPostgres


@pytest.fixture
async def site(postgres: EmbeddedPostgres, tmp_path: Path) -> AsyncIterator[Site]:
    async with opened_site(postgres, tmp_path) as site:
        await site.execute(
            "insert into things select n, 1, 'NEW', 'n' from generate_series(1, 50) n"
        )
        yield site


class Silent(RecordClient):
    """It is told of a sync by digest, and its questions are still on their way."""

    async def _reconcile(self, held: Held, sync: int) -> None: ...


async def test_rights_change_within_a_sync_by_digest(site: Site) -> None:
    node = await site.node()
    held = Held("things")
    async with client(url_of(node), held):
        await site.equal(held)
    await site.execute("update things set note = 'other' where id < 10")
    held.left()
    held.cursor = ""
    async with client(url_of(node), held, is_subscribed=False) as plain:
        plain.__class__ = Silent
        await plain.subscribe()
        await until(lambda: held.hows == ["digest"], "it is told of a sync by digest")
        async with moorline.connect(str(node.addresses[0])) as operator:
            # Of somebody else: what this client may see is the same, but its scan begins anew.
            await operator.access.add_user("olga")
            await operator.access.add_grant("/records/things/1", "olga", "s")
        await until(lambda: plain.close_code is not None, "it is cut, and not told of another one")
        assert plain.close_code == 1012
        assert held.hows == ["digest"]
    held.left()
    async with client(url_of(node), held):
        await site.equal(held)
    assert held.drifts == 0
