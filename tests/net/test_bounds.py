"""What a client can make the node hold and do that asks for much and reads nothing, whatever it asks for."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from moorline.client.connecting import connect
from moorline.config.addresses import Address
from moorline.limits import (
    ANSWERS_AT_ONCE_MAX,
    ANSWERS_PER_WRITE,
    FRAME_BYTES_MAX,
    WRITE_BUFFER_BYTES_MAX,
)
from moorline.net.listener import Admission, Listeners
from moorline.net.native import NativeProtocol
from moorline.net.session import Handlers, Session, each
from moorline.net.turns import Turns
from moorline.wire.frame import LENGTH, Splitter, frame
from moorline.wire.link import PROTOCOL, Goodbye, Hello, Ping, Welcome
from moorline.wire.message import Answer, Message
from moorline.wire.node import Describe, Described, Echo, Echoed
from moorline.wire.protocol import client_decoder
from moorline.wire.topic import AckMessages

ANSWER_BYTES = FRAME_BYTES_MAX // 2
CALLS = 200
SOCKETS_BYTES = 16 * 1_048_576
"""What the kernel may take for both ends of a connection on loopback."""
MADE_MAX = (SOCKETS_BYTES + WRITE_BUFFER_BYTES_MAX) // ANSWER_BYTES + 2 * ANSWERS_PER_WRITE


class Generous:
    """Answers a call of a few bytes with half a frame, in each way that a handler can."""

    def __init__(self, way: str) -> None:
        self.made: list[int] = []
        self.side_by_side = 0
        self.side_by_side_max = 0
        self.acknowledged = 0
        self._turns = Turns()
        ways = {
            "each": each(self._at_once),
            "later": self._turns.later(self._later),
            "later at once": self._turns.later(self._later_at_once),
            "spawned": self._turns.spawned(self._later),
        }
        handlers: Handlers = {
            Echo: ways[way],
            Describe: lambda _, calls: [described(call.call) for call in calls],
            AckMessages: self._acknowledge,
        }
        self.protocol = NativeProtocol(
            handlers,
            lambda version, keepalive_ms: Welcome(version, "n", keepalive_ms=keepalive_ms),
        )
        self.listeners = Listeners(
            Admission(
                anonymous="loopback",
                connections_max=10,
                hello_timeout_ms=60_000,
                keepalive_ms=60_000,
            ),
        )

    def _at_once(self, session: Session, call: Echo) -> Answer:  # noqa: ARG002
        self.made.append(call.call)
        return Echoed(call.call, bytes(ANSWER_BYTES))

    async def _later(self, session: Session, call: Echo) -> Answer:
        self.side_by_side += 1
        self.side_by_side_max = max(self.side_by_side, self.side_by_side_max)
        await asyncio.sleep(0)
        self.side_by_side -= 1
        return self._at_once(session, call)

    async def _later_at_once(self, session: Session, call: Echo) -> Answer:
        return self._at_once(session, call)

    def _acknowledge(self, session: Session, said: list[AckMessages]) -> list[Answer]:  # noqa: ARG002
        self.acknowledged += len(said)
        return []

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[Address]:
        (address,) = await self.listeners.open(Address("tcp", "127.0.0.1", 0), None, self.protocol)
        try:
            yield address
        finally:
            self._turns.close()
            for session in list(self.listeners.sessions):
                session.abort()
            await self.listeners.close()

    @property
    def session(self) -> Session:
        """The first that came and is there."""
        return min(self.listeners.sessions, key=lambda one: int(one.name.split()[1]))


class Greedy:
    """A client that asks, and reads when it is told to."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def at(cls, address: Address) -> "Greedy":
        greedy = cls(*await asyncio.open_connection(address.host, address.port))
        greedy.say(Hello(PROTOCOL, 1, 1))
        await greedy._reader.readexactly(
            LENGTH.unpack(await greedy._reader.readexactly(LENGTH.size))[0]
        )
        greedy._writer.transport.pause_reading()  # type: ignore[attr-defined]
        return greedy

    def say(self, *messages: Message) -> None:
        self._writer.write(bytes(frame(messages)))

    async def read_answers(self, count: int) -> list[int]:
        """The numbers of the calls that are answered, as they come."""
        with contextlib.suppress(RuntimeError):  # it reads already
            self._writer.transport.resume_reading()  # type: ignore[attr-defined]
        splitter, answered = Splitter(FRAME_BYTES_MAX), list[int]()
        while len(answered) < count:
            data = await self._reader.read(1_048_576)
            assert data, "the node hung up"
            for payload in splitter.feed(data):
                heard = client_decoder.decode(payload)
                answered += [one.call for one in heard if isinstance(one, Answer)]
        return answered

    def leave(self) -> None:
        self._writer.transport.abort()


