"""Room: spark. Picking the messages of few topics out of a sealed stream of a folder, by its lists."""

from collections.abc import Iterator, Sequence

from moorline.core.frames.picked import Picked
from moorline.journal.streams.segment_file import DiskSegment
from moorline.journal.streams.source import SegmentFile
from moorline.journal.streams.topic_picks import few_candidates, pick
from moorline.limits import PICK_MESSAGES_MAX, SPARK_BLOCK_BYTES
from moorline.spark.planning import Range


def picks(segment: SegmentFile, part: Range, filters: Sequence[str]) -> Iterator[Picked]:
    """What may match of a range, from its beginning on, as far as it can be picked; the rest is read."""
    # Those of a node are not asked for: each frame would be a call.
    if not isinstance(segment, DiskSegment) or "#" in filters:
        return
    offsets = few_candidates(segment, segment.topics_at, filters)
    at = part.first
    while offsets is not None and at < part.upto:
        found = pick(segment, offsets, at, part.upto, PICK_MESSAGES_MAX, SPARK_BLOCK_BYTES)
        if found is None:
            return
        yield found
        at = found.upto
