"""Expiry as the node does it: at its start, on send, at intervals; never early, never out of order."""

import asyncio
import threading
from pathlib import Path

import pytest
from tests.queues.queue_server import QueueServer, queue_server, take, tried
from tests.waiting import until

from moorline.config.settings import Queues as Settings
from moorline.core.queue.queue import Queue
from moorline.errors import QuotaExceeded
from moorline.journal.queues.wal import Batch
from moorline.net.clock import wall_ms
from moorline.node.queues import open_queues
from moorline.queues.upkeep import Upkeep

TTL_S = 3_600
AGED = Settings(max_queue_messages=3, max_file_messages=4, ttl_s=TTL_S)


async def put(node: QueueServer, queue_id: bytes, body: bytes, *, age_s: int) -> None:
    """A message as if it had been sent that long ago; returns when it is committed."""
    queue = node.store.find(queue_id)
    assert queue is not None
    node.store.send(queue, body, wall_ms() - age_s * 1_000)
    node.broker.commits.changed()
    await until(lambda: node.store.committed_lsn == node.store.next_lsn - 1)


def bodies(node: QueueServer, queue_id: bytes) -> list[bytes]:
    queue = node.store.find(queue_id)
    assert queue is not None
    entries = [node.store.peek(queue, place) for place in range(queue.size)]
    return [entry.body for entry in entries if entry is not None]


async def pass_over(node: QueueServer) -> int:
    return await Upkeep(node.broker).expire(wall_ms() - TTL_S * 1_000)


@pytest.mark.parametrize("flushed", [False, True], ids=["in the log", "in the files"])
async def test_j15_on_send(tmp_path: Path, flushed: bool) -> None:
    """J15: a full queue of old messages takes a new one; the younger of them stay, in order."""
    async with queue_server(tmp_path, AGED) as node, node.connect() as moor:
        queue = await moor.create_queue()
        for body, age_s in ((b"old", TTL_S + 60), (b"older", TTL_S + 60), (b"young", TTL_S - 60)):
            await put(node, queue.id, body, age_s=age_s)
        if flushed:
            await node.broker.checkpoints.checkpoint()
        await moor.send(queue.id, b"new")
        assert bodies(node, queue.id) == [b"young", b"new"]
        assert node.broker.counts.expired == 2
        head = await queue.get()
        assert head is not None
        assert head.body == b"young"


async def test_j15_on_send_only_if_it_is_set(tmp_path: Path) -> None:
    """J15: without it the old ones fill the queue until a pass comes."""
    settings = Settings(
        max_queue_messages=3, max_file_messages=4, ttl_s=TTL_S, expire_on_send=False
    )
    async with queue_server(tmp_path, settings) as node, node.connect() as moor:
        queue = await moor.create_queue()
        for _ in range(3):
            await put(node, queue.id, b"old", age_s=TTL_S + 60)
        with pytest.raises(QuotaExceeded):
            await moor.send(queue.id, b"new")
        assert await pass_over(node) == 3


async def test_j15_a_ttl_of_0_is_never(tmp_path: Path) -> None:
    """J15: nothing before its time, and here its time never comes."""
    settings = Settings(max_queue_messages=3, max_file_messages=4, ttl_s=0)
    async with queue_server(tmp_path, settings) as node, node.connect() as moor:
        queue = await moor.create_queue()
        await put(node, queue.id, b"ancient", age_s=10**9)
        await moor.send(queue.id, b"new")
        async with asyncio.timeout(10):
            await Upkeep(node.broker).expire_forever()
        assert bodies(node, queue.id) == [b"ancient", b"new"]


@pytest.mark.parametrize("flushed", [False, True], ids=["in the log", "in the files"])
async def test_j15_a_pass_takes_what_is_old_everywhere(tmp_path: Path, flushed: bool) -> None:
    """J15: over many queues, touching only those that hold something old."""
    async with queue_server(tmp_path, AGED) as node, node.connect() as moor:
        old, mixed, young = [queue.id for queue in await moor.create_queues(3)]
        for queue_id, ages_s in (
            (old, [TTL_S + 9, TTL_S + 8]),
            (mixed, [TTL_S + 9, TTL_S - 60, TTL_S - 61]),
            (young, [TTL_S - 60]),
        ):
            for age_s in ages_s:
                await put(node, queue_id, b"%d" % age_s, age_s=age_s)
        if flushed:
            await node.broker.checkpoints.checkpoint()
        assert await pass_over(node) == 3
        assert bodies(node, old) == []
        assert bodies(node, mixed) == [b"%d" % (TTL_S - 60), b"%d" % (TTL_S - 61)]
        assert bodies(node, young) == [b"%d" % (TTL_S - 60)]
        assert await pass_over(node) == 0
    # What has expired stays so.
    async with queue_server(tmp_path, AGED) as node:
        assert [len(bodies(node, queue)) for queue in (old, mixed, young)] == [0, 2, 1]


