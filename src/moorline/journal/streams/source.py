"""Room: journal/streams. What readers ask of the place where streams are, wherever that is.

    a folder, or a copy of one, without a server   journal/streams/folder.py
    other nodes, asked over links                  spark/node_streams.py

A reader is told which streams there are and how far they go, and reads one of them in one of two ways: block
by block, as the store cuts and checks them; or as a `SegmentFile`, whose bytes it decodes and checks itself.
An offset means the same in all of them: a reader that has another place to ask goes on there.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from moorline.core.frames.block import Block
from moorline.core.stream import Extent, Gap, SegmentPart, Shard, Stream
from moorline.journal.streams.segment import SegmentHead
from moorline.journal.streams.segment_index import DENSE_BYTES

ShardBounds = dict[Shard, tuple[int, int]]
"""The first message that each shard has, and its end."""


class DescribedShards(NamedTuple):
    """All shards, and those streams that were asked for, of each shard the oldest first."""

    bounds: ShardBounds
    shard_extents: dict[Shard, list[Extent]]


class Counted(NamedTuple):
    """Of the messages from an offset on to before `upto`, `matches` may match, and no other does."""

    upto: int
    matches: int


class SegmentFile(Protocol):
    """A segment, wherever it is: messages `head.first` to before `end` in its first `size_bytes`."""

    @property
    def name(self) -> str: ...

    @property
    def head(self) -> SegmentHead: ...

    @property
    def end(self) -> int: ...

    @property
    def size_bytes(self) -> int: ...

    def read_at(self, offset: int, length: int) -> bytes: ...

    def begin(self, position: int, length: int) -> Callable[[], bytearray]:
        """Begins to read; what it returns gives the bytes, padded, and may be called once."""

    def dense(self, number: int, count: int) -> bytes:
        """Entries of the dense index; nothing if there is none."""

    def index(self) -> bytes:
        """The sparse index; nothing if there is none."""

    def close(self) -> None: ...


class StreamSource(Protocol):
    """Where streams are. Its calls may wait for a disk or a net: they are for a thread."""

    def described(self, since: Mapping[Shard, int]) -> DescribedShards:
        """All shards, and of those that are named the streams that end behind that offset."""

    def extents(self) -> list[Extent]:
        """All streams of all shards: there may be very many."""

    def offsets_at(self, time_us: int) -> dict[Shard, int]:
        """The first message of each shard that is not older; its end if all are."""

    def count_matching(
        self, since: Mapping[Shard, int], filters: Sequence[str], count_max: Mapping[Shard, int]
    ) -> dict[Shard, Counted]:
        """Of shards how far so many messages go, from an offset on, that a filter may take. Some streams of
        each are looked at, so that it may end before there are so many; of whom nothing is known is left out.
        """

    def read(self, stream: Stream, offset: int, bytes_max: int) -> Block | Gap | None:
        """What follows the offset in that stream: frames within so many bytes, or else one; or what of it is
        gone, and why; None at its end."""

    def segment(self, stream: Stream, addresses: tuple[str, ...] = ()) -> SegmentFile | None:
        """None if it is gone. The addresses are those of its node, where they are known already."""

    def close(self) -> None: ...


class SegmentParts:
    """What every `SegmentFile` does alike, once it can read a part of the segment's files."""

    def __init__(self, name: str, head: SegmentHead, end: int, size_bytes: int) -> None:
        self.name = name
        self.head = head
        self.end = end
        self.size_bytes = size_bytes

    def part(self, part: SegmentPart, position: int, length: int) -> bytes:
        """Bytes of one of its files; nothing of an index that is not there."""
        raise NotImplementedError

    def read_at(self, offset: int, length: int) -> bytes:
        return self.part("segment", offset, length)

    def dense(self, number: int, count: int) -> bytes:
        count = max(0, min(count, self.end - self.head.first - number))
        data = self.part("dense", number * DENSE_BYTES, count * DENSE_BYTES)
        # An index that is too short is not of this segment.
        return data if len(data) == count * DENSE_BYTES else b""


def extents_by_shard(extents: Iterable[Extent]) -> dict[Shard, list[Extent]]:
    """The streams of each shard, the oldest first."""
    found: dict[Shard, list[Extent]] = {}
    for extent in sorted(extents, key=lambda one: one.stream):
        found.setdefault(extent.stream.shard, []).append(extent)
    return found
