"""Room: core/frames. Messages that were picked out of a stretch of a stream, whose others cannot match."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from moorline.core.frames.block import Block
from moorline.core.frames.byte_columns import Numbers
from moorline.core.frames.fields import OFFSET_AT, field, topics_of


class Picked(NamedTuple):
    """Frames of the messages `first` to before `upto`: all that may match, in order, and no gap among them.

    As in a block, `positions[i]` is where frame i begins in `data`, and `names[topics[i]]` is its topic.
    """

    first: int
    upto: int
    data: bytes
    positions: Numbers
    offsets: Numbers
    names: list[str]
    topics: npt.NDArray[np.uint32]


def picked_of(first: int, upto: int, data: bytes, positions: Numbers) -> Picked:
    """Whole frames and nothing else."""
    offsets = field(data, positions, OFFSET_AT, "<i8")
    names, topics = topics_of(data, positions).distinct()
    decoded = [name.decode() for name in names]
    return Picked(first, upto, data, positions, offsets, decoded, topics)


def picked_behind(first: int, block: Block) -> Picked:
    """A block, and what is before it from `first` on, of which nothing matches."""
    assert first <= block.first, "nothing of a block is before its first message"
    offsets = np.arange(block.first, block.upto, dtype=np.int64)
    positions = block.positions.astype(np.int64)
    return Picked(first, block.upto, block.data, positions, offsets, block.names, block.topics)


def nothing_between(first: int, upto: int) -> Picked:
    """Messages that were looked at, of which none matches."""
    none = np.empty(0, np.int64)
    return Picked(first, upto, b"", none, none, [], np.empty(0, np.uint32))
