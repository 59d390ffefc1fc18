"""Generations of a shard: how they end, what their seals say, what retention takes."""

import random

import pytest
from tests.journal.streams.lives import BYTES_MAX, Lives, drop_expired, one_shard

from moorline.core.frames.block import Block
from moorline.core.sets.digest import Digest
from moorline.core.stream import Extent, Gap, Stream
from moorline.journal.streams.dropped import Dropped
from moorline.journal.streams.seal import count_topics
from moorline.journal.streams.store import StreamOptions
from moorline.limits import TOPIC_COUNTED_LENGTH, TOPICS_COUNTED_MAX
from moorline.testing import MemoryDisk

# --- generations ------------------------------------------------------------------------------------


def test_a_generation_ends_when_it_is_too_large(lives: Lives) -> None:
    lives.restart(StreamOptions(shards=1, generation_bytes_max=500))
    for number in range(40):
        lives.put("t", b"%d" % number)
        if number % 4 == 3:
            lives.commit()
    extents = [extent for extent in lives.store.extents() if extent.stream.shard_number == 0]
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
        lives.seal()
    assert lives.store.upkeep.unsealed() == []


def test_a_generation_ends_when_it_is_too_old_and_not_empty() -> None:
    lives = one_shard(generation_s=10)
    lives.clock.advance(60_000)
    assert lives.store.upkeep.roll(lives.now_us()) == []
    lives.put("t")
    lives.commit()
    assert lives.store.upkeep.roll(lives.now_us()) == []
    lives.clock.advance(10_000)
    assert lives.store.upkeep.roll(lives.now_us()) == [0]
    # Nothing is to be stored, and still there is something to write.
    assert lives.store.extents() == [Extent(Stream("n1", 0, 1), 0, 1, False)]
    assert lives.commit() == [0]
    assert lives.store.extents() == [
        Extent(Stream("n1", 0, 1), 0, 1, True),
        Extent(Stream("n1", 0, 2), 1, 1, False),
    ]
    assert lives.store.generation_of(0, 1) == 2
    assert lives.store.upkeep.unsealed() == [(0, 1)]
    lives.seal()
    assert lives.store.upkeep.unsealed() == []
    assert lives.store.extent(0, 3) is None


def test_a_roll_keeps_the_batch_for_the_new_generation() -> None:
    lives = one_shard(generation_s=10)
    lives.put("t", b"old")
    lives.commit()
    lives.clock.advance(10_000)
    lives.put("t", b"new")
    lives.store.upkeep.roll(lives.now_us())
    lives.commit()
    assert [(one.first, one.end) for one in lives.store.extents()] == [(0, 1), (1, 2)]


def test_an_offset_of_an_earlier_generation_is_read_where_it_is() -> None:
    """A reader knows that generation from another folder of the node, where it began elsewhere."""
    lives = one_shard(generation_s=10)
    for body in (b"first", b"second", b"third"):
        lives.put("t", body)
        lives.store.upkeep.roll(lives.now_us())
        lives.commit()
        lives.clock.advance(10_000)
    assert [(one.first, one.end) for one in lives.store.extents()] == [(0, 1), (1, 2), (2, 3)]
    for _ in range(2):
        for offset, body in enumerate((b"first", b"second", b"third")):
            block = lives.store.read(0, 3, offset, BYTES_MAX)
            assert isinstance(block, Block)
            assert (block.first, block.upto) == (offset, offset + 1)
            assert body in block.data
        lives.restart()  # from memory before, from the disk now
    lives.store.skip_to(0, 100)
    lives.put("t", b"fourth")
    lives.commit()
    assert lives.store.read(0, 4, 3, BYTES_MAX) == Gap(3, 100, "DAMAGE")


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
    lives.store.upkeep.roll(1 << 62)
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
    lives.store.upkeep.roll(1 << 62)
    lives.commit()
    lives.seal()
    before = lives.store.seal_of(0, 1)
    path = "000/00000001.seal"
    assert isinstance(lives.disk, MemoryDisk)
    true = lives.disk.files()[path]
    for lie in (b"", true[:-1], true[:20], bytes(len(true)), true[:40] + b"?" + true[41:]):
        lives.disk.write_whole(path, lie)
        lives.restart()
        lives.seal()
        assert lives.store.seal_of(0, 1) == before or lie == true[:-1]
    assert lives.put("t", producer=3, sequence=9) == (0, -1)


