"""Files that somebody cut, and contents that look like frames: readers go on behind them, at a small cost."""

import struct

import numpy as np
import pytest
from tests.journal.streams.test_segment import (
    SEED,
    commit,
    content_of,
    everything,
    frames,
    opened,
    replace,
)

from moorline.core.frames.frame import FRAME, HEAD, Stored, check_of, frame_of
from moorline.core.stream import Gap
from moorline.journal.streams import segment
from moorline.journal.streams.segment import SEGMENT_HEAD, Piece, SegmentGap, walk
from moorline.journal.streams.segment_index import SparseIndex
from moorline.journal.streams.store import StreamOptions, StreamStore
from moorline.limits import FRAME_BYTES_MAX, STREAM_INDEX_EVERY
from moorline.testing import MemoryDisk

PER_GENERATION = 300
SMALL = StreamOptions(shards=1, generation_bytes_max=1)


def sealed_store(disk: MemoryDisk) -> StreamStore:
    """Three generations of 300 messages, of which two are sealed."""
    store = opened(disk, SMALL)
    for first in range(0, 3 * PER_GENERATION, PER_GENERATION):
        for number in range(first, first + PER_GENERATION):
            store.append("t", b"%d" % number, None, b"", 0, 0)
        commit(store)
    for shard, generation in store.upkeep.unsealed():
        store.upkeep.sealed(shard, generation, store.upkeep.seal(shard, generation)())
    store.close()
    # One that has nothing in its memory.
    return opened(disk, SMALL)


@pytest.mark.parametrize("behind", [0, 1, 7, 8, 20])
def test_a_sealed_segment_that_was_cut_is_a_gap_and_what_follows_is_read(behind: int) -> None:
    disk = MemoryDisk()
    store = sealed_store(disk)
    path = "000/00000001.seg"
    data = content_of(disk, path)
    pieces = [
        piece
        for piece in walk(
            disk.open(path, create=False), SEGMENT_HEAD.size, len(data), 0, seed_of(data)
        )
        if isinstance(piece, Piece)
    ]
    border = int(pieces[0].positions[100]) + pieces[0].position
    replace(disk, path, data[: border + behind])
    bodies, gaps = everything(store)
    assert gaps == [Gap(100, PER_GENERATION, "DAMAGE")]
    assert len(bodies) == 3 * PER_GENERATION - (PER_GENERATION - 100)


def seed_of(data: bytes) -> int:
    seed: int = SEGMENT_HEAD.unpack(data[: SEGMENT_HEAD.size])[5]
    return seed


@pytest.mark.parametrize(
    "positions", [(2**63 - 1, 2**63 + 1, 2**64 - 5), (64, 2**63 + 64, 128), (0, 100, 200)]
)
def test_an_index_whose_numbers_wrap_is_none(positions: tuple[int, ...]) -> None:
    entries = b"".join(
        struct.pack("<QQQ", position, number * STREAM_INDEX_EVERY, 5)
        for number, position in enumerate(positions)
    )
    assert SparseIndex.loaded(entries, 0, 3 * STREAM_INDEX_EVERY, 100_000) is None


def test_a_body_full_of_heads_costs_few_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind damage every byte may begin a frame; one that announces too much or is too far off does not."""
    far = FRAME.pack(FRAME_BYTES_MAX, 0, 7, 5, 0, 1, 0, 0, 0)
    large = FRAME.pack(900_000, 0, 10**15, 5, 0, 1, 0, 0, 0)
    old = FRAME.pack(100, 0, 2, 5, 0, 1, 0, 0, 0)
    body = (far + large + old) * 1_000
    hostile = frame_of(Stored(5, 5, 0, 0, "t", None, b"", 0, 0, body), SEED)
    damaged = bytearray(hostile)
    damaged[HEAD.size + 20] ^= 1
    data = b"".join((*frames(0, 5), damaged, *frames(6, 3), bytes(2 * FRAME_BYTES_MAX)))
    checked: list[int] = []
    check = check_of

    def counted(content: bytes, seed: int) -> int:
        checked.append(len(content))
        return check(content, seed)

    monkeypatch.setattr(segment, "check_of", counted)
    file = MemoryDisk().open("segment", create=True)
    file.append(data)
    found = list(walk(file, 0, len(data), 0, SEED))
    gaps = [one for one in found if isinstance(one, SegmentGap)]
    assert [(one.first, one.upto) for one in gaps] == [(5, 6), (9, -1)]
    assert sum(len(one.positions) for one in found if isinstance(one, Piece)) == 8
    # Those that are looked at one by one announce nearly two gigabytes.
    assert sum(checked) < 50_000_000


def test_a_shard_remembers_the_topics_that_it_has() -> None:
    from moorline.wire.packed_rows import packed
    from moorline.wire.topic import Record

    disk = MemoryDisk()
    store = StreamStore(disk, "n", StreamOptions(shards=8), lambda: 1_000)
    store.open()
    records = [Record(f"t/{number}", b"", b"%d" % number) for number in range(200)]
    store.append_packed(packed(records, 8), 0, 1, 0)
    commit(store)
    counted = [store.topics(shard, 1) for shard in range(8)]
    assert sum(map(len, counted)) == 200
    assert all(np.array(list(topics.values())).min() == 1 for topics in counted)
