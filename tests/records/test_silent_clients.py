"""Clients that say they hold something else, and then ask nothing, hold up nobody."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.records.clients import Held, client
from tests.records.site import Site, opened_site, url_of
from tests.waiting import until

from moorline.catalog import EmbeddedPostgres
from moorline.core.sets.digest import Digest
from moorline.wire.records import Subscribe, TableSubscription

SILENT = 8
WRONG = bytes(Digest(3, b"\x11" * 16))


@pytest.fixture
async def site(postgres: EmbeddedPostgres, tmp_path: Path) -> AsyncIterator[Site]:
    async with opened_site(postgres, tmp_path) as site:
        yield site


async def test_first_syncs_of_others_go_on_and_the_silent_are_cut(site: Site) -> None:
    await site.execute(
        "insert into things select n, n % 8, 'NEW', 'n' from generate_series(1, 1000) n",
        "insert into others select n, 1, 'NEW', 'n' from generate_series(1, 100) n",
    )
    await site.register("others")
    node = await site.node()
    url = url_of(node)
    async with contextlib.AsyncExitStack() as stack:
        silent = [
            await stack.enter_async_context(client(url, is_subscribed=False)) for _ in range(SILENT)
        ]
        for number, one in enumerate(silent):
            where = {"workspace_id": number}
            await one.send(Subscribe(1, [TableSubscription("things", where=where, digest=WRONG)]))
        hosts = node.subjects.records.hosts  # type: ignore[union-attr]
        await until(lambda: "things" in hosts and hosts["things"].scans_running, "an offer")
        same, other = Held("things"), Held("others")
        async with asyncio.timeout(12), client(url, same), client(url, other):
            await site.equal(same)
            await site.equal(other, table="others")
        await until(lambda: all(one.close_code is not None for one in silent), "their end")
        await until(lambda: not hosts["things"].scans_running, "what was held is let go")
