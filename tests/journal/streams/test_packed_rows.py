"""Packed rows in the streams: once each, also where the number of shards changed in between."""

from collections import Counter

import pytest
import xxhash

from moorline.core.frames.block import Block
from moorline.core.frames.frame import all_stored
from moorline.journal.streams.store import StreamOptions, StreamStore
from moorline.testing import MemoryDisk
from moorline.wire.packed_rows import packed
from moorline.wire.topic import Record

PRODUCER = 7
RECORDS = [Record("t", b"%d" % number, b"key %d" % number) for number in range(200)]


@pytest.fixture(autouse=True, params=["one by one", "all at once"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    most = 10**9 if request.param == "one by one" else 0
    monkeypatch.setattr("moorline.core.frames.byte_columns.COLUMN_ONE_BY_ONE_MAX", most)


def opened(disk: MemoryDisk, shards: int) -> StreamStore:
    store = StreamStore(disk, "n1", StreamOptions(shards=shards), lambda: 1_700_000_000_000_000)
    store.open()
    return store


def commit(store: StreamStore) -> None:
    batch = store.take_batch()
    assert batch is not None
    store.write(batch)
    store.committed(batch)


def bodies(store: StreamStore) -> Counter[bytes]:
    found: Counter[bytes] = Counter()
    for extent in store.extents():
        at = extent.first
        while at < extent.end:
            block = store.read(extent.stream.shard_number, extent.stream.generation, at, 1 << 20)
            assert isinstance(block, Block)
            found.update(one.body for one in all_stored(block.data))
            at = block.upto
    return found


def test_rows_that_are_tried_again_are_stored_once() -> None:
    store = opened(MemoryDisk(), 4)
    rows = packed(RECORDS, 4)
    assert store.append_packed(rows, 0, PRODUCER, 0) == 200
    assert store.append_packed(rows, 0, PRODUCER, 0) == 0
    commit(store)
    assert store.append_packed(rows, 150, PRODUCER, 0) == 0
    assert bodies(store) == Counter(record.body for record in RECORDS)


def test_another_number_of_shards_loses_nothing_of_what_was_stored_in_part() -> None:
    """A power cut took some shards' part of a commit; the next start has another number of shards."""
    disk = MemoryDisk()
    store = opened(disk, 4)
    some = [record for record in RECORDS if xxhash.xxh3_64_intdigest(record.key or b"") % 4 == 2]
    rows = packed(RECORDS, 4)
    # What one shard kept of it, under the numbers that its rows have.
    first = int(rows.ends[1])
    assert int(rows.ends[2]) - first == len(some)
    assert store.append_packed(packed(some, 4), 0, PRODUCER, first) == len(some)
    commit(store)
    store.close()

    store = opened(disk, 3)
    assert store.append_packed(rows, 0, PRODUCER, 0) == 200
    commit(store)
    assert store.append_packed(rows, 0, PRODUCER, 0) == 0
    expected = Counter(record.body for record in RECORDS)
    expected.update(record.body for record in some)
    assert bodies(store) == expected
