"""Room: journal/streams. How far so many messages go that a filter may take: for whoever limits a read.

    of a sealed stream     its lists say which messages may match (core/frames/topic_lists.py)
    of what is in memory   its blocks know their topics
    of all else            any message may match, until it is read

Nothing is read of the messages themselves. A count may be too high, and then a reader gets less at once than
it asked for; it is never too low.
"""

import contextlib
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from moorline.core.frames.byte_columns import Numbers
from moorline.core.frames.topic_lists import ReadAt, candidates, read_table
from moorline.core.stream import Extent
from moorline.core.topic import Matcher
from moorline.journal.streams.source import Counted, SegmentFile
from moorline.journal.streams.tail import Tail

CountPart = Callable[[Extent, int, int], Counted | None]
"""Of a stream, from an offset on, at most so many; None where nothing is known of its messages."""


def counted(extents: Iterable[Extent], offset: int, count_max: int, part: CountPart) -> Counted:
    """Of streams that follow each other, from an offset on, so far as no more than `count_max` may match.

    It ends before the next one that may: what lies between is nobody's, and passed over at once.
    """
    at, count = offset, 0
    for extent in extents:
        at = max(at, extent.first)
        left = count_max - count
        found = part(extent, at, left) or every(at, extent.end, left)
        at, count = found.upto, count + found.matches
        if at < extent.end:
            break
    return Counted(at, count)


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


def count_in_memory(
    tail: Tail, filters: Sequence[str], offset: int, end: int, count_max: int
) -> Counted:
    """The same of what is in memory; what is older may match."""
    matchers = [Matcher(text) for text in filters]
    at, count = offset, 0
    while at < end:
        block = tail.find(at)
        if block is None:
            upto = min(end, tail.first) if tail.first > at else end
            found = every(at, upto, count_max - count)
        else:
            is_wanted = [any(matches(name) for matches in matchers) for name in block.names]
            upto = min(block.upto, end)
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
