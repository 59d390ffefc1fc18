"""What the sides of the topic benchmark share, and our own side: a real node and its clients.

A side is a server in a process of its own with a publisher that prepares its bytes before the clock starts
and counts the answers. Members of groups are elsewhere: in processes of their own (`topic_member`). Ours
are those of the library, as people use them; the peers' are raw. The peers' sides are in `topic_peers`.
"""

import asyncio
import os
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from math import gcd
from pathlib import Path

from bench.node import BenchNode
from bench.queue_client import Counting
from moorline.client.connecting import connect
from moorline.client.moor import Moor
from moorline.config.addresses import listen_address
from moorline.core.frames.frame import FRAME
from moorline.limits import HELLO_TIMEOUT_MS
from moorline.net.caller import open_caller
from moorline.wire.frame import frame
from moorline.wire.message import Message
from moorline.wire.topic import Publish, Published, Record

TOPICS = 64
STAMP = b"%020d"
"""When a message was published, at the head of its body: nanoseconds that all processes share."""

BODY_BYTES = 100
BODY = STAMP % 0 + b"x" * (BODY_BYTES - 20)
WINDOW = 8_192
"""Messages that a member may have unacknowledged, for every server that knows such a bound."""

READ_MAX = 1_000
"""Messages that a member asks for at once, where it must ask."""

NAMES = [f"bench/{number:02}" for number in range(TOPICS)]
FRAME_BYTES = FRAME.size + len(NAMES[0]) + BODY_BYTES
"""All frames are of one size, so that a batch is counted without looking into it."""


def stamped(now_ns: int) -> bytes:
    return STAMP % now_ns + BODY[20:]


class Turn:
    """Batches whose messages go to the topics in turn, prepared and repeated."""

    def __init__(self, make: Callable[[list[int]], bytes], batch: int) -> None:
        rounds = TOPICS // gcd(batch, TOPICS)
        numbers = [place % TOPICS for place in range(rounds * batch)]
        self._made = [make(numbers[at : at + batch]) for at in range(0, len(numbers), batch)]
        self._place = 0

    def take(self) -> bytes:
        self._place = (self._place + 1) % len(self._made)
        return self._made[self._place]


class TopicSide(ABC):
    """A server that runs, and a publisher."""

    name: str
    kind: str
    address: str
    pid: int

    @abstractmethod
    async def open(self) -> None:
        """Connects the publisher."""

    @abstractmethod
    def prepare(self, batch: int, *, single: bool) -> None:
        """What `publish` sends from now on: a call for so many messages, or so many calls of one."""

    @abstractmethod
    def publish(self) -> "asyncio.Future[None]":
        """The next batch; done when all of it was said to be stored."""

    @abstractmethod
    def publish_each(self, topics: list[int], body: bytes) -> "asyncio.Future[None]":
        """A message to each of these topics."""

    @abstractmethod
    async def make_group(self, group: str) -> None:
        """A group that gets what is published from now on."""

    @abstractmethod
    async def unsettled(self, group: str) -> int:
        """Messages that the server does not know as acknowledged by the group."""

    @abstractmethod
    async def end_group(self, group: str) -> None:
        """Nobody needs it any more."""

    @abstractmethod
    async def close(self) -> None:
        """Ends the publisher, not the server."""

    @abstractmethod
    def kill(self) -> None:
        """Ends the server where it stands: nobody will look at its files."""


class Publisher(Counting):
    """A connection whose frames were made before."""

    def received(self, messages: list[Message]) -> None:
        if {*map(type, messages)} != {Published}:
            self.refused(messages)
        self.tickets.pay(len(messages))

    def write(self, data: bytes, calls: int) -> "asyncio.Future[None]":
        assert self._transport is not None
        self._transport.write(data)
        return self.tickets.take(calls)


class NodeSide(TopicSide):
    """`moor serve` with a folder of its own."""

    kind = "node"

    def __init__(self, folder: Path, sync: str, *settings: str) -> None:
        self.name = f"sync={sync}"
        flags = [f"--set={setting}" for setting in (f"streams.sync={sync}", *settings)]
        self._node = BenchNode(folder, flags).__enter__()
        self.address, self.pid = self._node.address, self._node.pid

    async def open(self) -> None:
        address = listen_address(self.address)
        caller = await open_caller(address, Publisher, timeout_ms=HELLO_TIMEOUT_MS)
        assert isinstance(caller, Publisher)
        self._publisher = caller
        self.moor: Moor = await connect(self.address)

    def prepare(self, batch: int, *, single: bool) -> None:
        self._calls = batch if single else 1
        make = _single_calls if single else _one_call
        self._turn = Turn(make, batch)

    def publish(self) -> "asyncio.Future[None]":
        return self._publisher.write(self._turn.take(), self._calls)

    def publish_each(self, topics: list[int], body: bytes) -> "asyncio.Future[None]":
        return self._publisher.write(_one_call(topics, body), 1)

    async def make_group(self, group: str) -> None:
        await self.moor.group(group_name(group)).create()

    async def unsettled(self, group: str) -> int:
        return sum(
            cursor.lag for cursor in (await self.moor.group(group_name(group)).info()).cursors
        )

    async def end_group(self, group: str) -> None:
        await self.moor.group(group_name(group)).delete()

    async def close(self) -> None:
        self._publisher.close("DONE", "the benchmark is done")
        await self.moor.close()

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        self._node.__exit__(None, None, None)


def _one_call(topics: list[int], body: bytes = BODY) -> bytes:
    return bytes(frame([Publish(1, [Record(NAMES[topic], body) for topic in topics])]))


def _single_calls(topics: list[int]) -> bytes:
    return bytes(frame([Publish(1, [Record(NAMES[topic], BODY)]) for topic in topics]))


def group_name(group: str) -> str:
    return f"$shared/{group}/bench/#"


# --- members --------------------------------------------------------------------------------------


class Ears:
    """What a member tells of the messages that it has heard and acknowledged."""

    def __init__(
        self, count: Callable[[int], None], see: Callable[[int, int], None] | None
    ) -> None:
        self.count = count
        self.see = see
        """Called with the topic and the stamp of each message, if somebody wants to know."""


async def batch_member(address: str, group: str, name: str, ears: Ears) -> None:  # noqa: ARG001
    """A member that takes and acknowledges messages as they come together."""
    async with connect(address) as moor:
        subscription = await moor.subscribe(group_name(group), window=WINDOW)
        async for batch in subscription.batches():
            if ears.see is not None:
                for message in batch.messages:
                    ears.see(int(message.topic[-2:]), int(message.body[:20]))
            await batch.ack()
            ears.count(len(batch.frames) // FRAME_BYTES)


async def single_member(address: str, group: str, name: str, ears: Ears) -> None:  # noqa: ARG001
    """A member that looks at every message and acknowledges it by itself."""
    async with connect(address) as moor:
        subscription = await moor.subscribe(group_name(group), window=WINDOW)
        async for message in subscription:
            topic, body = message.topic, message.body
            if ears.see is not None:
                ears.see(int(topic[-2:]), int(body[:20]))
            await message.ack()
            ears.count(1)


def now_ns() -> int:
    """A clock that is the same in all processes of a machine."""
    return time.monotonic_ns()
