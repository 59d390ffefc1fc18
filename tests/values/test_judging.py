"""Who says whether a subscription may go on: a resolver that knows the path, and another one if it hangs."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from tests.resolver.server import ResolverServer
from tests.values.world import Values
from tests.waiting import until

from moorline.client.resolution import Grant, Resolution
from moorline.client.resolver import Resolver
from moorline.client.values.follower import Held
from moorline.client.values.link import LinkSettings, PublisherLink
from moorline.client.values.publisher import Publisher
from moorline.config.addresses import listen_address
from moorline.core.access.principal import LOOPBACK
from moorline.core.access.right import SUBSCRIBE, WRITE
from moorline.core.access.row import Row
from moorline.errors import Denied
from moorline.net.clock import monotonic_ms, wall_ms
from moorline.wire.value import SubscribedValue


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


@asynccontextmanager
async def shown_at(publisher: str) -> AsyncIterator[PublisherLink]:
    """A connection of somebody who kept tokens, and shows them by itself."""
    link = await PublisherLink.open(
        listen_address(publisher),
        b"i" * 16,
        LinkSettings(timeout_ms=5_000, keepalive_ms=60_000, dead_ms=60_000),
        updated=lambda *_: None,
        ended=lambda *_: None,
        lost=lambda *_: None,
    )
    try:
        yield link
    finally:
        link.close()


async def shown(path: str, grant: Grant, publisher: str) -> SubscribedValue:
    async with shown_at(publisher) as link:
        (told,) = await link.subscribe([(path, grant)])
        return told


async def test_t15_a_token_from_before_a_right_was_taken_away_brings_nothing_back(
    values: Values,
) -> None:
    """T15: who is cut may have kept its token, whose life is five minutes; others' old ones count still."""
    publisher = await values.publisher()
    publisher.publish("/r/secret", 1)
    publisher.publish("/r/other", 2)
    await publisher.replicated(10)
    async with Resolver([values.server.address]) as resolver:
        kept = {path: await resolver.resolve(path) for path in ("/r/secret", "/r/other")}
    subscriber = await values.subscriber()
    lost = await subscriber.subscribe("/r/secret")
    await values.server.change_rights(Row("/r/secret", LOOPBACK, denies=SUBSCRIBE | WRITE))
    await until(lambda: lost.is_over, "the subscription is cut")
    told = {}
    for path, found in kept.items():
        (at,) = found.publishers
        told[path] = await shown(path, at.grant, at.address)
    assert told["/r/secret"].code == "DENIED"
    assert (told["/r/other"].code, told["/r/other"].value) == ("", 2)


async def test_a_token_from_before_gives_what_there_is_now(values: Values) -> None:
    """Here the right to write is gone, and the one to subscribe is there."""
    publisher = await values.publisher()
    publisher.publish("/r/x", 1, writer=lambda new, _: new)
    await publisher.replicated(10)
    async with Resolver([values.server.address]) as resolver:
        found = await resolver.resolve("/r/x")
    (at,) = found.publishers
    async with shown_at(at.address) as link:
        (told,) = await link.subscribe([("/r/x", at.grant)])
        assert await link.write(told.id, 2, wants_receipt=True) == 2
    await values.server.change_rights(Row("/r/x", LOOPBACK, denies=WRITE))
    await until(lambda: publisher.tokens.is_doubtful(*signed(found)), "it is told")
    async with shown_at(at.address) as link:
        (told,) = await link.subscribe([("/r/x", at.grant)])
        assert told.value == 1
        with pytest.raises(Denied):
            await link.write(told.id, 2, wants_receipt=True)


def signed(found: Resolution) -> tuple[bytes, int]:
    grant = found.publishers[0].grant
    return grant.resolver, grant.expires_s


@pytest.mark.slow  # its publisher says goodbye to a resolver that says nothing
async def test_a_token_from_before_counts_where_no_resolver_says_anything(
    values: Values, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its life is the bound there."""
    publisher = await values.publisher()
    publisher.publish("/r/x", 1)
    await publisher.replicated(10)
    async with Resolver([values.server.address]) as resolver:
        found = await resolver.resolve("/r/x")
    await values.server.change_rights(Row("/else", LOOPBACK, denies=SUBSCRIBE))
    await until(lambda: publisher.tokens.is_doubtful(*signed(found)), "it is told")
    monkeypatch.setattr("moorline.client.values.sessions.DOUBTED_MS_MAX", 50)
    held = [session._transport for session in values.server._listeners.sessions]
    for transport in held:
        assert transport is not None
        transport.pause_reading()
    (at,) = found.publishers
    assert (await shown("/r/x", at.grant, at.address)).value == 1
    for transport in held:
        assert transport is not None
        transport.resume_reading()  # or the publisher's last word waits for an answer
