"""What is the matter of the capture `notify` alone: lines that are too long, and listeners that are lost."""

import asyncio

import asyncpg
import pytest
from tests.records.bed import Bed

from moorline.core.records.snapshot import Snapshot
from moorline.records.database import Database

pytestmark = pytest.mark.process


@pytest.fixture
def notify_bed(dsn: str, connection: asyncpg.Connection, database: Database) -> Bed:
    return Bed(dsn, connection, database, "notify")


async def test_a_line_that_is_too_long_is_a_resync_and_no_error_of_the_writer(
    notify_bed: Bed,
) -> None:
    bed = notify_bed
    await bed.things()
    async with bed.copy() as copy:
        await bed.execute("insert into things values (1, 1, repeat('x', 9000))")
        assert len(await copy.step()) == 1
        await bed.execute("update things set state = 'short'")
        await bed.check_resynced(copy, "notify")
        await bed.execute("update things set state = 'shorter'")
        assert len(await copy.step()) == 1
        await bed.check(copy)


async def test_a_key_that_is_too_long_is_a_resync_as_well(notify_bed: Bed) -> None:
    bed = notify_bed
    await bed.execute("create table things (id text primary key, workspace_id integer, state text)")
    await bed.add()
    # Indexed texts are compressed: a long one of one letter is taken.
    async with bed.copy() as copy:
        await bed.execute("insert into things values (repeat('k', 9000))")
        await bed.check_resynced(copy, "notify")


async def test_a_listener_that_was_lost_is_a_resync(notify_bed: Bed) -> None:
    bed = notify_bed
    await bed.things()
    async with bed.copy() as copy:
        await bed.execute("insert into things values (1, 1, 'a')")
        await copy.step()
        ended = await bed.connection.fetchval(
            "select count(pg_terminate_backend(pid, 10000)) from pg_stat_activity"
            " where datname = current_database() and pid <> pg_backend_pid() and query ilike 'listen%'"
        )
        assert ended == 1
        await bed.execute("insert into things values (2, 1, 'b')")
        async with asyncio.timeout(20):
            while not copy.resyncs:
                await copy.step()
        assert [resync.why for resync in copy.resyncs] == ["notify"]
        await copy.scan()
        await bed.execute("insert into things values (3, 1, 'c')")
        assert len(await copy.step()) == 1
        await bed.check(copy)


async def test_what_others_send_on_the_channel_is_no_line(notify_bed: Bed) -> None:
    bed = notify_bed
    await bed.things()
    async with bed.copy() as copy:
        await bed.execute("select pg_notify('moorline_records_1', 'hello')")
        await bed.check_resynced(copy, "notify")


async def test_nothing_is_replayed(notify_bed: Bed) -> None:
    bed = notify_bed
    await bed.things()
    async with bed.copy() as copy:
        resync = await copy.capture.replays(copy.capture.table.epoch, copy.since)
        assert resync is not None
        copy.since = Snapshot(3, 3)
        await bed.check_resynced(copy, "notify")
