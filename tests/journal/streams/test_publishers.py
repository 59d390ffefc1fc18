"""Whose bytes are in the streams: counted by the batch, kept over starts, given back by retention."""

import msgspec
import pytest
from tests.journal.streams.lives import Lives, drop_expired, one_shard

from moorline.core.sets.digest import Digest
from moorline.journal.streams import publishers, seal
from moorline.journal.streams.publishers import NOBODY, Mark, bytes_between
from moorline.journal.streams.seal import Memory, Summary, encoded, read_summary
from moorline.journal.streams.segment import SEGMENT_HEAD
from moorline.journal.streams.store import StreamOptions
from moorline.testing import MemoryDisk


def put(lives: Lives, publisher: str, size: int = 100, topic: str = "t") -> None:
    lives.store.append(topic, b"x" * size, None, b"", 0, 0, publisher=publisher)


def stored(lives: Lives, *names: str) -> list[int]:
    return [lives.store.stored_bytes.of(name) for name in names]


def frames_bytes(lives: Lives) -> int:
    store = lives.store
    return sum(
        store.measures(one.stream.shard_number, one.stream.generation)[0] - SEGMENT_HEAD.size
        for one in store.extents()
    )


def test_each_has_the_bytes_of_its_frames_and_together_they_are_all() -> None:
    lives = Lives(MemoryDisk(), StreamOptions(shards=4))
    for number in range(60):
        put(lives, ("alice", "bob", "alice", "carol")[number % 4], number, f"t/{number % 7}")
        if number % 13 == 0:
            lives.commit()
    lives.commit()
    found = stored(lives, "alice", "bob", "carol")
    assert sum(found) == frames_bytes(lives)
    assert found[0] > found[1] > 0
    assert stored(lives, "dave") == [0]


def test_what_a_node_says_itself_is_nobodys() -> None:
    lives = one_shard()
    put(lives, "alice")
    lives.commit()
    before = stored(lives, "alice", NOBODY)
    put(lives, NOBODY)
    lives.commit()
    assert stored(lives, "alice", NOBODY) == before == [frames_bytes(lives) // 2, 0]


def test_an_orderly_stop_keeps_the_count_and_a_crash_may_only_lower_it() -> None:
    lives = one_shard()
    put(lives, "alice")
    put(lives, "bob")
    lives.commit()
    before = stored(lives, "alice", "bob")
    assert min(before) > 0
    lives.store.leave()
    lives.restart()
    assert stored(lives, "alice", "bob") == before
    put(lives, "alice")
    lives.commit()
    lives.restart()  # without a word: what came behind the snapshot is nobody's
    assert stored(lives, "alice", "bob") == before


def test_sealed_generations_keep_it_and_retention_gives_it_back() -> None:
    lives = one_shard(generation_s=10, retention_s=100)
    put(lives, "alice")
    put(lives, "bob", 1_000)
    lives.commit()
    lives.clock.advance(11_000)
    lives.store.upkeep.roll(lives.now_us())
    put(lives, "alice")
    lives.commit()
    lives.seal()
    lives.store.leave()
    before = stored(lives, "alice", "bob")
    lives.restart()
    assert stored(lives, "alice", "bob") == before
    assert min(before) > 0
    lives.clock.advance(101_000)
    assert len(drop_expired(lives.store, lives.now_us())) == 1
    assert stored(lives, "alice", "bob") == [before[0] // 2, 0]
    lives.restart()
    assert stored(lives, "alice", "bob") == [before[0] // 2, 0]


def test_names_of_a_generation_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishers, "PUBLISHERS_COUNTED_MAX", 2)
    marks = [Mark(0, "a"), Mark(1, "b"), Mark(2, "c"), Mark(3, "a")]
    assert bytes_between(marks, [0, 10, 30, 60, 100], {}) == {"a": 50, "b": 20}
    assert bytes_between(marks, [0, 10, 30, 60, 100], {"c": 5, "d": 5}) == {"c": 30}


class SummaryBefore(msgspec.Struct, frozen=True, array_like=True):
    """As it was before bytes were counted by publisher."""

    seed: int
    first: int
    end: int
    count: int
    digest: Digest
    first_time_us: int
    last_time_us: int
    bytes: int


def test_a_seal_from_before_is_read_and_one_of_today_is_read_by_what_was_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Folders are used by the next version, and after a step back by the one before."""
    disk, facts = MemoryDisk(), (7, 0, 3, 3, Digest.empty(), 10, 20, 300)
    disk.write_whole("old.seal", encoded(SummaryBefore(*facts), Memory()))  # type: ignore[arg-type]
    disk.write_whole("new.seal", encoded(Summary(*facts, {"alice": 40}), Memory()))
    assert read_summary(disk, "old.seal") == Summary(*facts, {})
    monkeypatch.setattr(seal, "_summaries", msgspec.msgpack.Decoder(SummaryBefore))
    found: object = read_summary(disk, "new.seal")
    assert found == SummaryBefore(*facts)


def test_of_a_sealed_segment_that_lost_its_end_no_more_is_counted_than_is_there() -> None:
    lives = one_shard(generation_s=10)
    for _ in range(10):
        put(lives, "alice")
    lives.commit()
    lives.clock.advance(11_000)
    lives.store.upkeep.roll(lives.now_us())
    put(lives, "bob")
    lives.commit()
    lives.seal()
    lives.store.leave()
    path = lives.store._shards[0].generations[0].path + ".seg"
    lives.store.close()
    file = lives.disk.open(path, create=False)
    file.truncate(file.size() // 2)
    file.close()
    lives.restart()
    kept = lives.store._shards[0].generations[0]
    assert sum(kept.publishers.values()) <= kept.size_bytes
    assert stored(lives, "alice")[0] <= kept.size_bytes
    assert stored(lives, "bob")[0] > 0