def test_topics_beyond_the_bound_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moorline.journal.streams.seal.TOPICS_COUNTED_MAX", 2)
    lives = one_shard()
    for topic in ("a", "b", "c", "a", "d"):
        lives.put(topic)
    lives.commit()
    expected = {"a": 2, "b": 1, "": 2}
    assert lives.store.topics(0, 1) == expected
    lives.restart()
    assert lives.store.topics(0, 1) == expected
    assert lives.store.topics(0, 99) == {}


def test_a_start_does_not_wait_for_seals_that_are_missing() -> None:
    """It knows what it needs without them: offsets, producers, times. The upkeep makes them, oldest first."""
    lives = one_shard()
    for number in range(1, 51):
        lives.put("t", b"%d" % number, producer=number, sequence=7)
        lives.commit()
        lives.clock.advance(1_000)
        lives.store.upkeep.roll(1 << 62)
        lives.commit()
    expected = [one.body for one in lives.messages(0)]
    times_us = [one.time_us for one in lives.messages(0)]
    assert isinstance(lives.disk, MemoryDisk)
    written = {path for path in lives.disk.files() if path.endswith(".seal")}
    lives.restart()
    assert {path for path in lives.disk.files() if path.endswith(".seal")} == written == set()
    assert lives.store.upkeep.unsealed() == [(0, number) for number in range(1, 51)]
    assert [one.body for one in lives.messages(0)] == expected
    assert [lives.store.offset_at(0, time_us) for time_us in times_us] == list(range(50))
    assert all(lives.put("t", producer=number, sequence=7) == (0, -1) for number in range(1, 51))
    lives.seal()
    assert lives.store.upkeep.unsealed() == []
    assert [lives.store.offset_at(0, time_us) for time_us in times_us] == list(range(50))
    lives.restart()
    assert lives.store.upkeep.unsealed() == []
    assert lives.store.topics(0, 1) == {"t": 1}


def test_seals_that_the_newest_generation_needs_are_made_at_the_start() -> None:
    """Without its snapshot only they know the producers before it."""
    lives = one_shard()
    for number in range(1, 4):
        lives.put("t", producer=number, sequence=7)
        lives.commit()
        lives.store.upkeep.roll(1 << 62)
        lives.commit()
    lives.store.close()
    lives.disk.remove("000/00000004.snapshot")
    lives.restart()
    assert lives.store.upkeep.unsealed() == []
    assert all(lives.put("t", producer=number, sequence=7) == (0, -1) for number in range(1, 4))


# --- retention --------------------------------------------------------------------------------------


def _generations(lives: Lives, count: int, each: int = 10) -> None:
    """Sealed generations a minute apart, and an empty newest one."""
    for _ in range(count):
        for _ in range(each):
            lives.put("t", b"x" * 100)
        lives.commit()
        lives.clock.advance(60_000)
        lives.store.upkeep.roll(lives.now_us())
        lives.commit()
        lives.seal()


