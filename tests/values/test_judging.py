"""Who says whether a subscription may go on: a resolver that knows the path, and another one if it hangs."""

import asyncio
from contextlib import AsyncExitStack

import pytest
from tests.resolver.server import ResolverServer
from tests.values.world import Values, until

from moorline.client.values.follower import Held
from moorline.client.values.publisher import Publisher
from moorline.core.access.principal import LOOPBACK
from moorline.core.access.right import SUBSCRIBE
from moorline.core.access.row import Row
from moorline.net.clock import monotonic_ms, wall_ms


def only_held(publisher: Publisher) -> Held:
    (follower,) = publisher._sessions._followers.values()
    (held,) = follower.held.values()
    return held


async def test_a_cluster_judges_its_own_paths_alone(values: Values) -> None:
    """To the root a delegated path is none of this publisher's: that it grants nothing there ends nothing."""
    async with AsyncExitStack() as stack:
        eu = await stack.enter_async_context(ResolverServer.open())
        open_root = ResolverServer.open(delegations=[f"/eu={eu.address}"])
        root = await stack.enter_async_context(open_root)
        publisher = await values.publisher(root.address)
        publisher.publish("/eu/oslo", 4)
        publisher.publish("/us/ohio", 5)
        await until(lambda: len(publisher.members) == 2, "the referral is followed")
        await publisher.replicated(10)
        subscriber = await values.subscriber(root.address)
        oslo = await subscriber.subscribe("/eu/oslo")
        ohio = await subscriber.subscribe("/us/ohio")
        await root.change_rights(Row("/us", LOOPBACK, denies=SUBSCRIBE))
        await until(lambda: ohio.is_over, "the root takes its own path away")
        assert oslo.is_alive
        await eu.change_rights(Row("/eu", LOOPBACK, denies=SUBSCRIBE))
        await until(lambda: oslo.is_over, "and the other cluster its own")


async def test_a_resolver_that_hangs_keeps_no_other_from_judging(
    values: Values, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ResolverServer.open(ttl_ms=60_000) as hung:
        publisher = await values.publisher(hung.address, values.server.address)
        publisher.publish("/x", 1)
        await publisher.replicated(10)
        subscriber = await values.subscriber()
        subscription = await subscriber.subscribe("/x")
        held = only_held(publisher)
        granted_ms = held.until_ms
        held.until_ms -= 1_000
        monkeypatch.setattr("moorline.client.values.members.WRITE_ANSWER_MS", 100)
        for session in hung._listeners.sessions:
            assert session._transport is not None
            session._transport.pause_reading()
        publisher._sessions.judge_soon(None)
        await until(lambda: held.until_ms >= granted_ms, "the other one confirms")
        assert subscription.is_alive


async def test_a_token_that_is_shown_late_counts_for_what_is_left_of_it(
    values: Values, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a right that was taken away behind its making would last for two lives of it."""
    async with ResolverServer.open(ttl_ms=60_000, token_life_ms=60_000) as server:
        publisher = await values.publisher(server.address)
        publisher.publish("/x", 1)
        await publisher.replicated(10)
        subscriber = await values.subscriber(server.address)
        monkeypatch.setattr("moorline.client.values.sessions.wall_ms", lambda: wall_ms() + 55_000)
        subscription = await subscriber.subscribe("/x")
        held = only_held(publisher)
        left_ms = held.until_ms - monotonic_ms()
        assert 0 < left_ms <= 5_000
        # A resolver that is there confirms it before that, and it goes on.
        await until(lambda: held.until_ms - monotonic_ms() > 30_000, "it is confirmed")
        assert subscription.is_alive


async def test_who_waits_for_the_resolvers_is_told_when_there_is_nothing_to_wait_for(
    values: Values, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither what came and went in one turn, nor a resolver that is away, keeps it waiting."""
    monkeypatch.setattr("moorline.core.directory.replica.REPLICA_PAUSE_MS_MIN", 60_000)
    monkeypatch.setattr("moorline.core.directory.replica.REPLICA_PAUSE_MS_MAX", 60_000)
    publisher = await values.publisher()
    publisher.publish("/x", 1)
    await publisher.replicated(10)
    publisher.publish("/y", 1).unpublish()
    (facts,) = await asyncio.wait_for(publisher.replicated(), 10)
    assert facts.is_current
    async with ResolverServer.open() as gone:
        address = gone.address
    far = await values.publisher(address)
    (facts,) = await asyncio.wait_for(far.replicated(), 10)
    assert not facts.is_current
