"""Somebody else fills the disk while a checkpoint is under way: it waits, and goes on when there is room."""

import asyncio
import random

import pytest
from tests.queues.test_full_disk import broker_on, committed, filled

from moorline.config.settings import Queues as Settings
from moorline.core.queue.queue import Queue
from moorline.journal.disk_watch import DiskWatch
from moorline.journal.queues.offline import waiting
from moorline.journal.queues.store import Store
from moorline.limits import MIB
from moorline.net.clock import wall_ms
from moorline.node.queues import options
from moorline.queues.commands import QueueBroker
from moorline.testing import MemoryDisk

pytestmark = pytest.mark.slow

WITHIN_S = 30
SETTINGS = Settings(log_bytes_max=64 * MIB, max_queue_messages=3, max_file_messages=4)
"""Of a log so large no segment is prepared for so little; and few messages fill a file."""


class FilledDisk(MemoryDisk):
    """Another program takes all the room that is left, just before a step."""

    fill_at = 1 << 60

    def begin(self) -> None:
        super().begin()
        if self.steps >= self.fill_at:
            self.fill_at = 1 << 60
            self.capacity_bytes = self.used_bytes()


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("moorline.queues.checkpoints", "moorline.net.group_commit"):
        monkeypatch.setattr(f"{module}.DISK_LOOK_MS", 1)


async def busy(broker: QueueBroker) -> list[Queue]:
    """Queues of every kind that a checkpoint flushes: new, grown, read from, read out and deleted."""
    queues = [await filled(broker, count) for count in (3, 2, 2, 1)]
    await broker.checkpoints.checkpoint()
    store = broker.store
    queues.append(await filled(broker, 2))
    for _ in range(2):
        # Its file is full with the first: with the second another one is begun, and its states are copied.
        head = store.head(queues[0])
        assert head is not None
        assert store.acknowledge(queues[0], head.lsn)
        assert store.send(queues[0], b"one more", wall_ms())
        await committed(broker)
        if len(queues) == 5:
            await broker.checkpoints.checkpoint()
            queues.append(await filled(broker, 1))
    for queue in (queues[1], queues[2], queues[2]):
        head = store.head(queue)
        assert head is not None
        assert store.acknowledge(queue, head.lsn)
    store.delete(queues[3])
    await committed(broker)
    return queues


def contents(store: Store, queues: list[Queue]) -> list[list[int] | None]:
    found = [store.find(queue.id) for queue in queues]
    return [None if queue is None else [e.lsn for e in waiting(store, queue)] for queue in found]


async def stuck(broker: QueueBroker, task: "asyncio.Task[None]") -> bool:
    """Whether the checkpoint has come to a point at which it waits for room; False if it has ended."""
    async with asyncio.timeout(WITHIN_S):
        while not task.done() and not broker.checkpoints.lacks_room:
            await asyncio.sleep(0.001)
    return not task.done()


@pytest.mark.parametrize("meanwhile", ["nothing", "a reader", "a crash"])
async def test_a_checkpoint_goes_on_wherever_the_disk_was_filled(meanwhile: str) -> None:
    step, waited = 0, 0
    while True:
        disk = FilledDisk()
        async with broker_on(disk, SETTINGS) as broker:
            queues = await busy(broker)
            store, expected = broker.store, [[1] * 3, [1], [], None, [1, 1], [1]]
            before = [len(one or ()) for one in expected]
            disk.fill_at = disk.steps + step
            task = asyncio.create_task(broker.checkpoints.checkpoint())
            is_stuck = await stuck(broker, task)
            if is_stuck:
                waited += 1
                watch = DiskWatch(disk, "queues", broker, broker.checkpoints.look_for_room)
                await watch.look()
                assert broker.is_disk_full
                if meanwhile == "a reader":
                    for queue in (queues[0], queues[4]):
                        head = store.head(queue)
                        assert head is not None
                        assert store.acknowledge(queue, head.lsn)
                    before[0] -= 1
                    before[4] -= 1
                if meanwhile == "a crash":
                    disk.capacity_bytes = None
                    task.cancel()
                    disk.crash(random.Random(step), "some")
                    broker.commits.fail(OSError("the machine is gone"))
                else:
                    disk.capacity_bytes = None
                    async with asyncio.timeout(WITHIN_S):
                        await task
                        await committed(broker)
                    await watch.look()
                    assert not broker.is_disk_full
                    assert not broker.commits.failed.done()
                    assert [len(one or ()) for one in contents(store, queues)] == before
                    assert store.files.lost_messages == store.files.quarantined == 0
            was_filled = disk.fill_at == 1 << 60
        if is_stuck:
            disk.crash(random.Random(step), "none")
            store = Store(disk, options(SETTINGS), wall_ms)
            store.open()
            assert [len(one or ()) for one in contents(store, queues)] == before, step
            assert store.files.lost_messages == store.files.quarantined == 0, step
            store.close()
        if not was_filled:
            break
        step += 1
    assert waited > 10


async def test_a_batch_that_finds_no_room_is_stored_when_there_is_some() -> None:
    """It is neither answered before that, nor lost, nor twice."""
    disk = FilledDisk()
    async with broker_on(disk, SETTINGS) as broker:
        queue = await filled(broker, 2)
        disk.capacity_bytes = disk.used_bytes() + 100
        assert broker.store.send(queue, bytes(1_000), wall_ms())
        broker.commits.changed()
        durable = asyncio.create_task(broker.commits.durable())
        async with asyncio.timeout(WITHIN_S):
            while not broker.commits.lacks_room:
                await asyncio.sleep(0.001)
        watch = DiskWatch(disk, "queues", broker, broker.checkpoints.look_for_room)
        await watch.look()
        assert broker.is_disk_full
        assert not durable.done()
        disk.capacity_bytes = None
        async with asyncio.timeout(WITHIN_S):
            await durable
        await watch.look()
        assert not broker.is_disk_full
    disk.crash(random.Random(1), "all")
    store = Store(disk, options(SETTINGS), wall_ms)
    store.open()
    assert [len(one or ()) for one in contents(store, [queue])] == [3]
    store.close()


async def test_a_node_ends_while_it_waits_for_room() -> None:
    """What nobody was answered for may be gone; nothing else is."""
    disk = FilledDisk()
    async with broker_on(disk, SETTINGS) as broker:
        queue = await filled(broker, 2)
        disk.capacity_bytes = disk.used_bytes()
        broker.store.send(queue, bytes(1_000), wall_ms())
        broker.commits.changed()
        async with asyncio.timeout(WITHIN_S):
            while not broker.commits.lacks_room:
                await asyncio.sleep(0.001)
    disk.capacity_bytes = None
    store = Store(disk, options(SETTINGS), wall_ms)
    store.open()
    assert [len(one or ()) for one in contents(store, [queue])] == [2]
    store.close()
