"""The log of small commits: cut at every byte, crashed at every step, damaged, misplaced, read by others."""

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.journal.streams.lives import Lives
from tests.journal.streams.stream_simulation import LaterSyncs

from moorline.core.frames.block import Block
from moorline.core.frames.frame import Stored, all_stored
from moorline.core.stream import Shard
from moorline.journal.disk import Disk, FileDisk
from moorline.journal.streams import stream_log
from moorline.journal.streams.check import check_streams
from moorline.journal.streams.folder import FolderStreams
from moorline.journal.streams.log_recovery import LogReading, logs_of, read_log
from moorline.journal.streams.store import StreamOptions, StreamStore
from moorline.journal.streams.stream_log import BATCH, CHECK, LOG_HEAD, PART
from moorline.testing import Crashed, MemoryDisk
from moorline.testing.memory_disk import Lose

OPTIONS = StreamOptions(shards=3)
TOPICS = [f"t/{number}" for number in range(12)]


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_log, "STREAM_LOG_BYTES", 4_000)


class Logged(Lives):
    """Stores whose small commits go to the log, and what was committed."""

    def __init__(self, disk: Disk) -> None:
        self.committed: list[bytes] = []
        super().__init__(disk, OPTIONS)

    def _opened(self) -> StreamStore:
        self.syncs = LaterSyncs()
        store = StreamStore(self.disk, "n1", self.options, self.now_us, begun_syncs=self.syncs)
        store.open()
        return store

    def ready(self) -> None:
        """The first commit finds no log, and asks for one."""
        self.publish(b"before")
        assert self.store.log.work(may_prepare=True)

    def publish(self, *bodies: bytes, is_begun: bool = True) -> bool:
        """One commit; whether it went to the log."""
        for number, body in enumerate(bodies):
            self.put(TOPICS[number % len(TOPICS)], body)
        batch = self.store.take_batch()
        assert batch is not None
        told: list[BaseException | None] = []
        is_logged = is_begun and self.store.begin(batch, told.append)
        if is_logged:
            self.syncs.finish()
            assert told == [None]
        else:
            self.store.write(batch)
        self.store.committed(batch)
        self.committed += bodies
        return is_logged

    def bodies(self) -> list[bytes]:
        return sorted(one.body for shard in range(3) for one in self.messages(shard))

    def check(self) -> None:
        assert self.store.problems == []
        assert self.store.lost_messages == 0
        assert self.bodies() == sorted(self.committed)


def cut_power(disk: MemoryDisk, lose: Lose = "all") -> None:
    disk.crash(random.Random(7), lose)


def logged(disk: Disk | None = None) -> Logged:
    lives = Logged(disk or MemoryDisk())
    lives.ready()
    return lives


def numbered(count: int, name: str = "m") -> list[bytes]:
    return [b"%s%03d" % (name.encode(), number) for number in range(count)]


# --- the bytes ------------------------------------------------------------------------------------


def test_the_bytes_are_as_drawn() -> None:
    lives = logged()
    assert lives.publish(b"one", b"two")
    assert isinstance(lives.disk, MemoryDisk)
    (path,) = logs_of(lives.disk)
    data = lives.disk.files()[path]
    assert (path, len(data)) == ("log/00000001.log", 4_000)
    magic, version, number, seed, _, _ = LOG_HEAD.unpack_from(data)
    assert (magic, version, number) == (b"MOORLOG", 1, 1)
    length, parts, batch = BATCH.unpack_from(data, LOG_HEAD.size + CHECK.size)
    assert (parts, batch) == (2, 0)
    place = LOG_HEAD.size + CHECK.size + BATCH.size
    found = []
    for _ in range(parts):
        shard, generation, segment_seed, first, position, size, count = PART.unpack_from(
            data, place
        )
        one = lives.store._shards[shard].generations[-1]
        assert (generation, segment_seed, count) == (one.number, one.head.seed, 1)
        place += PART.size
        (stored,) = all_stored(data[place : place + size])
        assert stored.offset == first
        segment = lives.disk.files()[one.path + ".seg"]
        assert segment[position : position + size] == data[place : place + size]
        found.append(stored.body)
        place += size
    assert place == LOG_HEAD.size + CHECK.size + BATCH.size + length
    assert sorted(found) == [b"one", b"two"]
    assert not any(data[place:])
    reading = read_log(data)
    assert reading.head is not None
    assert reading.head.seed == seed