async def stands_still(server: Generous) -> None:
    """The first client has not read for so long that nothing more is written for it."""
    async with asyncio.timeout(30):
        while "slow reader" not in server.session._holds:
            await asyncio.sleep(0.001)


@pytest.mark.parametrize("way", ["each", "later", "later at once", "spawned"])
@pytest.mark.parametrize("per_frame", [1, CALLS])
async def test_answers_that_nobody_reads_are_not_made(way: str, per_frame: int) -> None:
    server = Generous(way)
    async with server.serving() as address:
        greedy = await Greedy.at(address)
        for first in range(0, CALLS, per_frame):
            greedy.say(*(Echo(call, b"") for call in range(first, first + per_frame)))
        await stands_still(server)
        async with asyncio.timeout(30), connect(str(address)) as other:
            for _ in range(100):
                assert (await other.describe()).node == "n"
        made = len(server.made)
        assert made <= MADE_MAX
        assert server.side_by_side_max <= ANSWERS_AT_ONCE_MAX
        # It reads after all: nothing is lost, and nothing overtakes.
        async with asyncio.timeout(60):
            answered = await greedy.read_answers(CALLS)
        assert sorted(answered) == list(range(CALLS))
        if way != "spawned":
            assert answered == sorted(answered)
        greedy.leave()


async def test_what_needs_no_answer_counts_also_behind_answers_that_nobody_reads() -> None:
    server = Generous("each")
    async with server.serving() as address:
        greedy = await Greedy.at(address)
        asked = [Echo(call, b"") for call in range(CALLS)]
        greedy.say(*asked, AckMessages(1, [(0, 1)]), Goodbye("DONE", ""))
        await stands_still(server)
        session = server.session
        greedy.leave()
        async with asyncio.timeout(30):
            await session.gone
        assert server.acknowledged == 1
        assert len(server.made) <= MADE_MAX


async def test_a_goodbye_waits_for_its_turn() -> None:
    server = Generous("each")
    async with server.serving() as address:
        greedy = await Greedy.at(address)
        greedy.say(Ping(1), *(Echo(call, b"") for call in range(100)), Goodbye("DONE", ""))
        await stands_still(server)
        session = server.session
        assert session.is_open
        async with asyncio.timeout(30):
            assert await greedy.read_answers(100) == list(range(100))
            await session.gone
        assert session.end_code == "DONE"


async def test_long_work_for_one_client_lets_others_in_between() -> None:
    """Each answer takes longer than a turn: after each of them others are heard."""
    server = Generous("each")
    order: list[str] = []

    def slow(session: Session, call: Echo) -> Answer:
        order.append("slow")
        session.turn_began_ms = 0  # as if it had taken that long
        return Echoed(call.call, b"")

    def quick(session: Session, calls: list[Describe]) -> list[Answer]:  # noqa: ARG001
        order.append("quick")
        return [described(call.call) for call in calls]

    server.protocol.handlers.update({Echo: each(slow), Describe: quick})
    async with server.serving() as address, connect(str(address)) as other:
        greedy = await Greedy.at(address)
        greedy.say(*(Echo(call, b"") for call in range(1_000)))
        while not order:
            await asyncio.sleep(0)
        await other.describe()
        assert order.count("slow") < 1_000
        async with asyncio.timeout(30):
            assert await greedy.read_answers(1_000) == list(range(1_000))
        greedy.leave()


def described(call: int) -> Described:
    return Described(call, "n", "s", (), (), "", "", 0, 0, 0, 0)
