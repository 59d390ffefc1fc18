"""How groups begin and how their places are stored: exactly, by several nodes at once, each for itself."""

import asyncio
import time

import pytest
from tests.cluster.running import (
    WITHIN_S,
    Got,
    Member,
    Nodes,
    all_done,
    join,
    numbered,
    publish,
)

import moorline
from moorline.catalog import Catalog
from moorline.catalog.groups import Groups
from moorline.catalog.operations import Taking, Ticket, Tickets
from moorline.client.moor import Moor
from moorline.core.delivery.progress import Cursor
from moorline.core.stream import Shard
from moorline.core.topic import Mode, SharedName
from moorline.groups.cursor_commits import CursorCommits, row_of

pytestmark = pytest.mark.process

BILLING = SharedName(Mode.SHARED, "billing", "orders/#")
SHARD = Shard("a", 0)


async def test_a_group_is_there_with_its_places_or_not_at_all(dsn: str) -> None:
    async with Catalog.open(dsn) as catalog:
        groups = Groups(catalog)

        async def declare(offset: int) -> tuple[int, bool]:
            row, is_created = await groups.declare(
                BILLING, deliveries_max=5, start_us=1, cursors=[row_of(SHARD, Cursor(offset))]
            )
            # Whoever sees the group sees where it begins.
            assert len(await groups.cursors(row.reader)) == 1
            return offset, is_created

        answers = await asyncio.gather(*(declare(offset) for offset in range(8)))
        (winner,) = [offset for offset, is_created in answers if is_created]
        row = await groups.find(BILLING)
        assert row is not None
        assert await groups.of(row.reader) == row
        (cursor,) = await groups.cursors(row.reader)
        assert (cursor.home, cursor.shard, cursor.offset) == ("a", 0, winner)
        operations = Tickets(catalog)
        number = await operations.open(
            row.reader, "DeleteGroup", asked_by="me", asked_at="a", within_ms=60_000
        )
        assert await operations.delete(Ticket(number, row.reader, row.epoch)) is Taking.TAKEN
        assert await groups.of(row.reader) is None


async def test_a_commit_that_is_refused_does_not_spoil_the_others(dsn: str) -> None:
    async with Catalog.open(dsn) as catalog:
        groups = Groups(catalog)
        cursor_commits = CursorCommits(groups)
        readers = []
        for number in range(3):
            name = SharedName(Mode.SHARED, f"group{number}", "#")
            row, _ = await groups.declare(name, deliveries_max=5, start_us=1)
            claim = await groups.claim(row.reader, "a", 60_000)
            assert claim is not None
            readers.append((row.reader, claim.epoch))
        # The second one is more than the catalog can hold; the third is not its reader's epoch.
        commits = [
            (*readers[0], 7),
            (*readers[1], 1 << 63),
            (readers[2][0], readers[2][1] - 1, 7),
            (*readers[0], 8),
        ]
        answers = await asyncio.gather(
            *(
                cursor_commits.commit(reader, epoch, [(SHARD, Cursor(offset))])
                for reader, epoch, offset in commits
            ),
            return_exceptions=True,
        )
        assert (answers[0], answers[2], answers[3]) == (True, False, True)
        assert isinstance(answers[1], Exception)
        assert await cursor_commits.load(readers[0][0]) == [(SHARD, Cursor(8))]
        assert await cursor_commits.commit(*readers[1], [(SHARD, Cursor(9))])


@pytest.mark.parametrize("turn", range(4))
async def test_a_group_that_several_nodes_found_at_once_misses_nothing(
    calm: Nodes, turn: int
) -> None:
    topic = f"founding/{turn}"
    name = f"$shared/billing/{topic}"
    got = Got()

    async def come(node: str) -> tuple[Member, list[bytes]]:
        member = await join(calm[node], name, got, f"on {node}")
        bodies = numbered(f"from-{node}", 20)
        await publish(calm[node], topic, bodies)
        return member, bodies

    came = await asyncio.gather(*(come(node) for node in ("a", "b", "c")))
    sent = [body for _, bodies in came for body in bodies]
    await got.has(sent)
    await all_done(calm["a"], name)
    for member, _ in came:
        await member.leave()
    got.is_exactly(sent)


async def test_the_lag_of_a_group_that_nobody_leads_counts_shards_it_has_no_place_in(
    nodes: Nodes,
) -> None:
    (first,) = await nodes.start("n1")
    name = "$shared/late/orders/#"
    async with moorline.connect(first.address, reconnect=False) as moor:
        await moor.group(name).create()
    await publish(first, "orders", numbered("early", 30))
    # Its shards are younger than the group, and nobody has ever led that.
    (second,) = await nodes.start("n2")
    await publish(second, "orders", numbered("late", 70))

    async def lag(moor: Moor) -> int:
        told = await moor.group(name).info()
        assert told.group.leader == ""
        return sum(cursor.lag for cursor in told.cursors)

    for node in (first, second):
        async with moorline.connect(node.address, reconnect=False) as moor:
            end = time.monotonic() + WITHIN_S
            while (found := await lag(moor)) != 100:
                assert time.monotonic() < end, f"{found} seem to wait"
                await asyncio.sleep(0.02)
