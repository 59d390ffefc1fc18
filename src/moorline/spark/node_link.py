"""Room: spark. The streams of running nodes: each node is asked for its own, over its own link.

Spark's code is synchronous. So the links live on an event loop in a thread of their own, which also
answers the nodes' pings while a task is busy with something else.
"""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from moorline.config.addresses import Address, listen_address
from moorline.core.frames.block import Block, block_of_frames
from moorline.core.frames.byte_columns import PADDING_BYTES
from moorline.core.stream import Extent, Gap, SegmentPart, Shard, Stream
from moorline.errors import CallFailed, ConfigError, ConnectionLost, JournalDamaged, Untrusted
from moorline.journal.streams.segment import SEGMENT_HEAD, head_of
from moorline.journal.streams.source import (
    DescribedShards,
    SegmentParts,
    ShardBounds,
    extents_by_shard,
)
from moorline.limits import (
    HELLO_TIMEOUT_MS,
    KEEPALIVE_MS,
    SPARK_LINK_PAUSE_MS,
    SPARK_LINK_TRIES,
    SPARK_READS_IN_FLIGHT,
    STREAM_READ_BYTES_MAX,
    STREAMS_PER_PAGE_MAX,
)
from moorline.net.caller import Caller, open_caller
from moorline.spark.options import Endpoint
from moorline.version import SOFTWARE
from moorline.wire.group import FindOffsets, OffsetsFound, ReadStream, StreamRead
from moorline.wire.message import Answer, Failed, Message
from moorline.wire.stream_file import (
    ClusterDescribed,
    DescribeCluster,
    DescribeShards,
    ReadStreamFile,
    ShardsDescribed,
    StreamFileRead,
)
from moorline.wire.topic import NO_STREAM, DescribeStreams, StreamFacts, StreamsDescribed

log = logging.getLogger("moorline.spark")

Result = TypeVar("Result")
Reply = TypeVar("Reply", bound=Answer)
Told: TypeAlias = Result | BaseException
"""What was asked for, or why it did not come."""

NodeShards: TypeAlias = tuple[list[tuple[int, int, int]], list[Extent]]
"""Of a node: (shard, first, end) of each shard, and those of its streams that were asked for."""


class Links:
    """Links to nodes, by their addresses, on a loop in a thread. Opened when they are needed."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._callers: dict[str, Caller] = {}
        self._opening: dict[str, asyncio.Lock] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="moorline-links", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        if self._loop.is_closed():
            return
        self.run(self._say_goodbye())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return self.begin(work)()

    def begin(self, work: Coroutine[Any, Any, Result]) -> Callable[[], Result]:
        """Begins it on the loop; what it returns waits for the result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result

    def call(
        self, addresses: tuple[str, ...], make: Callable[[int], Message], reply: type[Reply]
    ) -> Reply:
        return self.run(self.ask(addresses, make, reply))

    def together(self, works: Mapping[str, Coroutine[Any, Any, Result]]) -> dict[str, Told[Result]]:
        """Of each node what came of its work, or its error; all of them side by side."""
        return self.run(_together(works))

    def streams(self, addresses: tuple[str, ...]) -> list[StreamFacts]:
        return self.run(self.all_streams(addresses))

    async def all_streams(self, addresses: tuple[str, ...]) -> list[StreamFacts]:
        """All streams of a node, page by page."""
        found: list[StreamFacts] = []
        after = NO_STREAM
        while True:
            asked = partial(DescribeStreams, after=after, count=STREAMS_PER_PAGE_MAX)
            page = (await self.ask(addresses, asked, StreamsDescribed)).streams
            found += page
            if len(page) < STREAMS_PER_PAGE_MAX:
                return found
            after = (page[-1].shard, page[-1].generation)

    async def ask(
        self,
        addresses: tuple[str, ...],
        make: Callable[[int], Message],
        reply: type[Reply],
        tries_max: int = SPARK_LINK_TRIES,
    ) -> Reply:
        (answer,) = await self.ask_all(addresses, [make], reply, tries_max)
        return answer

    async def ask_all(
        self,
        addresses: tuple[str, ...],
        makes: Sequence[Callable[[int], Message]],
        reply: type[Reply],
        tries_max: int = SPARK_LINK_TRIES,
    ) -> list[Reply]:
        """Calls that change nothing are made again: a node that restarts is waited for."""
        tries = 0
        while True:
            try:
                caller = await self._link(addresses)
                answers = await caller.call_all(makes)
                break
            except Untrusted:
                raise  # its certificate stays as it is, however long it is waited for
            except ConnectionLost:
                tries += 1
                if tries >= tries_max:
                    raise
                await asyncio.sleep(SPARK_LINK_PAUSE_MS / 1_000)
        found: list[Reply] = []
        for answer in answers:
            if isinstance(answer, Failed):
                raise CallFailed.of(answer.code, answer.text)
            assert isinstance(answer, reply), f"{type(answer).__name__} for {reply.__name__}"
            found.append(answer)
        return found

    async def _link(self, addresses: tuple[str, ...]) -> Caller:
        for address in addresses:
            caller = self._callers.get(address)
            if caller is not None and not caller.lost.done():
                return caller
        lost: ConnectionLost | None = None
        for address in addresses:
            try:
                return await self._opened(address)
            except ConnectionLost as error:
                # One that is merely away may be back, by an address that is trusted.
                if lost is None or not isinstance(error, Untrusted):
                    lost = error
        assert lost is not None, "a node has an address"
        raise lost

    async def _opened(self, address: str) -> Caller:
        # Several calls may find at once that there is no link: one of them opens it.
        async with self._opening.setdefault(address, asyncio.Lock()):
            caller = self._callers.get(address)
            if caller is None or caller.lost.done():
                caller = self._callers[address] = await self._open(address)
            return caller

    async def _open(self, address: str) -> Caller:
        endpoint = self._endpoint
        parsed = address_of(address)
        credentials = endpoint.proof().opened(parsed)
        return await open_caller(
            parsed,
            lambda: Caller(
                f"{SOFTWARE} spark",
                hello_timeout_ms=HELLO_TIMEOUT_MS,
                keepalive_ms=KEEPALIVE_MS,
                credentials=credentials,
            ),
            timeout_ms=HELLO_TIMEOUT_MS,
            ca=Path(endpoint.ca) if endpoint.ca else None,
            certificate=Path(endpoint.certificate) if endpoint.certificate else None,
            key=Path(endpoint.key) if endpoint.key else None,
        )

    async def _say_goodbye(self) -> None:
        for caller in self._callers.values():
            caller.close("DONE", "the read is over")
        open_ones = [caller.lost for caller in self._callers.values() if not caller.lost.done()]
        if open_ones:
            await asyncio.wait(open_ones, timeout=1)
        # Nobody waits for what is still asked for.
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)


