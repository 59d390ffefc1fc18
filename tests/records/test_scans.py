"""A scan's snapshot is held for as long as somebody needs it, and no longer."""

import asyncio
import random
from collections.abc import AsyncIterator

import pytest
from tests.records.bed import Bed
from tests.records.clients import PATIENCE_S

from moorline.core.records.feed_events import BeginScan, How
from moorline.core.records.filter import parse_filter
from moorline.core.records.permit import make_permit
from moorline.core.records.table import Change
from moorline.core.records.table_feed import TableFeed
from moorline.errors import DatabaseUnreachable
from moorline.records.held_step import HeldStep
from moorline.records.opening import open_capture
from moorline.records.scan_slots import ScanSlots
from moorline.records.scans import Scans
from moorline.records.sending import Sending


async def test_a_scan_that_is_cancelled_before_it_begins_lets_go_of_its_step(log_bed: Bed) -> None:
    """As by a client that leaves in the moment in which it is let in."""
    bed = log_bed
    await bed.things()
    async with open_capture(bed.database, "things") as capture:
        feed, slots = TableFeed(capture.table, random.Random(1)), ScanSlots(8)
        audience = feed.audiences.join(
            parse_filter(capture.table, {}), make_permit(None, is_all=True)
        )
        sending = Sending(capture.table, lambda _: "", lambda *_: None)
        scans = Scans(capture, feed, sending, {}, slots, lambda _: None)
        held = await HeldStep.open(capture, await capture.position(), is_exported=True)
        await held.export()
        scans.begin(
            BeginScan(1, How.FULL, audience.number, 1, held.step.until, (), None, None, "olga"),
            held,
        )
        await held.release()
        assert slots.scans_of.total() == 1
        scans.cancel(1)
        async with asyncio.timeout(PATIENCE_S):
            while slots.scans_of.total() or await bed.connection.fetchval(
                "select count(*) from pg_stat_activity where state = 'idle in transaction' "
                "and application_name = 'moorline' and datname = current_database()"
            ):
                await asyncio.sleep(0.01)
        assert scans.running == {}
        await scans.close()


async def test_a_connection_that_is_lost_in_the_middle_of_a_step_is_a_database_that_is_away(
    log_bed: Bed,
) -> None:
    """And no end of the table's feed, which would cut all of its clients."""
    bed = log_bed
    await bed.things()
    await bed.execute(
        "insert into things select n, 1, 'NEW', repeat('x', 1000) from generate_series(1, 20000) n"
    )
    async with open_capture(bed.database, "things") as capture:
        since = await capture.position()
        await bed.execute("update things set state = 'RUN'")
        # As it is held for scans: its context hears nothing of what fails within it.
        held = await HeldStep.open(capture, since, is_exported=True)
        changes = held.step.changes()
        await anext(changes)
        await bed.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity "
            "where application_name = 'moorline' and datname = current_database()"
        )
        with pytest.raises(DatabaseUnreachable):
            await _read(changes)
        await held.release()


async def _read(changes: AsyncIterator[list[Change]]) -> None:
    async for _ in changes:
        pass
