"""Room: journal/streams. What is kept about a generation beside its frames: a seal at its end, a snapshot
before.

    seal       magic      8 bytes  "MOORSEAL"
    (and       summary    u32      bytes of the first part: small, read at every start
     snapshot) memory     u32      bytes of the second part: producers and topics
               check      u64      XXH3-64 of the first part
               check      u64      XXH3-64 of the second part
               then       both, msgpack

A **seal** is written when the generation grows no more; it belongs to the segment of the same seed. A
**snapshot** says the same of the generation that grows, up to a message: a start reads only what is
behind it.
"""

import struct
from collections.abc import Iterable

import msgspec
import xxhash

from moorline.core.sets.digest import Digest
from moorline.journal.disk import Disk
from moorline.journal.streams.segment import Piece
from moorline.limits import TOPIC_COUNTED_LENGTH, TOPICS_COUNTED_MAX

_HEAD = struct.Struct("<8sIIQQ")
_MAGIC = b"MOORSEAL"

OTHERS = ""
"""Stands for all topics beyond TOPICS_COUNTED_MAX; no topic is empty."""


class Summary(msgspec.Struct, frozen=True, array_like=True):
    """Messages `first` to before `end`; `count` of them are whole, the digest is of their contents."""

    seed: int
    first: int
    end: int
    count: int
    digest: Digest
    first_time_us: int
    last_time_us: int
    bytes: int
    publishers: dict[str, int] = {}
    """Bytes of each; a file from before they were counted has none."""


class Memory(msgspec.Struct, array_like=True):
    """The last sequence of each producer, least recently seen first; and the topics with their counts."""

    producers: dict[int, int] = {}
    topics: dict[str, int] = {}


class Seal(msgspec.Struct, frozen=True):
    """All that is known of a sealed generation without reading it."""

    first: int
    end: int
    count: int
    digest: Digest
    first_time_us: int
    last_time_us: int
    bytes: int
    producers: dict[int, int]
    topics: dict[str, int]
    publishers: dict[str, int] = {}

    @staticmethod
    def of(summary: Summary, memory: Memory) -> "Seal":
        return Seal(
            summary.first,
            summary.end,
            summary.count,
            summary.digest,
            summary.first_time_us,
            summary.last_time_us,
            summary.bytes,
            memory.producers,
            memory.topics,
            summary.publishers,
        )


_encoder = msgspec.msgpack.Encoder()
_summaries = msgspec.msgpack.Decoder(Summary)
_memories = msgspec.msgpack.Decoder(Memory)


def encoded(summary: Summary, memory: Memory) -> bytes:
    parts = _encoder.encode(summary), _encoder.encode(memory)
    checks = [xxhash.xxh3_64_intdigest(part) for part in parts]
    return _HEAD.pack(_MAGIC, len(parts[0]), len(parts[1]), *checks) + b"".join(parts)


def read_summary(disk: Disk, path: str) -> Summary | None:
    """The first part alone; None if there is none, or not a true one."""
    found = _read(disk, path, with_memory=False)
    return found[0] if found else None


def read_seal(disk: Disk, path: str) -> tuple[Summary, Memory] | None:
    return _read(disk, path, with_memory=True)


def _read(disk: Disk, path: str, *, with_memory: bool) -> tuple[Summary, Memory] | None:
    try:
        file = disk.open(path, create=False)
    except FileNotFoundError:
        return None
    try:
        head = file.read_at(0, _HEAD.size)
        if len(head) < _HEAD.size or not head.startswith(_MAGIC):
            return None
        _, size, memory_size, check, memory_check = _HEAD.unpack(head)
        first = file.read_at(_HEAD.size, size)
        second = file.read_at(_HEAD.size + size, memory_size) if with_memory else b""
    finally:
        file.close()
    if xxhash.xxh3_64_intdigest(first) != check:
        return None
    if with_memory and xxhash.xxh3_64_intdigest(second) != memory_check:
        return None
    try:
        memory = _memories.decode(second) if with_memory else Memory()
        return _summaries.decode(first), memory
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


# --- building them ----------------------------------------------------------------------------------


class DigestBuild:
    """The digest of many contents, piece by piece; equal to `Digest.of` all of them."""

    def __init__(self) -> None:
        self.count = 0
        self._xor = 0

    def add(self, piece: Piece) -> None:
        self._xor ^= piece.contents().xor()
        self.count += len(piece.positions)

    def digest(self) -> Digest:
        return Digest(self.count, self._xor.to_bytes(16, "big"))


def count_topics(topics: dict[str, int], found: Iterable[tuple[str, int]]) -> None:
    """Adds up, by name as long as there are not too many."""
    for name, count in found:
        # A long name is let in only where as many as are there would fit if all of them were as long.
        length = max(len(name), TOPIC_COUNTED_LENGTH)
        has_room = len(topics) * length < TOPICS_COUNTED_MAX * TOPIC_COUNTED_LENGTH
        is_counted = name in topics or has_room
        counted = name if is_counted else OTHERS
        topics[counted] = topics.get(counted, 0) + count
