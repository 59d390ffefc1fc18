"""Room: topics. The nodes of a cluster and all of their streams, as this node knows them.

Every node says in the catalog that it lives (node/identity.py), and keeps a link to every other one that
does. Nodes are called by their homes here, as their streams are: a name may change. Over the link it hears
of the other's streams as they change, reads them, and passes on what Borrowers and Leaders say to each other.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np

from moorline.catalog import Catalog
from moorline.config.addresses import Address, listen_address
from moorline.config.settings import Config
from moorline.core.frames.block import Block, block_of
from moorline.core.frames.byte_columns import Numbers
from moorline.core.frames.frame import HEAD
from moorline.core.group.message import BorrowerMessage, LeaderMessage
from moorline.core.stream import Extent, Gap, Shard, Stream
from moorline.errors import ConnectionLost, MoorlineError
from moorline.limits import (
    HELLO_TIMEOUT_MS,
    KEEPALIVE_MS,
    NODE_GONE_MS,
    NODE_SEEN_MS,
    PEER_RETRY_MS,
    STREAM_READ_BYTES_MAX,
    STREAM_WAIT_MS_MAX,
    STREAMS_PER_PAGE_MAX,
)
from moorline.net.caller import Caller, open_caller
from moorline.topics.streams import LocalStreams
from moorline.version import SOFTWARE
from moorline.wire.group import (
    FindOffsets,
    FindRetained,
    ForBorrower,
    ForLeader,
    OffsetsFound,
    ReadStream,
    RetainedFound,
    StreamRead,
    StreamsChanged,
    StreamsSeen,
    WatchStreams,
)
from moorline.wire.message import Answer, Message
from moorline.wire.topic import NO_STREAM

log = logging.getLogger("moorline.groups")

ShardExtents = dict[Shard, tuple[Extent, ...]]
Reply = TypeVar("Reply", bound=Answer)


class Cluster:
    """The other nodes, and the streams of all."""

    def __init__(self, config: Config, catalog: Catalog, local: LocalStreams) -> None:
        self.node = local.node
        self.local = local
        self.reshaped: list[Callable[[ShardExtents], None]] = []
        """Called with the shards, anywhere, whose streams have changed."""
        self.moved: list[Callable[[ShardExtents], None]] = []
        """Called with the shards of other nodes that have new messages, and the streams that they had."""
        self.lost: list[Callable[[str], None]] = []
        """Called with the name of a node whose link is gone."""
        self.for_borrower: Callable[[LeaderMessage], None] = lambda _: None
        self._config = config
        self._catalog = catalog
        self._remote: ShardExtents = {}
        self._links: dict[str, Caller] = {}
        self._keepers: dict[str, asyncio.Task[None]] = {}
        self._addresses: dict[str, list[str]] = {}
        local.reshaped.append(self._local_reshaped)

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

        Raises `ConnectionLost` while the node is away.
        """
        answer = await self._link(stream.home).call(
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
        return (
            block_of(answer.first, answer.frames, _starts(answer.frames)) if answer.frames else None
        )

    async def offsets_at(
        self, node: str, time_us: int, *, within_ms: int = HELLO_TIMEOUT_MS
    ) -> dict[Shard, int]:
        """The first offset at or after a time, in each shard of a node."""
        if node == self.node:
            offsets = await self.local.offsets_at(time_us)
        else:
            asked = partial(FindOffsets, time_us=time_us)
            found = await self.ask(node, asked, OffsetsFound, within_ms=within_ms)
            offsets = dict(found.offsets)
        return {Shard(node, shard): offset for shard, offset in offsets.items()}

    async def retained(self, filter_text: str) -> list[bytes]:
        """Frames of retained messages, from every other node that answers."""
        answers = await asyncio.gather(
            *(
                self.ask(node, lambda call: FindRetained(call, filter_text), RetainedFound)
                for node in list(self._links)
            ),
            return_exceptions=True,
        )
        return [answer.frames for answer in answers if isinstance(answer, RetainedFound)]

    def nodes(self) -> list[str]:
        """Those that can be reached now, this one first."""
        return [self.node, *self._links]

    # --- what Borrowers and Leaders say -----------------------------------------------------------

    def to_leader(self, node: str, reader: int, message: BorrowerMessage) -> bool:
        """Passes a message on; False if there is no link to that node now."""
        link = self._links.get(node)
        if link is None:
            return False
        link.send(ForLeader(reader, message))
        return True

    async def ask(
        self,
        node: str,
        make: Callable[[int], Message],
        reply: type[Reply],
        *,
        within_ms: int = HELLO_TIMEOUT_MS,
    ) -> Reply:
        """A call to another node; `ConnectionLost` if it is away or does not answer in time."""
        link = self._link(node)
        try:
            # A node that hangs keeps its link for a while yet: nobody should wait for it that long.
            async with asyncio.timeout(within_ms / 1_000):
                return await link.call(make, reply)
        except TimeoutError:
            raise ConnectionLost(f"the node {node} gave no answer within {within_ms} ms") from None

    # --- links ------------------------------------------------------------------------------------

    async def keep_forever(self) -> None:
        """Keeps a link to every other node that lives."""
        while True:
            try:
                await self._look_for_nodes()
            except MoorlineError as error:
                log.warning("the catalog does not answer", extra={"error": str(error)})
            except Exception:
                # Without this task the node would be gone for all others, and nothing else would say so.
                log.exception("the other nodes were not looked for")
            await asyncio.sleep(NODE_SEEN_MS / 1_000)

    async def close(self) -> None:
        for keeper in self._keepers.values():
            keeper.cancel()
        for link in list(self._links.values()):
            link.close("STOPPING", "the node stops")

    async def _look_for_nodes(self) -> None:
        alive = await self._catalog.live_nodes(NODE_GONE_MS)
        for name, addresses in alive.items():
            if name == self.node:
                continue
            self._addresses[name] = addresses
            keeper = self._keepers.get(name)
            if keeper is None or keeper.done():
                self._keepers[name] = asyncio.create_task(self._keep_link(name))
        for name in [name for name in self._keepers if name not in alive]:
            if name not in self._links:
                self._forget(name)

    def _forget(self, name: str) -> None:
        """A node is gone. If it comes back it says anew what it has."""
        self._keepers.pop(name).cancel()
        self._addresses.pop(name, None)
        for shard in [shard for shard in self._remote if shard.home == name]:
            del self._remote[shard]
        log.info("a node is gone", extra={"node": name})

    async def _keep_link(self, name: str) -> None:
        said = ""
        while True:
            for address in self._addresses[name]:
                try:
                    await self._linked(name, listen_address(address))
                    said = ""
                except MoorlineError as error:
                    # Once: a node that is down is tried several times a second.
                    if said != str(error):
                        said = str(error)
                        log.warning("no link", extra={"node": name, "error": said})
                except Exception:
                    log.exception("a link failed", extra={"node": name})
            await asyncio.sleep(PEER_RETRY_MS / 1_000)

    async def _linked(self, name: str, address: Address) -> None:
        """One link from its beginning to its end."""
        config = self._config
        news = News(self._heard, lambda said: self.for_borrower(said))
        caller = await open_caller(
            address,
            lambda: Caller(
                f"{SOFTWARE} node {self.node}",
                hello_timeout_ms=HELLO_TIMEOUT_MS,
                keepalive_ms=KEEPALIVE_MS,
                pushed=news.heard,
            ),
            timeout_ms=HELLO_TIMEOUT_MS,
            # Where nodes have an authority of their own, nothing else proves one to us either.
            ca=Path(ca) if (ca := config.tls_node_ca or config.tls_client_ca) else None,
            certificate=Path(config.tls_certificate) if config.tls_certificate else None,
            key=Path(config.tls_key) if config.tls_key else None,
        )
        try:
            answers = caller.node.home if caller.node is not None else ""
            if answers != name:
                raise ConnectionLost(
                    f"at {address} of the node {name} answers {answers or 'nobody'}: does it listen on an "
                    "address that means another machine here?"
                )
            async with asyncio.timeout(HELLO_TIMEOUT_MS / 1_000):
                seen = await all_streams(caller)
            self._links[name] = caller
            log.info("linked", extra={"node": name})
            # What changed meanwhile is known already, and newer.
            self._seen(extent for extent in seen if extent.stream.shard not in news.changed)
            await asyncio.wait([caller.lost])
        except TimeoutError:
            raise ConnectionLost(f"{address} says nothing of its streams") from None
        finally:
            caller.close("DONE", "the link is not needed any more")
            if self._links.get(name) is caller:
                del self._links[name]
                log.info("link lost", extra={"node": name})
                for lost in self.lost:
                    lost(name)

    def _link(self, node: str) -> Caller:
        link = self._links.get(node)
        if link is None:
            raise ConnectionLost(f"the node {node} cannot be reached now")
        return link

    def _heard(self, streams: list[Extent]) -> None:
        """News of a link. Most of them, many times a second, say that a stream has grown: all sessions and
        Leaders need not look at their streams because of that."""
        shard_extents = by_line(streams)
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
        shard_extents = by_line(streams)
        self._remote.update(shard_extents)
        self._tell(shard_extents)

    def _local_reshaped(self, shards: list[int]) -> None:
        self._tell(self.local.shard_extents(shards))

    def _tell(self, shard_extents: ShardExtents) -> None:
        for reshaped in self.reshaped:
            reshaped(shard_extents)


class News:
    """What the node at the other end of one link says unasked."""

    def __init__(
        self,
        seen: Callable[[list[Extent]], None],
        for_borrower: Callable[[LeaderMessage], None],
    ) -> None:
        self.changed: set[Shard] = set()
        """Shards that were heard of since the link began."""
        self._seen = seen
        self._for_borrower = for_borrower
        self._extents: list[Extent] = []

    def heard(self, messages: list[Message]) -> None:
        for message in messages:
            try:
                match message:
                    case StreamsChanged(streams, is_more):
                        self._heard_of(streams, is_more=is_more)
                    case ForBorrower(said):
                        self._for_borrower(said)
            except Exception:
                # A mistake with one of them is not to cost the others of the frame, or the link.
                log.exception("a push failed", extra={"kind": type(message).__name__})

    def _heard_of(self, streams: list[Extent], *, is_more: bool) -> None:
        """A shard is known whole or not at all: half of it would end too early."""
        self._extents += streams
        if not is_more:
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


def by_line(streams: Iterable[Extent]) -> ShardExtents:
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