def address_of(text: str) -> Address:
    try:
        return listen_address(text)
    except ValueError as error:
        raise ConfigError(f"address: {text!r}: {error}") from None


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

    def close(self) -> None:
        """The links outlive it."""

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


class NodeStreams:
    """All streams of all nodes of a cluster, of which one is asked where the others are."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
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
            return await _together(asked)
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
            make = partial(DescribeShards, since=list(wanted.items()))
            told = await self._links.ask(addresses, make, ShardsDescribed)
            streams |= {extent.stream: extent for extent in told.streams}
            if not told.is_more:
                return told.shards, list(streams.values())
            wanted |= {extent.stream.shard_number: extent.end for extent in told.streams}

    async def _find_nodes(self) -> None:
        # Any node that was heard of may answer, should the one that was named be away.
        others = [address for known in self._known.values() for address in known]
        addresses = (self._endpoint.address, *others)
        told = await self._links.ask(addresses, DescribeCluster, ClusterDescribed)
        self._silent = [name for name, _, is_alive in told.nodes if not is_alive]
        self._known = {name: tuple(addresses) for name, addresses, _ in told.nodes}
        if self._asked in ("", told.node):
            # It was reached by this address, whatever it thinks that it listens on.
            self._asked = told.node
            self._known[told.node] = (self._endpoint.address,)
        if told.node in self._silent:
            self._silent.remove(told.node)

    def offsets_at(self, time_us: int) -> dict[Shard, int]:
        works = {
            node: self._links.ask(addresses, partial(FindOffsets, time_us=time_us), OffsetsFound)
            for node, addresses in self._known.items()
            if node not in self._silent
        }
        found: dict[Shard, int] = {}
        for node, told in self._links.together(works).items():
            if isinstance(told, BaseException):
                raise told
            found.update({Shard(node, shard): at for shard, at in told.offsets})
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

    def segment(self, stream: Stream, addresses: tuple[str, ...] = ()) -> NodeSegment | None:
        """None if it is gone."""
        reached = addresses or self._reached(stream.home)
        make = _asked(stream, "segment", 0, SEGMENT_HEAD.size)
        told = self._links.call(reached, make, StreamFileRead)
        return None if told.reason else NodeSegment(self._links, reached, stream, told)


async def _together(works: Mapping[str, Awaitable[Result]]) -> dict[str, Told[Result]]:
    found = await asyncio.gather(*works.values(), return_exceptions=True)
    return dict(zip(works, found, strict=True))
