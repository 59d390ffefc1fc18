"""The upkeep of a node's streams, in the test's own process."""

import asyncio
import itertools
import threading

import pytest

from moorline.journal.disk import DiskFile
from moorline.journal.streams.inspection import StreamProblem
from moorline.journal.streams.store import StreamOptions, StreamStore
from moorline.limits import DAMAGE_LINES_MAX, STREAM_SEALS_PER_LOOK
from moorline.testing.memory_disk import MemoryDisk
from moorline.topics.streams import LocalStreams
from moorline.topics.upkeep import StreamUpkeep, log_problems


async def test_many_generations_without_a_seal_are_sealed_look_by_look() -> None:
    """In between the upkeep rolls and drops: a start may find thousands of them."""
    store = StreamStore(MemoryDisk(), "n1", StreamOptions(shards=1, sync=False), lambda: 1)
    store.open()
    count = 2 * STREAM_SEALS_PER_LOOK + 1
    for offset in range(1, count + 1):
        store.skip_to(0, offset)
    streams = LocalStreams(store, "n1")
    upkeep = StreamUpkeep(streams)
    unsealed = [len(store.upkeep.unsealed())]
    while store.upkeep.unsealed():
        await upkeep._seal()
        unsealed.append(len(store.upkeep.unsealed()))
    assert unsealed == [count, count - STREAM_SEALS_PER_LOOK, 1, 0]
    await streams.close()
    store.close()


class DiskWithoutDrops(MemoryDisk):
    """A log of what was dropped cannot be opened."""

    def open(self, path: str, *, create: bool) -> DiskFile:
        if path.endswith("dropped.log"):
            raise PermissionError(13, "not allowed", path)
        return super().open(path, create=create)


async def test_a_step_that_fails_keeps_no_other_step_from_running(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Retention cannot write; what else there is to look after goes on."""
    disk = DiskWithoutDrops()
    options = StreamOptions(shards=1, sync=False, retention_bytes=1)
    store = StreamStore(disk, "n1", options, lambda: 1)
    store.open()
    for offset in range(1, 4):
        store.skip_to(0, offset)
    streams = LocalStreams(store, "n1")
    upkeep = StreamUpkeep(streams)
    await upkeep._keep_up()
    assert store.upkeep.unsealed() == []
    disk.remove("000/00000002.seg")
    upkeep._files_looked_s = float("-inf")
    await upkeep._keep_up()
    told = [record.getMessage() for record in caplog.records]
    assert "the upkeep of streams was interrupted" in told
    assert "messages of a stream are damaged or gone" in told
    assert [(one.number, one.is_gone) for _, one in store.all_generations()][1] == (2, True)
    await streams.close()
    store.close()


async def test_damage_in_many_places_is_a_few_lines_and_a_count(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = StreamStore(MemoryDisk(), "n1", StreamOptions(shards=1, sync=False), lambda: 1)
    store.open()
    # Every skip leaves a hole: offsets that nobody will ever read.
    places = 3 * DAMAGE_LINES_MAX
    for place in range(places):
        store.skip_to(0, 10 * (place + 1))
    streams = LocalStreams(store, "n1")
    upkeep = StreamUpkeep(streams)
    caplog.clear()
    upkeep._log_damage()
    upkeep._log_damage()
    told = [record for record in caplog.records if "damaged or gone" in record.getMessage()]
    named = [record for record in told if hasattr(record, "first")]
    (counted,) = [record for record in told if hasattr(record, "places")]
    assert len(named) == DAMAGE_LINES_MAX
    assert counted.__dict__["places"] + len(named) == places
    await streams.close()
    store.close()


def test_files_that_are_not_as_they_were_are_a_few_lines_and_a_count(
    caplog: pytest.LogCaptureFixture,
) -> None:
    problems = [StreamProblem("missing", 0, number, "it is gone", 2) for number in range(1_000)]
    log_problems(problems, "n1")
    assert len(caplog.records) == DAMAGE_LINES_MAX + 1
    assert caplog.records[-1].__dict__["messages"] == 2 * (1_000 - DAMAGE_LINES_MAX)


async def test_retention_drops_one_generation_in_a_turn_of_the_loop() -> None:
    """Whoever else is there has a turn between two of them."""
    options = StreamOptions(shards=1, sync=False, retention_bytes=1)
    store = StreamStore(MemoryDisk(), "n1", options, lambda: 1)
    store.open()
    for offset in range(1, 8):
        store.skip_to(0, offset)
    for shard, generation in store.upkeep.unsealed():
        store.upkeep.sealed(shard, generation, store.upkeep.seal(shard, generation)())
    streams = LocalStreams(store, "n1")
    upkeep = StreamUpkeep(streams)
    left: list[int] = []
    dropping = asyncio.create_task(upkeep._drop())
    while not dropping.done():
        left.append(len(list(store.all_generations())))
        await asyncio.sleep(0)
    await dropping
    assert len(set(left)) > 4
    assert all(before - after <= 1 for before, after in itertools.pairwise(left))
    await streams.close()
    store.close()


class DiskWithThreads(MemoryDisk):
    """Remembers which changes of dropped generations were asked for by the thread of the loop, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.steps_on_the_loop: list[str] = []
        self.steps_seen: list[str] = []
        self.loop_thread = threading.get_ident()

    def _note(self, step: str) -> None:
        self.steps_seen.append(step)
        if threading.get_ident() == self.loop_thread:
            self.steps_on_the_loop.append(step)

    def open(self, path: str, *, create: bool) -> DiskFile:
        if path.endswith("dropped.log"):
            self._note("note")
        return super().open(path, create=create)

    def sync_folder(self, path: str) -> None:
        self._note("sync")
        super().sync_folder(path)

    def remove(self, path: str) -> None:
        if path.endswith(".seg"):
            self._note("remove")
        super().remove(path)


async def test_the_disk_work_of_retention_is_not_done_on_the_loop() -> None:
    """In a thread the note is synced and then the files go; between them the loop takes it out of sight."""
    disk = DiskWithThreads()
    options = StreamOptions(shards=1, sync=False, retention_bytes=1)
    store = StreamStore(disk, "n1", options, lambda: 1)
    store.open()
    for offset in range(1, 4):
        store.skip_to(0, offset)
    for shard, generation in store.upkeep.unsealed():
        store.upkeep.sealed(shard, generation, store.upkeep.seal(shard, generation)())
    streams = LocalStreams(store, "n1")
    upkeep = StreamUpkeep(streams)
    streams.reshaped.append(lambda _: disk._note(f"told of {store.first(0)}"))
    disk.steps_seen, disk.steps_on_the_loop = [], []
    await upkeep._drop()
    told = [f"told of {first}" for first in (1, 2, 3)]
    assert disk.steps_on_the_loop == told
    assert disk.steps_seen == [step for first in told for step in ("note", "sync", first, "remove")]
    await streams.close()
    store.close()


async def test_a_note_that_fails_leaves_the_generation_in_sight() -> None:
    disk = DiskWithoutDrops()
    store = StreamStore(
        disk, "n1", StreamOptions(shards=1, sync=False, retention_bytes=1), lambda: 1
    )
    store.open()
    store.skip_to(0, 1)
    for shard, generation in store.upkeep.unsealed():
        store.upkeep.sealed(shard, generation, store.upkeep.seal(shard, generation)())
    streams = LocalStreams(store, "n1")
    upkeep = StreamUpkeep(streams)
    with pytest.raises(PermissionError):
        await upkeep._drop()
    assert store.first(0) == 0
    assert disk.exists("000/00000001.seg")
    await streams.close()
    store.close()
