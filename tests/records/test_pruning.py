"""The bound and the life of a log: writers neither fail nor wait, and what is not known is said."""

import asyncio

import pytest
from tests.records.bed import Bed, Copy

from moorline.records.checking import check
from moorline.records.pruning import Pruned, prune
from moorline.records.registration import Registration, registrations

pytestmark = pytest.mark.process


async def pruned(bed: Bed, life_s: int = 3_600) -> Pruned:
    return await prune(bed.connection, await registration(bed), life_s)


async def registration(bed: Bed) -> Registration:
    (found,) = await registrations(bed.connection)
    return found


async def lines(bed: Bed) -> int:
    return int(await bed.connection.fetchval("select count(*) from moorline_records.log_1"))


async def replay(copy: Copy) -> str | None:
    resync = await copy.capture.replays(copy.capture.table.epoch, copy.since)
    return None if resync is None else resync.why


async def bounded(bed: Bed, rows: int) -> None:
    await bed.execute(
        "create table things (id bigint primary key, workspace_id integer, state text, note text)",
        "insert into things select i, 1, 'a' from generate_series(1, 10) i",
    )
    await bed.add(log_rows_max=rows)


async def test_t67_nobody_reads_and_writers_go_on(log_bed: Bed) -> None:
    bed = log_bed
    await bounded(bed, 100)
    async with bed.copy() as copy:
        for number in range(30):
            await bed.execute(f"update things set note = '{number}'")
        await bed.execute("delete from things where id = 1")
        # The log has ended; the table has not.
        assert await lines(bed) == 100
        assert [fault.code for fault in await check(bed.connection, "things")] == ["log"]
        assert await replay(copy) == "log"
        await bed.check_resynced(copy, "log")
        # As long as no node makes it good, every step says so.
        await bed.execute("update things set note = 'again'")
        await bed.check_resynced(copy, "log")
        assert (await pruned(bed)).has_lost
        assert await lines(bed) == 0
        # Its snapshot is older than what the log is good from; the next one is not.
        await copy.step()
        await copy.scan()
        copy.resyncs.clear()
        await bed.execute(
            "update things set note = 'good' where id = 2", "delete from things where id = 3"
        )
        assert len(await copy.step()) == 2
        await bed.check(copy)
        assert copy.resyncs == []


async def test_t67_a_transaction_that_was_open_at_the_bound_is_never_replayed_over(
    log_bed: Bed,
) -> None:
    bed = log_bed
    await bounded(bed, 10)
    async with bed.copy() as copy, bed.another() as slow:
        # It is refused its line, and commits when the log is good again for others.
        await bed.execute("update things set note = 'a'")
        await slow.execute("begin; update things set note = 'slow' where id = 5")
        assert (await pruned(bed)).has_lost
        await bed.check_resynced(copy, "log")
        await slow.execute("commit")
        await bed.check_resynced(copy, "log")
        await bed.execute("update things set note = 'b' where id = 6")
        assert len(await copy.step()) == 1
        await bed.check(copy)


async def test_t28_a_cursor_older_than_the_log_is_told_so(log_bed: Bed) -> None:
    bed = log_bed
    await bounded(bed, 100)
    async with bed.copy() as copy:
        old = copy.since
        await bed.execute("update things set note = 'a' where id = 1")
        assert await replay(copy) is None
        await copy.step()
        assert (await pruned(bed, life_s=0)).lines == 1
        # Who has seen it goes on.
        await bed.execute("update things set note = 'b' where id = 2")
        assert len(await copy.step()) == 1
        copy.since = old
        assert await replay(copy) == "log"
        await bed.check_resynced(copy, "log")


async def test_while_a_node_is_there_the_bound_is_never_reached(log_bed: Bed) -> None:
    bed = log_bed
    await bounded(bed, 100)
    async with bed.copy() as copy:
        for number in range(40):
            await bed.execute(f"update things set note = '{number}'")
            await copy.step()
            assert not (await pruned(bed)).has_lost
            assert await lines(bed) <= 100
        assert copy.resyncs == []
        await bed.check(copy)


async def test_writers_and_pruning_side_by_side_lose_nothing_without_a_word(log_bed: Bed) -> None:
    """The limit is so low that it is passed again and again: each time either the lines are there, or a
    step says so."""
    bed = log_bed
    await bounded(bed, 40)
    is_over = asyncio.Event()

    async def write(of: int) -> None:
        async with bed.another() as connection:
            for number in range(150):
                await connection.execute(
                    "update things set note = $1 where id = $2", str(number), of
                )

    async def keep() -> None:
        async with bed.another() as connection:
            while not is_over.is_set():
                await prune(connection, await registration(bed), 3_600)
                await asyncio.sleep(0.005)

    async with bed.copy() as copy:
        keeper = asyncio.create_task(keep())
        writers = asyncio.gather(*(write(of) for of in range(1, 6)))
        while not writers.done():
            copy.resyncs.clear()
            await copy.step()
            if copy.resyncs:
                await copy.scan()
        await writers
        is_over.set()
        await keeper
        copy.resyncs.clear()
        await copy.step()
        if copy.resyncs:
            await copy.scan()
        await bed.check(copy)
