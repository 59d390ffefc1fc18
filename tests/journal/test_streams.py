"""The streams of a node: commits, generations, retention, times, digests, retained messages, layouts."""

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from moorline.core.block import Block
from moorline.core.digest import Digest
from moorline.core.stream import Extent, Gap, Stream
from moorline.core.topic import Matcher
from moorline.errors import BadTopic, StartError
from moorline.journal.disk import Disk, FileDisk
from moorline.journal.dropped import Dropped
from moorline.journal.streams import StreamOptions, StreamStore
from moorline.testing import HandClock, MemoryDisk
from moorline.wire.segment import KEYED, PRODUCER, QOS0, RETAIN, Stored, all_stored, stored_at

BYTES_MAX = 1 << 20


class Lives:
    """One store after another on the same disk, under one clock."""

    def __init__(self, disk: Disk, options: StreamOptions | None = None) -> None:
        self.disk = disk
        self.clock = HandClock()
        self.options = options or StreamOptions(shards=2)
        self.store = self._opened()

    def now_us(self) -> int:
        return self.clock.wall_ms() * 1_000

    def _opened(self) -> StreamStore:
        store = StreamStore(self.disk, "n1", self.options, self.now_us)
        store.open()
        return store

    def restart(self, options: StreamOptions | None = None) -> StreamStore:
        self.store.close()
        assert self.disk.open_handles == 0
        self.options = options or self.options
        self.store = self._opened()
        return self.store

    def put(self, topic: str, body: bytes = b"x", **more: int) -> tuple[int, int]:
        values = {"ttl_s": 0, "flags": 0} | more
        return self.store.append(topic, body, None, b"", **values)

    def commit(self) -> list[int]:
        batch = self.store.take_batch()
        assert batch is not None
        self.store.write(batch)
        return self.store.committed(batch)

    def seal(self) -> None:
        for shard, generation in self.store.unsealed():
            self.store.sealed(shard, generation, self.store.seal(shard, generation)())

    def messages(self, shard: int, offset: int | None = None) -> list[Stored]:
        """All from there on; that nothing is missing is checked."""
        offset = self.store.first(shard) if offset is None else offset
        found: list[Stored] = []
        number = self.store.generation_of(shard, offset)
        while True:
            block = self.store.read(shard, number, offset, BYTES_MAX)
            if block is None:
                if self.store.extent(shard, number + 1) is None:
                    return found
                number += 1
                continue
            assert isinstance(block, Block)
            found += all_stored(block.data)
            offset = block.upto


@pytest.fixture(params=["memory", "file"])
def lives(request: pytest.FixtureRequest, tmp_path: Path) -> Lives:
    return Lives(MemoryDisk() if request.param == "memory" else FileDisk(tmp_path / "streams"))


def one_shard(**more: int) -> Lives:
    return Lives(MemoryDisk(), StreamOptions(shards=1, **more))  # type: ignore[arg-type]


# --- a message --------------------------------------------------------------------------------------


def test_a_message_comes_back_as_it_was_given(lives: Lives) -> None:
    store = lives.store
    shard, offset = store.append("a/b", b"body", b"key", b"headers", 60, RETAIN | QOS0, 7, 3)
    assert offset == 0
    lives.commit()
    expected = Stored(
        0,
        lives.now_us(),
        60,
        KEYED | RETAIN | PRODUCER | QOS0,
        "a/b",
        b"key",
        b"headers",
        7,
        3,
        b"body",
    )
    assert lives.messages(shard) == [expected]
    lives.restart()
    assert lives.messages(shard) == [expected]


def test_nothing_is_seen_before_it_is_committed(lives: Lives) -> None:
    store = lives.store
    shard, _ = lives.put("t", flags=RETAIN)
    generation = store.generation_of(shard, 0)
    size = store.batch_bytes
    batch = store.take_batch()
    assert batch is not None
    assert (batch.count, store.batch_bytes) == (1, 0)
    assert sum(len(part.block.data) for part in batch.parts) == size
    store.write(batch)
    assert store.read(shard, generation, 0, BYTES_MAX) is None
    assert store.end(shard) == 0
    assert store.retained(Matcher("#")) == []
    assert store.committed(batch) == [shard]
    assert store.end(shard) == 1
    assert isinstance(store.read(shard, generation, 0, BYTES_MAX), Block)
    assert len(store.retained(Matcher("#"))) == 1
    assert store.take_batch() is None


