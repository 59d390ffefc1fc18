"""A transaction that stays open for longer than lines are kept: nobody is synced anew for it, and nothing of
it is missed when it ends."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest
from tests.catalog.databases import empty_database
from tests.records.bed import Bed
from tests.records.clients import Held, client
from tests.records.site import Site, opened_site, url_of

from moorline.catalog import EmbeddedPostgres
from moorline.records.pruning import prune
from moorline.records.registration import registrations

pytestmark = pytest.mark.process

PATIENCE_S = 60


@pytest.fixture
async def site(postgres: EmbeddedPostgres, tmp_path: Path) -> AsyncIterator[Site]:
    async with opened_site(postgres, tmp_path) as site:
        yield site


async def pruned_below(connection: asyncpg.Connection) -> int:
    (found,) = [one for one in await registrations(connection) if one.name == "things"]
    return found.reach.pruned_below


async def opened(connection: asyncpg.Connection, *statements: str) -> int:
    """A transaction that stays open; its number."""
    await connection.execute("begin")
    for statement in statements:
        await connection.execute(statement)
    return int(await connection.fetchval("select pg_current_xact_id()::text"))


async def test_t5_steps_go_on_over_lines_that_are_gone(
    log_bed: Bed, postgres: EmbeddedPostgres
) -> None:
    bed = log_bed
    await bed.things()
    await bed.execute("insert into things select i, 1, 'a' from generate_series(1, 20) i")
    elsewhere = await asyncpg.connect(await empty_database(postgres))
    (registration,) = await registrations(bed.connection)
    async with bed.copy() as copy, bed.another() as writer:
        xid = await opened(elsewhere)
        await opened(writer, "update things set note = 'mine' where id = 20")
        below, number = 0, 0
        async with asyncio.timeout(PATIENCE_S):
            while below <= xid or number < 20:
                number += 1
                await bed.execute(
                    f"update things set note = '{number}' where id = {number % 10 + 1}"
                )
                assert len(await copy.step()) == 1
                await prune(bed.connection, registration, 1)
                below = await pruned_below(bed.connection)
        # Its line is as old as those that are gone, and was never seen: that it is pruned for first changes
        # nothing.
        await writer.execute("commit")
        await prune(bed.connection, registration, 1)
        assert [change.key for change in await copy.step()] == [("20",)]
        await elsewhere.close()
        await bed.execute("update things set note = 'later' where id = 1")
        assert len(await copy.step()) == 1
        assert copy.resyncs == []
        await bed.check(copy)


async def test_t5_a_log_that_was_cleared_costs_one_sync_and_no_more(
    log_bed: Bed, postgres: EmbeddedPostgres
) -> None:
    """Whoever was open then may lack lines: that is missed when it ends, and not in every step before."""
    bed = log_bed
    await bed.execute(
        "create table things (id bigint primary key, workspace_id integer, state text, note text)",
        "insert into things select i, 1, 'a' from generate_series(1, 10) i",
    )
    await bed.add(log_rows_max=20)
    (registration,) = await registrations(bed.connection)
    elsewhere = await asyncpg.connect(await empty_database(postgres))
    async with bed.copy() as copy:
        await opened(elsewhere)
        for number in range(4):
            await bed.execute(f"update things set note = '{number}'")
        assert (await prune(bed.connection, registration, 3_600)).has_lost
        await bed.check_resynced(copy, "log")
        for number in range(3):
            await bed.execute(f"update things set note = 'again' where id = {number + 1}")
            assert len(await copy.step()) == 1
        await elsewhere.execute("commit")
        await elsewhere.close()
        await bed.check_resynced(copy, "log")
        await bed.execute("update things set note = 'good' where id = 1")
        assert len(await copy.step()) == 1
        await bed.check(copy)


async def test_t5_clients_stay_live_and_come_back_by_replay(
    site: Site, postgres: EmbeddedPostgres
) -> None:
    await site.execute("insert into things select n, 1, 'NEW', 'n' from generate_series(1, 50) n")
    node = await site.node(records={"log_life_s": 1, "prune_ms": 20})
    elsewhere = await asyncpg.connect(await empty_database(postgres))
    writer = await asyncpg.connect(site.dsn)
    held = Held("things")
    try:
        async with client(url_of(node), held):
            await site.equal(held)
            xid = await opened(elsewhere)
            await opened(writer, "update things set note = 'mine' where id = 50")
            number = 0
            async with asyncio.timeout(PATIENCE_S):
                while number < 30 or await pruned_below(site.connection) <= xid:
                    number += 1
                    await site.execute(
                        f"update things set note = '{number}' where id = {number % 40 + 1}"
                    )
                    await site.equal(held)
            assert held.hows[0] == "full"
            assert set(held.hows[1:]) == {"live"}
        held.left()
        await site.execute("update things set note = 'away' where id = 3")
        async with client(url_of(node), held):
            await site.equal(held)
            assert held.hows[0] == "replay"
            await writer.execute("commit")
            await site.equal(held)
            await site.execute("delete from things where id = 4")
            await site.equal(held)
            assert set(held.hows[1:]) <= {"live"}
        assert held.drifts == 0
    finally:
        await writer.close()
        await elsewhere.close()
