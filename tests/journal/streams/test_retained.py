"""The last retained message of each topic."""

import itertools
import random

import pytest
from tests.journal.streams.lives import Lives, one_shard

from moorline.core.frames.frame import RETAIN, stored_at
from moorline.journal.streams.retained import Entry
from moorline.journal.streams.store import StreamOptions
from moorline.testing import Crashed, Lose, MemoryDisk


def _entries(lives: Lives, text: str) -> list[Entry]:
    return [one for one in lives.store.retained(text) if one is not None]


def _retained(lives: Lives, text: str = "#") -> dict[str, bytes]:
    return {one.topic: stored_at(one.frame, 0).body for one in _entries(lives, text)}


def test_the_last_retained_message_of_a_topic_counts(lives: Lives) -> None:
    for topic, body in [("a", b"1"), ("b/c", b"2"), ("a", b"3"), ("b/d", b"4"), ("b/c", b"")]:
        lives.clock.advance(1)
        lives.put(topic, body, flags=RETAIN)
        lives.put(topic, b"not retained")
        lives.commit()
    for _ in range(2):
        assert _retained(lives) == {"a": b"3", "b/c": b"", "b/d": b"4"}
        assert _retained(lives, "b/+") == {"b/c": b"", "b/d": b"4"}
        (found,) = _entries(lives, "b/c")
        tombstone = stored_at(found.frame, 0)
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
    monkeypatch.setattr("moorline.journal.streams.retained.RETAINED_LOG_BYTES_MIN", 2_000)
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


def _publish_one(lives: Lives, number: int) -> dict[str, bytes]:
    lives.clock.advance(1)
    topic, body = f"t/{number % 8}", b"%d" % number
    lives.put(topic, body, flags=RETAIN)
    lives.commit()
    return {topic: body}


def test_a_compaction_takes_several_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    """No commit writes more of the new log than a slice, and until that is whole the old one is the log."""
    monkeypatch.setattr("moorline.journal.streams.retained.RETAINED_LOG_BYTES_MIN", 600)
    monkeypatch.setattr("moorline.journal.streams.retained.RETAINED_SLICE_BYTES", 100)
    lives = one_shard()
    assert isinstance(lives.disk, MemoryDisk)
    wanted: dict[str, bytes] = {}
    copied, compactions, before = [], 0, 0
    for number in range(400):
        wanted |= _publish_one(lives, number)
        files = lives.disk.files()
        size, copy = len(files["retained.log"]), len(files.get("retained.log.new", b""))
        compactions += size < before
        copied.append(copy)
        before = size
        assert _retained(lives) == wanted
    assert compactions > 3
    grown = [after - size for size, after in itertools.pairwise(copied) if after > size]
    assert len(grown) > 3 * compactions
    assert max(grown) < 200
    # A stop in the middle of one.
    while "retained.log.new" not in lives.disk.files():
        number += 1
        wanted |= _publish_one(lives, number)
    lives.restart()
    assert _retained(lives) == wanted
    assert "retained.log.new" not in lives.disk.files()


@pytest.mark.slow
@pytest.mark.parametrize("lose", ["none", "some", "all"])
@pytest.mark.parametrize("slice_bytes", [100, 10_000])
def test_a_crash_at_any_step_of_a_compaction_loses_nothing(
    monkeypatch: pytest.MonkeyPatch, lose: Lose, slice_bytes: int
) -> None:
    monkeypatch.setattr("moorline.journal.streams.retained.RETAINED_LOG_BYTES_MIN", 600)
    monkeypatch.setattr("moorline.journal.streams.retained.RETAINED_SLICE_BYTES", slice_bytes)
    # A new generation at every third message: the shard's tail does not bring back what the log lost.
    options = StreamOptions(shards=1, generation_bytes_max=200)
    step, is_over = 0, False
    while not is_over:
        disk = MemoryDisk()
        lives = Lives(disk, options)
        wanted: dict[str, bytes] = {}
        for number in range(14):
            wanted |= _publish_one(lives, number)
        disk.crash_at = disk.steps + step
        try:
            size = len(disk.files()["retained.log"])
            for number in range(14, 26):
                wanted |= _publish_one(lives, number)
            is_over = True
            assert len(disk.files()["retained.log"]) < size + 12 * 41, (
                "the compaction came to its end"
            )
        except Crashed:
            pass
        disk.crash(random.Random(step), lose)
        lives = Lives(disk, options)
        found = _retained(lives)
        # The one that was on its way may be there or not.
        topic, body = f"t/{number % 8}", b"%d" % number
        assert found in (wanted, wanted | {topic: body}), step
        lives.store.close()
        step += 1
    assert step > 50


def test_a_damaged_log_of_retained_messages_keeps_the_rest() -> None:
    lives = one_shard()
    for topic in ("a", "b", "c"):
        lives.put(topic, b"body", flags=RETAIN)
    lives.commit()
    # A new generation, so that the shard's tail does not bring it back.
    lives.store.upkeep.roll(1 << 62)
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
