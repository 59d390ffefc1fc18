"""A disk without room for a checkpoint: it waits, acknowledgements pass, and they are what makes room."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.access.granted import as_before_rows, unguarded
from tests.queues.queue_server import WITHIN_S
from tests.waiting import until

from moorline.client.connecting import connect
from moorline.config.addresses import Address
from moorline.config.settings import Queues as Settings
from moorline.core.queue.queue import Queue
from moorline.errors import NodeDiskFull
from moorline.journal.disk_watch import DiskWatch
from moorline.journal.queues.checkpoint import wanted
from moorline.journal.queues.store import Store
from moorline.limits import CHECKPOINT_SPARE_BYTES, KIB, MIB
from moorline.net.clock import wall_ms
from moorline.net.listener import Admission, Listeners
from moorline.net.native import NativeProtocol
from moorline.net.slices import done
from moorline.node.queues import options
from moorline.queues.commands import QueueBroker
from moorline.testing import MemoryDisk
from moorline.wire.link import Welcome

SETTINGS = Settings(log_bytes_max=2 * MIB)
BODY = bytes(16 * KIB)


@asynccontextmanager
async def broker_on(disk: MemoryDisk, settings: Settings = SETTINGS) -> AsyncIterator[QueueBroker]:
    store = Store(disk, options(settings), wall_ms)
    store.open()
    broker = QueueBroker(store, settings)
    try:
        yield broker
    finally:
        await broker.close()
        store.close()


async def committed(broker: QueueBroker) -> None:
    broker.commits.changed()
    store = broker.store
    await until(lambda: store.committed_lsn == store.next_lsn - 1)


async def filled(broker: QueueBroker, count: int) -> Queue:
    queue = broker.store.create(b"")
    for _ in range(count):
        assert broker.store.send(queue, BODY, wall_ms())
    await committed(broker)
    return queue


async def drained(broker: QueueBroker, queue: Queue) -> None:
    while (head := broker.store.head(queue)) is not None:
        assert broker.store.acknowledge(queue, head.lsn)
    await committed(broker)


def leave_free(disk: MemoryDisk, free_bytes: int) -> None:
    disk.capacity_bytes = disk.used_bytes() + free_bytes
    assert disk.free_bytes("") == free_bytes


async def test_a_checkpoint_without_room_waits_and_loses_nothing() -> None:
    disk = MemoryDisk()
    # Of a log so large no segment is prepared for so little: that would take room, and give it back.
    roomy = Settings(log_bytes_max=64 * MIB)
    async with broker_on(disk, roomy) as broker:
        queue = await filled(broker, 40)
        leave_free(disk, CHECKPOINT_SPARE_BYTES + 100 * KIB)
        watch = DiskWatch(disk, "queues", broker, broker.checkpoints.look_for_room)
        await watch.look()
        assert broker.is_disk_full
        assert broker.checkpoints.lacks_room
        with pytest.raises(NodeDiskFull, match="checkpoint"):
            await broker.checkpoints.checkpoint_anew()
        assert broker.store.log.size_bytes > 600 * KIB
    assert disk.free_bytes("") > 0
    disk.crash(random.Random(1), "all")
    async with broker_on(disk, roomy) as broker:
        found = broker.store.find(queue.id)
        assert found is not None
        assert found.size == 40
        watch = DiskWatch(disk, "queues", broker, broker.checkpoints.look_for_room)
        await watch.look()
        assert broker.is_disk_full, "known before anybody is served"
        await drained(broker, found)
        await watch.look()
        assert not broker.checkpoints.lacks_room
        await until(lambda: broker.checkpoints.count == 1)
        assert broker.store.log.size_bytes == 0
        assert disk.free_bytes("") > CHECKPOINT_SPARE_BYTES + 500 * KIB
        assert not broker.commits.failed.done()
    store = Store(disk, options(SETTINGS), wall_ms)
    store.open()
    found = store.find(queue.id)
    assert found is not None
    assert found.size == 0
    store.close()


async def test_what_a_checkpoint_wants_is_never_less_than_it_takes() -> None:
    """At every share of acknowledged messages; with room it is known without a look at each."""
    for acknowledged in (0, 7, 20, 39, 40):
        disk = MemoryDisk()
        async with broker_on(disk) as broker:
            queue = await filled(broker, 40)
            for _ in range(acknowledged):
                head = broker.store.head(queue)
                assert head is not None
                broker.store.acknowledge(queue, head.lsn)
            await committed(broker)
            needed = done(wanted(broker.store, 0))
            assert needed <= done(wanted(broker.store, 1 << 40))
            assert (
                needed - CHECKPOINT_SPARE_BYTES < (41 - acknowledged) * (16 * KIB + 512) + 13 * KIB
            )
            leave_free(disk, needed)
            await broker.checkpoints.checkpoint_anew()
            assert not broker.commits.failed.done()
            assert broker.store.log.size_bytes == 0


async def test_clients_do_not_wait_for_a_checkpoint_that_has_no_room() -> None:
    """Their acknowledgements are what makes room; a log beyond its size holds nobody then."""
    disk = MemoryDisk()
    async with broker_on(disk) as broker:
        # Enough for the log alone: when half of it is full, a checkpoint finds no room any more.
        leave_free(disk, 3 * MIB)
        queues = [await filled(broker, 100), await filled(broker, 60)]
        store = broker.store
        assert (broker.checkpoints.count, store.log.size_bytes) > (0, SETTINGS.log_bytes_max)
        assert await broker.checkpoints.look_for_room(disk.free_bytes(""))
        assert broker.checkpoints.lacks_room
        async with served(broker) as address, connect(address, reconnect=False) as moor:
            # Whoever is held is not read from: neither of these would be answered.
            async with asyncio.timeout(WITHIN_S):
                for queue in queues:
                    found = moor.queue(queue.id)
                    while (head := await found.get()) is not None:
                        await head.ack()
        await broker.checkpoints.look_for_room(disk.free_bytes(""))
        await until(lambda: broker.checkpoints.count == 1)
        assert store.log.size_bytes == 0


@asynccontextmanager
async def served(broker: QueueBroker) -> AsyncIterator[str]:
    protocol = NativeProtocol(
        unguarded(broker.declared()),
        lambda version, keepalive_ms: Welcome(version, "n", keepalive_ms=keepalive_ms),
    )
    listeners = Listeners(
        Admission(
            anonymous="loopback", connections_max=9, hello_timeout_ms=5_000, keepalive_ms=15_000
        ),
        rights_of=as_before_rows,
    )
    (address,) = await listeners.open(Address("tcp", "127.0.0.1", 0), None, protocol)
    try:
        yield str(address)
    finally:
        await listeners.close()
