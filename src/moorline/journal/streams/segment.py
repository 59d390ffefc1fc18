"""Room: journal/streams. One segment file: its head, and finding the whole frames in it, past damage if
need be.

    head   magic       8 bytes "MOORSEG2"
           shard       u32
           generation  u32
           first       u64   offset of its first message
           created_us  u64
           seed        u64   drawn for this segment
           store       16 bytes: the beginning of the id of the node that made it
           check       u64   XXH3-64 of the 56 bytes before it
    then   frame after frame, as in core/frames/frame.py

Numbers are little-endian. A frame is whole if its check is right; the check is seeded, so no sender can
write a message that looks like a frame.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import xxhash

from moorline.core.frames.byte_columns import ByteColumn, Numbers, words_at
from moorline.core.frames.fields import (
    FLAGS_AT,
    HEADERS_AT,
    KEY_AT,
    TOPIC_AT,
    Sizes,
    topics_of,
)
from moorline.core.frames.frame import (
    CHECK_MASK,
    CONTENT,
    FLAGS_ALL,
    FRAME,
    HEAD,
    PRODUCER,
    check_of,
)
from moorline.journal.disk import DiskFile
from moorline.journal.streams.producers import UNNUMBERED
from moorline.limits import FRAME_BYTES_MAX, STREAM_SEARCH_BYTES, STREAM_WALK_BYTES, TOPIC_BYTES_MAX

SEGMENT_HEAD = struct.Struct("<8sIIQQQ16sQ")
MAGIC = b"MOORSEG2"
STORE_BYTES = 16
NO_STORE = bytes(STORE_BYTES)
"""Of segments that are made without a node."""

_CHECK = struct.Struct("<Q")
_LENGTH = struct.Struct("<I")
_BEGINNING = struct.Struct("<IIQ")


class SegmentHead(NamedTuple):
    """What a segment says of itself."""

    shard: int
    generation: int
    first: int
    created_us: int
    seed: int
    store: bytes = NO_STORE

    def __bytes__(self) -> bytes:
        data = SEGMENT_HEAD.pack(MAGIC, *self, 0)[: -_CHECK.size]
        return data + _CHECK.pack(xxhash.xxh3_64_intdigest(data))


class Piece(NamedTuple):
    """Whole frames as they follow each other: message `first` is at `position` of the file."""

    first: int
    position: int
    data: bytes
    positions: Numbers

    @property
    def upto(self) -> int:
        return self.first + len(self.positions)

    def contents(self) -> ByteColumn:
        """What is checked and digested of each frame."""
        ends = np.append(self.positions[1:], len(self.data))
        return ByteColumn(self.data, self.positions + HEAD.size, ends - self.positions - HEAD.size)

    def topic_counts(self) -> list[tuple[str, int]]:
        """How many frames each topic has."""
        names, topics = self.topics()
        counts = np.bincount(topics, minlength=len(names)).tolist()
        return list(zip(names, counts, strict=True))

    def topics(self) -> tuple[list[str], npt.NDArray[np.uint32]]:
        """Those that there are, and which of them each frame has."""
        names, topics = topics_of(self.data, self.positions).distinct()
        return [name.decode() for name in names], topics


class SegmentGap(NamedTuple):
    """Messages `first` to before `upto` are not whole; message `upto` is at `position`.

    `upto` is -1 if nothing whole follows: then `position` is where the whole part ends.
    """

    first: int
    upto: int
    position: int


def read_head(file: DiskFile) -> SegmentHead | None:
    return head_of(file.read_at(0, SEGMENT_HEAD.size))


def head_of(data: bytes) -> SegmentHead | None:
    """None if it is not whole."""
    if len(data) != SEGMENT_HEAD.size or data[:8] != MAGIC:
        return None
    *fields, check = SEGMENT_HEAD.unpack(data)[1:]
    is_whole = check == xxhash.xxh3_64_intdigest(data[: -_CHECK.size])
    return SegmentHead(*fields) if is_whole else None


def whole_frames(data: bytes, first: int, seed: int) -> tuple[Numbers, int]:
    """Where the frames from message `first` on begin, as many as are whole; and where they end."""
    positions, end = _chain(data)
    if not len(positions):
        return positions, 0
    numbers = words_at(data, "<i8")
    # The length and the check stand side by side.
    heads = numbers[positions]
    contents = ByteColumn(data, positions + HEAD.size, heads & CHECK_MASK)
    checks = contents.hashes(seed).astype(np.uint32)
    bad = np.flatnonzero(
        (numbers[positions + HEAD.size] != np.arange(first, first + len(positions)))
        | (checks != heads >> 32 & CHECK_MASK)
    )
    if len(bad):
        end = int(positions[bad[0]])
        positions = positions[: bad[0]]
    return positions, end


def _chain(data: bytes) -> tuple[Numbers, int]:
    """Where frames would begin, if each is as long as it says; and where the last of them ends."""
    positions: list[int] = []
    found, length_at = positions.append, _LENGTH.unpack_from
    start, size = 0, len(data)
    last = size - FRAME.size
    while start <= last:
        (length,) = length_at(data, start)
        end = start + HEAD.size + length
        if end > size or length < CONTENT.size:
            break
        found(start)
        start = end
    return np.array(positions, np.int64), start


def read_frames(
    file: DiskFile, position: int, limit: int, first: int, seed: int, bytes_max: int
) -> Piece:
    """The whole frames from there on, within `bytes_max` or else one; none if the first is bad."""
    # A file that was cut may end before its first frame would begin.
    data = file.read_at(position, max(0, min(bytes_max, limit - position)))
    positions, end = whole_frames(data, first, seed)
    if not len(positions) and limit - position >= FRAME.size:
        # Larger than what may be read at once, or bad: its length tells.
        head = file.read_at(position, HEAD.size)
        # Whoever cut the file may have left nothing of it.
        length = HEAD.unpack(head)[0] + HEAD.size if len(head) == HEAD.size else 0
        if len(data) < length <= limit - position:
            data = file.read_at(position, length)
            positions, end = whole_frames(data, first, seed)
    whole = data if end == len(data) else data[:end]
    return Piece(first, position, whole, positions)


def walk(
    file: DiskFile, position: int, limit: int, first: int, seed: int
) -> Iterator[Piece | SegmentGap]:
    """Everything whole from there to `limit`, and the holes between; a last hole without an end is
    what is not whole at the end."""
    while position < limit:
        piece = read_frames(file, position, limit, first, seed, STREAM_WALK_BYTES)
        if len(piece.positions):
            yield piece
            position += len(piece.data)
            first = piece.upto
            continue
        gap = next_whole(file, position, limit, first, seed)
        yield gap
        if gap.upto < 0:
            return
        first, position = gap.upto, gap.position


def next_whole(file: DiskFile, position: int, limit: int, first: int, seed: int) -> SegmentGap:
    """Behind a bad frame, which should be message `first`: where is the next whole one?

    Every byte may be its beginning. Few pass a look at the numbers that a frame begins with, and one
    that passes the check as well is a frame.
    """
    start = position + 1
    while start <= limit - FRAME.size:
        data = file.read_at(start, min(STREAM_SEARCH_BYTES + FRAME.size - 1, limit - start))
        for place in _candidates(data, limit - start, first):
            length, check, offset = _BEGINNING.unpack_from(data, place)
            end = place + HEAD.size + length
            content = (
                data[place + HEAD.size : end]
                if end <= len(data)
                else file.read_at(start + place + HEAD.size, length)
            )
            if len(content) == length and check_of(content, seed) == check:
                return SegmentGap(first, offset, start + place)
        start += STREAM_SEARCH_BYTES
    return SegmentGap(first, -1, position)


def _candidates(data: bytes, room: int, first: int) -> list[int]:
    """Places where a frame could begin that fits into `room` bytes, of message `first` or one behind it.

    A publisher may write what looks like the beginning of a frame: the bounds keep the checks few and small.
    """
    count = len(data) - FRAME.size + 1
    if count <= 0:
        return []
    twos = words_at(data, "<u2")
    places = np.flatnonzero(twos[FLAGS_AT : FLAGS_AT + count] <= FLAGS_ALL)
    lengths = words_at(data, "<u4")[places].astype(np.int64)
    offsets = words_at(data, "<u8")[places + HEAD.size]
    topics, keys, headers = (
        twos[places + at].astype(np.int64) for at in (TOPIC_AT, KEY_AT, HEADERS_AT)
    )
    fits = (
        (topics > 0)
        & (topics <= TOPIC_BYTES_MAX)
        & (lengths >= CONTENT.size + topics + keys + headers)
        & (lengths + HEAD.size <= np.minimum(room - places, FRAME_BYTES_MAX))
        & (offsets >= first)
        & (offsets - np.uint64(first) <= room // FRAME.size)
    )
    found: list[int] = places[fits].tolist()
    return found


# --- what frames say --------------------------------------------------------------------------------


def time_at(data: bytes, position: int) -> int:
    time_us: int = FRAME.unpack_from(data, position)[3]
    return time_us


def producers_of(piece: Piece) -> list[tuple[int, int]]:
    """(producer, last sequence) of those that the frames name, least recently seen first."""
    positions = piece.positions
    sizes = Sizes.of(piece.data, positions)
    some = np.flatnonzero(sizes.flags & PRODUCER)
    behind = (positions + FRAME.size + sizes.topics + sizes.keys + sizes.headers)[some]
    numbers = words_at(piece.data, "<u8")
    behind = behind[numbers[behind + 8] != np.uint64(UNNUMBERED)]
    producers = numbers[behind]
    _, from_the_end = np.unique(producers[::-1], return_index=True)
    last = np.sort(len(behind) - 1 - from_the_end)
    sequences = numbers[behind[last] + 8]
    return list(zip(producers[last].tolist(), sequences.tolist(), strict=True))
