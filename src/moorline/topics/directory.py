"""Room: topics. The directory of streams: those of all nodes, as this one knows them.

Over its link to each other node (cluster/links.py) this node hears of the other's streams as they change, and
reads them. Nodes are called by their homes, as their streams are.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from functools import partial

import numpy as np

from moorline.cluster.links import Links
from moorline.core.frames.block import Block, block_of
from moorline.core.frames.byte_columns import Numbers
from moorline.core.frames.frame import HEAD
from moorline.core.frames.hidden import with_hidden
from moorline.core.frames.picked import Picked, picked_of
from moorline.core.stream import Extent, Gap, Shard, Stream
from moorline.errors import MoorlineError
from moorline.journal.streams.topic_picks import Wish
from moorline.limits import (
    HELLO_TIMEOUT_MS,
    PICK_ELSEWHERE_MESSAGES_MIN,
    STREAM_READ_BYTES_MAX,
    STREAM_WAIT_MS_MAX,
    STREAMS_PER_PAGE_MAX,
)
from moorline.net.caller import Caller
from moorline.topics.shared_reads import SharedReads
from moorline.topics.streams import LocalStreams
from moorline.wire.group import (
    FindOffsets,
    FindRetained,
    OffsetsFound,
    ReadStream,
    RetainedFound,
    StreamRead,
    StreamsChanged,
    StreamsSeen,
    WatchStreams,
)
from moorline.wire.stream_file import MatchingRead, ReadMatching
from moorline.wire.topic import NO_STREAM

log = logging.getLogger("moorline.topics")

ShardExtents = dict[Shard, tuple[Extent, ...]]


class StreamDirectory:
    """The streams of all nodes."""

    def __init__(self, local: LocalStreams, links: Links) -> None:
        self.node = local.node
        self.local = local
        self.reshaped: list[Callable[[ShardExtents], None]] = []
        """Called with the shards, anywhere, whose streams have changed."""
        self.moved: list[Callable[[ShardExtents], None]] = []
        """Called with the shards of other nodes that have new messages, and the streams that they had."""
        self._links = links
        self._reads = SharedReads(self._read)
        self._remote: ShardExtents = {}
        self._news: dict[str, News] = {}
        """By node, since the link to it began."""
        local.reshaped.append(self._local_reshaped)
        links.hear(StreamsChanged, self._changed)
        links.greets.append(self._greet)
        links.linked.append(self._linked)
        links.gone.append(self._forget)

    def close(self) -> None:
        """Links may outlive it: nobody is told of streams any more."""
        self.reshaped.clear()
        self.moved.clear()

    # --- streams ----------------------------------------------------------------------------------

    def shard_extents(self) -> ShardExtents:
        """All streams that are known now."""
        return {**self._remote, **self.local.shard_extents()}

    def extents(self, shard: Shard) -> tuple[Extent, ...]:
        if shard.home == self.node:
            return self.local.shard_extents([shard.number]).get(shard, ())
        return self._remote.get(shard, ())

    def first(self, shard: Shard) -> int:
        """Everything below is gone, as far as is known here."""
        if shard.home == self.node:
            return self.local.store.first(shard.number)
        extents = self._remote.get(shard)
        return extents[0].first if extents else 0

    async def read(self, stream: Stream, offset: int) -> Block | Gap | None:
        """What follows an offset of another node's stream; waits for news, None if there is none.

        Raises `ConnectionLost` while the node is away. Readers at the same place share one question.
        """
        return await self._reads.read(stream, offset)

    async def read_anywhere(self, stream: Stream, offset: int) -> Block | Gap | None:
        """The same of a stream of this node or of another."""
        if stream.home == self.node:
            return await self.local.read(stream, offset)
        return await self.read(stream, offset)

    async def _read(self, stream: Stream, offset: int) -> Block | Gap | None:
        answer = await self._links.call(
            stream.home,
            lambda call: ReadStream(
                call,
                stream.shard_number,
                stream.generation,
                offset,
                STREAM_READ_BYTES_MAX,
                STREAM_WAIT_MS_MAX,
            ),
            StreamRead,
        )
        if answer.reason:
            return Gap(answer.first, answer.upto, answer.reason)
        if not answer.frames:
            return None
        block = block_of(answer.first, answer.frames, _starts(answer.frames))
        return with_hidden(block, answer.hidden)

    def may_pick(self, stream: Stream, offset: int) -> bool:
        """Whether another node is asked for what matches: near the end of a stream, the blocks that all
        readers here share cost less."""
        extents = reversed(self.extents(stream.shard))
        end = next((extent.end for extent in extents if extent.stream == stream), offset)
        return end - offset >= PICK_ELSEWHERE_MESSAGES_MIN

    async def pick(self, stream: Stream, offset: int, wish: Wish) -> Picked | Gap | None:
        """What may match behind an offset of another node's stream: that node looks, and says no more."""
        found = await self._links.call(
            stream.home,
            lambda call: ReadMatching(
                call,
                stream.shard_number,
                stream.generation,
                offset,
                wish.upto,
                STREAM_READ_BYTES_MAX,
                list(wish.filters),
                wish.messages_max,
            ),
            MatchingRead,
        )
        if found.reason:
            return Gap(found.first, found.upto, found.reason)
        if found.upto <= found.first:
            return None
        return picked_of(found.first, found.upto, found.frames, _starts(found.frames))

    async def offsets_at(
        self, node: str, time_us: int, *, within_ms: int = HELLO_TIMEOUT_MS
    ) -> dict[Shard, int]:
        """The first offset at or after a time, in each shard of a node."""
        if node == self.node:
            offsets = await self.local.offsets_at(time_us)
        else:
            asked = partial(FindOffsets, time_us=time_us)
            found = await self._links.ask(node, asked, OffsetsFound, within_ms=within_ms)
            offsets = dict(found.offsets)
        return {Shard(node, shard): offset for shard, offset in offsets.items()}

    async def retained(self, filter_text: str) -> list[bytes]:
        """Frames of retained messages, from every other node that answers."""
        nodes = self._links.others()
        found = await asyncio.gather(*(self._retained_of(node, filter_text) for node in nodes))
        return [frames for pages in found for frames in pages]

    async def _retained_of(self, node: str, filter_text: str) -> list[bytes]:
        """All of one node, page by page; of one that goes away meanwhile what came before."""
        pages: list[bytes] = []
        skip = 0
        while True:
            try:
                answer = await self._links.ask(
                    node,
                    lambda call, skip=skip: FindRetained(call, filter_text, skip),  # type: ignore[misc]
                    RetainedFound,
                )
            except MoorlineError as error:
                log.warning(
                    "retained messages of another node are not told",
                    extra={"of": node, "filter": filter_text, "error": str(error)},
                )
                return pages
            pages.append(answer.frames)
            if answer.next <= skip:
                return pages
            skip = answer.next

    def nodes(self) -> list[str]:
        """Those that can be reached now, this one first."""
        return [self.node, *self._links.others()]

    # --- what other nodes say of theirs -----------------------------------------------------------

    async def _greet(self, node: str, caller: Caller) -> None:
        news = self._news[node] = News(self._heard)
        news.first = await all_streams(caller)

    def _linked(self, node: str) -> None:
        news = self._news[node]
        first, news.first = news.first, []
        # What changed meanwhile is known already, and newer.
        self._seen(extent for extent in first if extent.stream.shard not in news.changed)

    def _changed(self, node: str, message: StreamsChanged) -> None:
        self._news[node].hear(message)

    def _forget(self, node: str) -> None:
        self._news.pop(node, None)
        for shard in [shard for shard in self._remote if shard.home == node]:
            del self._remote[shard]

    def _heard(self, streams: list[Extent]) -> None:
        """News of a link. Most of them, many times a second, say that a stream has grown: all sessions and
        Leaders need not look at their streams because of that."""
        shard_extents = by_shard(streams)
        grown = {
            shard
            for shard in shard_extents
            if _has_only_grown(self._remote.get(shard), shard_extents[shard])
        }
        self._remote.update(shard_extents)
        if grown:
            for moved in self.moved:
                moved({shard: shard_extents[shard] for shard in grown})
        if len(grown) < len(shard_extents):
            self._tell(
                {shard: shard_extents[shard] for shard in shard_extents if shard not in grown}
            )

    def _seen(self, streams: Iterable[Extent]) -> None:
        """What a link begins with: whatever was known before, everybody looks again."""
        shard_extents = by_shard(streams)
        self._remote.update(shard_extents)
        self._tell(shard_extents)

    def _local_reshaped(self, shards: list[int]) -> None:
        self._tell(self.local.shard_extents(shards))

    def _tell(self, shard_extents: ShardExtents) -> None:
        for reshaped in self.reshaped:
            reshaped(shard_extents)


