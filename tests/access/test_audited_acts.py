"""Operators' acts behind the guard: written down before they are done, and not done if they cannot be."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.access.world import World

from moorline.access.guard import Guard, owner_or
from moorline.config.addresses import Address
from moorline.core.access.right import ADMINISTER, EVERYTHING
from moorline.core.access.row import Row
from moorline.errors import Denied, NotAudited
from moorline.net.caller import Caller, open_caller
from moorline.net.listener import Admission, Listeners
from moorline.net.native import NativeProtocol
from moorline.net.session import Session
from moorline.wire.link import Welcome
from moorline.wire.message import Answer
from moorline.wire.node import Echo, Echoed


class Scene:
    """A node whose echo is an operator's act, unless the owner of the topic asks."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.story: list[str] = []
        self.owner = ""
        self.before: Callable[[], Awaitable[None]] | None = None

    def refused(self, _: Session, /, act: str, path: str, code: str) -> None:
        self.story.append(f"refused {act} {path} {code}")

    async def operating(self, _: Session, /, act: str, path: str) -> None:
        if self.before is not None:
            await self.before()
        self.story.append(f"written {act} {path}")

    async def looking(self, session: Session, /, act: str, path: str) -> None:
        await self.operating(session, act=act, path=path)

    def echo(self, _: Session, calls: list[Echo]) -> list[Answer]:
        self.story += [f"done {call.body.decode()}" for call in calls]
        return [Echoed(call.call, call.body) for call in calls]

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[Caller]:
        guard = Guard(self, self)
        declared = owner_or(
            ADMINISTER,
            lambda call: f"/queues/{call.body.decode()}",
            lambda _: self.owner,
            self.echo,
        )
        handlers: Any = guard.guarded({Echo: declared})
        protocol = NativeProtocol(
            handlers, lambda version, keep_ms: Welcome(version, "n", keepalive_ms=keep_ms)
        )
        listeners = Listeners(
            Admission("loopback", 10, 30_000, 600_000),
            rights_of=lambda _: self.world.user("alice"),
        )
        (address,) = await listeners.open(Address("tcp", "127.0.0.1", 0), None, protocol)
        caller = await open_caller(
            address,
            lambda: Caller("test", hello_timeout_ms=30_000, keepalive_ms=600_000),
            timeout_ms=30_000,
        )
        try:
            yield caller
        finally:
            caller.close("DONE", "")
            guard.close()
            await listeners.close()


async def ask(caller: Caller, *topics: str) -> list[str]:
    makes = [lambda call, topic=topic: Echo(call, topic.encode()) for topic in topics]
    return [type(answer).__name__ for answer in await caller.call_all(makes)]


@pytest.fixture
async def scene() -> Scene:
    return Scene(await World.loaded(Row("/queues", "alice", EVERYTHING)))


async def test_an_act_is_written_down_before_it_is_done(scene: Scene) -> None:
    async with scene.serving() as caller:
        assert await ask(caller, "a", "b") == ["Echoed", "Echoed"]
    assert sorted(scene.story[:2]) == ["written Echo /queues/a", "written Echo /queues/b"]
    assert scene.story[2:] == ["done a", "done b"]


async def test_what_an_owner_does_is_no_operators_act(scene: Scene) -> None:
    scene.owner = "alice"
    async with scene.serving() as caller:
        assert await ask(caller, "a") == ["Echoed"]
    assert scene.story == ["done a"]


async def test_what_cannot_be_written_down_is_not_done(scene: Scene) -> None:
    async def fail() -> None:
        raise NotAudited("the disk is full")

    scene.before = fail
    async with scene.serving() as caller:
        with pytest.raises(NotAudited):
            await caller.call(lambda call: Echo(call, b"a"), Echoed)
    assert scene.story == []


async def test_a_right_that_is_taken_while_the_line_is_written_does_not_count(
    scene: Scene,
) -> None:
    async def take() -> None:
        scene.world.source.remove(Row("/queues", "alice", EVERYTHING))
        await scene.world.table.refresh()

    scene.before = take
    async with scene.serving() as caller:
        with pytest.raises(Denied):
            await caller.call(lambda call: Echo(call, b"a"), Echoed)
    assert scene.story == ["written Echo /queues/a", "refused Echo /queues/a DENIED"]


async def test_acts_of_one_session_stay_in_their_order(scene: Scene) -> None:
    delays = iter((3, 0, 0))

    async def some_later() -> None:
        for _ in range(next(delays)):
            await asyncio.sleep(0)

    scene.before = some_later
    async with scene.serving() as caller:
        asked = [asyncio.create_task(ask(caller, name)) for name in "abc"]
        await asyncio.gather(*asked)
    assert [text for text in scene.story if text.startswith("done")] == [
        "done a",
        "done b",
        "done c",
    ]
