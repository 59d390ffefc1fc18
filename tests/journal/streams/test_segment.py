"""Segments: whole frames, torn ends, damage in the middle, and indexes that lie."""

import random

import numpy as np
import pytest

from moorline.core.frames.block import Block, block_of, part_of
from moorline.core.frames.frame import FLAGS_ALL, KEYED, TOMBSTONE, Stored, all_stored, frame_of
from moorline.core.stream import Gap
from moorline.journal.disk import parent, read_all
from moorline.journal.streams.generation import Generation
from moorline.journal.streams.segment import (
    SEGMENT_HEAD,
    Piece,
    SegmentGap,
    SegmentHead,
    next_whole,
    read_head,
    walk,
    whole_frames,
)
from moorline.journal.streams.segment_index import ENTRY_BYTES, SparseIndex, entries_of
from moorline.journal.streams.store import StreamOptions, StreamStore
from moorline.testing import MemoryDisk

SEED = 0x1234_5678_9ABC_DEF0
ONE_SHARD = StreamOptions(shards=1)
SEGMENT_PATH = "000/00000001.seg"
INDEX_PATH = "000/00000001.idx"
SNAPSHOT_PATH = "000/00000001.snapshot"


def message(offset: int, body: bytes = b"body") -> Stored:
    return Stored(offset, 1_000 + offset, 0, 0, f"t/{offset % 3}", None, b"", 0, 0, body)


def frames(first: int, count: int) -> list[bytes]:
    return [frame_of(message(offset), SEED) for offset in range(first, first + count)]


def opened(disk: MemoryDisk, options: StreamOptions = ONE_SHARD) -> StreamStore:
    store = StreamStore(disk, "n", options, iter(range(1_000, 10_000_000)).__next__)
    store.open()
    return store


def commit(store: StreamStore) -> None:
    batch = store.take_batch()
    assert batch is not None
    store.write(batch)
    store.committed(batch)


def filled(count: int, disk: MemoryDisk, batch: int = 10_000) -> StreamStore:
    """A store of one shard with messages whose bodies are their offsets."""
    store = opened(disk)
    for offset in range(count):
        store.append("t", b"%d" % offset, None, b"", 0, 0)
        if offset % batch == batch - 1:
            commit(store)
    if store.batch_bytes:
        commit(store)
    return store


def everything(store: StreamStore, bytes_max: int = 1_000) -> tuple[dict[int, bytes], list[Gap]]:
    """All that shard 0 gives from its beginning: bodies by offset, and gaps."""
    bodies: dict[int, bytes] = {}
    gaps: list[Gap] = []
    for extent in store.extents():
        offset = extent.first
        while (found := store.read(0, extent.stream.generation, offset, bytes_max)) is not None:
            assert found.first == offset
            if isinstance(found, Gap):
                gaps.append(found)
            else:
                bodies.update((one.offset, one.body) for one in all_stored(found.data))
            offset = found.upto
    return bodies, gaps


def replace(disk: MemoryDisk, path: str, content: bytes) -> None:
    file = disk.open(path, create=True)
    file.truncate(0)
    file.append(content)
    file.sync()
    file.close()
    disk.sync_folder("000")


def content_of(disk: MemoryDisk, path: str) -> bytes:
    return disk.files()[path]


# --- frames -----------------------------------------------------------------------------------------


def test_a_head_has_64_bytes_and_is_read_back() -> None:
    head = SegmentHead(3, 7, 1_234, 5_678, SEED)
    disk = MemoryDisk()
    file = disk.open("x", create=True)
    file.append(bytes(head)[:63])
    assert read_head(file) is None
    file.append(bytes(head)[63:])
    assert len(bytes(head)) == SEGMENT_HEAD.size == 64
    assert read_head(file) == head


