"""What watches may cost: whoever watches keeps nobody else from watching, or from anything."""

import asyncio
from collections.abc import Generator
from functools import partial

import pytest
from tests.resolver.publishing import resolve
from tests.resolver.server import OPEN_TO_ALL, ResolverServer

from moorline.core.access.right import EVERYTHING, LIST
from moorline.core.access.row import Row
from moorline.core.directory.glob import Glob
from moorline.errors import AlreadyThere, LimitReached
from moorline.net.caller import Caller
from moorline.net.slices import in_slices
from moorline.wire.message import Message
from moorline.wire.resolver import PathsChanged, PathsWatched, WatchPaths


async def watched(caller: Caller, glob: str) -> PathsWatched:
    return await caller.call(lambda call: WatchPaths(call, glob), PathsWatched)


async def test_a_number_in_use_is_refused_and_nothing_stays_of_a_connection() -> None:
    async with ResolverServer.open() as server:
        hostile = await server.caller()
        number = (await watched(hostile, "/a/**")).call
        for _ in range(3):
            hostile._next_call = number
            with pytest.raises(AlreadyThere):
                await watched(hostile, "/b/**")
        assert len(server.broker.watches) == 1
        hostile.abandon()
        async with asyncio.timeout(5):
            while len(server.broker.watches):
                await asyncio.sleep(0.01)


COSTLY = "/**/{" + ",".join(f"*a*a*a*{number}b" for number in range(30)) + "}"


async def test_a_glob_is_asked_once_for_each_path_and_others_have_their_turn_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing here is a matter of time: what is asked, who has a turn and who is answered is one order."""
    happened: list[str] = []
    plain = Glob.matches

    def counted(glob: Glob, path: str) -> bool:
        happened.append("matched")
        return plain(glob, path)

    gate = asyncio.Event()

    async def gated(steps: Generator[None], principal: str) -> None:
        await gate.wait()
        await in_slices(steps, principal)

    monkeypatch.setattr(Glob, "matches", counted)
    monkeypatch.setattr("moorline.resolver.watcher.in_slices", gated)
    # One match is a slice of its own: how many fit into one depends on the machine.
    monkeypatch.setattr("moorline.net.slices.SLICE_MS", 0)
    async with ResolverServer.open() as server:
        publisher = await server.publisher()
        for _ in range(4):
            watcher = await server.caller()
            others = [f"{COSTLY[:-1]},x{number}}}" for number in range(48)]
            await watcher.call_all(
                [partial(WatchPaths, glob=glob) for glob in [COSTLY] * 16 + others]
            )
        reader = await server.caller()
        paths = [f"/q/{'a' * 100}{number}" for number in range(200)]
        globs = 49
        async with asyncio.timeout(60):
            # The publisher is answered whether or not anything is matched, and readers before all of it is.
            await publisher.publish(*paths)
            assert not happened
            gate.set()
            while happened.count("matched") < globs * len(paths):
                await resolve(reader, "/q")
                happened.append("answered")
        await resolve(reader, "/q")
    assert happened.count("matched") == globs * len(paths)
    first = happened.index("matched")
    last = len(happened) - 1 - happened[::-1].index("matched")
    assert "answered" in happened[first:last]


async def test_what_waits_for_all_watches_of_a_principal_is_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("moorline.resolver.watcher.WATCH_PENDING_PER_PRINCIPAL_MAX", 5)
    async with ResolverServer.open(OPEN_TO_ALL, Row("/", "greedy", grants=LIST)) as server:
        publisher = await server.publisher()
        told: list[Message] = []
        greedy = await server.caller("greedy")
        greedy.pushed = told.extend
        for glob in ("/**", "/a/**", "/a/*"):
            await watched(greedy, glob)
        await publisher.publish("/a/1", "/a/2", "/a/3")
        async with asyncio.timeout(5):
            while len(told) < 3:
                await asyncio.sleep(0.01)
        changes = [one for one in told if isinstance(one, PathsChanged)]
        assert sum(len(one.added) for one in changes) <= 5
        assert any(one.is_lost for one in changes)
        assert server.broker.watches._pending.count == 0


async def test_changes_that_come_faster_than_they_are_matched_are_lost_for_that_principal_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("moorline.resolver.watcher.WATCH_CHANGES_MAX", 2)
    rows = (OPEN_TO_ALL, Row("/", "greedy", grants=EVERYTHING), Row("/", "alice", grants=LIST))
    async with ResolverServer.open(*rows) as server:
        publisher = await server.publisher()
        told: dict[str, list[Message]] = {"greedy": [], "alice": []}
        for name, glob in (("greedy", "/**"), ("alice", "/a/1")):
            caller = await server.caller(name)
            caller.pushed = told[name].extend
            await watched(caller, glob)
        await publisher.publish("/a/1", "/a/2", "/a/3")
        async with asyncio.timeout(5):
            while not all(told.values()):
                await asyncio.sleep(0.01)
        assert told == {
            "greedy": [PathsChanged(1, [], [], True)],
            "alice": [PathsChanged(1, ["/a/1"], [], False)],
        }


async def test_one_principal_has_a_share_of_the_watches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moorline.resolver.watches.WATCHES_PER_PRINCIPAL_MAX", 2)
    async with ResolverServer.open() as server:
        for _ in range(2):
            await watched(await server.caller("greedy"), "/a/**")
        with pytest.raises(LimitReached):
            await watched(await server.caller("greedy"), "/a/**")
        await watched(await server.caller("alice"), "/a/**")
