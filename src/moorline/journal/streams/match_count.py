"""Room: journal/streams. How far so many messages go that a filter may take: for whoever limits a read.

    of a sealed stream     its lists say which messages may match (core/frames/topic_lists.py)
    of one without lists   its blocks know their topics; those that are not in memory are read, some of them

A count may be too high, and then a reader gets less at once than it asked for; it is never too low.
"""

import contextlib
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from moorline.core.frames.block import Block
from moorline.core.frames.byte_columns import Numbers
from moorline.core.frames.topic_lists import ReadAt, candidates, read_table
from moorline.core.stream import Extent, Gap
from moorline.core.topic import Matcher
from moorline.journal.streams.source import Counted, SegmentFile
from moorline.limits import COUNTED_BYTES_MAX, COUNTED_STREAMS_MAX, STREAM_READ_BYTES_MAX

CountPart = Callable[[Extent, int, int], Counted]
"""Of a stream, from an offset on, at most so many."""


def counted(extents: Iterable[Extent], offset: int, count_max: int, part: CountPart) -> Counted:
    """Of streams that follow each other, from an offset on, so far as no more than `count_max` may match.

    It ends before the next one that may: what lies between is nobody's, and passed over at once.
    """
    at, count = offset, 0
    for extent in extents:
        at = max(at, extent.first)
        left = count_max - count
        found = part(extent, at, left)
        at, count = found.upto, count + found.matches
        if at < extent.end:
            break
    return Counted(at, count)


class Look(NamedTuple):
    """How much of a shard is looked at."""

    streams: int
    bytes_max: int


def look_of_each(shards: int) -> Look:
    """Of each of so many shards, for one call."""
    shards = max(1, shards)
    return Look(max(1, COUNTED_STREAMS_MAX // shards), COUNTED_BYTES_MAX // shards)


def every(offset: int, end: int, count_max: int) -> Counted:
    """Of messages of which nothing is known: each may match."""
    count = min(max(0, end - offset), count_max)
    return Counted(offset + count, count)


def count_in_file(
    file: SegmentFile, read_at: ReadAt, filters: Sequence[str], offset: int, count_max: int
) -> Counted | None:
    """Of a sealed stream; None if its lists say nothing."""
    with contextlib.suppress(OSError):
        table = read_table(read_at, file.head.seed, file.head.first, file.end)
        if table is None:
            return None
        total = sum(listing.messages for listing in table.wanted(filters))
        if offset <= file.head.first and total <= count_max:
            return Counted(file.end, total)  # where they stand does not matter
        offsets = candidates(table, read_at, filters)
        if offsets is not None:
            return _first_of(offsets[np.searchsorted(offsets, offset) :], file.end, count_max)
    return None


def count_in_blocks(
    read: Callable[[int, int], Block | Gap | None],
    filters: Sequence[str],
    offset: int,
    end: int,
    count_max: int,
    bytes_max: int,
) -> Counted:
    """Of a stream that is read for it, block by block from an offset on, until so many bytes were read."""
    matchers = [Matcher(text) for text in filters]
    at, count, size = offset, 0, 0
    while at < end and size < bytes_max:
        block = read(at, min(STREAM_READ_BYTES_MAX, bytes_max))
        if block is None:
            break
        upto = min(block.upto, end)
        if isinstance(block, Gap):
            at = upto  # there is nothing to be had
            continue
        size += len(block.data)
        is_wanted = [any(matches(name) for matches in matchers) for name in block.names]
        topics = block.topics[at - block.first : upto - block.first]
        wanted = np.flatnonzero(np.array(is_wanted, np.bool_)[topics]) + at
        found = _first_of(wanted, upto, count_max - count)
        at, count = found.upto, count + found.matches
        if at < upto:
            break
    return Counted(at, count)


def _first_of(wanted: Numbers, end: int, count_max: int) -> Counted:
    if len(wanted) <= count_max:
        return Counted(end, len(wanted))
    return Counted(int(wanted[count_max]), count_max)
