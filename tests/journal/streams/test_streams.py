"""The streams of a node: messages, duplicates, reading, layouts."""

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.journal.streams.lives import BYTES_MAX, Lives, drop_expired, one_shard

from moorline.core.frames.block import Block
from moorline.core.frames.frame import KEYED, PRODUCER, QOS0, RETAIN, Stored, all_stored, stored_at
from moorline.core.stream import Gap
from moorline.errors import BadTopic, StartError
from moorline.journal.disk import FileDisk
from moorline.journal.streams.producers import UNNUMBERED
from moorline.journal.streams.store import StreamOptions, StreamStore
from moorline.testing import MemoryDisk

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
    assert (batch.message_count, store.batch_bytes) == (1, 0)
    assert sum(len(part.block.data) for part in batch.parts) == size
    store.write(batch)
    assert store.read(shard, generation, 0, BYTES_MAX) is None
    assert store.end(shard) == 0
    assert list(store.retained("#")) == [None]
    store.committed(batch)
    assert [part.shard.number for part in batch.parts] == [shard]
    assert store.end(shard) == 1
    assert isinstance(store.read(shard, generation, 0, BYTES_MAX), Block)
    assert len([one for one in store.retained("#") if one]) == 1
    assert store.take_batch() is None


def test_a_duplicate_leaves_nothing_for_a_batch() -> None:
    lives = one_shard()
    lives.put("t", producer=1, sequence=1)
    batch = lives.store.take_batch()
    assert batch is not None
    assert lives.put("t", producer=1, sequence=1) == (0, -1)
    lives.store.write(batch)
    lives.store.committed(batch)
    assert lives.store.take_batch() is None


def test_a_run_of_one_publisher_is_what_single_messages_of_it_would_be() -> None:
    messages = [(f"t/{n % 5}", b"%d" % n, QOS0 if n % 3 else 0) for n in range(40)]
    both = [Lives(MemoryDisk(), StreamOptions(shards=4)) for _ in range(2)]
    for lives in both:
        for topic, _, _ in messages:
            lives.store.check_topic(topic)
    one_by_one, at_once = both
    for topic, body, flags in messages:
        one_by_one.store.append(topic, body, None, b"", 0, flags, 7, UNNUMBERED, "ada")
    at_once.store.append_unnumbered(messages, 7, "ada")
    assert at_once.store.batch_bytes == one_by_one.store.batch_bytes
    for lives in both:
        lives.commit()
    for shard in range(4):
        assert at_once.messages(shard) == one_by_one.messages(shard)
    assert at_once.store.stored_bytes.of("ada") == one_by_one.store.stored_bytes.of("ada") > 0


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
        lives.store.upkeep.roll(lives.now_us())
        lives.put("t")
        lives.commit()
        lives.seal()
        drop_expired(lives.store, lives.now_us())
        lives.restart()
        assert lives.put("t", producer=9, sequence=5) == (0, -1)
    assert lives.store.first(0) > 0


def test_the_producers_that_were_not_seen_for_longest_are_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("moorline.journal.streams.producers.PRODUCERS_MAX", 3)
    lives = one_shard()
    for producer in (1, 2, 3, 1, 4):
        lives.put("t", producer=producer, sequence=lives.store.end(0) + 1)
        lives.commit()
    for _ in range(2):
        assert list(lives.store._shards[0].producers.stored) == [3, 1, 4]
        lives.restart()


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
            assert store.read_now(0, 1, offset, 65_536) is not None
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
    assert lives.store.read_now(0, 1, 0, 65_536) is None
    assert lives.store.read_now(0, 1, 1_000, 65_536) is not None


def test_a_block_from_memory_is_not_copied_if_it_fits() -> None:
    lives = one_shard()
    lives.put("t")
    lives.put("t")
    lives.commit()
    assert lives.store.read(0, 1, 0, BYTES_MAX) is lives.store.read(0, 1, 0, BYTES_MAX)


def test_the_tail_is_bounded_and_what_left_it_is_read_from_disk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("moorline.journal.streams.tail.STREAM_TAIL_BLOCKS_MAX", 3)
    lives = one_shard()
    for number in range(10):
        lives.put("t", b"%d" % number)
        lives.commit()
    cached = [lives.store.read_now(0, 1, offset, 65_536) is not None for offset in range(10)]
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


@pytest.mark.slow
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
                    drop_expired(store, lives.now_us())
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


# --- layout -----------------------------------------------------------------------------------------


def test_more_or_fewer_shards_than_before_keep_what_is_there(lives: Lives) -> None:
    ends: dict[int, int] = {}
    stored: dict[int, list[bytes]] = {}
    body = 0
    for shards in (2, 5, 1, 3, 3, 5):
        before = lives.options.shards
        lives.restart(StreamOptions(shards=shards))
        assert lives.store.shards_before == before
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
            newest = lives.store.generation_of(extent.stream.shard_number, extent.end)
            grows = extent.stream.shard_number < shards and extent.stream.generation == newest
            assert extent.sealed == (not grows)
        lives.seal()
        assert lives.store.upkeep.unsealed() == []
    assert lives.store.lost_messages == 0


def test_a_shard_out_of_use_may_go_as_a_whole_and_offsets_go_on() -> None:
    lives = Lives(MemoryDisk(), StreamOptions(shards=3))
    topic = next(f"t/{n}" for n in range(100) if lives.put(f"t/{n}")[0] == 2)
    lives.commit()
    end = lives.store.end(2)
    lives.restart(StreamOptions(shards=1))
    lives.seal()
    lives.clock.advance(10**10)
    gone = drop_expired(lives.store, lives.now_us())
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
    lives.disk.write_whole("layout", b"shards=1 version=5\n")
    with pytest.raises(StartError):
        lives.restart()
    lives.disk.write_whole("layout", b"\xff\x00 garbage")
    lives.restart()
    assert isinstance(lives.disk, MemoryDisk)
    assert lives.disk.files()["layout"] == b"node=n1 id=%s shards=1 version=3\n" % (b"A" * 32)


def test_the_layout_names_the_node() -> None:
    """A copy of the folder is still of that node; one that was given another name has the other."""
    lives = one_shard()
    assert isinstance(lives.disk, MemoryDisk)
    assert lives.disk.files()["layout"] == b"node=n1 id=%s shards=1 version=3\n" % (b"A" * 32)
    lives.store.close()
    renamed = StreamStore(lives.disk, "n2", lives.options, lives.now_us)
    renamed.open()
    assert lives.disk.files()["layout"] == b"node=n2 id=%s shards=1 version=3\n" % (b"A" * 32)
