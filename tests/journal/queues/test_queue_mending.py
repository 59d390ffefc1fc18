"""One queue of an open store, mended and killed at every step: a start and another repair bring all of it."""

import itertools
import random

from tests.journal.queues.stores import OPTIONS, contents, filled, now, opened

from moorline.core.queue.queue import Queue
from moorline.journal.queues import checkpoint
from moorline.journal.queues.folder import path_of
from moorline.journal.queues.mending import QueueWork
from moorline.journal.queues.record import HEADER_BYTES, record_bytes
from moorline.journal.queues.report import Report
from moorline.journal.queues.store import Store
from moorline.testing import MemoryDisk
from moorline.testing.memory_disk import Crashed

MOMENTS = itertools.count(1)
"""No two repairs are of one moment: what they keep is named by it."""


def mended(store: Store, queue: Queue) -> Report:
    """As a broker does it, without a loop around."""
    store.mending.add(queue.id)
    try:
        store.commit()
        checkpoint.flush(store, queue, now())
        store.files.close_queue(queue)
        store.disk.sync_all()
        checkpoint.remove_superseded(store, path_of(queue.id, OPTIONS.levels))
        work = QueueWork(store, queue, lambda: now() + next(MOMENTS))
        found, left = work.repair()
        work.take_over(store, queue)
    finally:
        store.mending.discard(queue.id)
    checkpoint.run(store, now)
    assert left.problems == []
    return found


def spoil(disk: MemoryDisk, store: Store, queue: Queue) -> None:
    """A bad byte in the first record that waits."""
    reader = store.files.reader(queue)
    assert reader is not None
    assert reader.journal.stored is not None
    path = f"{reader.folder.path}/messages.{reader.journal.stored.read_file}.log"
    data = bytearray(disk.files()[path])
    data[reader.journal.stored.read_byte + HEADER_BYTES] ^= 1
    store.files.close_queue(queue)
    disk.write_whole(path, bytes(data))


def test_a_repair_that_is_killed_leaves_a_store_that_starts_and_can_be_repaired() -> None:
    step = 0
    while True:
        disk = MemoryDisk()
        victim = filled(disk, queues=2)[0]
        before = contents(disk)
        store = opened(disk)
        queue = store.find(victim)
        assert queue is not None
        spoil(disk, store, queue)
        if step % 3 == 0:
            # Set aside before, as a reader that met the bad record would have it.
            assert store.head(queue) is None
            checkpoint.run(store, now)
        disk.crash_at = disk.steps + step
        try:
            mended(store, queue)
            disk.crash_at = None
            break
        except Crashed:
            disk.crash(random.Random(step), "all" if step % 2 else "some")
        store = opened(disk)
        queue = store.find(victim)
        assert queue is not None
        mended(store, queue)
        # Whatever was sent to others is there, and of this one all that one bad record did not take.
        assert not queue.damaged
        store.send(queue, b"new", now())
        store.commit()
        checkpoint.run(store, now)
        store.close()
        after = contents(disk)
        new = after[victim].pop()
        assert new[-1] == b"new"
        assert after[victim] == before[victim][1:], step
        assert {**after, victim: before[victim]} == before, step
        step += 1
    assert step > 20


def test_a_queue_that_is_mended_is_not_read_nor_forgotten() -> None:
    disk = MemoryDisk()
    victim = filled(disk, queues=2)[0]
    store = opened(disk)
    queue = store.find(victim)
    assert queue is not None
    store.mending.add(victim)
    assert store.head(queue) is None
    assert store.expire(queue, 1 << 60) == 0
    assert len(store.files.handles) == 0
    store.mending.discard(victim)
    head = store.head(queue)
    assert head is not None
    assert record_bytes(head) > HEADER_BYTES
    store.close()
