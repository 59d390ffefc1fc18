"""Room: journal/streams. The topics of a node that were deleted: up to where in each shard nobody reads them.

    deleted   magic    8 bytes  "MOORGONE"
              version  u32
              size     u32      bytes of the rows
              check    u64      XXH3-64 of all before it and of the rows
              rows     msgpack: an array of [topic, [[shard, upto, generation, messages], …]]

Shards mix topics, and what is sealed has a digest: so no bytes go before retention takes them. What is below
`upto` is *hidden*: a block says of such a message that its topic is `HIDDEN`, which no filter takes. What a
topic gets from there on is read like anything else. `generation` is the one that had the end, and `messages`
are those that it had of the topic: a listing counts what is left of it.
"""

import struct
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, TypeVar

import msgspec
import numpy as np
import xxhash

from moorline.core.frames.block import Block
from moorline.core.frames.hidden import hidden
from moorline.core.frames.picked import Picked
from moorline.errors import LimitReached, Malformed, StartError
from moorline.journal.disk import Disk, read_all
from moorline.journal.reserved_whole import ReservedWhole
from moorline.limits import DELETED_TOPICS_MAX

PATH = "deleted"
MAGIC = b"MOORGONE"
VERSION = 1

_WIDEST: Final = (1 << 64) - 1
"""Of all numbers the one that takes most bytes."""

_HEAD = struct.Struct("<8sII")
_CHECK = struct.Struct("<Q")


class DeletedUpto(msgspec.Struct, frozen=True, array_like=True):
    """Up to where a topic is deleted in one shard."""

    shard: int
    upto: int
    generation: int
    messages: int


class _Row(msgspec.Struct, frozen=True, array_like=True):
    topic: str
    reaches: list[DeletedUpto]


_rows = msgspec.msgpack.Decoder(list[_Row])
_encode = msgspec.msgpack.Encoder().encode

Found = TypeVar("Found", Block, Picked)


class _Shard(NamedTuple):
    topics: dict[str, DeletedUpto]
    upto: int
    """Nothing is hidden from here on."""


class DeletedTopics:
    """The loop owns it; readers in threads look at what is replaced and never changed."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._topics: dict[str, list[DeletedUpto]] = {}
        self._shards: dict[int, _Shard] = {}

    def open(self) -> str:
        """Reads the file; what is wrong with it, or nothing. `StartError` for one of a later version."""
        data = read_all(self._disk, PATH)
        if not data:
            return ""
        try:
            self._know(decoded(data))
        except Malformed as error:
            return str(error)
        return ""

    def __bool__(self) -> bool:
        return bool(self._topics)

    def __len__(self) -> int:
        return len(self._topics)

    # --- a deletion -------------------------------------------------------------------------------

    def with_topic(
        self, topic: str, reaches: list[DeletedUpto], firsts: Mapping[int, int]
    ) -> dict[str, list[DeletedUpto]]:
        """What is deleted behind this one; `firsts` says what retention took, which needs no row."""
        # Of two deletions the later one reaches further: an offset is never given again.
        every = {**self._topics, topic: reaches}
        left = {
            name: [one for one in some if one.upto > firsts.get(one.shard, 0)]
            for name, some in every.items()
        }
        kept = {name: some for name, some in left.items() if some}
        if len(kept) > DELETED_TOPICS_MAX:
            raise LimitReached(
                f"{DELETED_TOPICS_MAX} topics are deleted here whose messages retention has not taken yet: "
                "wait for it, or shorten streams.retention_s"
            )
        return kept

    def size_with(self, topic: str, shards: Iterable[int], firsts: Mapping[int, int]) -> int:
        """So many bytes the list takes behind the deletion of a topic, wherever its shards end by then;
        `LimitReached` where it may not grow."""
        widest = [DeletedUpto(shard, _WIDEST, _WIDEST, _WIDEST) for shard in shards]
        return len(encoded(self.with_topic(topic, widest, firsts)))

    def reserved(self, size: int) -> ReservedWhole:
        """In a thread: takes the room for a list of that size, or raises `DiskFull`."""
        return ReservedWhole(self._disk, PATH, size)

    def written(self, topics: dict[str, list[DeletedUpto]]) -> None:
        """Readers see it from now on."""
        self._know(topics)

    def _know(self, topics: dict[str, list[DeletedUpto]]) -> None:
        by_shard: dict[int, dict[str, DeletedUpto]] = {}
        for topic, reaches in topics.items():
            for reach in reaches:
                by_shard.setdefault(reach.shard, {})[topic] = reach
        self._topics = topics
        self._shards = {
            shard: _Shard(some, max(reach.upto for reach in some.values()))
            for shard, some in by_shard.items()
        }

    # --- what readers ask -------------------------------------------------------------------------

    def upto(self, shard: int) -> int:
        """No message of the shard was deleted from there on; the shard had come so far."""
        known = self._shards.get(shard)
        return known.upto if known is not None else 0

    def hide(self, shard: int, found: Found) -> Found:
        """The same messages; those that are deleted have the topic `HIDDEN`. It is asked of every read."""
        known = self._shards.get(shard)
        if known is None or found.first >= known.upto:
            return found
        mask = None
        for place, name in enumerate(found.names):
            reach = known.topics.get(name)
            if reach is not None and found.first < reach.upto:
                offsets = (
                    found.offsets
                    if isinstance(found, Picked)
                    else np.arange(found.first, found.upto)
                )
                some = (found.topics == place) & (offsets < reach.upto)
                mask = some if mask is None else mask | some
        return found if mask is None else hidden(found, mask)

    def left(self, shard: int, generation: int, end: int, counts: dict[str, int]) -> dict[str, int]:
        """Of the topics of a generation that ends there those that are not deleted, with what is left."""
        known = self._shards.get(shard)
        if known is None:
            return counts
        found: dict[str, int] = {}
        for topic, count in counts.items():
            reach = known.topics.get(topic)
            if reach is None or generation > reach.generation:
                found[topic] = count
            elif end > reach.upto and generation == reach.generation and count > reach.messages:
                found[topic] = count - reach.messages
        return found


def encoded(topics: Mapping[str, list[DeletedUpto]]) -> bytes:
    rows = _encode([_Row(topic, reaches) for topic, reaches in topics.items()])
    head = _HEAD.pack(MAGIC, VERSION, len(rows))
    return head + _CHECK.pack(xxhash.xxh3_64_intdigest(head + rows)) + rows


def decoded(data: bytes) -> dict[str, list[DeletedUpto]]:
    """`Malformed` says what is wrong; `StartError` that a later version wrote it."""
    if len(data) < _HEAD.size + _CHECK.size or not data.startswith(MAGIC):
        raise Malformed("it is no list of deleted topics")
    _, version, size = _HEAD.unpack_from(data)
    if version > VERSION:
        raise StartError(
            f"streams/{PATH} was written by a newer Moorline (version {version}): start that one"
        )
    (check,) = _CHECK.unpack_from(data, _HEAD.size)
    rows = data[_HEAD.size + _CHECK.size :]
    if len(rows) != size or xxhash.xxh3_64_intdigest(data[: _HEAD.size] + rows) != check:
        raise Malformed("its check fails")
    try:
        return {row.topic: row.reaches for row in _rows.decode(rows)}
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Malformed(f"its rows cannot be read: {error}") from error
