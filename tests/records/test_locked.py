"""ALTER TABLE under load: what a node reads stops nobody. Behind an ALTER that waits stand all who write."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest
from tests.records.clients import AS_JSON, Held, client
from tests.records.site import Site, opened_site, url_of
from tests.waiting import until

from moorline.catalog import EmbeddedPostgres

pytestmark = [pytest.mark.process, pytest.mark.timeout(200)]

ALTER = "alter table things alter column note set default 'other'"
WAITED = "20s"
"""How long an operator waits for the lock, in tests on a busy machine."""


@pytest.fixture
async def site(postgres: EmbeddedPostgres, tmp_path: Path) -> AsyncIterator[Site]:
    async with opened_site(postgres, tmp_path) as site:
        yield site


async def test_a_slow_reader_of_a_large_table_does_not_hold_its_lock(site: Site) -> None:
    await site.execute(
        "insert into things select n, 1, 'NEW', repeat('x', 2000) from generate_series(1, 15000) n"
    )
    node = await site.node()
    held = Held("things")
    async with client(url_of(node), held) as made:
        await until(lambda: held.rows, "its first sync has begun")
        made.socket.transport.pause_reading()
        await site.execute(f"set lock_timeout = '{WAITED}'", ALTER, "reset lock_timeout")
        made.socket.transport.resume_reading()
        await site.equal(held)


async def test_a_client_that_does_not_ask_does_not_hold_the_lock_either(site: Site) -> None:
    """Its snapshot is held while its questions are waited for."""
    await site.execute("insert into things select n, 1, 'NEW', 'n' from generate_series(1, 300) n")
    node = await site.node()
    held = Held("things")
    async with client(url_of(node), held):
        await site.equal(held)
    held.cursor = ""
    held.rows.pop(("7",))
    async with client(url_of(node), held, is_subscribed=False) as silent:
        # It hears of the sync by digest, and asks nothing.
        silent.held = {}
        silent.sync = 1
        from moorline.wire.records import Subscribe

        await silent.send(Subscribe(1, [held.subscription()]))
        await until(lambda: silent.answered_bytes, "the offer is made")
        await site.execute("set lock_timeout = '3s'", ALTER, "reset lock_timeout")


async def test_alters_among_clients_that_come_and_go(site: Site) -> None:
    """A scan that begins behind an ALTER waits for it, and the ALTER for the snapshot of the scan's step: a
    deadlock of which Postgres sees a half."""
    await site.execute("insert into things select n, 1, 'NEW', 'n' from generate_series(1, 300) n")
    node = await site.node()
    is_over = asyncio.Event()

    async def come_and_go() -> None:
        while not is_over.is_set():
            held = Held("things")
            with contextlib.suppress(OSError):
                async with client(url_of(node), held, form=AS_JSON) as made:
                    await until(lambda: held.ends or made.task.done() or held.refused, "synced")  # noqa: B023

    writer = await asyncpg.connect(site.dsn)
    async with asyncio.TaskGroup() as group:
        for _ in range(4):
            group.create_task(come_and_go())
        await site.execute(f"set lock_timeout = '{WAITED}'")
        await writer.execute(f"set lock_timeout = '{WAITED}'")
        for number in range(30):
            await site.execute(ALTER)
            await writer.execute(f"update things set note = '{number}' where id = 7")
        is_over.set()
    await writer.close()
    held = Held("things")
    async with client(url_of(node), held):
        await site.equal(held)