def test_answers_go_with_the_batch_even_if_all_were_duplicates() -> None:
    lives = one_shard()
    lives.put("t", producer=1, sequence=1)
    lives.store.answers.append("first")
    batch = lives.store.take_batch()
    assert batch is not None
    assert batch.answers == ["first"]
    assert lives.put("t", producer=1, sequence=1) == (0, -1)
    lives.store.answers.append("second")
    lives.store.write(batch)
    lives.store.committed(batch)
    batch = lives.store.take_batch()
    assert batch is not None
    assert (batch.answers, batch.count) == (["second"], 0)


@pytest.mark.parametrize("topic", ["", "a/+", "#", "a\0b", "$shared/g/a", "x" * 2_000])
def test_a_topic_that_cannot_be_one_is_refused_and_nothing_is_stored(topic: str) -> None:
    lives = one_shard()
    for _ in range(2):
        with pytest.raises(BadTopic):
            lives.put(topic)
    assert lives.store.take_batch() is None


def test_a_topic_keeps_its_shard_and_a_key_goes_before_it() -> None:
    lives = Lives(MemoryDisk(), StreamOptions(shards=8))
    shards = {lives.put(f"t/{number}")[0] for number in range(200)}
    assert shards == set(range(8))
    assert len({lives.put("t/1")[0] for _ in range(10)}) == 1
    keyed = {lives.store.append(f"t/{n}", b"", b"k", b"", 0, 0)[0] for n in range(50)}
    assert len(keyed) == 1


def test_time_never_goes_back_in_a_shard() -> None:
    lives = one_shard()
    lives.put("t")
    lives.clock.jump(-60_000)
    lives.put("t")
    lives.commit()
    lives.restart()
    lives.put("t")
    lives.commit()
    lives.clock.jump(120_000)
    lives.put("t")
    lives.commit()
    times = [one.time_us for one in lives.messages(0)]
    assert times == [times[0]] * 3 + [lives.now_us()]


# --- duplicates -------------------------------------------------------------------------------------


def test_a_sequence_that_is_not_above_the_last_is_passed_over(lives: Lives) -> None:
    shard, offset = lives.put("t", producer=9, sequence=5)
    assert offset == 0
    assert lives.put("t", producer=9, sequence=5) == (shard, -1)
    lives.commit()
    assert lives.put("t", producer=9, sequence=4) == (shard, -1)
    assert lives.put("t", producer=8, sequence=5) == (shard, 1)
    assert lives.put("t", producer=9, sequence=9) == (shard, 2)
    lives.commit()
    lives.restart()
    assert lives.put("t", producer=9, sequence=9) == (shard, -1)
    assert lives.put("t", producer=8, sequence=5) == (shard, -1)
    assert lives.put("t", producer=9, sequence=10) == (shard, 3)


def test_producers_are_remembered_when_their_messages_are_gone() -> None:
    lives = one_shard(generation_s=10, retention_s=60)
    lives.put("t", producer=9, sequence=5)
    lives.commit()
    for _ in range(3):
        lives.clock.advance(100_000)
        lives.store.roll(lives.now_us())
        lives.put("t")
        lives.commit()
        lives.seal()
        lives.store.drop_expired(lives.now_us())
        lives.restart()
        assert lives.put("t", producer=9, sequence=5) == (0, -1)
    assert lives.store.first(0) > 0


def test_the_producers_that_were_not_seen_for_longest_are_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("moorline.journal.seal.PRODUCERS_MAX", 3)
    lives = one_shard()
    for producer in (1, 2, 3, 1, 4):
        lives.put("t", producer=producer, sequence=lives.store.end(0) + 1)
        lives.commit()
    for _ in range(2):
        assert list(lives.store._shards[0].producers) == [3, 1, 4]
        lives.restart()