def test_retention_by_age_counts_from_the_last_message() -> None:
    lives = one_shard(generation_s=1, retention_s=150)
    _generations(lives, 4)
    size = 64 + 10 * 137
    seeds = [one.head.seed for _, one in lives.store.all_generations()]
    assert drop_expired(lives.store, lives.now_us()) == [
        Dropped(0, 1, 0, 10, 10, size, "AGE", seeds[0]),
        Dropped(0, 2, 10, 20, 10, size, "AGE", seeds[1]),
    ]
    assert drop_expired(lives.store, lives.now_us()) == []
    for _ in range(2):
        assert lives.store.first(0) == 20
        assert lives.store.read(0, 1, 4, BYTES_MAX) == Gap(4, 10, "RETENTION")
        assert lives.store.read(0, 2, 10, BYTES_MAX) == Gap(10, 20, "RETENTION")
        assert lives.store.read(0, 2, 20, BYTES_MAX) is None
        assert lives.store.read(0, 3, 4, BYTES_MAX) == Gap(4, 20, "RETENTION")
        assert lives.store.read_now(0, 1, 4, 65_536) is not None
        assert lives.store.generation_of(0, 4) == 3
        assert [one.offset for one in lives.messages(0)] == list(range(20, 40))
        lives.restart()
    lives.clock.advance(10**9)
    assert [gone.generation for gone in drop_expired(lives.store, lives.now_us())] == [3, 4]
    # The newest stays, so offsets go on.
    assert lives.store.extents() == [Extent(Stream("n1", 0, 5), 40, 40, False)]
    assert lives.store.lost_messages == 0
    assert isinstance(lives.disk, MemoryDisk)
    lines = lives.disk.files()["000/dropped.log"].decode().splitlines()
    said, _, _ = lines[1].rpartition(" check=")
    assert said == f"generation=2 first=10 upto=20 count=10 bytes={size} reason=AGE seed={seeds[1]}"
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
        lives.store.upkeep.roll(lives.now_us() + 60_000_000)
        lives.commit()
        lives.seal()
    assert drop_expired(lives.store, lives.now_us() + 10**15) == []
    lives.restart(StreamOptions(shards=2, generation_s=1, retention_s=0, retention_bytes=1_500))
    dropped = drop_expired(lives.store, lives.now_us())
    assert [gone.reason for gone in dropped] == ["BYTES"] * len(dropped)
    assert [gone.shard for gone in dropped] == [shard_of[topic] for topic in order[:2]]
    kept = [one.stream for one in lives.store.extents()]
    assert sum(lives.store.measures(one.shard_number, one.generation)[0] for one in kept) <= 1_500


def test_what_has_no_seal_is_not_dropped() -> None:
    lives = one_shard(generation_s=1, retention_s=1)
    lives.put("t")
    lives.commit()
    lives.clock.advance(60_000)
    lives.store.upkeep.roll(lives.now_us())
    lives.commit()
    assert drop_expired(lives.store, lives.now_us()) == []
    lives.seal()
    assert len(drop_expired(lives.store, lives.now_us())) == 1


def test_long_names_of_topics_are_counted_in_the_memory_of_short_ones() -> None:
    topics: dict[str, int] = {}
    count_topics(topics, ((f"{number}".ljust(1_024, "x"), 1) for number in range(20_000)))
    assert sum(map(len, topics)) <= TOPICS_COUNTED_MAX * TOPIC_COUNTED_LENGTH
    assert sum(topics.values()) == 20_000, "the others are counted together"
    before = len(topics)
    count_topics(topics, [("short", 2)])
    assert (topics["short"], len(topics)) == (2, before + 1)


def test_what_is_said_of_all_generations_is_what_each_of_them_is() -> None:
    """Those that have ended are remembered: whatever a shard does, it is said as it is."""
    chance = random.Random(3)
    lives = one_shard(generation_bytes_max=300, retention_bytes=2_000)
    for _ in range(400):
        match chance.randrange(6):
            case 0:
                lives.seal()
            case 1:
                drop_expired(lives.store, lives.now_us())
            case 2 if chance.random() < 0.2:
                lives.store.skip_to(0, lives.store.end(0) + 5)
            case 3 if chance.random() < 0.1:
                lives.restart()
            case _:
                lives.put("t")
                lives.commit()
        said = lives.store.extents_of(0)
        each = [
            lives.store.extent(0, one.number)
            for shard, one in lives.store.all_generations()
            if shard.number == 0
        ]
        assert list(said) == each == lives.store.extents()
        assert said[0].first == lives.store.first(0)
        assert said[-1].end == lives.store.end(0)
    assert said[0].stream.generation > 5


def test_generations_that_have_ended_are_not_looked_at_again() -> None:
    lives = one_shard(generation_bytes_max=300)
    for _ in range(60):
        lives.put("t")
        lives.commit()
    before: tuple[Extent, ...] = ()
    after = before
    while not before or len(before) != len(after):
        before = lives.store.extents_of(0)
        lives.put("t")
        lives.commit()
        after = lives.store.extents_of(0)
    assert len(before) > 5
    assert all(one is other for one, other in zip(before[:-1], after[:-1], strict=True))
    assert after[-1].end == before[-1].end + 1
