"""The last retained message of each topic."""

import pytest
from tests.journal.lives import Lives, one_shard

from moorline.core.frame import RETAIN, stored_at
from moorline.journal.retained import Entry
from moorline.testing import MemoryDisk


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
