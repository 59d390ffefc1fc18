"""Callers that are cancelled: nothing of them is left, here or at the node, and nobody waits for them."""

import asyncio
import random
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import trustme
from tests.net.test_session import Server, serving
from tests.waiting import until

from moorline.client.connecting import connect
from moorline.config.addresses import Address
from moorline.errors import WrongLoop
from moorline.limits import CALLS_IN_FLIGHT_MAX
from moorline.net.listener import Admission, Listeners
from moorline.net.native import NativeProtocol
from moorline.net.session import Session
from moorline.net.tls import server_context
from moorline.net.turns import Turns
from moorline.wire.link import Welcome
from moorline.wire.message import Answer, CallsGivenUp
from moorline.wire.node import Echo, Echoed

WITHIN_S = 30


async def cancelled(task: "asyncio.Task[Any]") -> None:
    task.cancel()
    await asyncio.wait([task])


@pytest.fixture
async def heard() -> AsyncIterator[list[dict[str, Any]]]:
    """What the loop has to say of callbacks that failed, and of errors that nobody asked for."""
    said: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: said.append(context))
    yield said
    loop.set_exception_handler(None)


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["tcp", "tls"])
async def test_connects_that_are_cancelled_leave_no_connection(
    scheme: str, heard: list[dict[str, Any]], tmp_path: Path
) -> None:
    """At every moment between the socket and the welcome; both ends are gone, and no loop complains."""
    chance, tls, certificate = random.Random(11), None, tmp_path / "server.pem"
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(certificate))
    if scheme == "tls":
        tls = server_context(str(certificate), str(certificate), "")
    async with serving(Server(connections_max=1_000), tls) as (server, address):
        ca = tmp_path / "ca.pem" if tls else None

        async def come_and_go() -> None:
            async with connect(str(address), ca=ca, reconnect=False):
                pass

        for _ in range(100 if tls is None else 30):
            going = asyncio.create_task(come_and_go())
            if chance.random() < 0.5:
                await asyncio.sleep(chance.random() * 0.005)
            else:
                for _ in range(chance.randrange(12)):
                    await asyncio.sleep(0)
            await cancelled(going)
        # A handshake at the accepting end is a task of the loop's own.
        await until(lambda: not server.listeners.sessions and len(asyncio.all_tasks()) == 1)
    assert heard == []


class Turned:
    """A node whose echo has its turn, and waits there until the test says so."""

    def __init__(self, way: str) -> None:
        self.begun: list[bytes] = []
        self.over: list[bytes] = []
        self.may_go_on = asyncio.Event()
        turns = Turns()
        ways = {
            "later": turns.later(self._one, lambda _, call: self.over.append(call.body)),
            "together": turns.together(self._several),
            "spawned": turns.spawned(self._one, self._ready),
        }
        self.protocol = NativeProtocol(
            {Echo: ways[way]},
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

    async def _ready(self, _session: Session, call: Echo) -> None:
        if call.body != b"first":
            await self.may_go_on.wait()

    async def _one(self, session: Session, call: Echo) -> Answer:
        (answer,) = await self._several(session, [call])
        return answer

    async def _several(self, session: Session, calls: list[Echo]) -> list[Answer]:  # noqa: ARG002
        self.begun += [call.body for call in calls]
        await self.may_go_on.wait()
        return [Echoed(call.call, call.body) for call in calls]

    @property
    def given_up(self) -> int:
        (session,) = self.listeners.sessions
        return len(session._given_up)


@pytest.mark.parametrize("way", ["later", "together", "spawned"])
async def test_calls_that_are_given_up_before_their_turn_never_take_effect(way: str) -> None:
    """They do not keep the next one waiting either; the one that had begun is finished."""
    node = Turned(way)
    (address,) = await node.listeners.open(Address("tcp", "127.0.0.1", 0), None, node.protocol)
    async with connect(str(address), reconnect=False) as moor:
        first = asyncio.create_task(moor.echo(b"first"))
        await until(lambda: node.begun == [b"first"])
        waiting = [asyncio.create_task(moor.echo(b"%d" % number)) for number in range(500)]
        many = asyncio.create_task(moor.echo_all([b"many"] * 200))
        await asyncio.sleep(0)
        for task in [*waiting, many]:
            task.cancel()
        await asyncio.wait([*waiting, many])
        last = asyncio.create_task(moor.echo(b"last"))
        await until(lambda: node.given_up == 700)
        node.may_go_on.set()
        assert await first == b"first"
        assert await last == b"last"
        assert node.begun == [b"first", b"last"]
        (session,) = node.listeners.sessions
        assert session._given_up == session._waiting == set()
        assert session._in_flight == 0
        assert moor._caller._batches == {}
        if way == "later":
            assert len(node.over) == 702, "whoever counts them hears of each"
    await node.listeners.close()


async def test_whoever_gives_up_calls_that_are_not_its_own_changes_nothing() -> None:
    """Numbers of calls that were answered, or never made, in any range."""
    async with serving(Server()) as (_, address), connect(str(address), reconnect=False) as moor:
        for first, count in ((0, 1), (-5, 10**15), (1 << 62, 1 << 62), (-(1 << 63), 1)):
            moor._caller.send(CallsGivenUp(first, count))
        assert await moor.echo(b"here") == b"here"


@pytest.mark.slow
async def test_room_for_calls_is_there_again_when_those_in_flight_are_given_up() -> None:
    """As many as may be in flight are cancelled; whoever waited for room goes on before an answer comes."""
    server = Server()
    server.hold = True
    async with serving(server) as (_, address), connect(str(address), reconnect=False) as moor:
        full = asyncio.create_task(moor.echo_all([b""] * CALLS_IN_FLIGHT_MAX))
        await until(lambda: len(moor._caller._batches) == CALLS_IN_FLIGHT_MAX)
        next_one = asyncio.create_task(moor.echo(b"next"))
        await asyncio.sleep(0)
        await cancelled(full)
        await until(lambda: len(moor._caller._batches) == 1)
        await until(lambda: len(server.held) >= CALLS_IN_FLIGHT_MAX)
        server.release()
        async with asyncio.timeout(WITHIN_S):
            assert await next_one == b"next"


async def test_a_connection_used_from_another_loop_is_refused_by_name() -> None:
    """At once, and before anything is sent; the connection stays good for its own loop."""
    async with serving(Server()) as (_, address), connect(str(address), reconnect=False) as moor:
        found: list[BaseException] = []

        def elsewhere() -> None:
            async def call() -> None:
                async with asyncio.timeout(WITHIN_S):
                    await moor.echo(b"from afar")

            try:
                asyncio.run(call())
            except BaseException as error:
                found.append(error)

        thread = threading.Thread(target=elsewhere)
        thread.start()
        await asyncio.to_thread(thread.join, WITHIN_S)
        (error,) = found
        assert isinstance(error, WrongLoop)
        assert "another event loop" in str(error)
        assert await moor.echo(b"here") == b"here"
