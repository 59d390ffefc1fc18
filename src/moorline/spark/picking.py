"""Room: spark. Picking the messages of few topics out of a sealed stream, by its lists: those of a folder
here, those of a node there.

Whatever is not picked is read whole by the caller: what is damaged, what has no lists, and what is too much.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from moorline.journal.streams.segment_file import DiskSegment
from moorline.journal.streams.source import SegmentFile
from moorline.journal.streams.topic_picks import few_candidates, pick
from moorline.limits import (
    PICK_MESSAGES_MAX,
    PICK_SHARE_MAX,
    READ_FILTERS_MAX,
    SPARK_BLOCK_BYTES,
)
from moorline.spark.node_streams import NodeSegment
from moorline.spark.planning import Range


class PickedFrames(NamedTuple):
    """All frames that may match, of the messages from where the one before it ended to before `upto`."""

    upto: int
    data: bytes


def picks(
    segment: SegmentFile, part: Range, filters: Sequence[str], *, as_stored: bool = False
) -> Iterator[PickedFrames]:
    """What may match of a range, from its beginning on, as far as it can be picked; the rest is read.

    A node leaves out what is of a deleted topic: whoever wants all that is stored, as an archive does that is
    proven by it, does not ask it.
    """
    if "#" in filters:
        return
    if isinstance(segment, DiskSegment):
        yield from _of_folder(segment, part, filters)
    elif isinstance(segment, NodeSegment) and segment.is_sealed and not as_stored:
        yield from _of_node(segment, part, filters)


def _of_folder(segment: DiskSegment, part: Range, filters: Sequence[str]) -> Iterator[PickedFrames]:
    offsets = few_candidates(segment, segment.topics_at, filters)
    at = part.first
    while offsets is not None and at < part.upto:
        found = pick(segment, offsets, at, part.upto, PICK_MESSAGES_MAX, SPARK_BLOCK_BYTES)
        if found is None:
            return
        yield PickedFrames(found.upto, found.data)
        at = found.upto


def _of_node(segment: NodeSegment, part: Range, filters: Sequence[str]) -> Iterator[PickedFrames]:
    """The node looks and says what matches: its lists are not asked for, each frame would be a call."""
    at = part.first
    while at < part.upto and len(filters) <= READ_FILTERS_MAX:
        told = segment.matching(at, part.upto, filters)
        # What is lost is found, and told, by whoever reads it.
        if told.reason or told.upto <= at:
            return
        yield PickedFrames(told.upto, told.frames)
        messages = told.upto - at
        if messages - told.skipped > PICK_SHARE_MAX * messages:
            return  # the file itself costs less: one copy, and no look at it there
        at = told.upto
