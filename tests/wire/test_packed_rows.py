"""Packed rows: what goes in comes out, in the right shard, and nothing that is not sound gets through."""

import random

import numpy as np
import pytest
import xxhash

from moorline.core.frames.frame import (
    KEYED,
    PRODUCER,
    RETAIN,
    TOMBSTONE,
    Stored,
    all_stored,
    decode_headers,
)
from moorline.errors import Malformed
from moorline.wire.packed_rows import PackedRows, Stamps, filled, packed, unpacked
from moorline.wire.topic import Record

RECORDS = [
    Record("a", b"one"),
    Record("orders/eu", b"", b"key"),
    Record("a", b"two" * 100, b"", [("h", b"v")], 60),
    Record("b/ü", b"x", None, None, 0, RETAIN),
    Record("orders/eu", b"again", b"key"),
    Record("orders/eu", b"", b"key", None, 0, TOMBSTONE),
]


@pytest.fixture(autouse=True, params=["one by one", "all at once"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    most = 10**9 if request.param == "one by one" else 0
    monkeypatch.setattr("moorline.core.frames.byte_columns.COLUMN_ONE_BY_ONE_MAX", most)


def shown(stored: Stored) -> Record:
    headers = decode_headers(stored.headers) or None
    flags = stored.flags & ~(KEYED | PRODUCER)
    return Record(stored.topic, stored.body, stored.key, headers, stored.ttl_s, flags)


def shard_of(record: Record, shards: int) -> int:
    route = record.topic.encode() if record.key is None else record.key
    return xxhash.xxh3_64_intdigest(route) % shards


@pytest.mark.parametrize("shards", [1, 2, 8, 100])
def test_rows_come_back_by_shard_and_in_order(shards: int) -> None:
    rows = unpacked(packed(RECORDS, shards).encoded())
    rows.check()
    in_order = sorted(RECORDS, key=lambda record: shard_of(record, shards))
    assert [shown(one) for one in all_stored(bytes(rows.frames))] == in_order
    assert [rows.names[topic] for topic in rows.topics] == [one.topic for one in in_order]
    counts = [sum(shard_of(one, shards) == shard for one in RECORDS) for shard in range(shards)]
    assert np.diff(rows.ends, prepend=0).tolist() == counts


def test_another_number_of_shards_keeps_the_places() -> None:
    rows = packed(RECORDS, 3)
    other, places = rows.sorted_by(5)
    other.check()
    before = list(all_stored(bytes(rows.frames)))
    assert [before[place] for place in places] == list(all_stored(bytes(other.frames)))


def test_what_the_node_says_is_filled_in() -> None:
    rows = packed(RECORDS, 1)
    offsets = np.arange(70, 70 + rows.count)
    stamps = Stamps(offsets, offsets * 1_000, 1 << 63 | 9, offsets + 11)
    frames, flags = filled(rows, stamps)
    found = list(all_stored(bytes(frames)))
    assert [shown(one) for one in found] == RECORDS
    assert [one.offset for one in found] == offsets.tolist()
    assert [one.time_us for one in found] == (offsets * 1_000).tolist()
    assert {one.producer for one in found} == {1 << 63 | 9}
    assert [one.sequence for one in found] == (offsets + 11).tolist()
    assert [one.flags for one in found] == flags.tolist()


def test_no_rows_are_fine() -> None:
    rows = unpacked(packed([], 4).encoded())
    rows.check()
    assert rows.count == 0


@pytest.mark.slow
def test_bytes_that_are_changed_are_refused_or_sound() -> None:
    """Whatever a client sends: it is refused, or the frames are those that the numbers speak of."""
    chance = random.Random(5)
    good = packed(RECORDS, 4).encoded()
    refused = 0
    for _ in range(3_000):
        data = bytearray(good)
        for _ in range(chance.choice([1, 1, 2, 5])):
            data[chance.randrange(len(data))] = chance.randrange(256)
        if chance.random() < 0.2:
            data = data[: chance.randrange(len(data))]
        try:
            rows = unpacked(bytes(data))
            rows.check()
        except Malformed:
            refused += 1
            continue
        found = list(all_stored(bytes(rows.frames)))
        assert [one.topic for one in found] == [rows.names[topic] for topic in rows.topics]
        assert all(one.flags & PRODUCER for one in found)
    assert 1_000 < refused < 3_000


@pytest.mark.parametrize("names", [["a", "ghost"], ["a", "a"]])
def test_a_topic_without_a_row_is_refused(names: list[str]) -> None:
    rows = packed([Record("a", b"one")], 1)
    with pytest.raises(Malformed, match="named once"):
        PackedRows(1, rows.ends, rows.lengths, rows.topics, names, rows.frames).check()


def test_a_tombstone_with_a_body_is_refused() -> None:
    with pytest.raises(Malformed, match="a tombstone has a body"):
        packed([Record("a", b"one", b"k", None, 0, TOMBSTONE)], 1).check()


def test_a_row_in_a_wrong_shard_is_refused() -> None:
    record = Record("a", b"one", b"k")
    rows = packed([record], 2)
    other = np.array([0, 1]) if shard_of(record, 2) == 0 else np.array([1, 1])
    wrong = PackedRows(2, other, rows.lengths, rows.topics, rows.names, rows.frames)
    with pytest.raises(Malformed, match="another shard"):
        wrong.check()
