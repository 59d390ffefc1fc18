"""Room: spark. Finding the frames of a range of messages in a segment, block by block, checked.

Where a stream is sealed its dense index says where each frame begins. Where it is not, the sparse index
does for every 128th, and the others are found in lanes (journal.streams.frame_scan). No index is relied upon:
a block that is not as it should be is read again frame by frame, past damage, from the last place that was
good.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple, cast

import numpy as np

from moorline.core.frames.byte_columns import PADDING_BYTES, words_at
from moorline.core.frames.frame import HEAD
from moorline.journal.disk import DiskFile
from moorline.journal.streams.frame_scan import FrameRange, Span, cut, find_frames, sparse_ranges
from moorline.journal.streams.segment import SEGMENT_HEAD, Piece, walk
from moorline.journal.streams.segment_index import DENSE_BYTES
from moorline.journal.streams.source import SegmentFile
from moorline.limits import SPARK_BLOCK_BYTES, SPARK_SLICE_MESSAGES
from moorline.spark.frames import Block, Frames


class ReadGap(NamedTuple):
    """Messages `first` to before `upto` cannot be read: the damage begins at `position` of the file."""

    first: int
    upto: int
    position: int


Run = tuple[Block, int, int]
"""A block, and the messages that it is about: `first` to before `upto`."""


def runs(file: SegmentFile, first: int, upto: int, *, verify: bool) -> Iterator[Block | ReadGap]:
    """Messages `first` to before `upto`, whole blocks of them, and what of them is lost."""
    sure = (file.head.first, SEGMENT_HEAD.size)
    at = first
    for frames, read in _ahead(file, first, upto):
        if frames.first > at:
            break
        block = _found(frames, read(), file.head.seed, verify=verify)
        if block is None:
            yield from _carefully(file, sure, max(at, first), min(frames.upto, upto))
        else:
            sure = (frames.upto, frames.position + _end_of(block))
            skip, keep = max(first - frames.first, 0), min(upto, frames.upto) - frames.first
            yield Block(block.data, *(column[skip:keep] for column in block[1:]))
        at = frames.upto
    if at < upto:
        # The indexes do not reach so far, or there are none.
        yield from _carefully(file, sure, at, upto)


def _ahead(
    file: SegmentFile, first: int, upto: int
) -> Iterator[tuple[FrameRange, Callable[[], bytearray]]]:
    """Every stretch with its bytes, which are read while the one before it is decoded."""
    waiting: tuple[FrameRange, Callable[[], bytearray]] | None = None
    for frames in _ranges(file, first, upto):
        begun = frames, file.begin(frames.position, frames.stop - frames.position)
        if waiting is not None:
            yield waiting
        waiting = begun
    if waiting is not None:
        yield waiting


def _found(frames: FrameRange, data: bytearray, seed: int, *, verify: bool) -> Block | None:
    """The frames of a stretch; None if something is not as it should be."""
    found = find_frames(frames, data, seed, verify=verify)
    if found is None or len(data) < frames.stop - frames.position + PADDING_BYTES:
        return None
    block = Block(data, *found, np.arange(frames.first, frames.upto))
    return block if verify or Frames(block).are_sound() else None


def _end_of(block: Block) -> int:
    return int(block.places[-1] + HEAD.size + block.lengths[-1])


# --- by the indexes -------------------------------------------------------------------------------


def _ranges(file: SegmentFile, first: int, upto: int) -> Iterator[FrameRange]:
    done = first
    for frames in _dense_ranges(file, first, upto):
        yield frames
        done = frames.upto
    if done < upto:
        span = Span(file.head.first, file.end, file.size_bytes)
        yield from sparse_ranges(file.index(), span, done, upto, SPARK_BLOCK_BYTES)


def _dense_ranges(file: SegmentFile, first: int, upto: int) -> Iterator[FrameRange]:
    base = file.head.first
    for start in range(first, upto, SPARK_SLICE_MESSAGES):
        stop = min(start + SPARK_SLICE_MESSAGES, upto)
        # One more: where the last one ends.
        data = file.dense(start - base, stop + 1 - start)
        count = len(data) // DENSE_BYTES
        if count < stop - start:
            return
        places = np.frombuffer(data, "<i8", count)
        if stop == file.end or count == stop - start:
            places = np.append(places[: stop - start], file.size_bytes)
        is_inside = SEGMENT_HEAD.size <= places.min() and places.max() <= file.size_bytes
        if not is_inside or (np.diff(places) <= 0).any():
            # Something of it cannot be read: frame by frame it is.
            yield FrameRange(start, stop, SEGMENT_HEAD.size, SEGMENT_HEAD.size, places[:0], None)
            continue
        yield from cut(start, places, SPARK_BLOCK_BYTES)


# --- frame by frame -------------------------------------------------------------------------------


def _carefully(
    file: SegmentFile, sure: tuple[int, int], first: int, upto: int
) -> Iterator[Block | ReadGap]:
    """The same, from a place that is known to be good, with every check and past damage."""
    at, position = sure
    head = file.head
    good_upto = position
    # All that a walk does with a file is to read it.
    readable = cast("DiskFile", file)
    for found in walk(readable, position, file.size_bytes, at, head.seed):
        if isinstance(found, Piece):
            good_upto = found.position + len(found.data)
            at = found.upto
            if found.upto > first:
                yield _block_of(found, first, upto)
        else:
            stop = found.upto if found.upto >= 0 else file.end
            if min(stop, upto) > max(found.first, first):
                yield ReadGap(max(found.first, first), min(stop, upto), good_upto)
            at = stop
        if at >= upto:
            return
    if at < upto:
        yield ReadGap(max(at, first), upto, good_upto)


def _block_of(piece: Piece, first: int, upto: int) -> Block:
    skip, keep = max(first - piece.first, 0), min(upto, piece.upto) - piece.first
    data = bytearray(piece.data)
    data += bytes(PADDING_BYTES)
    places = piece.positions[skip:keep]
    lengths = words_at(data, "<u4")[places].astype(np.int64)
    return Block(data, places, lengths, np.arange(piece.first + skip, piece.first + keep))
