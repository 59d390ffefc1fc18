"""Room: journal. What a commit brings to a shard, as the frames of a segment.

Messages come one by one, as contents that lack a head, or in runs of rows that were packed elsewhere and
lack their checks. Both wait until the segment is known that they go to: its seed is in every check.
"""

from collections.abc import Sequence
from itertools import repeat
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import xxhash

from moorline.core.block import Block
from moorline.limits import STREAM_FRAMED_ONE_BY_ONE_MAX
from moorline.wire.frame_fields import Numbers, Sizes, words_at
from moorline.wire.segment import CHECK_MASK, FRAME, HEAD, RETAIN

_check = xxhash.xxh3_64_intdigest
_head = HEAD.pack
_NO_HEAD = bytes(HEAD.size)


class Framed(NamedTuple):
    """Whole frames, the bytes of each, and their topics as places among the names."""

    data: bytes | bytearray
    lengths: Numbers
    names: Sequence[str]
    topics: npt.NDArray[np.integer]


class Contents(NamedTuple):
    """Messages that came one by one, with their topics."""

    contents: list[bytes]
    topics: list[str]

    def framed(self, seed: int) -> Framed:
        count = len(self.contents)
        lengths = np.fromiter(map(len, self.contents), np.int64, count)
        known = {name: place for place, name in enumerate(dict.fromkeys(self.topics))}
        topics = np.fromiter(map(known.__getitem__, self.topics), np.uint32, count)
        data = _with_heads(self.contents, lengths, seed)
        return Framed(data, lengths + HEAD.size, list(known), topics)


class Run(NamedTuple):
    """Messages of one shard that were packed together; nobody else has the buffer."""

    frames: bytearray
    lengths: Numbers
    names: list[str]
    topics: Numbers

    def framed(self, seed: int) -> Framed:
        ends = np.cumsum(self.lengths)
        places = ends - self.lengths
        view = memoryview(self.frames)
        slices = map(slice, (places + HEAD.size).tolist(), ends.tolist())
        checks = np.fromiter(
            map(_check, map(view.__getitem__, slices), repeat(seed)), np.uint64, len(ends)
        )
        view.release()
        words_at(self.frames, "<u4")[places + 4] = checks & np.uint64(CHECK_MASK)
        return Framed(self.frames, self.lengths, self.names, self.topics)


def retained_in(run: Run) -> list[bytes]:
    """The contents of those messages that are to be retained."""
    ends = np.cumsum(run.lengths)
    places = ends - run.lengths
    some = np.flatnonzero(Sizes.of(run.frames, places).flags & RETAIN)
    return [bytes(run.frames[places[one] + HEAD.size : ends[one]]) for one in some.tolist()]


def block_of(first: int, pieces: Sequence[Contents | Run], seed: int) -> Block:
    """All of them, one behind the other: the messages from `first` on."""
    framed = [piece.framed(seed) for piece in pieces]
    if len(framed) == 1:
        data, lengths, names, topics = framed[0]
    else:
        known: dict[str, int] = {}
        numbers = []
        for piece in framed:
            places = [known.setdefault(name, len(known)) for name in piece.names]
            numbers.append(np.array(places, np.uint32)[piece.topics])
        data = b"".join(piece.data for piece in framed)
        lengths = np.concatenate([piece.lengths for piece in framed])
        names, topics = list(known), np.concatenate(numbers)
    positions = (np.cumsum(lengths) - lengths).astype(np.uint32)
    return Block(
        first,
        first + len(lengths),
        bytes(data),
        positions,
        list(names),
        topics.astype(np.uint32, copy=False),
    )


def time_of(block: Block, place: int) -> int:
    """When the message at that place of the block was stored."""
    return int(FRAME.unpack_from(block.data, int(block.positions[place]))[3])


def _with_heads(contents: list[bytes], lengths: Numbers, seed: int) -> bytes | bytearray:
    """The contents with their heads: in a large batch the heads are filled in all at once."""
    count = len(contents)
    if count <= STREAM_FRAMED_ONE_BY_ONE_MAX:
        parts = [b""] * (2 * count)
        parts[::2] = [
            _head(len(content), _check(content, seed) & CHECK_MASK) for content in contents
        ]
        parts[1::2] = contents
        return b"".join(parts)
    heads = np.empty((count, 2), "<u4")
    heads[:, 0] = lengths
    checks = np.fromiter(map(_check, contents, repeat(seed)), np.uint64, count)
    heads[:, 1] = checks & np.uint64(CHECK_MASK)
    buffer = bytearray(_NO_HEAD.join([b"", *contents]))
    positions = np.cumsum(lengths + HEAD.size) - (lengths + HEAD.size)
    places = positions[:, None] + np.arange(HEAD.size)
    np.frombuffer(buffer, np.uint8)[places] = heads.view(np.uint8).reshape(count, HEAD.size)
    return buffer
