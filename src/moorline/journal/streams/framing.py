"""Room: journal/streams. What a commit brings to a shard, as the frames of a segment.

Messages come one by one, as contents that lack a head, or in runs of rows that were packed elsewhere and
lack their checks. Both wait until the segment is known that they go to: its seed is in every check.
"""

from collections.abc import Sequence
from itertools import accumulate, repeat
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import xxhash

from moorline.core.frames.block import Block
from moorline.core.frames.byte_columns import Buffer, ByteColumn, Numbers, words_at
from moorline.core.frames.frame import CHECK_MASK, FRAME, HEAD
from moorline.limits import STREAM_FRAMED_ONE_BY_ONE_MAX

_check = xxhash.xxh3_64_intdigest
_head = HEAD.pack
_NO_HEAD = bytes(HEAD.size)


class Framed(NamedTuple):
    """Frames, the bytes of each, and their topics as places among the names."""

    data: Buffer
    lengths: Numbers
    names: Sequence[str]
    topics: npt.NDArray[np.integer]
    has_checks: npt.NDArray[np.bool_]


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
        return Framed(data, lengths + HEAD.size, list(known), topics, np.ones(count, np.bool_))


class Run(NamedTuple):
    """Messages of one shard that were packed together."""

    frames: memoryview
    lengths: Numbers
    names: list[str]
    topics: Numbers

    def framed(self) -> Framed:
        """Without checks: those of all runs are made at once."""
        has_checks = np.zeros(len(self.lengths), np.bool_)
        return Framed(self.frames, self.lengths, self.names, self.topics, has_checks)


def block_of(first: int, pieces: Sequence[Contents | Run], seed: int) -> Block:
    """All of them, one behind the other: the messages from `first` on."""
    framed = [
        piece.framed(seed) if isinstance(piece, Contents) else piece.framed() for piece in pieces
    ]
    joined = framed[0] if len(framed) == 1 else _joined(framed)
    lengths = joined.lengths
    positions = np.cumsum(lengths) - lengths
    if joined.has_checks.all():
        data = bytes(joined.data)
    else:
        lacking = ~joined.has_checks
        data = _with_checks(joined.data, positions[lacking], lengths[lacking], seed)
    return Block(
        first,
        first + len(lengths),
        data,
        positions.astype(np.uint32),
        list(joined.names),
        joined.topics.astype(np.uint32, copy=False),
    )


def _joined(framed: Sequence[Framed]) -> Framed:
    known: dict[str, int] = {}
    topics = []
    for piece in framed:
        places = [known.setdefault(name, len(known)) for name in piece.names]
        topics.append(np.array(places, np.uint32)[piece.topics])
    return Framed(
        b"".join(piece.data for piece in framed),
        np.concatenate([piece.lengths for piece in framed]),
        list(known),
        np.concatenate(topics),
        np.concatenate([piece.has_checks for piece in framed]),
    )


def _with_checks(data: Buffer, places: Numbers, lengths: Numbers, seed: int) -> bytes:
    """The same frames; those that begin at these places get their checks."""
    checks = ByteColumn(data, places + HEAD.size, lengths - HEAD.size).hashes(seed)
    frames = bytearray(data)
    words_at(frames, "<u4")[places + 4] = checks.astype(np.uint32)
    return bytes(frames)


class SmallBlock(NamedTuple):
    """A block that was made without numpy, which takes longer to begin than so few messages do."""

    block: Block
    counts: dict[str, int]
    """How many messages each topic has."""


def small_piece(pieces: Sequence[Contents | Run]) -> Contents | None:
    """What is all there is, if `small_block` is the shorter way for it."""
    piece = pieces[0]
    if len(pieces) > 1 or not isinstance(piece, Contents):
        return None
    return piece if 0 < len(piece.contents) <= STREAM_FRAMED_ONE_BY_ONE_MAX else None


def small_block(first: int, piece: Contents, seed: int) -> SmallBlock:
    """As `block_of`, of one piece."""
    contents, topics = piece
    count = len(contents)
    lengths = list(map(len, contents))
    parts = [b""] * (2 * count)
    parts[::2] = [
        _head(length, _check(content, seed) & CHECK_MASK)
        for length, content in zip(lengths, contents, strict=True)
    ]
    parts[1::2] = contents
    ends = accumulate(lengths[:-1], lambda place, length: place + length + HEAD.size, initial=0)
    counts: dict[str, int] = {}
    for topic in topics:
        counts[topic] = counts.get(topic, 0) + 1
    names = list(counts)
    if len(names) == 1:
        numbers = np.zeros(count, np.uint32)
    else:
        places = dict(zip(names, range(len(names)), strict=True))
        numbers = np.array([places[topic] for topic in topics], np.uint32)
    positions = np.array(list(ends), np.uint32)
    return SmallBlock(
        Block(first, first + count, b"".join(parts), positions, names, numbers), counts
    )


def time_of(block: Block, place: int) -> int:
    """When the message at that place of the block was stored."""
    time_us: int = FRAME.unpack_from(block.data, block.positions[place])[3]
    return time_us


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