# --- generations ------------------------------------------------------------------------------------


def test_a_generation_ends_when_it_is_too_large(lives: Lives) -> None:
    lives.restart(StreamOptions(shards=1, generation_bytes_max=500))
    for number in range(40):
        lives.put("t", b"%d" % number)
        if number % 4 == 3:
            lives.commit()
    extents = [extent for extent in lives.store.extents() if extent.stream.shard == 0]
    assert [extent.stream for extent in extents] == [
        Stream("n1", 0, number) for number in range(1, len(extents) + 1)
    ]
    assert len(extents) > 3
    assert [extent.sealed for extent in extents] == [True] * (len(extents) - 1) + [False]
    assert [extent.first for extent in extents[1:]] == [extent.end for extent in extents[:-1]]
    assert (lives.store.first(0), lives.store.end(0)) == (0, 40)
    for _ in range(2):
        assert [one.body for one in lives.messages(0)] == [b"%d" % number for number in range(40)]
        for extent in extents:
            number = extent.stream.generation
            assert lives.store.generation_of(0, extent.first) == number
            assert lives.store.generation_of(0, extent.end - 1) == number
            assert lives.store.read(0, number, extent.end, BYTES_MAX) is None
            assert lives.store.extent(0, number) == extent
        lives.restart()
    assert lives.store.unsealed() == []


def test_a_generation_ends_when_it_is_too_old_and_not_empty() -> None:
    lives = one_shard(generation_s=10)
    lives.clock.advance(60_000)
    assert lives.store.roll(lives.now_us()) == []
    lives.put("t")
    lives.commit()
    assert not lives.store.due(lives.now_us())
    lives.clock.advance(10_000)
    assert lives.store.due(lives.now_us())
    assert lives.store.roll(lives.now_us()) == [0]
    # Nothing is to be stored, and still there is something to write.
    assert lives.store.extents() == [Extent(Stream("n1", 0, 1), 0, 1, False)]
    assert lives.commit() == [0]
    assert lives.store.extents() == [
        Extent(Stream("n1", 0, 1), 0, 1, True),
        Extent(Stream("n1", 0, 2), 1, 1, False),
    ]
    assert lives.store.generation_of(0, 1) == 2
    assert lives.store.due(lives.now_us())
    lives.seal()
    assert not lives.store.due(lives.now_us())
    assert lives.store.extent(0, 3) is None


def test_a_roll_keeps_the_batch_for_the_new_generation() -> None:
    lives = one_shard(generation_s=10)
    lives.put("t", b"old")
    lives.commit()
    lives.clock.advance(10_000)
    lives.put("t", b"new")
    lives.store.roll(lives.now_us())
    lives.commit()
    assert [(one.first, one.end) for one in lives.store.extents()] == [(0, 1), (1, 2)]


# --- seals ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 100, 9_000])
def test_a_seal_says_what_its_generation_holds(count: int) -> None:
    lives = one_shard()
    for number in range(count):
        lives.put(f"t/{number % 7}", b"%d" % number, producer=1 + number % 5, sequence=number)
        lives.clock.advance(1)
    lives.commit()
    assert lives.store.seal_of(0, 1) is None
    active = lives.store.topics(0, 1)
    lives.store.roll(1 << 62)
    lives.commit()
    messages = lives.messages(0)
    block = lives.store.read(0, 1, 0, 1 << 30)
    assert isinstance(block, Block)
    ends = [*block.positions[1:].tolist(), len(block.data)]
    contents = [
        block.data[start + 8 : end]
        for start, end in zip(block.positions.tolist(), ends, strict=True)
    ]
    lives.seal()
    for _ in range(2):
        seal = lives.store.seal_of(0, 1)
        assert seal is not None
        assert seal.digest == Digest.of(contents)
        assert (seal.first, seal.end, seal.count) == (0, count, count)
        assert seal.bytes == 64 + len(block.data)
        assert seal.first_time_us == messages[0].time_us
        assert seal.last_time_us == messages[-1].time_us
        assert seal.producers == {one.producer: one.sequence for one in messages}
        assert seal.topics == active == lives.store.topics(0, 1)
        assert sum(active.values()) == count
        lives.restart()


