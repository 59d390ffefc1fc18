"""Room: core/frames. A piece of a stream on its way to its readers: a block of frames."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from moorline.core.frames.byte_columns import Numbers
from moorline.core.frames.fields import FramePositions, topics_of
from moorline.core.frames.frame import HEAD


class Block(NamedTuple):
    """Frames of one stream as they lie on disk, `first` to before `upto`, none missing.

    `positions[i]` is where frame i begins in `data`; `names[topics[i]]` is its topic. Blocks are shared by
    all who read: nobody changes one.
    """

    first: int
    upto: int
    data: bytes
    positions: FramePositions
    names: list[str]
    topics: npt.NDArray[np.uint32]


def block_of(first: int, data: bytes, positions: Numbers) -> Block:
    """A block of whole frames; `data` holds these and nothing else."""
    # Topics are told apart once, where the block is made: each of its readers matches a few names, and not
    # thousands of messages.
    names, topics = topics_of(data, positions).distinct()
    return Block(
        first,
        first + len(positions),
        data,
        # Half of the memory: a block is far smaller than 4 GB.
        positions.astype(np.uint32),
        [name.decode() for name in names],
        topics,
    )


def block_of_frames(first: int, data: bytes) -> Block:
    """The same of frames that came over a link, which says only how many bytes they are."""
    positions, place = [], 0
    while place < len(data):
        positions.append(place)
        place += HEAD.size + HEAD.unpack_from(data, place)[0]
    return block_of(first, data, np.array(positions, np.int64))


def part_of(block: Block, offset: int, bytes_max: int) -> Block:
    """The block from that message on, within `bytes_max` or else one message; itself if it fits."""
    # Offsets in a block have no gap, so a message is found by subtraction.
    start = offset - block.first
    begin = int(block.positions[start])
    if len(block.data) - begin <= bytes_max:
        stop, end = len(block.positions), len(block.data)
        # The same object, so that readers at the same place share its memory.
        if start == 0:
            return block
    else:
        # The last frame that begins within the bytes ends outside, or exactly at their end.
        stop = int(np.searchsorted(block.positions, begin + bytes_max, "right")) - 1
        # A message that is larger than the bound goes alone, or its reader would never come by it.
        stop = max(stop, start + 1)
        end = int(block.positions[stop]) if stop < len(block.positions) else len(block.data)
    return Block(
        offset,
        block.first + stop,
        block.data[begin:end],
        # They count from the beginning of the new bytes. Names stay all of them: to find out which are left
        # would cost more than to carry them.
        block.positions[start:stop] - np.uint32(begin),
        block.names,
        block.topics[start:stop],
    )
