"""Room: journal/streams. All frames of a stretch of a segment at once, found by an index and checked
together.

The sparse index says where every 128th frame begins; the others are found for all lanes between two entries
at once:

    lane 0   frame 0    frame 1    …  frame 127
    lane 1   frame 128  frame 129  …  frame 255        each step: place += 8 + length at place

No index is relied upon: the frames of a stretch must follow each other without a gap, carry the offsets
that they should, and have the right checks. A stretch that does not is walked frame by frame, past damage.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from moorline.core.frames.byte_columns import Buffer, ByteColumn, Numbers, words_at
from moorline.core.frames.frame import CHECK_MASK, CONTENT, FRAME, HEAD
from moorline.journal.disk import DiskFile
from moorline.journal.streams.segment import SEGMENT_HEAD, Piece, SegmentGap, walk
from moorline.journal.streams.segment_index import ENTRY_BYTES, ENTRY_NUMBERS
from moorline.limits import STREAM_INDEX_EVERY, STREAM_SCAN_BYTES_MAX, STREAM_WALK_BYTES


class FrameRange(NamedTuple):
    """Messages `first` to before `upto` are between two places of the file; `starts` are those known."""

    first: int
    upto: int
    position: int
    stop: int
    starts: Numbers
    """Places of frames from `position` on: of every one, or of every lane."""
    counts: Numbers | None
    """How many frames each lane has; None if the places are those of every frame."""


class FrameStarts(NamedTuple):
    """Where the frames of a stretch begin in its bytes, and the lengths that they say."""

    places: Numbers
    lengths: Numbers


class Span(NamedTuple):
    """A segment: messages `first` to before `end` in the first `size_bytes` of its file."""

    first: int
    end: int
    size_bytes: int


def sparse_ranges(
    entries: bytes, segment: Span, first: int, upto: int, bytes_max: int
) -> Iterator[FrameRange]:
    """Messages `first` to before `upto`, in stretches of about that size, as far as the entries reach."""
    count = len(entries) // ENTRY_BYTES * ENTRY_NUMBERS
    table = np.frombuffer(entries, "<i8", count).reshape(-1, ENTRY_NUMBERS)
    is_inside = (table[:, 1] >= segment.first) & (table[:, 1] < segment.end)
    is_inside &= (table[:, 0] >= SEGMENT_HEAD.size) & (table[:, 0] < segment.size_bytes)
    table = table[is_inside]
    places = np.concatenate([[SEGMENT_HEAD.size], table[:, 0]])
    offsets = np.concatenate([[segment.first], table[:, 1]])
    if len(table) and table[0, 1] == segment.first:
        places, offsets = places[1:], offsets[1:]
    # Behind the last lane stands the end.
    places = np.append(places, segment.size_bytes)
    offsets = np.append(offsets, segment.end)
    counts = np.diff(offsets)
    if (np.diff(places) <= 0).any() or (counts <= 0).any():
        return
    at = max(int(np.searchsorted(offsets, first, "right")) - 1, 0)
    last = min(int(np.searchsorted(offsets, upto, "left")), len(counts))
    while at < last:
        if counts[at] > STREAM_INDEX_EVERY:
            # An index that is behind its segment: whoever reads frame by frame needs none.
            return
        stop = int(np.searchsorted(places, places[at] + bytes_max, "right")) - 1
        stop = min(max(stop, at + 1), last)
        # A lane that is too long ends the stretch before it; the number behind the last stands for one.
        stop = (
            at + 1 + int(np.argmax(np.append(counts[at + 1 : stop], 1 << 62) > STREAM_INDEX_EVERY))
        )
        yield FrameRange(
            int(offsets[at]),
            int(offsets[stop]),
            int(places[at]),
            int(places[stop]),
            places[at:stop],
            counts[at:stop],
        )
        at = stop


def cut(first: int, places: Numbers, bytes_max: int) -> Iterator[FrameRange]:
    """Stretches of about that size, where every place is known; the last one is the end of the last frame."""
    at, count = 0, len(places) - 1
    while at < count:
        stop = int(np.searchsorted(places, places[at] + bytes_max, "right")) - 1
        stop = min(max(stop, at + 1), count)
        begin, end = int(places[at]), int(places[stop])
        yield FrameRange(first + at, first + stop, begin, end, places[at:stop], None)
        at = stop


def find_frames(
    frames: FrameRange, data: Buffer, seed: int, *, verify: bool = True
) -> FrameStarts | None:
    """The frames of a stretch in its bytes; None if something is not as it should be."""
    size = frames.stop - frames.position
    if len(data) < size or size < FRAME.size:
        return None
    places = frames.starts - frames.position
    if frames.counts is not None:
        places = _lanes(data, size, places, frames.counts)
    count = frames.upto - frames.first
    if len(places) != count or not count or places.min() < 0 or places.max() > size - FRAME.size:
        return None
    numbers = words_at(data, "<i8")
    # The length and the check stand side by side.
    heads = numbers[places]
    lengths = heads & CHECK_MASK
    ends = places + HEAD.size + lengths
    if (
        not np.array_equal(ends[:-1], places[1:])
        or ends[-1] > size
        or int(lengths.min()) < CONTENT.size
        or not np.array_equal(numbers[places + HEAD.size], np.arange(frames.first, frames.upto))
    ):
        return None
    if verify:
        checks = ByteColumn(data, places + HEAD.size, lengths).hashes(seed).astype(np.uint32)
        if not np.array_equal(checks, heads >> 32 & CHECK_MASK):
            return None
    return FrameStarts(places, lengths)


def _lanes(data: Buffer, size: int, starts: Numbers, counts: Numbers) -> Numbers:
    """The places of all frames of all lanes, step by step for all lanes at once."""
    quads = words_at(data, "<u4")
    steps = int(counts.max())
    grid = np.empty((len(starts), steps), np.int64)
    last = size - FRAME.size
    places = np.clip(starts.astype(np.int64), 0, last)
    for step in range(steps):
        grid[:, step] = places
        places += quads[places]
        places += HEAD.size
        # A lane that is at its end, or that damage led astray, stays inside; its frames do not count.
        np.minimum(places, last, out=places)
    return grid[np.arange(steps) < counts[:, None]]


def walk_by_index(
    file: DiskFile, entries: bytes, segment: Span, seed: int
) -> Iterator[Piece | SegmentGap]:
    """What `walk` finds in the whole segment, many frames at once; from the first doubt on, one by one."""
    at, position = segment.first, SEGMENT_HEAD.size
    for frames in sparse_ranges(entries, segment, at, segment.end, STREAM_WALK_BYTES):
        whole = piece_of(file, frames, seed)
        for found in [whole] if whole else walk(file, position, frames.stop, at, seed):
            if isinstance(found, SegmentGap):
                # It may go on behind the stretch.
                yield from walk(file, position, segment.size_bytes, at, seed)
                return
            yield found
            at, position = found.upto, found.position + len(found.data)
    yield from walk(file, position, segment.size_bytes, at, seed)


def piece_of(file: DiskFile, frames: FrameRange, seed: int) -> Piece | None:
    """The stretch as one piece; None if it is not as it should be, or its frames are large."""
    size = frames.stop - frames.position
    if size > STREAM_SCAN_BYTES_MAX:
        return None
    data = file.read_at(frames.position, size)
    found = find_frames(frames, data, seed)
    if found is None or int(found.places[-1] + found.lengths[-1]) + HEAD.size != size:
        return None
    return Piece(frames.first, frames.position, data, found.places)
