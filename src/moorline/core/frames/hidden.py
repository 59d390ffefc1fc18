"""Room: core/frames. Messages that are there and that nobody is to read: their topic was deleted.

Blocks are shared, and their bytes are those of the file, with its digest. So a hidden message stays in its
block, and only what the block says of its topic changes: a reader passes over it as over any topic that it
does not want, and counts no loss.
"""

from collections.abc import Sequence
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt

from moorline.core.frames.block import Block
from moorline.core.frames.picked import Picked
from moorline.core.ranges import Range

HIDDEN: Final = "$\0"
"""No filter takes it: wildcards take no leading $ (MQTT 5, 4.7.2), and no filter has a zero."""

Mask = npt.NDArray[np.bool_]
Found = TypeVar("Found", Block, Picked)


def hidden(found: Found, mask: Mask) -> Found:
    """The same, with these messages hidden. The one that came is not changed: others read it."""
    if not mask.any():
        return found
    topics = found.topics.copy()
    topics[mask] = len(found.names)
    return found._replace(names=[*found.names, HIDDEN], topics=topics)


def hidden_ranges(block: Block) -> list[Range]:
    """Of a block that somebody else is to hide: offsets from the first to before the second of each."""
    if HIDDEN not in block.names:
        return []
    places = np.flatnonzero(block.topics == block.names.index(HIDDEN))
    if not len(places):
        return []
    breaks = np.flatnonzero(np.diff(places) > 1)
    firsts = places[np.append(0, breaks + 1)] + block.first
    lasts = places[np.append(breaks, len(places) - 1)] + block.first + 1
    return list(zip(firsts.tolist(), lasts.tolist(), strict=True))


def with_hidden(block: Block, ranges: Sequence[Range]) -> Block:
    """What `hidden_ranges` told of the block at another node."""
    if not ranges:
        return block
    mask = np.zeros(block.upto - block.first, np.bool_)
    for first, upto in ranges:
        mask[max(0, first - block.first) : max(0, upto - block.first)] = True
    return hidden(block, mask)