def some_log() -> bytes:
    lives = logged()
    for number in range(4):
        assert lives.publish(*numbered(3, f"b{number}"))
    assert isinstance(lives.disk, MemoryDisk)
    return lives.disk.files()[logs_of(lives.disk)[0]]


def batches_of(data: bytes) -> list[int]:
    """Where the batches begin, and the end of the last."""
    places = [LOG_HEAD.size]
    while True:
        length, _, _ = BATCH.unpack_from(data, places[-1] + CHECK.size)
        if not length:
            return places
        places.append(places[-1] + CHECK.size + BATCH.size + length)


def bodies_in(reading: LogReading) -> list[bytes]:
    return [one.body for part in reading.parts for one in all_stored(part.data)]


def test_a_log_that_is_cut_at_any_byte_has_its_whole_batches() -> None:
    data = some_log()
    places = batches_of(data)
    all_bodies = bodies_in(read_log(data))
    assert len(all_bodies) == 12
    for cut in range(LOG_HEAD.size, places[-1] + 1):
        whole = sum(place <= cut for place in places[1:])
        for behind in (b"", bytes(500)):
            reading = read_log(data[:cut] + behind)
            assert bodies_in(reading) == all_bodies[: 3 * whole]
            assert reading.bad_batches == 0


def test_a_damaged_byte_costs_its_batch_alone_and_is_told_where_whole_ones_follow() -> None:
    data = some_log()
    places = batches_of(data)
    all_bodies = bodies_in(read_log(data))
    for place in range(LOG_HEAD.size, places[-1]):
        damaged = bytearray(data)
        damaged[place] ^= 0xFF
        reading = read_log(bytes(damaged))
        number = sum(one <= place for one in places[1:])
        kept = all_bodies[: 3 * number] + all_bodies[3 * (number + 1) :]
        assert bodies_in(reading) == kept, place
        assert reading.bad_batches == (number < 3)


@given(st.binary(max_size=600), st.integers(0, 600))
@settings(max_examples=200)
def test_any_bytes_are_read_to_an_end(rubbish: bytes, at: int) -> None:
    read_log(rubbish)
    data = bytearray(HEALTHY)
    place = LOG_HEAD.size + at
    data[place : place + len(rubbish)] = rubbish
    for part in read_log(bytes(data)).parts:
        assert part.data in HEALTHY


# --- crashes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("lose", ["all", "some", "none"])
def test_what_is_only_in_the_log_is_there_behind_a_power_cut(lose: Lose) -> None:
    lives = logged()
    for number in range(5):
        assert lives.publish(*numbered(4, f"x{number}"))
    assert isinstance(lives.disk, MemoryDisk)
    cut_power(lives.disk, lose)
    lives.store = lives._opened()
    lives.check()
    assert logs_of(lives.disk) == []
    # And from now on it is in the segments.
    cut_power(lives.disk)
    lives.store = lives._opened()
    lives.check()


def story(lives: Logged) -> None:
    """Commits of all kinds, over several files of the log."""
    lives.ready()
    for number in range(12):
        lives.publish(*numbered(5, f"s{number:02}"), is_begun=number % 3 != 0)
        if number % 4 == 1:
            lives.store.log.work(may_prepare=True)
        if number == 6:
            for shard in lives.store._shards.values():
                shard.wants_roll = True
    lives.store.leave()
    lives.store.close()


@pytest.mark.parametrize("lose", ["all", "some"])
def test_a_crash_at_any_step_loses_nothing_that_was_told(lose: Lose) -> None:
    disk = MemoryDisk()
    story(Logged(disk))
    steps = disk.steps
    for step in range(20, steps):
        disk = MemoryDisk()
        lives = Logged(disk)
        disk.crash_at = step
        with pytest.raises(Crashed):
            story(lives)
        chance = random.Random(step)
        disk.crash(chance, lose)
        # A start that crashes too, somewhere, changes nothing.
        disk.crash_at = disk.steps + chance.randrange(60)
        try:
            lives.store = lives._opened()
        except Crashed:
            disk.crash(chance, lose)
            lives.store = lives._opened()
        disk.crash_at = None
        assert lives.store.problems == [], step
        assert lives.store.lost_messages == 0
        found = lives.bodies()
        assert set(lives.committed) <= set(found), step
        assert len(found) == len(set(found))
        lives.ready()
        assert lives.publish(b"and on")
        lives.store.close()