def test_whole_frames_stop_at_the_first_that_is_not_whole() -> None:
    all_frames = frames(5, 3)
    data = b"".join(all_frames)
    assert whole_frames(data, 5, SEED)[1] == len(data)
    for size in range(len(data)):
        positions, end = whole_frames(data[:size], 5, SEED)
        assert end == sum(map(len, all_frames[: len(positions)])) <= size
        assert len(positions) == sum(sum(map(len, all_frames[: n + 1])) <= size for n in range(3))
    for first, seed in ((4, SEED), (5, SEED + 1)):
        positions, end = whole_frames(data, first, seed)
        assert (len(positions), end) == (0, 0)


def test_every_flipped_bit_of_a_frame_is_noticed() -> None:
    before, hit, behind = frames(0, 3)
    for place in range(len(hit) * 8):
        broken = bytearray(hit)
        broken[place // 8] ^= 1 << place % 8
        positions, _ = whole_frames(before + bytes(broken) + behind, 0, SEED)
        assert len(positions) == 1


def test_a_walk_finds_what_is_behind_damage_wherever_it_is() -> None:
    all_frames = frames(100, 6)
    data = b"".join(all_frames)
    for place in range(len(data)):
        broken = bytearray(data)
        broken[place] ^= 0xFF
        file = MemoryDisk().open("x", create=True)
        file.append(broken)
        found = list(walk(file, 0, len(data), 100, SEED))
        number = next(n for n in range(6) if place < sum(map(len, all_frames[: n + 1])))
        offsets = [
            offset
            for piece in found
            if isinstance(piece, Piece)
            for offset in range(piece.first, piece.upto)
        ]
        gaps = [gap for gap in found if isinstance(gap, SegmentGap)]
        assert offsets == [100 + n for n in range(6) if n != number]
        if number < 5:
            assert [(gap.first, gap.upto) for gap in gaps] == [(100 + number, 101 + number)]
        else:
            assert [gap.upto for gap in gaps] == [-1]


def test_a_message_behind_damage_is_found_whatever_its_flags_are() -> None:
    damaged = b"\xff" * 90
    for flags in range(FLAGS_ALL + 1):
        key = b"k" if flags & KEYED else None
        body = b"" if flags & TOMBSTONE else b"body"
        whole = frame_of(message(1, body)._replace(flags=flags, key=key), SEED)
        disk = MemoryDisk()
        file = disk.open("x", create=True)
        file.append(damaged + whole)
        assert next_whole(file, 0, len(damaged + whole), 0, SEED) == SegmentGap(
            0, 1, len(damaged)
        ), flags


def test_a_part_of_a_block_is_what_a_block_of_the_part_would_be() -> None:
    data = b"".join(frames(10, 20))
    whole = block_of(10, data, whole_frames(data, 10, SEED)[0])
    assert part_of(whole, 10, len(data)) is whole
    for offset in range(10, 30):
        for bytes_max in (0, 1, 60, 100, 101, 500, 10_000):
            part = part_of(whole, offset, bytes_max)
            messages = list(all_stored(part.data))
            assert [one.offset for one in messages] == list(range(offset, part.upto))
            assert [part.names[number] for number in part.topics] == [m.topic for m in messages]
            assert part.positions.tolist() == whole_frames(part.data, offset, SEED)[0].tolist()
            assert len(messages) == 1 or len(part.data) <= bytes_max
            assert part.upto == 30 or len(part.data) + len(frames(part.upto, 1)[0]) > bytes_max


# --- torn ends --------------------------------------------------------------------------------------


def test_an_end_that_is_torn_anywhere_is_cut() -> None:
    disk = MemoryDisk()
    filled(5, disk).close()
    content = content_of(disk, SEGMENT_PATH)
    ends = [64, *(64 + end for end in _ends(content[64:]))]
    for size in range(64, len(content)):
        torn = MemoryDisk()
        for path, data in disk.files().items():
            torn.make_folders(parent(path))
            torn.write_whole(path, data)
        replace(torn, SEGMENT_PATH, content[:size])
        replace(torn, SNAPSHOT_PATH, b"")
        store = opened(torn)
        whole = max(end for end in ends if end <= size)
        assert store.end(0) == ends.index(whole)
        assert len(content_of(torn, SEGMENT_PATH)) == whole
        assert store.lost_messages == 0
        assert store.append("t", b"next", None, b"", 0, 0) == (0, store.end(0))
        commit(store)
        bodies, gaps = everything(store)
        assert list(bodies) == list(range(ends.index(whole) + 1))
        assert gaps == []
        store.close()


def _ends(data: bytes) -> list[int]:
    position, ends = 0, []
    while position < len(data):
        position += 8 + int.from_bytes(data[position : position + 4], "little")
        ends.append(position)
    return ends


@pytest.mark.parametrize("size", [0, 1, 63, 64])
def test_a_new_generation_without_a_whole_head_is_made_anew(size: int) -> None:
    disk = MemoryDisk()
    filled(5, disk).close()
    head = bytes(SegmentHead(0, 2, 5, 99, 1))
    replace(disk, "000/00000002.seg", head[:size])
    store = opened(disk)
    assert store.end(0) == 5
    assert store.append("t", b"5", None, b"", 0, 0) == (0, 5)
    commit(store)
    assert everything(store) == ({n: b"%d" % n for n in range(6)}, [])
    assert len(store.extents()) == (2 if size == 64 else 1)


# --- damage -----------------------------------------------------------------------------------------


def damage(disk: MemoryDisk, path: str, place: int, length: int = 1) -> None:
    content = bytearray(content_of(disk, path))
    for at in range(place, place + length):
        content[at] ^= 0x5A
    replace(disk, path, bytes(content))


@pytest.mark.parametrize("is_open", [True, False])
@pytest.mark.parametrize("is_sealed", [True, False])
def test_damage_in_the_middle_is_a_gap_and_the_rest_is_read(is_open: bool, is_sealed: bool) -> None:
    disk = MemoryDisk()
    store = filled(1_000, disk)
    if is_sealed:
        _seal_all(store)
    block = store.read(0, 1, 0, 1 << 30)
    assert isinstance(block, Block)
    if not is_open:
        store.close()
    # Two messages at once, one in the first block of the index, and the very last.
    start = 64 + int(block.positions[500]) + 10
    damage(disk, SEGMENT_PATH, start, int(block.positions[501]) - int(block.positions[500]))
    damage(disk, SEGMENT_PATH, 64 + int(block.positions[3]) + 20)
    if is_sealed:
        damage(disk, SEGMENT_PATH, 64 + int(block.positions[999]) + 20)
    if not is_open:
        store = opened(disk)
    store._shards[0].tail.clear()
    for bytes_max in (1, 300, 100_000):
        bodies, gaps = everything(store, bytes_max)
        expected = [Gap(3, 4, "DAMAGE"), Gap(500, 502, "DAMAGE")]
        lost = {3, 500, 501}
        if is_sealed:
            expected.append(Gap(999, 1_000, "DAMAGE"))
            lost.add(999)
        assert gaps == expected
        assert bodies == {n: b"%d" % n for n in range(1_000) if n not in lost}
        assert store.lost_messages == len(lost)
    # In the middle of a gap, and directly behind one.
    assert store.read(0, 1, 501, 1_000) == Gap(501, 502, "DAMAGE")
    assert isinstance(store.read(0, 1, 502, 1_000), Block)


def test_a_seal_made_of_a_damaged_generation_counts_what_is_whole() -> None:
    disk = MemoryDisk()
    store = filled(300, disk)
    damage(disk, SEGMENT_PATH, 64 + 30)
    _seal_all(store)
    seal = store.seal_of(0, 1)
    assert seal is not None
    assert (seal.first, seal.end, seal.count) == (0, 300, 299)
    assert store.lost_messages == 1
    store.close()
    store = opened(disk)
    assert store.lost_messages == 1
    assert everything(store)[1] == [Gap(0, 1, "DAMAGE")]
    assert store.lost_messages == 1


def test_a_damaged_head_loses_its_generation_and_no_offset_is_given_twice() -> None:
    disk = MemoryDisk()
    store = filled(10, disk)
    _seal_all(store)
    store.append("t", b"10", None, b"", 0, 0)
    store.append("t", b"11", None, b"", 0, 0)
    commit(store)
    store.close()
    damage(disk, "000/00000002.seg", 2)
    disk.remove("000/00000002.snapshot")
    store = opened(disk)
    assert store.end(0) == 12
    assert store.append("t", b"12", None, b"", 0, 0) == (0, 12)
    commit(store)
    bodies, gaps = everything(store)
    assert gaps == [Gap(10, 12, "DAMAGE")]
    assert bodies == {n: b"%d" % n for n in [*range(10), 12]}
    assert store.lost_messages == 2
    store.close()
    assert everything(opened(disk)) == (bodies, gaps)


# Magic, shard, generation, first offset and seed of a segment's head.
@pytest.mark.parametrize("place", [2, 8, 12, 16, 32])
@pytest.mark.parametrize("generation", [1, 2])
def test_a_damaged_head_costs_nothing_where_seal_or_snapshot_knows_it(
    place: int, generation: int
) -> None:
    disk = MemoryDisk()
    store = filled(10, disk)
    _seal_all(store)
    store.append("t", b"10", None, b"", 0, 0)
    store.append("t", b"11", None, b"", 0, 0)
    commit(store)
    store.close()
    damage(disk, f"000/0000000{generation}.seg", place)
    for _ in range(2):
        store = opened(disk)
        assert everything(store) == ({n: b"%d" % n for n in range(12)}, [])
        assert store.lost_messages == 0
        store.close()
    store = opened(disk)
    assert store.append("t", b"12", None, b"", 0, 0) == (0, 12)
    commit(store)


def test_a_damaged_line_of_what_was_dropped_removes_nothing() -> None:
    disk = MemoryDisk()
    store = filled(10, disk)
    _seal_all(store)
    store.append("t", b"10", None, b"", 0, 0)
    commit(store)
    store.close()
    file = disk.open("000/dropped.log", create=True)
    file.append(
        b"generation=9 first=0 upto=10 count=10 bytes=100 reason=AGE check=0123456789abcdef\n"
    )
    file.close()
    assert everything(opened(disk)) == ({n: b"%d" % n for n in range(11)}, [])


def test_a_segment_that_somebody_removed_is_a_gap() -> None:
    disk = MemoryDisk()
    store = filled(10, disk)
    _seal_all(store)
    for offset in range(10, 20):
        store.append("t", b"%d" % offset, None, b"", 0, 0)
    commit(store)
    _seal_all(store)
    store.append("t", b"20", None, b"", 0, 0)
    commit(store)
    store.close()
    disk.remove("000/00000002.seg")
    store = opened(disk)
    bodies, gaps = everything(store)
    assert gaps == [Gap(10, 20, "DAMAGE")]
    assert bodies == {n: b"%d" % n for n in [*range(10), 20]}


def _seal_all(store: StreamStore) -> None:
    """Ends the newest generation and seals it."""
    assert store.upkeep.roll(1 << 62) == [0]
    commit(store)
    for shard, generation in store.upkeep.unsealed():
        store.upkeep.sealed(shard, generation, store.upkeep.seal(shard, generation)())


# --- indexes ----------------------------------------------------------------------------------------


def _index_lies(chance: random.Random, true: bytes) -> list[bytes]:
    shifted = np.frombuffer(true, "<u8").reshape(-1, 3).copy()
    shifted[:, 0] += 1
    wrong_times = np.frombuffer(true, "<u8").reshape(-1, 3).copy()
    wrong_times[:, 2] = np.sort(wrong_times[:, 2] // 7 * 5)
    swapped = np.frombuffer(true, "<u8").reshape(-1, 3).copy()
    swapped[2:-1, 0] = swapped[1:-2, 0] + 1
    return [
        b"",
        true[:-1],
        true[: len(true) // 2],
        true + true,
        bytes(len(true)),
        chance.randbytes(len(true)),
        shifted.tobytes(),
        wrong_times.tobytes(),
        swapped.tobytes(),
    ]


@pytest.mark.parametrize("number", range(9))
@pytest.mark.parametrize("is_sealed", [True, False])
def test_an_index_that_is_missing_or_wrong_costs_nothing_but_time(
    number: int, is_sealed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moorline.journal.streams.shard.STREAM_SNAPSHOT_BYTES", 10_000)
    disk = MemoryDisk()
    store = filled(2_000, disk, batch=50)
    times = _times(store)
    if is_sealed:
        _seal_all(store)
    store.close()
    lie = _index_lies(random.Random(1), content_of(disk, INDEX_PATH))[number]
    replace(disk, INDEX_PATH, lie)
    if is_sealed:
        dense = content_of(disk, "000/00000001.dense")
        lies = [b"", dense[:-8], dense[8:] + dense[:8], bytes(len(dense)), dense[::-1]]
        replace(disk, "000/00000001.dense", lies[number % len(lies)])
    for first in (1_111, 127, 1_999):
        store = opened(disk)
        found = store.read(0, 1, first, 200)
        assert isinstance(found, Block)
        assert next(iter(all_stored(found.data))).body == b"%d" % first
        assert store.offset_at(0, times[first]) == first
        assert store.lost_messages == 0
        store.close()
    store = opened(disk)
    assert everything(store) == ({n: b"%d" % n for n in range(2_000)}, [])


def _times(store: StreamStore) -> list[int]:
    offset, times = 0, []
    while (found := store.read(0, 1, offset, 100_000)) is not None:
        assert isinstance(found, Block)
        times += [one.time_us for one in all_stored(found.data)]
        offset = found.upto
    return times


def test_sparse_entries_stand_every_128_offsets_wherever_batches_end() -> None:
    disk = MemoryDisk()
    store = filled(1_000, disk, batch=37)
    store.close()
    entries = np.frombuffer(content_of(disk, INDEX_PATH), "<u8").reshape(-1, 3)
    assert entries[:, 1].tolist() == list(range(0, 1_000, 128))
    content = content_of(disk, SEGMENT_PATH)
    for position, offset, time_us in entries.tolist():
        stored = next(iter(all_stored(content[position:])))
        assert (stored.offset, stored.time_us) == (offset, time_us)
    assert len(content_of(disk, INDEX_PATH)) % ENTRY_BYTES == 0


def test_a_start_reads_only_what_is_behind_the_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moorline.journal.streams.shard.STREAM_SNAPSHOT_BYTES", 20_000)
    disk = MemoryDisk()
    filled(5_000, disk, batch=100).close()
    # Damage far before the end is not even seen at a start, and found by whoever reads.
    damage(disk, SEGMENT_PATH, 64 + 20)
    store = opened(disk)
    assert store.lost_messages == 0
    assert store.topics(0, 1) == {"t": 5_000}
    bodies, gaps = everything(store, 100_000)
    assert gaps == [Gap(0, 1, "DAMAGE")]
    assert len(bodies) == 4_999


def test_entries_of_nothing_are_none() -> None:
    assert len(entries_of(1, 64, b"", np.array([], np.int64))) == 0
    index = SparseIndex()
    index.add(entries_of(1, 64, b"", np.array([], np.int64)))
    assert index.entry_of(5) is None
    assert index.entries() == b""
    assert read_all(MemoryDisk(), "nothing") == b""


def test_a_file_that_is_gone_while_it_is_read_is_retention() -> None:
    disk = MemoryDisk()
    disk.make_folders("000")
    generation = Generation(disk, "000/00000001", SegmentHead(0, 1, 5, 0, 0))
    generation.end = 9
    assert generation.read(6, 100) == Gap(6, 9, "RETENTION")