@pytest.mark.slow
async def test_j15_on_start_and_on_interval(tmp_path: Path) -> None:
    """J15: as a node runs it; the first pass at the start, the next after the interval."""
    settings = Settings(max_queue_messages=3, max_file_messages=4, ttl_s=2, expire_interval_s=1)
    async with open_queues(tmp_path, settings) as broker:
        queue_id = broker.store.create(b"").id
        found = broker.store.find(queue_id)
        assert found is not None
        broker.store.send(found, b"old when it starts again", wall_ms() - 10_000)
    async with open_queues(tmp_path, settings) as broker:
        found = broker.store.find(queue_id)
        assert found is not None

        def is_empty(queue: Queue = found) -> bool:
            return queue.size == 0

        await until(is_empty)
        assert broker.counts.expired == 1
        sent_ms = wall_ms()
        broker.store.send(found, b"grows old", sent_ms)
        broker.commits.changed()
        await until(is_empty)
        assert wall_ms() - sent_ms > 2_000, "not before its time"
        assert broker.counts.expired == 2


@pytest.mark.parametrize("flushed", [False, True], ids=["in the log", "in the files"])
async def test_j16_a_quota_marker_never_expires(tmp_path: Path, flushed: bool) -> None:
    """J16: the dormant queue refuses until its recipient has read the marker."""
    async with queue_server(tmp_path, AGED) as node, node.connect() as moor:
        queue = await moor.create_queue()
        for _ in range(4):
            await put(node, queue.id, b"old", age_s=TTL_S + 60)
        if flushed:
            await node.broker.checkpoints.checkpoint()
        assert await pass_over(node) == 3
        assert await tried(moor, queue, b"refused") == "QUOTA"
        marker = await take(queue.read())
        assert marker.is_quota_marker
        assert await marker.ack() == 0
        assert await tried(moor, queue, b"taken") == "OK"


async def test_j17_expiry_stops_at_the_first_newer_message(tmp_path: Path) -> None:
    """J17: an older one behind a newer one waits for its turn."""
    async with queue_server(tmp_path, AGED) as node, node.connect() as moor:
        queue = await moor.create_queue()
        for body, age_s in ((b"old", TTL_S + 60), (b"new", 0), (b"old too", TTL_S + 60)):
            await put(node, queue.id, body, age_s=age_s)
        assert await pass_over(node) == 1
        assert bodies(node, queue.id) == [b"new", b"old too"]
        head = await queue.get()
        assert head is not None
        await head.ack()
        assert await pass_over(node) == 1
        assert bodies(node, queue.id) == []


async def test_j14_an_expired_and_drained_queue_leaves_no_files(tmp_path: Path) -> None:
    """J14: nothing but the backup of its state."""
    async with queue_server(tmp_path, AGED) as node, node.connect() as moor:
        queue = await moor.create_queue()
        await put(node, queue.id, b"old", age_s=TTL_S + 60)
        await node.broker.checkpoints.checkpoint()
        assert len(list((tmp_path / "queues").rglob("messages.*.log"))) == 1
        assert await pass_over(node) == 1
        await node.broker.checkpoints.checkpoint()
        names = [path.name for path in (tmp_path / "queues" / "messages").rglob("queue*.log")]
        assert len(names) == 1
        assert names != ["queue.log"]
        assert list((tmp_path / "queues").rglob("messages.*.log")) == []


async def test_what_expires_under_a_reader_makes_room_in_its_window(tmp_path: Path) -> None:
    """J15 with a subscriber: what was delivered and expired is gone, the next one follows."""
    async with queue_server(tmp_path, AGED) as node, node.connect() as moor:
        queue = await moor.create_queue()
        await put(node, queue.id, b"old", age_s=TTL_S + 60)
        await put(node, queue.id, b"young", age_s=0)
        messages = queue.read(window=1)
        old = await take(messages)
        assert old.body == b"old"
        assert await pass_over(node) == 1
        young = await take(messages)
        assert young.body == b"young"
        assert await moor.ack_all([old]) == [None]
        assert old.is_gone
        assert await young.ack() == 0
        assert not young.is_gone


async def test_the_loop_of_a_reader_outlives_what_expires_under_it(tmp_path: Path) -> None:
    """`async for message in queue: await message.ack()`: an ack of what has expired does not end it."""
    async with queue_server(tmp_path, AGED) as node, node.connect() as moor:
        queue = await moor.create_queue()
        await put(node, queue.id, b"old", age_s=TTL_S + 60)
        await put(node, queue.id, b"young", age_s=0)
        seen = []
        async with asyncio.timeout(30):
            async for message in queue:
                if message.body == b"old":
                    assert await pass_over(node) == 1
                await message.ack()
                seen.append((message.body, message.is_gone))
                if message.body == b"young":
                    break
        assert seen == [(b"old", True), (b"young", False)]
        assert bodies(node, queue.id) == []
        assert node.broker.counts.acknowledged == 1


async def test_an_ack_of_what_expired_is_answered_when_that_is_durable(tmp_path: Path) -> None:
    """What removed it may be on its way to the disk: until then it could come again."""
    async with queue_server(tmp_path, AGED) as node, node.connect() as moor:
        queue = await moor.create_queue()
        await put(node, queue.id, b"old", age_s=TTL_S + 60)
        await put(node, queue.id, b"older", age_s=TTL_S + 60)
        first = await take(queue.read())
        write, may_write = node.store.log.write, threading.Event()

        def held_up(batch: Batch) -> None:
            may_write.wait(30)
            write(batch)

        node.store.log.write = held_up  # type: ignore[method-assign]
        assert await pass_over(node) == 2
        acks = asyncio.gather(first.ack(), moor.ack_all([first]))
        assert (await queue.info()).waiting == 0, "asked behind the acks, and answered before them"
        assert not acks.done()
        may_write.set()
        async with asyncio.timeout(30):
            await acks
        assert first.is_gone