def test_a_seal_that_is_not_true_is_made_anew() -> None:
    lives = one_shard()
    for number in range(10):
        lives.put("t", b"%d" % number, producer=3, sequence=number)
    lives.commit()
    lives.store.roll(1 << 62)
    lives.commit()
    lives.seal()
    before = lives.store.seal_of(0, 1)
    path = "000/00000001.seal"
    assert isinstance(lives.disk, MemoryDisk)
    true = lives.disk.files()[path]
    for lie in (b"", true[:-1], true[:20], bytes(len(true)), true[:40] + b"?" + true[41:]):
        lives.disk.write_whole(path, lie)
        lives.restart()
        assert lives.store.seal_of(0, 1) == before or lie == true[:-1]
    assert lives.put("t", producer=3, sequence=9) == (0, -1)


def test_topics_beyond_the_bound_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moorline.journal.seal.TOPICS_COUNTED_MAX", 2)
    lives = one_shard()
    for topic in ("a", "b", "c", "a", "d"):
        lives.put(topic)
    lives.commit()
    expected = {"a": 2, "b": 1, "": 2}
    assert lives.store.topics(0, 1) == expected
    lives.restart()
    assert lives.store.topics(0, 1) == expected
    assert lives.store.topics(0, 99) == {}


# --- retention --------------------------------------------------------------------------------------


def _generations(lives: Lives, count: int, each: int = 10) -> None:
    """Sealed generations a minute apart, and an empty newest one."""
    for _ in range(count):
        for _ in range(each):
            lives.put("t", b"x" * 100)
        lives.commit()
        lives.clock.advance(60_000)
        lives.store.roll(lives.now_us())
        lives.commit()
        lives.seal()


def test_retention_by_age_counts_from_the_last_message() -> None:
    lives = one_shard(generation_s=1, retention_s=150)
    _generations(lives, 4)
    size = 64 + 10 * 137
    assert lives.store.due(lives.now_us())
    assert lives.store.drop_expired(lives.now_us()) == [
        Dropped(0, 1, 0, 10, 10, size, "AGE"),
        Dropped(0, 2, 10, 20, 10, size, "AGE"),
    ]
    assert not lives.store.due(lives.now_us())
    for _ in range(2):
        assert lives.store.first(0) == 20
        assert lives.store.read(0, 1, 4, BYTES_MAX) == Gap(4, 10, "RETENTION")
        assert lives.store.read(0, 2, 10, BYTES_MAX) == Gap(10, 20, "RETENTION")
        assert lives.store.read(0, 2, 20, BYTES_MAX) is None
        assert lives.store.read(0, 3, 4, BYTES_MAX) == Gap(4, 20, "RETENTION")
        assert lives.store.read_is_cached(0, 1, 4)
        assert lives.store.generation_of(0, 4) == 3
        assert [one.offset for one in lives.messages(0)] == list(range(20, 40))
        lives.restart()
    lives.clock.advance(10**9)
    assert [gone.generation for gone in lives.store.drop_expired(lives.now_us())] == [3, 4]
    # The newest stays, so offsets go on.
    assert lives.store.extents() == [Extent(Stream("n1", 0, 5), 40, 40, False)]
    assert lives.store.lost_messages == 0
    assert isinstance(lives.disk, MemoryDisk)
    lines = lives.disk.files()["000/dropped.log"].decode().splitlines()
    said, _, _ = lines[1].rpartition(" check=")
    assert said == f"generation=2 first=10 upto=20 count=10 bytes={size} reason=AGE"
    assert len(lines) == 4


