"""Logins of publishers: what one who is let in may take of a resolver, and learn by it."""

import asyncio
import socket

import pytest
from tests.resolver.publishing import WirePublisher, codes
from tests.resolver.server import OPEN_TO_ALL, ResolverServer

from moorline.core.access.quota import Bounds
from moorline.core.access.right import PUBLISH
from moorline.core.access.row import Row
from moorline.errors import AddressNotProven, Denied, LimitReached, PublisherGone

FOR_USERS = (OPEN_TO_ALL, Row("/values", "@authenticated", grants=PUBLISH))


def closed_address() -> str:
    """One that refuses whoever dials it."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"tcp://127.0.0.1:{taken.getsockname()[1]}"


@pytest.mark.slow
async def test_the_place_of_a_dial_does_not_tell_whether_a_port_is_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("moorline.resolver.claimed_address.RESOLVER_DIALS_MAX", 1)
    async with ResolverServer.open(proof_timeout_ms=2_000) as server:
        listener = await server.listener()
        scanner = WirePublisher(await server.caller(), listener)
        scan = asyncio.create_task(scanner.open(closed_address()))
        async with asyncio.timeout(10):
            while not server.broker.dials.waiting:
                await asyncio.sleep(0)
        await WirePublisher(await server.caller(), listener).open()
        # The next login had its turn when the scan was answered, and not when the port had refused.
        assert scan.done()
        with pytest.raises(AddressNotProven):
            await scan


@pytest.mark.parametrize("who", ["greedy", "honest"])
async def test_silent_addresses_of_some_do_not_delay_the_login_of_others(
    monkeypatch: pytest.MonkeyPatch, who: str
) -> None:
    for name, size in (("MAX", 8), ("PER_PRINCIPAL_MAX", 4), ("PER_ADDRESS_MAX", 2)):
        monkeypatch.setattr(f"moorline.resolver.claimed_address.RESOLVER_DIALS_{name}", size)
    async with ResolverServer.open(*FOR_USERS, proof_timeout_ms=30_000) as server:
        # At one address it has places left for another login of its own; at many, others have.
        silent = [await server.listener() for _ in range(1 if who == "greedy" else 10)]
        for listener in silent:
            listener.is_silent = True
        floods = []
        for number in range(20):
            publisher = WirePublisher(await server.caller("greedy"), silent[number % len(silent)])
            floods.append(asyncio.create_task(publisher.open()))
        async with asyncio.timeout(10):
            while server.broker.dials.waiting < len(floods):
                await asyncio.sleep(0)
        await server.publisher(principal=who)
        assert not any(flood.done() for flood in floods)
        for flood in floods:
            flood.cancel()
        await asyncio.gather(*floods, return_exceptions=True)


async def test_a_connection_is_one_publisher() -> None:
    async with ResolverServer.open() as server:
        publisher = await server.publisher("/a")
        again = WirePublisher(publisher.caller, await server.listener())
        await again.open()
        assert len(server.broker.registry) == 1
        reader = await server.caller()
        assert await codes(reader, "/a") == ["NOT_FOUND"]
        # What another connection is as well stays.
        await again.publish("/b")
        await WirePublisher(await server.caller(), again.listener, again.instance).open()
        await publisher.open()
        assert len(server.broker.registry) == 2
        assert await codes(reader, "/b") == [""]


async def test_logins_side_by_side_do_not_pass_the_bound_and_who_is_known_comes_back() -> None:
    async with ResolverServer.open(publishers_max=2) as server:
        known = await server.publisher("/a")
        others = [WirePublisher(await server.caller(), await server.listener()) for _ in range(5)]
        found = await asyncio.gather(*(one.open() for one in others), return_exceptions=True)
        assert sum(isinstance(one, LimitReached) for one in found) == 4
        assert len(server.broker.registry) == 2
        back = WirePublisher(await server.caller(), known.listener, known.instance)
        assert (await back.open()).count == 1


async def test_of_two_logins_the_one_counts_that_came_last_whichever_is_proven_first() -> None:
    """The publisher has given the first one up, and would know nothing of the secret of it."""
    async with ResolverServer.open() as server:
        listener = await server.listener()
        first = WirePublisher(await server.caller(), listener)
        late = asyncio.Event()
        listener.held.append(late)
        overtaken = asyncio.create_task(first.open())
        async with asyncio.timeout(20):
            while not listener.dials:
                await asyncio.sleep(0)
        second = WirePublisher(await server.caller(), listener, first.instance)
        opened = await second.open()
        await second.publish("/a")
        late.set()
        with pytest.raises(PublisherGone, match="a later login"):
            await overtaken
        (registration,) = server.broker.registry
        assert registration.secret == opened.secret
        assert await codes(await server.caller(), "/a") == [""]


async def test_one_principal_has_a_share_of_the_publishers() -> None:
    async with ResolverServer.open(*FOR_USERS, principal_publishers_max=2) as server:
        for _ in range(2):
            (await server.publisher(principal="greedy")).caller.abandon()
        with pytest.raises(LimitReached, match="principal_publishers_max"):
            await server.publisher(principal="greedy")
        honest = await server.publisher(principal="honest")
        await honest.close()
        await server.publisher(principal="honest")


async def test_who_may_publish_nothing_has_nothing_dialled() -> None:
    rows = (Row("/queues", "@authenticated", grants=PUBLISH), Row("/mine", "alice", grants=PUBLISH))
    async with ResolverServer.open(*rows) as server:
        listener = await server.listener()
        # To make queues is not to publish values.
        with pytest.raises(Denied):
            await WirePublisher(await server.caller("mallory"), listener).open()
        assert listener.dials == 0
        assert server.refusals == [("OpenPublisher", "/", "DENIED")]
        alice = WirePublisher(await server.caller("alice"), listener)
        await alice.open()
        told = await alice.publish("/mine", "/yours")
        assert told.refused == [(1, "DENIED")]


async def test_a_quota_of_paths_bounds_one_principal_and_no_other() -> None:
    async with ResolverServer.open(*FOR_USERS) as server:
        server.bound("greedy", Bounds(paths=3))
        first = await server.publisher("/values/a", "/values/b", principal="greedy")
        second = await server.publisher(principal="greedy")
        told = await second.publish("/values/c", "/values/d", "/elsewhere")
        # One that is too many fails no other, and each has its own code.
        assert told.refused == [(1, "OVER_QUOTA"), (2, "DENIED")]
        assert ("PublishPaths", "/quotas/paths", "OVER_QUOTA") in server.refusals
        honest = await server.publisher("/values/c", "/values/d", principal="honest")
        # What is there already counts once; what goes makes room, and so does a publisher that goes.
        assert (await second.publish("/values/c")).refused == []
        await first.unpublish("/values/a")
        assert (await second.publish("/values/d")).refused == []
        await first.close()
        assert (await second.publish("/values/e")).refused == []
        server.broker.registry.check(0, 0)
        await honest.close()
