"""Room: core/delivery. Which messages of a block are for a subscription: decided for the whole block at once.

Three questions: does the topic match, has it expired, is it the reader's own? Each is asked of columns,
never of a message: a block has thousands, and this is the hottest place of a delivery. Where all are
wanted, which is the rule, no mask is made and the bytes of the block go out as they are.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from moorline.core.frames.block import Block
from moorline.core.frames.byte_columns import Numbers
from moorline.core.frames.fields import TTL_AT, any_expires, field, published_by, times_of
from moorline.core.frames.picked import Picked
from moorline.core.ranges import Range
from moorline.limits import FRAMES_ONE_BY_ONE_MAX

Mask = npt.NDArray[np.bool_]
Matches = Callable[[str], bool]
"""Whether a topic is wanted: a filter, or several."""


class Selection(NamedTuple):
    """Of a block, up to before `upto`: these runs of offsets, and their frames."""

    upto: int
    runs: list[Range]
    frames: bytes
    taken: int


def select(
    block: Block, upto: int, room: int, matcher: Matches, now_us: int, own_producer: int = 0
) -> Selection:
    """The first `room` messages of a block below `upto` that match and have not expired.

    Those of `own_producer` are not for this reader, who has published them.
    """
    # No further than was wanted: what follows may be another member's, or done.
    count = min(block.upto, upto) - block.first
    mask = _mask(block, count, matcher, now_us)
    if own_producer:
        foreign = ~published_by(block.data, block.positions[:count], own_producer)
        mask = foreign if mask is None else mask & foreign
    if mask is None:
        # All are wanted, so that what does not fit is a piece at the end, and there is one copy.
        taken = min(count, room)
        stop = block.first + taken
        return Selection(stop, [(block.first, stop)], _cut(block, 0, taken), taken)
    chosen = np.flatnonzero(mask)
    if len(chosen) > room:
        # What stands behind the last one that fits is looked at another time.
        count = int(chosen[room])
        chosen = chosen[:room]
    return _selected(block, block.first + count, chosen, chosen + block.first)


def select_picked(
    picked: Picked, upto: int, room: int, matcher: Matches, now_us: int, own_producer: int = 0
) -> Selection:
    """The same of messages that were picked; what is between them matches nothing."""
    places = picked.positions.astype(np.uint32)
    block = Block(0, len(places), picked.data, places, picked.names, picked.topics)
    count = int(np.searchsorted(picked.offsets, upto))
    mask = _mask(block, count, matcher, now_us)
    if own_producer:
        foreign = ~published_by(block.data, places[:count], own_producer)
        mask = foreign if mask is None else mask & foreign
    chosen = np.arange(count) if mask is None else np.flatnonzero(mask)
    reached = min(upto, picked.upto)
    if len(chosen) > room:
        reached = int(picked.offsets[chosen[room]])
        chosen = chosen[:room]
    return _selected(block, reached, chosen, picked.offsets[chosen])


def _selected(block: Block, upto: int, chosen: Numbers, offsets: Numbers) -> Selection:
    """The frames at these places of a block, which are those messages."""
    if not len(chosen):
        return Selection(upto, [], b"", 0)
    # Neighbours go out as one piece of the block: to copy by runs costs far less than by messages.
    breaks = np.flatnonzero(np.diff(offsets) > 1)
    starts, stops = np.append(0, breaks + 1), np.append(breaks, len(chosen) - 1)
    firsts, lasts = chosen[starts].tolist(), chosen[stops].tolist()
    frames = b"".join(
        [_cut(block, *pair) for pair in zip(firsts, (at + 1 for at in lasts), strict=True)]
    )
    edges = zip(offsets[starts].tolist(), (offsets[stops] + 1).tolist(), strict=True)
    return Selection(upto, list(edges), frames, len(chosen))


def _mask(block: Block, count: int, matcher: Matches, now_us: int) -> Mask | None:
    """Which of the first `count` messages are wanted; None if all are."""
    # By name, not by message: a block has few topics, and their numbers are an index into the answers.
    wanted = [matcher(name) for name in block.names]
    mask: Mask | None = None
    if not all(wanted):
        mask = np.array(wanted, np.bool_)[block.topics[:count]]
    positions = block.positions[:count]
    if count <= FRAMES_ONE_BY_ONE_MAX and not any_expires(block.data, positions):
        return None if mask is None or mask.all() else mask
    ttl_s = field(block.data, positions, TTL_AT, "<u4")
    # The times are another column to gather: only where anything expires at all.
    if ttl_s.any():
        expires_us = times_of(block.data, positions) + ttl_s * 1_000_000
        alive = (ttl_s == 0) | (expires_us > now_us)
        mask = alive if mask is None else mask & alive
    return None if mask is None or mask.all() else mask


def _cut(block: Block, start: int, stop: int) -> bytes:
    if stop <= start:
        return b""
    # The very bytes of the block, which all its readers share.
    if start == 0 and stop == len(block.positions):
        return block.data
    first = int(block.positions[start])
    last = int(block.positions[stop]) if stop < len(block.positions) else len(block.data)
    return block.data[first:last]
