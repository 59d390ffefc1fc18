"""The links of one node, in the test's own process: who is reached, what is asked first, who hears what."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from tests.waiting import until

from moorline.cluster.links import Links
from moorline.config.addresses import Address
from moorline.config.settings import Config
from moorline.core.group.message import Invalidate
from moorline.errors import ConnectionLost
from moorline.net.caller import Caller
from moorline.net.listener import Admission, Listeners
from moorline.net.native import NativeProtocol
from moorline.net.session import Session
from moorline.wire.group import ForBorrower, StreamsChanged
from moorline.wire.link import Welcome
from moorline.wire.message import Answer, Message
from moorline.wire.node import Echo, Echoed


class OtherNode:
    """One that echoes, unless it is told to say nothing, and can push."""

    def __init__(self, home: str) -> None:
        self.is_silent = False
        self.heard: list[bytes] = []
        self._listeners = Listeners(Admission("loopback", 10, 60_000, 60_000))
        self._protocol = NativeProtocol(
            {Echo: self._echo},
            lambda version, keepalive_ms: Welcome(
                version, home, keepalive_ms=keepalive_ms, home=home
            ),
        )
        self.address = ""

    def _echo(self, session: Session, calls: list[Echo]) -> list[Answer]:  # noqa: ARG002
        self.heard += [call.body for call in calls]
        return [] if self.is_silent else [Echoed(call.call, call.body) for call in calls]

    async def open(self) -> None:
        (address,) = await self._listeners.open(
            Address("tcp", "127.0.0.1", 0), None, self._protocol
        )
        self.address = str(address)

    def push(self, *messages: Message) -> None:
        for session in self._listeners.sessions:
            session.send_all(messages)

    async def close(self) -> None:
        await self._listeners.close()


class Register:
    """In the place of a catalog: whoever the test lets live."""

    def __init__(self) -> None:
        self.alive: dict[str, list[str]] = {}

    async def live_nodes(self, silent_ms: int) -> dict[str, list[str]]:  # noqa: ARG002
        return dict(self.alive)


class Scene:
    """The links of node a, and one other node, b."""

    def __init__(self) -> None:
        self.register = Register()
        self.links = Links(Config(), self.register, "a")
        self.b = OtherNode("b")
        self.story: list[tuple[str, str]] = []
        for word in ("linked", "lost", "gone"):
            getattr(self.links, word).append(self._noting(word))

    def _noting(self, word: str) -> Callable[[str], None]:
        return lambda node: self.story.append((word, node))

    def live(self, *addresses: str) -> None:
        self.register.alive = {"a": ["tcp://127.0.0.1:1"], "b": list(addresses)}

    async def has(self, *words: str) -> None:
        await until(
            lambda: self.story == [(word, "b") for word in words], what=f"{words}: {self.story}"
        )

    async def ask(self, body: bytes, **within: int) -> bytes:
        return (await self.links.ask("b", lambda call: Echo(call, body), Echoed, **within)).body


@pytest.fixture
async def scene(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scene]:
    monkeypatch.setattr("moorline.cluster.links.NODE_SEEN_MS", 10)
    monkeypatch.setattr("moorline.cluster.links.PEER_RETRY_MS", 10)
    made = Scene()
    await made.b.open()
    keeping = asyncio.create_task(made.links.keep_forever())
    yield made
    keeping.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await keeping
    await made.links.close()
    await made.b.close()


def borrower(name: str) -> ForBorrower:
    return ForBorrower(Invalidate(name, 1, "TEST"))


async def test_a_node_is_reached_while_it_lives_and_its_end_is_told_once(scene: Scene) -> None:
    with pytest.raises(ConnectionLost, match="the node b cannot be reached now"):
        await scene.ask(b"early")
    assert not scene.links.send("b", borrower("x"))
    scene.live(scene.b.address)
    await scene.has("linked")
    assert scene.links.others() == ["b"], "and not the node itself, which lives too"
    assert await scene.ask(b"here") == b"here"
    # The catalog forgets it, but it answers: the link stays.
    scene.register.alive = {}
    assert await scene.ask(b"still here") == b"still here"
    assert scene.story == [("linked", "b")]
    await scene.b.close()
    await scene.has("linked", "lost", "gone")
    assert scene.links.others() == []


async def test_what_is_pushed_goes_to_whoever_registered_for_its_type(scene: Scene) -> None:
    heard: list[tuple[str, Any]] = []

    def fails(node: str, message: Any) -> None:
        heard.append((node, message))
        raise RuntimeError("a mistake of ours")

    scene.links.hear(StreamsChanged, fails)
    scene.links.hear(ForBorrower, lambda node, message: heard.append((node, message)))
    with pytest.raises(AssertionError, match="ForBorrower has somebody"):
        scene.links.hear(ForBorrower, fails)
    scene.live(scene.b.address)
    await scene.has("linked")
    said = [StreamsChanged([]), borrower("x"), Echoed(77, b"to no call"), borrower("y")]
    scene.b.push(*said)
    await until(lambda: len(heard) == 3, what="all but the answer")
    assert heard == [("b", said[0]), ("b", said[1]), ("b", said[3])]
    assert await scene.ask(b"the link is as it was") == b"the link is as it was"


async def test_a_link_counts_when_all_that_must_be_known_is_known(scene: Scene) -> None:
    may_go_on = asyncio.Event()
    tries: list[str] = []

    def greet(word: str, then: Callable[[], Awaitable[object]]) -> None:
        async def asked(node: str, caller: Caller) -> None:
            tries.append(f"{word} {node}")
            await caller.call(lambda call: Echo(call, word.encode()), Echoed)
            await then()

        scene.links.greets.append(asked)

    async def fails_once() -> None:
        if tries.count("first b") == 1:
            raise ConnectionLost("not yet")

    greet("first", fails_once)
    greet("second", may_go_on.wait)
    scene.live("tcp://127.0.0.1:1", scene.b.address)
    await until(lambda: "second b" in tries, what="the second question")
    assert tries == ["first b", "first b", "second b"]
    assert scene.links.others() == []
    assert scene.story == []
    may_go_on.set()
    await scene.has("linked")
    assert scene.b.heard == [b"first", b"first", b"second"]


async def test_nobody_waits_for_a_node_that_hangs(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.live(scene.b.address)
    await scene.has("linked")
    scene.b.is_silent = True
    with pytest.raises(ConnectionLost, match="the node b gave no answer within 20 ms"):
        await scene.ask(b"anybody?", within_ms=20)
    # The same before a link counts: it is tried anew, and not waited for.
    monkeypatch.setattr("moorline.cluster.links.HELLO_TIMEOUT_MS", 100)

    async def asked(node: str, caller: Caller) -> None:  # noqa: ARG001
        await caller.call(lambda call: Echo(call, b"greeted"), Echoed)

    scene.links.greets.append(asked)
    await scene.b.close()
    scene.b = again = OtherNode("b")
    again.is_silent = True
    await again.open()
    scene.live(again.address)
    await until(lambda: again.heard.count(b"greeted") >= 2, what="a second try")
    assert scene.links.others() == []


async def test_another_node_at_the_address_is_not_taken_for_it(scene: Scene) -> None:
    stranger = OtherNode("c")
    await stranger.open()
    scene.live(stranger.address, scene.b.address)
    await scene.has("linked")
    assert await scene.ask(b"who?") == b"who?"
    assert scene.b.heard == [b"who?"]
    assert stranger.heard == []
    await stranger.close()
