"""Readers of several resolvers: whoever answers is enough, and what nobody has is said by its name."""

import asyncio
import socket
from typing import Any

import pytest
from tests.resolver.publishing import WirePublisher
from tests.resolver.server import OPEN_TO_ALL, ResolverServer

from moorline.client.resolution import Resolution
from moorline.client.resolver import Resolver
from moorline.core.access.right import LIST, SUBSCRIBE, WRITE
from moorline.core.access.row import Row
from moorline.errors import (
    BadPath,
    ConfigError,
    Denied,
    NotFound,
    NotReady,
    Referred,
    Unreachable,
)
from moorline.limits import PATHS_PER_CALL_MAX
from moorline.net.session import Session
from moorline.resolver.commands import ResolverBroker
from moorline.wire.resolver import Referral

NOBODY = "tcp://127.0.0.1:1"


async def published(publisher: WirePublisher, servers: list[ResolverServer], *paths: str) -> None:
    """The same publisher, at each of them."""
    for server in servers:
        at = WirePublisher(await server.caller(), publisher.listener, publisher.instance)
        await at.open()
        for start in range(0, len(paths), PATHS_PER_CALL_MAX):
            answer = await at.publish(*paths[start : start + PATHS_PER_CALL_MAX])
            assert answer.refused == []


async def test_each_path_is_a_resolution_or_its_own_error() -> None:
    denied = Row("/secret", "@loopback", denies=SUBSCRIBE | WRITE)
    async with ResolverServer.open(OPEN_TO_ALL, denied) as server:
        publisher = await server.publisher("/a")
        async with Resolver(server.address) as resolver:
            found = await resolver.resolve_all(["/a", "/b", "/secret", "nonsense", "/a"])
            assert [type(one) for one in found] == [
                Resolution, NotFound, Denied, BadPath, Resolution,
            ]  # fmt: skip
            assert "moor grant add" in str(found[2])
            one = await resolver.resolve("/a")
            assert [each.address for each in one.publishers] == [publisher.listener.address]
            assert len(one.publishers[0].grant.token) == 64
            with pytest.raises(NotFound):
                await resolver.resolve("/b")


async def test_a_batch_of_many_parts_comes_back_in_order() -> None:
    async with ResolverServer.open() as server:
        paths = [f"/x/{number}" for number in range(3 * PATHS_PER_CALL_MAX + 7)]
        publisher = await server.publisher()
        for start in range(0, len(paths), PATHS_PER_CALL_MAX):
            await publisher.publish(*paths[start : start + PATHS_PER_CALL_MAX])
        async with Resolver(server.address) as resolver:
            found = await resolver.resolve_all(paths)
            assert [one.path for one in found if isinstance(one, Resolution)] == paths
            assert await resolver.resolve_all([]) == []


async def test_t33_with_a_dead_resolver_in_the_list_the_others_answer() -> None:
    async with ResolverServer.open() as one, ResolverServer.open() as two:
        publisher = await one.publisher("/a")
        await published(publisher, [two], "/a")
        for _ in range(10):
            async with Resolver([NOBODY, one.address, two.address]) as resolver:
                await resolver.resolve("/a")
                # The connection is kept: the dead one is not tried again.
                assert len(resolver._home.connected) == 1
                await resolver.resolve("/a")


async def test_who_has_just_started_is_asked_only_if_nobody_knows_more() -> None:
    async with ResolverServer.open() as old, ResolverServer.open(is_new=False) as young:
        await old.publisher("/a")
        for _ in range(8):
            async with Resolver([young.address, old.address]) as resolver:
                (found, missing) = await resolver.resolve_all(["/a", "/b"])
                assert isinstance(found, Resolution)
                assert isinstance(missing, (NotFound, NotReady))
        async with Resolver(young.address) as resolver:
            with pytest.raises(NotReady):
                await resolver.resolve("/a")


async def test_nobody_there_is_an_error_that_names_who_was_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("moorline.core.directory.read_batch.READ_PAUSE_MS_MIN", 1)
    monkeypatch.setattr("moorline.core.directory.read_batch.READ_PAUSE_MS_MAX", 2)
    async with Resolver(["tcp://127.0.0.1:1", "tcp://127.0.0.1:2"]) as resolver:
        with pytest.raises(Unreachable, match=r"127.0.0.1:1, tcp://127.0.0.1:2"):
            await resolver.resolve("/a")
        # The next batch begins anew.
        with pytest.raises(Unreachable):
            await resolver.resolve("/a")


async def test_referrals_are_followed_and_a_ring_of_them_ends() -> None:
    async with ResolverServer.open() as europe:
        delegations = [f"/eu={europe.address}"]
        async with ResolverServer.open(delegations=delegations) as home:
            await europe.publisher("/eu/x", "/eu/y")
            await home.publisher("/us/x")
            async with Resolver(home.address) as resolver:
                found = await resolver.resolve_all(["/us/x", "/eu/x", "/eu/none"])
                assert [type(one) for one in found] == [Resolution, Resolution, NotFound]
                assert await resolver.match("/**") == ["/eu/x", "/eu/y", "/us/x"]
                assert [one.path for one in await resolver.children("/eu")] == ["/eu/x", "/eu/y"]
                assert [one.path for one in await resolver.children("/")] == ["/eu", "/us"]
    async with ResolverServer.open() as ring:
        own = [f"/a={ring.address}"]
        async with ResolverServer.open(delegations=own) as other:
            ring.broker._delegations._referrals["/a"] = other.broker._delegations._referrals["/a"]
            async with Resolver(ring.address) as resolver:
                with pytest.raises(Referred):
                    await resolver.resolve("/a/x")