class News:
    """What the node at the other end of one link says of its streams unasked."""

    def __init__(self, seen: Callable[[list[Extent]], None]) -> None:
        self.first: list[Extent] = []
        """What it had when the link began; told when the link counts."""
        self.changed: set[Shard] = set()
        """Shards that were heard of since the link began."""
        self._seen = seen
        self._extents: list[Extent] = []

    def hear(self, message: StreamsChanged) -> None:
        """A shard is known whole or not at all: half of it would end too early."""
        self._extents += message.streams
        if not message.is_more:
            extents, self._extents = self._extents, []
            self.changed.update(extent.stream.shard for extent in extents)
            self._seen(extents)


async def all_streams(caller: Caller) -> list[Extent]:
    """Of the node at the other end, page by page; it tells what changes from the first page on."""
    found: list[Extent] = []
    after = NO_STREAM
    while True:
        asked = partial(WatchStreams, after=after, count=STREAMS_PER_PAGE_MAX)
        page = (await caller.call(asked, StreamsSeen)).streams
        found += page
        if len(page) < STREAMS_PER_PAGE_MAX:
            return found
        after = (page[-1].stream.shard_number, page[-1].stream.generation)


def by_shard(streams: Iterable[Extent]) -> ShardExtents:
    """The streams of each shard, in their order."""
    shard_extents: dict[Shard, list[Extent]] = {}
    for extent in streams:
        shard_extents.setdefault(extent.stream.shard, []).append(extent)
    return {shard: tuple(extents) for shard, extents in shard_extents.items()}


def _has_only_grown(known: tuple[Extent, ...] | None, now: tuple[Extent, ...]) -> bool:
    """Whether these are the streams that were known; only the newest of a shard ever grows."""
    if not known:
        return False
    is_last_one = known[-1]._replace(end=now[-1].end) == now[-1]
    return is_last_one and known[:-1] == now[:-1]


def by_offset(shard_extents: ShardExtents, offset: int) -> Iterable[tuple[Shard, int]]:
    """That offset in each shard, or the nearest one that there is."""
    for shard, extents in shard_extents.items():
        if extents:
            yield shard, max(extents[0].first, min(offset, extents[-1].end))


def _starts(frames: bytes) -> Numbers:
    """Where each of the frames begins."""
    starts, place, end = [], 0, len(frames)
    while place < end:
        starts.append(place)
        place += HEAD.size + HEAD.unpack_from(frames, place)[0]
    return np.array(starts, np.int64)
