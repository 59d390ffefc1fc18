"""Room: groups. The nodes of a cluster and all of their streams, as this node knows them.

Every node says in the catalog that it lives, and keeps a link to every other one that does. Over the link
it hears of the other's streams as they change, reads them, and passes on what Borrowers and Leaders say to
each other.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from pathlib import Path

from moorline.catalog import Catalog
from moorline.config.addresses import Address, listen_address
from moorline.config.settings import Config
from moorline.core.block import Block
from moorline.core.group_message import BorrowerMessage, LeaderMessage
from moorline.core.stream import Extent, Gap, Shard, Stream
from moorline.errors import ConnectionLost, MoorlineError
from moorline.groups.streams import LocalStreams
from moorline.journal.segment import block_of
from moorline.limits import (
    HELLO_TIMEOUT_MS,
    KEEPALIVE_MS,
    NODE_GONE_MS,
    NODE_SEEN_MS,
    PEER_RETRY_MS,
    STREAM_READ_BYTES_MAX,
    STREAM_WAIT_MS_MAX,
)
from moorline.net.caller import Caller, open_caller
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
from moorline.wire.message import Message
from moorline.wire.segment import HEAD

log = logging.getLogger("moorline.groups")

Lines = dict[Shard, tuple[Extent, ...]]


class Cluster:
    """The other nodes, and the streams of all."""

    def __init__(self, config: Config, catalog: Catalog, local: LocalStreams) -> None:
        self.node = config.node
        self.local = local
        self.reshaped: list[Callable[[Lines], None]] = []
        """Called with the shards, anywhere, whose streams have changed."""
        self.lost: list[Callable[[str], None]] = []
        """Called with the name of a node whose link is gone."""
        self.for_borrower: Callable[[LeaderMessage], None] = lambda _: None
        self._config = config
        self._catalog = catalog
        self._remote: Lines = {}
        self._links: dict[str, Caller] = {}
        self._keepers: dict[str, asyncio.Task[None]] = {}
        self._addresses: dict[str, list[str]] = {}
        local.reshaped.append(self._local_reshaped)

    # --- streams ----------------------------------------------------------------------------------

    def lines(self) -> Lines:
        """All streams that are known now."""
        return {**self._remote, **self.local.lines()}

    def line(self, shard: Shard) -> tuple[Extent, ...]:
        if shard.node == self.node:
            return self.local.lines([shard.number]).get(shard, ())
        return self._remote.get(shard, ())

    def extent(self, stream: Stream) -> Extent | None:
        if stream.node == self.node:
            return self.local.store.extent(stream.shard, stream.generation)
        return next(
            (one for one in self._remote.get(stream.line, ()) if one.stream == stream), None
        )

    async def read(self, stream: Stream, offset: int) -> Block | Gap | None:
        """What follows an offset of another node's stream; waits for news, None if there is none.

        Raises `ConnectionLost` while the node is away.
        """
        answer = await self._link(stream.node).call(
            lambda call: ReadStream(
                call,
                stream.shard,
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

    async def offsets_at(self, node: str, time_us: int) -> dict[Shard, int]:
        """The first offset at or after a time, in each shard of a node."""
        if node == self.node:
            shards = {extent.stream.shard for extent in self.local.store.extents()}
            return {
                Shard(node, shard): await asyncio.to_thread(
                    self.local.store.offset_at, shard, time_us
                )
                for shard in sorted(shards)
            }
        found = await self._link(node).call(lambda call: FindOffsets(call, time_us), OffsetsFound)
        return {Shard(node, shard): offset for shard, offset in found.offsets}

    async def retained(self, filter_text: str) -> list[bytes]:
        """Frames of retained messages, from every other node that answers."""
        found: list[bytes] = []
        for link in list(self._links.values()):
            try:
                answer = await link.call(
                    lambda call: FindRetained(call, filter_text), RetainedFound
                )
            except MoorlineError:
                continue
            found.append(answer.frames)
        return found

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

    def link(self, node: str) -> Caller | None:
        return self._links.get(node)

    # --- links ------------------------------------------------------------------------------------

    async def keep_forever(self) -> None:
        """Says that we live, and keeps a link to every other node that does."""
        while True:
            try:
                await self._catalog.node_seen(self.node)
                await self._look_for_nodes()
            except MoorlineError as error:
                log.warning("the catalog does not answer", extra={"error": str(error)})
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
                self._keepers.pop(name).cancel()

    async def _keep_link(self, name: str) -> None:
        while True:
            try:
                await self._linked(name)
            except MoorlineError as error:
                log.debug("no link", extra={"node": name, "error": str(error)})
            await asyncio.sleep(PEER_RETRY_MS / 1_000)

    async def _linked(self, name: str) -> None:
        """One link from its beginning to its end."""
        config = self._config
        caller = await open_caller(
            _usable(self._addresses[name]),
            lambda: Caller(
                f"{SOFTWARE} node {self.node}",
                hello_timeout_ms=HELLO_TIMEOUT_MS,
                keepalive_ms=KEEPALIVE_MS,
                pushed=self._pushed,
            ),
            timeout_ms=HELLO_TIMEOUT_MS,
            ca=Path(config.tls_client_ca) if config.tls_client_ca else None,
            certificate=Path(config.tls_certificate) if config.tls_certificate else None,
            key=Path(config.tls_key) if config.tls_key else None,
        )
        try:
            seen = await caller.call(WatchStreams, StreamsSeen)
            self._links[name] = caller
            log.info("linked", extra={"node": name})
            self._seen(seen.streams)
            await asyncio.wait([caller.lost])
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

    def _pushed(self, messages: list[Message]) -> None:
        for message in messages:
            match message:
                case StreamsChanged(streams):
                    self._seen(streams)
                case ForBorrower(said):
                    self.for_borrower(said)

    def _seen(self, streams: Iterable[Extent]) -> None:
        lines: dict[Shard, list[Extent]] = {}
        for extent in streams:
            lines.setdefault(extent.stream.line, []).append(extent)
        changed = {shard: tuple(extents) for shard, extents in lines.items()}
        self._remote.update(changed)
        self._tell(changed)

    def _local_reshaped(self, shards: list[int]) -> None:
        self._tell(self.local.lines(shards))

    def _tell(self, lines: Lines) -> None:
        for reshaped in self.reshaped:
            reshaped(lines)


def _usable(addresses: list[str]) -> Address:
    """The first of a node's addresses; they are what it listens on itself."""
    return listen_address(addresses[0])


def _starts(frames: bytes) -> list[int]:
    """Where each of the frames begins."""
    starts, place, end = [], 0, len(frames)
    while place < end:
        starts.append(place)
        place += HEAD.size + HEAD.unpack_from(frames, place)[0]
    return starts