def test_an_orderly_stop_leaves_no_log() -> None:
    lives = logged()
    lives.publish(*numbered(6))
    lives.store.leave()
    assert logs_of(lives.disk) == []
    assert isinstance(lives.disk, MemoryDisk)
    cut_power(lives.disk)
    lives.store = lives._opened()
    lives.check()


def test_a_full_log_goes_when_its_segments_are_synced() -> None:
    lives = logged()
    while lives.publish(*numbered(6)):
        assert len(logs_of(lives.disk)) == 1
    assert lives.store.log.has_work(may_prepare=True)
    lives.store.log.work(may_prepare=True)
    assert logs_of(lives.disk) == ["log/00000002.log"]
    assert lives.publish(b"on")
    assert isinstance(lives.disk, MemoryDisk)
    cut_power(lives.disk)
    lives.store = lives._opened()
    lives.check()


def test_without_room_for_a_log_commits_go_to_the_segments() -> None:
    disk = MemoryDisk()
    lives = Logged(disk)
    assert not lives.publish(b"first")
    disk.capacity_bytes = disk.used_bytes() + 1_000
    assert not lives.store.log.work(may_prepare=True)
    assert not lives.publish(b"second")
    assert logs_of(disk) == []
    disk.capacity_bytes = None
    assert lives.store.log.work(may_prepare=True)
    assert lives.publish(b"third")
    cut_power(disk)
    lives.store = lives._opened()
    lives.check()


def test_a_log_that_vanishes_takes_nothing_with_it() -> None:
    lives = logged()
    lives.publish(*numbered(5))
    (path,) = logs_of(lives.disk)
    lives.disk.remove(path)
    (problem,) = lives.store.upkeep.look_at_files()
    assert (problem.kind, problem.lost) == ("log", 0)
    assert lives.store.upkeep.look_at_files() == []
    assert not lives.publish(b"behind it")
    assert isinstance(lives.disk, MemoryDisk)
    cut_power(lives.disk)
    lives.store = lives._opened()
    lives.check()


# --- what should not be ---------------------------------------------------------------------------


def changed(lives: Logged, path: str, data: bytes) -> None:
    assert isinstance(lives.disk, MemoryDisk)
    lives.disk.remove(path)
    file = lives.disk.open(path, create=True)
    file.append(data)
    file.close()


def restarted(lives: Logged) -> list[str]:
    """The kinds and texts of what the start found."""
    lives.store.close()
    lives.store = lives._opened()
    return [f"{one.kind} {one.text}" for one in lives.store.problems]


@pytest.mark.parametrize("what", ["damaged head", "newer version", "another node", "bad batch"])
def test_a_log_that_cannot_be_relied_upon_is_set_aside(what: str) -> None:
    lives = logged()
    for number in range(3):
        lives.publish(*numbered(3, f"x{number}"))
    assert isinstance(lives.disk, MemoryDisk)
    (path,) = logs_of(lives.disk)
    data = bytearray(lives.disk.files()[path])
    if what == "damaged head":
        data[20] ^= 1
    elif what == "newer version":
        data[7] = 2
    elif what == "another node":
        head = stream_log.LogHead(1, int.from_bytes(data[16:24], "little"), b"B" * 16)
        data[: LOG_HEAD.size] = bytes(head)
    else:
        data[batches_of(bytes(data))[1] + 30] ^= 1
    changed(lives, path, bytes(data))
    (problem,) = restarted(lives)
    assert problem.startswith(f"log {path}")
    assert logs_of(lives.disk) == []
    assert lives.disk.files()["aside/log-00000001.log"] == bytes(data)
    # The system had the segments: nothing is missing.
    assert lives.bodies() == sorted(lives.committed)
    assert restarted(lives) == []


def test_what_stands_behind_bytes_that_are_gone_is_kept_and_they_are_a_gap() -> None:
    lives = logged()
    for number in range(3):
        lives.publish(*numbered(12, f"x{number}"))
    shard = lives.store._shards[0]
    segment = shard.generations[-1].path + ".seg"
    assert isinstance(lives.disk, MemoryDisk)
    log = bytearray(lives.disk.files()["log/00000001.log"])
    assert shard.end > 6
    kept = lives.disk.files()[segment][:64]
    # Somebody cut the segment, and a batch of the log is damaged.
    log[batches_of(bytes(log))[0] + 40] ^= 1
    changed(lives, "log/00000001.log", bytes(log))
    changed(lives, segment, kept)
    problems = restarted(lives)
    assert any("damaged batches" in problem for problem in problems)
    assert any("behind the end" in problem for problem in problems)
    found = [one.body for one in readable(lives, 0)]
    assert found
    assert set(found) < set(lives.committed)
    assert lives.store.lost_messages > 0


