"""Room: spark. The streams of running nodes: each node is asked for its own, over its own link."""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TypeAlias

from moorline.core.frames.block import Block, block_of_frames
from moorline.core.frames.byte_columns import PADDING_BYTES
from moorline.core.stream import RETENTION, Extent, Gap, SegmentPart, Shard, Stream
from moorline.errors import ConnectionLost, JournalDamaged, Untrusted
from moorline.journal.streams.segment import SEGMENT_HEAD, head_of
from moorline.journal.streams.source import (
    Counted,
    DescribedShards,
    SegmentParts,
    ShardBounds,
    extents_by_shard,
)
from moorline.limits import (
    SPARK_READS_IN_FLIGHT,
    STREAM_READ_BYTES_MAX,
)
from moorline.spark.node_link import Links, Told, together
from moorline.spark.options import Endpoint
from moorline.wire.group import FindOffsets, OffsetsFound, ReadStream, StreamRead
from moorline.wire.message import Message
from moorline.wire.stream_file import (
    ClusterDescribed,
    DescribeCluster,
    DescribeShards,
    MatchingRead,
    ReadMatching,
    ReadStreamFile,
    ShardsDescribed,
    StreamFileRead,
)

log = logging.getLogger("moorline.spark")

NodeShards: TypeAlias = tuple[list[tuple[int, int, int]], list[Extent]]
"""Of a node: (shard, first, end) of each shard, and those of its streams that were asked for."""


class NodeSegment(SegmentParts):
    """A segment on a node; reads of a block are under way together."""

    def __init__(
        self, links: Links, addresses: tuple[str, ...], stream: Stream, told: StreamFileRead
    ) -> None:
        name = f"{stream.home}: streams/{stream.shard_number:03}/{stream.generation:08}.seg"
        head = head_of(told.data)
        if head is None:
            raise JournalDamaged(f"{name}: its head is damaged: no message of it can be read")
        super().__init__(name, head, told.end, told.size_bytes)
        self._links = links
        self._addresses = addresses
        self._stream = stream
        self.is_sealed = told.is_sealed

    def close(self) -> None:
        """The links outlive it."""

    def matching(self, first: int, upto: int, filters: Sequence[str]) -> MatchingRead:
        """What the filters take of the messages from `first` on, as far as one answer goes."""
        make = asked_for_matches(self._stream, first, upto, filters)
        return self._links.call(self._addresses, make, MatchingRead)

    def part(self, part: SegmentPart, position: int, length: int) -> bytes:
        return self._links.run(self._read(part, position, length))

    def begin(self, position: int, length: int) -> Callable[[], bytearray]:
        read = self._links.begin(self._read("segment", position, length))

        def padded() -> bytearray:
            data = bytearray(read())
            data += bytes(PADDING_BYTES)
            return data

        return padded

    def index(self) -> bytes:
        parts = [self.part("index", 0, STREAM_READ_BYTES_MAX)]
        while len(parts[-1]) == STREAM_READ_BYTES_MAX:
            position = len(parts) * STREAM_READ_BYTES_MAX
            parts.append(self.part("index", position, STREAM_READ_BYTES_MAX))
        return b"".join(parts)

    async def _read(self, part: SegmentPart, position: int, length: int) -> bytes:
        calls = [
            _asked(self._stream, part, position + at, min(STREAM_READ_BYTES_MAX, length - at))
            for at in range(0, length, STREAM_READ_BYTES_MAX)
        ]
        parts: list[bytes] = []
        for start in range(0, len(calls), SPARK_READS_IN_FLIGHT):
            some = calls[start : start + SPARK_READS_IN_FLIGHT]
            answers = await self._links.ask_all(self._addresses, some, StreamFileRead)
            parts += [answer.data for answer in answers]
        return parts[0] if len(parts) == 1 else b"".join(parts)


