"""Stretches of a segment, found by its index: the same as frame by frame, damaged or not."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.drawing import examples

from moorline.core.frames import byte_columns as parts_module
from moorline.core.frames.frame import FRAME, HEAD, Stored, frame_of
from moorline.core.sets.digest import Digest
from moorline.journal.streams import frame_scan as stretches
from moorline.journal.streams.frame_scan import Span, walk_by_index
from moorline.journal.streams.seal import DigestBuild
from moorline.journal.streams.segment import SEGMENT_HEAD, Piece, SegmentGap, walk
from moorline.journal.streams.segment_index import ENTRY_BYTES, IndexBuild
from moorline.limits import STREAM_INDEX_EVERY
from moorline.testing import MemoryDisk

SEED = 0x1234_5678_9ABC_DEF0
FIRST = 1_000 - 40
"""No multiple of what is between two entries: the first lane is a short one."""
COUNT = 5 * STREAM_INDEX_EVERY + 17

FRAMES = [
    frame_of(
        Stored(offset, offset, 0, 0, f"t/{offset % 3}", None, b"", 0, 0, b"x" * (offset % 50)), SEED
    )
    for offset in range(FIRST, FIRST + COUNT)
]
WHOLE = b"".join(FRAMES)


@pytest.fixture(autouse=True, params=[1 << 30, 4_500])
def small(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several stretches, all ways through the hashes, and lanes that are too large to be read at once."""
    monkeypatch.setattr(stretches, "STREAM_SCAN_BYTES_MAX", request.param)
    monkeypatch.setattr(stretches, "STREAM_WALK_BYTES", 20_000)
    monkeypatch.setattr(parts_module, "COLUMN_ONE_BY_ONE_MAX", 200)


def walked(data: bytes, entries: bytes | None) -> tuple[dict[int, bytes], list[SegmentGap]]:
    """All messages and all holes of a segment, by its index or, without one, frame by frame."""
    disk = MemoryDisk()
    file = disk.open("segment", create=True)
    file.append(bytes(SEGMENT_HEAD.size) + data)
    span = Span(FIRST, FIRST + COUNT, SEGMENT_HEAD.size + len(data))
    if entries is None:
        found = list(walk(file, SEGMENT_HEAD.size, span.size_bytes, FIRST, SEED))
    else:
        found = list(walk_by_index(file, entries, span, SEED))
    contents: dict[int, bytes] = {}
    for piece in found:
        if isinstance(piece, Piece):
            column = piece.contents()
            for number, (start, length) in enumerate(
                zip(column.starts.tolist(), column.lengths.tolist(), strict=True)
            ):
                contents[piece.first + number] = piece.data[start : start + length]
    return contents, [piece for piece in found if isinstance(piece, SegmentGap)]


def index_of(data: bytes) -> bytes:
    disk = MemoryDisk()
    file = disk.open("segment", create=True)
    file.append(bytes(SEGMENT_HEAD.size) + data)
    build = IndexBuild(FIRST)
    for piece in walk(file, SEGMENT_HEAD.size, SEGMENT_HEAD.size + len(data), FIRST, SEED):
        assert isinstance(piece, Piece)
        build.add(piece)
    return build.sparse.entries()


ENTRIES = index_of(WHOLE)


def test_a_segment_that_is_whole_is_found_in_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("nothing is left to be walked")

    monkeypatch.setattr("moorline.journal.streams.segment.read_frames", refuse)
    monkeypatch.setattr(stretches, "STREAM_SCAN_BYTES_MAX", 1 << 30)
    contents, gaps = walked(WHOLE, ENTRIES)
    assert contents == {FIRST + number: frame[HEAD.size :] for number, frame in enumerate(FRAMES)}
    assert not gaps


@settings(max_examples=examples(200), deadline=None)
@given(where=st.integers(0, len(WHOLE) - 1), change=st.integers(1, 255), cut=st.integers(0, 300))
def test_damage_is_found_where_a_walk_finds_it(where: int, change: int, cut: int) -> None:
    data = bytearray(WHOLE)
    data[where] ^= change
    damaged = bytes(data[: len(data) - cut])
    assert walked(damaged, ENTRIES) == walked(damaged, None)


@settings(max_examples=examples(200), deadline=None)
@given(where=st.integers(0, len(ENTRIES) - 1), change=st.integers(1, 255), keep=st.integers(0, 200))
def test_an_index_that_lies_or_ends_early_changes_nothing(
    where: int, change: int, keep: int
) -> None:
    entries = bytearray(ENTRIES)
    entries[where] ^= change
    expected = walked(WHOLE, None)
    assert walked(WHOLE, bytes(entries)) == expected
    assert walked(WHOLE, ENTRIES[: keep * ENTRY_BYTES // 8]) == expected


def test_a_frame_of_another_segment_is_no_frame_of_this_one() -> None:
    other = frame_of(Stored(FIRST + 3, 0, 0, 0, "t", None, b"", 0, 0, b""), SEED + 1)
    at = sum(map(len, FRAMES[:3]))
    data = WHOLE[:at] + other + WHOLE[at + len(FRAMES[3]) :]
    assert walked(data, ENTRIES) == walked(data, None)
    assert FIRST + 3 not in walked(data, ENTRIES)[0]


def test_the_digest_of_pieces_is_that_of_all_contents() -> None:
    disk = MemoryDisk()
    file = disk.open("segment", create=True)
    file.append(bytes(SEGMENT_HEAD.size) + WHOLE)
    span = Span(FIRST, FIRST + COUNT, SEGMENT_HEAD.size + len(WHOLE))
    build = DigestBuild()
    for piece in walk_by_index(file, ENTRIES, span, SEED):
        assert isinstance(piece, Piece)
        build.add(piece)
    assert min(map(len, FRAMES)) >= FRAME.size
    assert build.digest() == Digest.of(frame[HEAD.size :] for frame in FRAMES)