def readable(lives: Logged, shard: int) -> list[Stored]:
    store, found = lives.store, list[Stored]()
    offset = store.first(shard)
    while offset < store.end(shard):
        block = store.read(shard, store.generation_of(shard, offset), offset, 1 << 20)
        assert block is not None
        if isinstance(block, Block):
            found += all_stored(block.data)
        offset = block.upto
    return found


def test_whole_messages_of_a_segment_are_not_written_over() -> None:
    """A folder that was copied, went on by itself, and was given the log of the other one."""
    lives = logged()
    lives.publish(*numbered(12))
    assert isinstance(lives.disk, MemoryDisk)
    before = lives.disk.files()
    log = before["log/00000001.log"]
    cut = {path: data for path, data in before.items() if path.endswith(".seg")}
    lives.publish(*numbered(12, "first"))
    log = lives.disk.files()["log/00000001.log"]
    lives.store.leave()
    lives.store.close()
    for path, data in cut.items():
        changed(lives, path, data)
        lives.disk.remove(path.replace(".seg", ".snapshot"))
        lives.disk.remove(path.replace(".seg", ".idx"))
    lives.disk.remove("000/manifest")
    lives.disk.remove("001/manifest")
    lives.disk.remove("002/manifest")
    lives.store = lives._opened()
    lives.committed = lives.committed[:13]
    lives.publish(*numbered(12, "other"))
    lives.store.leave()
    lives.disk.make_folders("log")
    file = lives.disk.open("log/00000001.log", create=True)
    file.append(log)
    file.close()
    problems = restarted(lives)
    assert all("has other messages than" in problem for problem in problems)
    assert problems
    assert lives.bodies() == sorted(lives.committed)
    assert lives.disk.files()["aside/log-00000001.log"] == log


# --- who only reads -------------------------------------------------------------------------------


def test_a_folder_behind_a_power_cut_is_read_with_its_log(tmp_path: Path) -> None:
    disk = FileDisk(tmp_path)
    lives = logged(disk)
    synced = {path: path.stat().st_size for path in tmp_path.glob("*/*.seg")}
    for number in range(3):
        assert lives.publish(*numbered(9, f"x{number}"))
    sizes = {path: path.stat().st_size for path in tmp_path.glob("*/*.seg")}
    # As a power cut may leave what was not synced: gone, or zeros.
    for number, (path, size) in enumerate(sorted(sizes.items())):
        data = path.read_bytes()
        cut = synced[path] if number == 0 else size - 40
        path.write_bytes(data[:cut] + (bytes(size - cut) if number == 1 else b""))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    streams = FolderStreams(str(tmp_path))
    found = []
    for extent in streams.extents():
        offset = extent.first
        while offset < extent.end:
            block = streams.read(extent.stream, offset, 1 << 20)
            assert isinstance(block, Block)
            found += [one.body for one in all_stored(block.data)]
            offset = block.upto
        segment = streams.segment(extent.stream)
        assert segment is not None
        raw = segment.begin(64, segment.size_bytes - 64)()
        bodies = [one.body for one in all_stored(bytes(raw[: segment.size_bytes - 64]))]
        assert bodies == found[-len(bodies) :]
        segment.close()
    assert sorted(found) == sorted(lives.committed)
    bounds, _ = streams.described({})
    assert sum(end - first for first, end in bounds.values()) == len(lives.committed)
    assert Shard("n1", 0) in bounds
    report = check_streams(disk, None, lives.now_us, lambda *_: None, sync=True)
    assert (report.problems, report.messages) == ([], len(lives.committed))
    assert before == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    lives.store.close()
    lives.store = lives._opened()
    lives.check()


HEALTHY = b""


@pytest.fixture(scope="module", autouse=True)
def _healthy() -> None:
    global HEALTHY
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream_log, "STREAM_LOG_BYTES", 4_000)
        HEALTHY = some_log()