def test_retention_by_bytes_takes_the_oldest_of_all_shards() -> None:
    lives = Lives(MemoryDisk(), StreamOptions(shards=2, generation_s=1, retention_s=0))
    topics = ["a", "b", "c", "d"]
    shard_of = {topic: Lives(MemoryDisk()).put(topic)[0] for topic in topics}
    order = ["a", next(topic for topic in topics if shard_of[topic] != shard_of["a"]), "a"]
    for topic in order:
        lives.clock.advance(60_000)
        lives.put(topic, b"x" * 1_000)
        lives.commit()
        lives.store.roll(lives.now_us() + 60_000_000)
        lives.commit()
        lives.seal()
    assert lives.store.drop_expired(lives.now_us() + 10**15) == []
    lives.restart(StreamOptions(shards=2, generation_s=1, retention_s=0, retention_bytes=1_500))
    dropped = lives.store.drop_expired(lives.now_us())
    assert [gone.reason for gone in dropped] == ["BYTES"] * len(dropped)
    assert [gone.shard for gone in dropped] == [shard_of[topic] for topic in order[:2]]
    assert lives.store._bytes() <= 1_500


def test_what_has_no_seal_is_not_dropped() -> None:
    lives = one_shard(generation_s=1, retention_s=1)
    lives.put("t")
    lives.commit()
    lives.clock.advance(60_000)
    lives.store.roll(lives.now_us())
    lives.commit()
    assert lives.store.drop_expired(lives.now_us()) == []
    lives.seal()
    assert len(lives.store.drop_expired(lives.now_us())) == 1


# --- reading ----------------------------------------------------------------------------------------


def test_memory_and_disk_give_the_same_messages(lives: Lives) -> None:
    lives.restart(StreamOptions(shards=1))
    for number in range(1_000):
        lives.put(f"t/{number % 13}", b"%d" % number * (number % 9))
        if number % 77 == 0:
            lives.commit()
    lives.commit()
    store = lives.store
    for offset in (0, 1, 76, 78, 500, 999):
        for bytes_max in (1, 100, 3_000, BYTES_MAX):
            assert store.read_is_cached(0, 1, offset)
            warm = store.read(0, 1, offset, bytes_max)
            cold = store._shards[0].generations[0].read(offset, bytes_max)
            assert isinstance(warm, Block)
            assert isinstance(cold, Block)
            upto = min(warm.upto, cold.upto)
            assert (
                list(all_stored(warm.data))[: upto - offset]
                == (list(all_stored(cold.data))[: upto - offset])
            )
            for block in (warm, cold):
                names = [block.names[number] for number in block.topics]
                assert names == [one.topic for one in all_stored(block.data)]
                assert len(block.positions) == block.upto - block.first
                assert len(block.data) <= bytes_max or block.upto == offset + 1
    lives.restart()
    assert not lives.store.read_is_cached(0, 1, 0)
    assert lives.store.read_is_cached(0, 1, 1_000)


def test_a_block_from_memory_is_not_copied_if_it_fits() -> None:
    lives = one_shard()
    lives.put("t")
    lives.put("t")
    lives.commit()
    assert lives.store.read(0, 1, 0, BYTES_MAX) is lives.store.read(0, 1, 0, BYTES_MAX)


def test_the_tail_is_bounded_and_what_left_it_is_read_from_disk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("moorline.journal.tail.STREAM_TAIL_BLOCKS_MAX", 3)
    lives = one_shard()
    for number in range(10):
        lives.put("t", b"%d" % number)
        lives.commit()
    cached = [lives.store.read_is_cached(0, 1, offset) for offset in range(10)]
    assert cached == [False] * 7 + [True] * 3
    assert [one.body for one in lives.messages(0)] == [b"%d" % number for number in range(10)]


def test_a_message_larger_than_what_may_be_read_comes_alone(lives: Lives) -> None:
    lives.restart(StreamOptions(shards=1))
    bodies = [b"s", b"L" * 3_000_000, b"t"]
    for body in bodies:
        lives.put("t", body)
    lives.commit()
    for _ in range(2):
        for offset, body in enumerate(bodies):
            block = lives.store.read(0, 1, offset, 10)
            assert isinstance(block, Block)
            assert (block.first, block.upto) == (offset, offset + 1)
            assert stored_at(block.data, 0).body == body
        lives.restart()