async def test_a_watch_tells_what_comes_and_goes() -> None:
    rows = (OPEN_TO_ALL, Row("/a/secret", "@loopback", denies=LIST))
    async with ResolverServer.open(*rows) as server, Resolver(server.address) as resolver:
        publisher = await server.publisher("/a/old")
        async with resolver.watch("/a/**") as changes:
            await publisher.publish("/a/new", "/a/secret", "/b")
            change = await anext(changes)
            assert (change.added, change.removed, change.is_lost) == (["/a/new"], [], False)
            await publisher.unpublish("/a/new", "/a/old")
            change = await anext(changes)
            assert sorted(change.removed) == ["/a/new", "/a/old"]
            # A second publisher of the same path changes nothing.
            await publisher.publish("/a/x")
            assert (await anext(changes)).added == ["/a/x"]
            other = await server.publisher("/a/x")
            await publisher.unpublish("/a/x")
            await other.publish("/a/y")
            assert (await anext(changes)).added == ["/a/y"]
        async with asyncio.timeout(5):
            while len(server.broker.watches):
                await asyncio.sleep(0.01)


async def test_more_changes_than_are_kept_are_lost_and_that_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("moorline.resolver.watcher.WATCH_PENDING_PATHS_MAX", 2)
    async with ResolverServer.open() as server, Resolver(server.address) as resolver:
        publisher = await server.publisher()
        async with resolver.watch("/a/*") as changes:
            await publisher.publish("/a/x", "/a/y", "/a/z")
            change = await anext(changes)
            assert (change.added, change.is_lost) == ([], True)
            await publisher.publish("/a/later")
            change = await anext(changes)
            assert (change.added, change.is_lost) == (["/a/later"], False)


@pytest.mark.parametrize("text", ["", "moor://", "moor://a,a", "http://a", "moor://a:b"])
def test_what_names_no_resolvers_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        Resolver(text)


@pytest.mark.slow
async def test_each_page_of_a_match_or_a_list_begins_the_time_of_a_hang_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Six pages that take longer together than one answer may: nobody hangs."""
    walks: list[str] = []

    async def slowly(real: Any, broker: ResolverBroker, session: Session, call: Any) -> Any:
        walks.append(call.after)
        await asyncio.sleep(0.3)
        return await real(broker, session, call)

    for name in ("_match", "list_paths"):
        real = getattr(ResolverBroker, name)
        monkeypatch.setattr(
            ResolverBroker,
            name,
            lambda broker, session, call, real=real: slowly(real, broker, session, call),
        )
    async with ResolverServer.open(ttl_ms=600_000) as server:
        publisher = await server.publisher()
        paths = [f"/x/{number:05}" for number in range(5 * PATHS_PER_CALL_MAX + 1)]
        await published(publisher, [server], *paths)
        async with Resolver(server.address, answer_ms=1_500) as resolver:
            assert await resolver.match("/x/*") == paths
            assert [one.path for one in await resolver.children("/x")] == paths
    assert len(walks) >= 12
    assert walks.count("") == 2, "a walk was begun anew"


async def test_a_watch_follows_referrals() -> None:
    async with ResolverServer.open() as europe:
        delegations = [f"/eu={europe.address}"]
        async with ResolverServer.open(delegations=delegations) as home:
            there, here = await europe.publisher(), await home.publisher()
            async with Resolver(home.address) as resolver:
                # From above, and from within: there our own cluster has nothing to tell.
                async with resolver.watch("/**") as all_of_them, resolver.watch("/eu/*") as theirs:
                    await there.publish("/eu/x", "/us/not-theirs-to-tell")
                    for changes in (all_of_them, theirs):
                        change = await anext(changes)
                        assert (change.added, change.removed) == (["/eu/x"], [])
                    await here.publish("/us/y")
                    assert (await anext(all_of_them)).added == ["/us/y"]
                    assert await resolver.match("/**") == ["/eu/x", "/us/y"]
                assert len(home.broker.watches) <= 1
            async with asyncio.timeout(20):
                while len(europe.broker.watches):
                    await asyncio.sleep(0.01)


@pytest.mark.slow
async def test_a_watch_goes_on_without_a_referred_cluster_and_tells_when_it_is_there() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    delegations = [f"/eu=tcp://127.0.0.1:{port}"]
    async with (
        ResolverServer.open(delegations=delegations, ttl_ms=600_000) as home,
        Resolver(home.address) as resolver,
        resolver.watch("/**") as changes,
    ):
        here = await home.publisher()
        await here.publish("/us/y")
        assert (await anext(changes)).added == ["/us/y"]
        # It has just started, and takes no watch before it is ready.
        async with ResolverServer.open(port=port, is_new=False) as europe:
            async with asyncio.timeout(60):
                change = await anext(changes)
            assert change.is_lost
            there = await europe.publisher()
            await there.publish("/eu/x")
            assert (await anext(changes)).added == ["/eu/x"]


async def test_a_ring_of_clusters_is_watched_to_its_end() -> None:
    async with ResolverServer.open() as one, ResolverServer.open() as two:
        for server, other in ((one, two), (two, one)):
            referral = Referral("/a", (other.address,), 60_000)
            server.broker._delegations._referrals["/a"] = referral
        async with Resolver(two.address) as resolver, resolver.watch("/a/**"):
            assert len(one.broker.watches) + len(two.broker.watches) == 0
