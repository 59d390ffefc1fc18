"""Segments of the log that are prepared while messages come: used, given back, and done without."""

import errno

import pytest
from tests.queues.test_full_disk import SETTINGS, broker_on, committed, filled
from tests.waiting import until

from moorline.journal.disk import DiskFile
from moorline.journal.queues.offline import viewed
from moorline.limits import MIB
from moorline.net.clock import wall_ms
from moorline.node.queues import options
from moorline.testing import MemoryDisk

COUNT = 40
"""Messages of 16 KiB that make the log grow above half a segment, and not above half of what it may have."""


def prepared(disk: MemoryDisk) -> list[str]:
    return [path for path in disk.files() if "prepared" in path]


async def test_a_busy_log_goes_on_in_a_prepared_segment_and_loses_nothing() -> None:
    disk = MemoryDisk()
    async with broker_on(disk) as broker:
        queue = await filled(broker, COUNT)
        await until(lambda: broker.store.log.ready == 1)
        (path,) = prepared(disk)
        assert disk.files()[path] == bytes(MIB)
        for _ in range(10):
            assert broker.store.send(queue, b"more", wall_ms())
        await committed(broker)
        assert disk.files()[path].startswith(b"MOORWAL3")
        with viewed(disk, options(SETTINGS), wall_ms) as (store, _):
            found = store.find(queue.id)
            assert found is not None
            assert found.size == COUNT + 10
        await broker.checkpoints.checkpoint()
        assert path not in disk.files(), "a segment that is not needed is gone"
    async with broker_on(disk) as broker:
        found = broker.store.find(queue.id)
        assert found is not None
        assert found.size == COUNT + 10


async def test_little_is_sent_without_any() -> None:
    disk = MemoryDisk()
    async with broker_on(disk) as broker:
        await filled(broker, 3)
        await broker.checkpoints.checkpoint()
        await filled(broker, 3)
        assert prepared(disk) == []


async def test_what_is_prepared_makes_way_on_a_disk_with_little_room() -> None:
    disk = MemoryDisk()
    async with broker_on(disk) as broker:
        queue = await filled(broker, COUNT)
        await until(lambda: broker.store.log.ready == 1)
        # Too little for a checkpoint too: one would begin the segment.
        await broker.checkpoints.look_for_room(1_000)
        await until(lambda: broker.store.log.ready == 0)
        await until(lambda: prepared(disk) == [])
        assert broker.store.send(queue, b"more", wall_ms())
        await committed(broker)
        assert prepared(disk) == []


class Refusing(MemoryDisk):
    """A disk on which no segment can be prepared."""

    refused = 0

    def open(self, path: str, *, create: bool) -> DiskFile:
        if "prepared" in path:
            self.refused += 1
            raise OSError(errno.EIO, "no segment here")
        return super().open(path, create=create)


async def test_a_segment_that_cannot_be_prepared_is_done_without(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = Refusing()
    async with broker_on(disk) as broker:
        queue = await filled(broker, COUNT)
        await until(lambda: "no segment of the log is prepared" in caplog.text)
        for _ in range(10):
            assert broker.store.send(queue, b"more", wall_ms())
        await committed(broker)
        assert disk.refused == 1, "nobody tries again at once"
        assert not broker.commits.failed.done()
    assert SETTINGS.log_bytes_max // 2 == MIB, "the log is to grow beyond half a segment"