def test_threads_may_read_while_the_loop_commits_rolls_and_drops(tmp_path: Path) -> None:
    options = StreamOptions(
        sync=False, shards=1, generation_bytes_max=100_000, retention_s=0, retention_bytes=400_000
    )
    lives = Lives(FileDisk(tmp_path), options)
    store, is_done = lives.store, threading.Event()

    def reader(chance: random.Random) -> int:
        """Reads from anywhere, past the cache as well; every message says its offset."""
        seen = 0
        while not is_done.is_set():
            end = store.end(0)
            offset = chance.randrange(max(0, end - 5_000), end + 1)
            number = store.generation_of(0, offset)
            for _ in range(10):
                found = store.read(0, number, offset, 20_000)
                if found is None:
                    break
                assert isinstance(found, Block) or found.reason == "RETENTION"
                if isinstance(found, Block):
                    bodies = [one.body for one in all_stored(found.data)]
                    assert bodies == [b"%d" % n for n in range(offset, found.upto)]
                    seen += len(bodies)
                offset = found.upto
                number = store.generation_of(0, offset)
        return seen

    with ThreadPoolExecutor(3) as pool:
        readers = [pool.submit(reader, random.Random(seed)) for seed in range(3)]
        try:
            for number in range(20_000):
                lives.put("t", b"%d" % number)
                if number % 100 == 0:
                    lives.commit()
                if number % 1_000 == 0:
                    store._shards[0].tail.clear()
                    lives.seal()
                    store.drop_expired(lives.now_us())
        finally:
            is_done.set()
        assert all(one.result() > 0 for one in readers)
    assert store.first(0) > 0
    assert store.lost_messages == 0


def test_offset_at_is_the_first_message_that_is_not_older() -> None:
    lives = one_shard(generation_bytes_max=20_000)
    for number in range(2_000):
        # Several messages have the same time.
        if number % 3 == 0:
            lives.clock.advance(10)
        lives.put("t")
        if number % 50 == 0:
            lives.commit()
    lives.commit()
    assert len(lives.store.extents()) > 3
    times = [one.time_us for one in lives.messages(0)]
    wanted = sorted({*times[::7], *(time_us + 1 for time_us in times[::11]), 0})
    for _ in range(2):
        for time_us in wanted:
            expected = sum(other < time_us for other in times)
            assert lives.store.offset_at(0, time_us) == expected
        assert lives.store.offset_at(0, times[-1] + 1) == 2_000
        lives.seal()
    lives.restart()
    for time_us in wanted[::5]:
        assert lives.store.offset_at(0, time_us) == sum(other < time_us for other in times)


# --- retained messages ------------------------------------------------------------------------------


def _retained(lives: Lives, text: str = "#") -> dict[str, bytes]:
    return {topic: stored_at(frame, 0).body for topic, frame in lives.store.retained(Matcher(text))}


def test_the_last_retained_message_of_a_topic_counts(lives: Lives) -> None:
    for topic, body in [("a", b"1"), ("b/c", b"2"), ("a", b"3"), ("b/d", b"4"), ("b/c", b"")]:
        lives.clock.advance(1)
        lives.put(topic, body, flags=RETAIN)
        lives.put(topic, b"not retained")
        lives.commit()
    for _ in range(2):
        assert _retained(lives) == {"a": b"3", "b/c": b"", "b/d": b"4"}
        assert _retained(lives, "b/+") == {"b/c": b"", "b/d": b"4"}
        tombstone = stored_at(dict(lives.store.retained(Matcher("b/c")))["b/c"], 0)
        assert tombstone.time_us == lives.now_us()
        lives.restart()


def test_tombstones_are_forgotten_after_a_while() -> None:
    lives = one_shard()
    lives.put("a", b"", flags=RETAIN)
    lives.put("b", b"kept", flags=RETAIN)
    lives.commit()
    lives.clock.advance(31 * 86_400_000)
    lives.restart()
    # The shard still has it: what its tail says again must not bring it back.
    assert _retained(lives) == {"b": b"kept"}
    lives.restart()
    assert _retained(lives) == {"b": b"kept"}


