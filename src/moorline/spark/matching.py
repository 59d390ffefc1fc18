"""Room: spark. Reading what a principal may, where it may not read all topics: nodes pick the messages.

Their offsets have holes, by what was skipped; what is lost is told apart from that. Frames are not checked
once more here: the check is seeded by the head of a file, which is nothing for such a reader.
"""

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from moorline.core.frames.byte_columns import PADDING_BYTES, words_at
from moorline.core.frames.fields import OFFSET_AT
from moorline.core.frames.frame import FRAME, HEAD
from moorline.core.stream import Gap
from moorline.errors import Denied, Malformed
from moorline.spark.frames import Batches, Block, Frames
from moorline.spark.node_streams import NodeStreams
from moorline.spark.options import TopicOptions
from moorline.spark.planning import Range, ShardGap
from moorline.spark.streams import Streams

log = logging.getLogger("moorline.spark")

FILTER_THERE = "set filterAt to node to read what you may of the topics that you name"


def matching_batches(
    streams: Streams,
    part: Range,
    addresses: tuple[str, ...],
    made: Batches,
    report: Callable[[Sequence[ShardGap]], None],
) -> Iterator[pa.RecordBatch]:
    """What a node gives of a range, which is all that this principal may see; `report` hears what is lost."""
    assert isinstance(streams, NodeStreams), "a folder filters nothing"
    label = str(part.stream)
    for found in streams.matching(part.stream, addresses, part.first, part.upto):
        if isinstance(found, Gap):
            report([ShardGap(str(part.stream.shard), found.first, found.upto, found.reason)])
        elif found.frames:
            batch = made.batch(block_of(found.frames), label)
            if batch is not None:
                yield batch
    if streams.skipped:
        extra = {"stream": label, "messages": streams.skipped}
        log.info("messages of other topics were left out by the node", extra=extra)
        streams.skipped = 0


@contextlib.contextmanager
def telling_of_filters(options: TopicOptions) -> Iterator[None]:
    """A principal that may read some topics, and asked for everything, is told how it can."""
    try:
        yield
    except Denied as error:
        if options.is_filtered_by_nodes or options.path:
            raise
        raise Denied(f"{error}: {FILTER_THERE}") from None


def block_of(frames: bytes) -> Block:
    """Whole frames and nothing else. What is not that raises `Malformed`: a node never says it."""
    places = []
    place, end = 0, len(frames)
    while place + FRAME.size <= end:
        places.append(place)
        place += HEAD.size + HEAD.unpack_from(frames, place)[0]
    if place != end:
        raise Malformed("frames of a stream do not end where their lengths say")
    data = bytearray(frames)
    data += bytes(PADDING_BYTES)
    at = np.array(places, np.int64)
    lengths = words_at(data, "<u4")[at].astype(np.int64)
    block = Block(data, at, lengths, words_at(data, "<i8")[at + OFFSET_AT])
    if not Frames(block).are_sound():
        raise Malformed("the parts of a frame are longer than the frame")
    return block