def _asked(
    stream: Stream, part: SegmentPart, position: int, length: int
) -> Callable[[int], Message]:
    _, shard, generation = stream
    return lambda call: ReadStreamFile(call, shard, generation, part, position, length)


def asked_for_matches(
    stream: Stream, first: int, upto: int, filters: Sequence[str]
) -> Callable[[int], Message]:
    return partial(
        ReadMatching,
        shard=stream.shard_number,
        generation=stream.generation,
        offset=first,
        upto=upto,
        bytes_max=STREAM_READ_BYTES_MAX,
        filters=list(filters),
    )


class NodeStreams:
    """All streams of all nodes of a cluster, of which one is asked where the others are."""

    def __init__(self, endpoint: Endpoint, filters: Sequence[str] = ()) -> None:
        """With filters the nodes give what these take and nothing else, to whoever may read that."""
        self._endpoint = endpoint
        self._filters = list(filters)
        self.skipped = 0
        """Messages that the nodes looked at and left out."""
        self._links = Links(endpoint)
        self._known: dict[str, tuple[str, ...]] = {}
        self._silent: list[str] = []
        self._asked = ""

    def close(self) -> None:
        self._links.close()

    def silent(self) -> list[str]:
        """Nodes of the cluster that did not answer when streams were last asked for."""
        return self._silent

    def addresses(self, node: str) -> tuple[str, ...]:
        return self._known.get(node, ())

    def described(self, since: Mapping[Shard, int]) -> DescribedShards:
        """Asks the nodes side by side, for how far their shards go and for what is behind those offsets."""
        bounds: ShardBounds = {}
        extents: list[Extent] = []
        for node, told in self._links.run(self._ask_nodes(since)).items():
            if isinstance(told, ConnectionLost) and not isinstance(told, Untrusted):
                log.warning("a node does not answer", extra={"node": node, "error": str(told)})
                self._silent.append(node)
                continue
            if isinstance(told, BaseException):
                raise told
            shards, streams = told
            bounds |= {Shard(node, shard): (first, end) for shard, first, end in shards}
            extents += streams
        return DescribedShards(bounds, extents_by_shard(extents))

    def extents(self) -> list[Extent]:
        bounds = self.described({}).bounds
        shard_extents = self.described(dict.fromkeys(bounds, 0)).shard_extents
        return [extent for several in shard_extents.values() for extent in several]

    async def _ask_nodes(self, since: Mapping[Shard, int]) -> dict[str, Told[NodeShards]]:
        """Those that are known are asked while the cluster is; those that are new, behind that."""
        asked: dict[str, asyncio.Task[NodeShards]] = {}
        begun: list[asyncio.Task[NodeShards]] = []

        def ask() -> None:
            for node in self._known.keys() - asked.keys() - set(self._silent):
                work = self._shards_of(node, self._known[node], since)
                asked[node] = asyncio.create_task(work)
                begun.append(asked[node])

        ask()
        try:
            await self._find_nodes()
            for node in asked.keys() & set(self._silent):
                if asked[node].done() and not asked[node].exception():
                    self._silent.remove(node)  # whoever answers is there
                else:
                    del asked[node]
            ask()
            return await together(asked)
        finally:
            for task in begun:
                task.cancel()
            await asyncio.gather(*begun, return_exceptions=True)

    async def _shards_of(
        self, node: str, addresses: tuple[str, ...], since: Mapping[Shard, int]
    ) -> NodeShards:
        wanted = {shard.number: at for shard, at in since.items() if shard.home == node}
        streams: dict[Stream, Extent] = {}
        while True:
            make = partial(DescribeShards, since=list(wanted.items()), filters=self._filters)
            told = await self._links.ask(addresses, make, ShardsDescribed)
            streams |= {extent.stream: extent for extent in told.streams}
            if not told.is_more:
                return told.shards, list(streams.values())
            wanted |= {extent.stream.shard_number: extent.end for extent in told.streams}

    async def _find_nodes(self) -> None:
        # Any node that was heard of may answer, should the one that was named be away.
        others = [address for known in self._known.values() for address in known]
        addresses = (self._endpoint.address, *others)
        make = partial(DescribeCluster, filters=self._filters)
        told = await self._links.ask(addresses, make, ClusterDescribed)
        self._silent = [name for name, _, is_alive in told.nodes if not is_alive]
        self._known = {name: tuple(addresses) for name, addresses, _ in told.nodes}
        if self._asked in ("", told.node):
            # It was reached by this address, whatever it thinks that it listens on.
            self._asked = told.node
            self._known[told.node] = (self._endpoint.address,)
        if told.node in self._silent:
            self._silent.remove(told.node)

    def offsets_at(self, time_us: int) -> dict[Shard, int]:
        make = partial(FindOffsets, time_us=time_us, filters=self._filters)
        works = {
            node: self._links.ask(addresses, make, OffsetsFound)
            for node, addresses in self._known.items()
            if node not in self._silent
        }
        found: dict[Shard, int] = {}
        for node, told in self._links.together(works).items():
            if isinstance(told, BaseException):
                raise told
            found.update({Shard(node, shard): at for shard, at in told.offsets})
        return found

    def count_matching(
        self, since: Mapping[Shard, int], filters: Sequence[str], count_max: Mapping[Shard, int]
    ) -> dict[Shard, Counted]:
        """Of what the nodes know; of an older program, and of one that is away, nothing."""
        homes = {shard.home for shard in since} & self._known.keys() - set(self._silent)
        works = {}
        for home in sorted(homes):
            own = [shard for shard in since if shard.home == home]
            make = partial(
                DescribeShards,
                since=[(shard.number, since[shard]) for shard in own],
                filters=list(filters),
                counts=[(shard.number, count_max[shard]) for shard in own],
            )
            works[home] = self._links.ask(self._known[home], make, ShardsDescribed)
        found: dict[Shard, Counted] = {}
        for home, told in self._links.together(works).items():
            if isinstance(told, BaseException):
                raise told
            found |= {
                Shard(home, number): Counted(upto, count) for number, upto, count in told.counted
            }
        return found

    def _reached(self, node: str) -> tuple[str, ...]:
        if node not in self._known:
            self._links.run(self._find_nodes())
        if node not in self._known:
            raise ConnectionLost(f"no node of this cluster has the streams of {node}")
        return self._known[node]

    def read(self, stream: Stream, offset: int, bytes_max: int) -> Block | Gap | None:
        _, shard, generation = stream
        length = min(bytes_max, STREAM_READ_BYTES_MAX)
        told = self._links.call(
            self._reached(stream.home),
            lambda call: ReadStream(call, shard, generation, offset, length),
            StreamRead,
        )
        if told.reason:
            return Gap(told.first, told.upto, told.reason)
        return block_of_frames(told.first, told.frames) if told.frames else None

    def matching(
        self, stream: Stream, addresses: tuple[str, ...], first: int, upto: int
    ) -> Iterator[MatchingRead | Gap]:
        """What the filters take of the messages `first` to before `upto`, and what of all of them is lost."""
        at = first
        while at < upto:
            make = asked_for_matches(stream, at, upto, self._filters)
            told = self._links.call(addresses or self._reached(stream.home), make, MatchingRead)
            if told.upto <= at:
                # The stream is shorter than it was when this was planned.
                yield Gap(at, upto, RETENTION)
                return
            if told.reason:
                yield Gap(at, min(told.upto, upto), told.reason)
            else:
                self.skipped += told.skipped
                yield told
            at = told.upto

    def segment(self, stream: Stream, addresses: tuple[str, ...] = ()) -> NodeSegment | None:
        """None if it is gone."""
        reached = addresses or self._reached(stream.home)
        make = _asked(stream, "segment", 0, SEGMENT_HEAD.size)
        told = self._links.call(reached, make, StreamFileRead)
        return None if told.reason else NodeSegment(self._links, reached, stream, told)