def test_the_log_of_retained_messages_is_compacted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moorline.journal.retained.RETAINED_LOG_BYTES_MIN", 2_000)
    lives = one_shard()
    assert isinstance(lives.disk, MemoryDisk)
    sizes = []
    for number in range(200):
        lives.clock.advance(1)
        lives.put(f"t/{number % 3}", b"%d" % number, flags=RETAIN)
        lives.commit()
        sizes.append(len(lives.disk.files()["retained.log"]))
    assert max(sizes) <= 2_000
    assert _retained(lives) == {"t/0": b"198", "t/1": b"199", "t/2": b"197"}
    lives.restart()
    assert _retained(lives) == {"t/0": b"198", "t/1": b"199", "t/2": b"197"}
    assert len(lives.disk.files()["retained.log"]) < 300


def test_a_damaged_log_of_retained_messages_keeps_the_rest() -> None:
    lives = one_shard()
    for topic in ("a", "b", "c"):
        lives.put(topic, b"body", flags=RETAIN)
    lives.commit()
    # A new generation, so that the shard's tail does not bring it back.
    lives.store.roll(1 << 62)
    lives.commit()
    lives.store.close()
    assert isinstance(lives.disk, MemoryDisk)
    true = lives.disk.files()["retained.log"]
    for place in (64 + 3, 64 + 12, 64 + 41 + 20, len(true) - 1):
        broken = bytearray(true)
        broken[place] ^= 0xFF
        lives.disk.write_whole("retained.log", bytes(broken))
        lives.restart()
        lost = "abc"[min((place - 64) // 41, 2)]
        assert set(_retained(lives)) == {"a", "b", "c"} - {lost}
    lives.disk.write_whole("retained.log", b"garbage")
    lives.restart()
    assert _retained(lives) == {}


# --- layout -----------------------------------------------------------------------------------------


def test_more_or_fewer_shards_than_before_keep_what_is_there(lives: Lives) -> None:
    ends: dict[int, int] = {}
    stored: dict[int, list[bytes]] = {}
    body = 0
    for shards in (2, 5, 1, 3, 3, 5):
        lives.restart(StreamOptions(shards=shards))
        for number in range(20):
            body += 1
            shard, offset = lives.put(f"t/{number}", b"%d" % body)
            assert shard < shards
            assert offset == ends.get(shard, 0)
            ends[shard] = offset + 1
            stored.setdefault(shard, []).append(b"%d" % body)
        lives.commit()
        for shard, bodies in stored.items():
            assert [one.body for one in lives.messages(shard)] == bodies
        for extent in lives.store.extents():
            newest = lives.store.generation_of(extent.stream.shard, extent.end)
            grows = extent.stream.shard < shards and extent.stream.generation == newest
            assert extent.sealed == (not grows)
        assert lives.store.unsealed() == []
    assert lives.store.lost_messages == 0


def test_a_shard_out_of_use_may_go_as_a_whole_and_offsets_go_on() -> None:
    lives = Lives(MemoryDisk(), StreamOptions(shards=3))
    topic = next(f"t/{n}" for n in range(100) if lives.put(f"t/{n}")[0] == 2)
    lives.commit()
    end = lives.store.end(2)
    lives.restart(StreamOptions(shards=1))
    lives.clock.advance(10**10)
    gone = lives.store.drop_expired(lives.now_us())
    assert {one.shard for one in gone} == {1, 2}
    lives.restart(StreamOptions(shards=1))
    assert (lives.store.first(2), lives.store.end(2)) == (end, end)
    assert lives.store.read(2, lives.store.generation_of(2, 0), 0, BYTES_MAX) == Gap(
        0, end, "RETENTION"
    )
    lives.restart(StreamOptions(shards=3))
    assert lives.put(topic) == (2, end)


def test_a_newer_layout_is_refused() -> None:
    lives = one_shard()
    lives.store.close()
    lives.disk.write_whole("layout", b"shards=1 version=2\n")
    with pytest.raises(StartError):
        lives.restart()
    lives.disk.write_whole("layout", b"\xff\x00 garbage")
    lives.restart()
    assert isinstance(lives.disk, MemoryDisk)
    assert lives.disk.files()["layout"] == b"shards=1 version=1\n"
