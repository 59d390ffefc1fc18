"""Publishers and their resolvers: restarts, losses, absence, refusals and the end."""

import asyncio
import sys
from contextlib import AsyncExitStack

import pytest
from chaos.proxy import LinkProxy
from tests.resolver.publishing import codes
from tests.resolver.server import ResolverServer
from tests.values.world import Values
from tests.waiting import until

from moorline.client.values.figures import watch_publisher
from moorline.client.values.publisher import MemberFacts, Publisher, PublisherSettings
from moorline.config.addresses import listen_address
from moorline.core.access.principal import LOOPBACK
from moorline.core.access.right import EVERYTHING, PUBLISH
from moorline.core.access.row import Row
from moorline.metrics import Metrics

pytestmark = pytest.mark.slow


def figures_of(metrics: Metrics) -> dict[str, float]:
    return {
        sample.name: sample.value
        for family in metrics.registry.collect()
        for sample in family.samples
        if sample.name.startswith("moorline_publisher_")
    }


def port_of(server: ResolverServer) -> int:
    return listen_address(server.address).port


async def test_t34_resolvers_that_restart_empty_are_whole_again(values: Values) -> None:
    """T34: within ttl/2 and a pause; running subscriptions never drop."""
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(ResolverServer.open(ttl_ms=600))
        port = port_of(first)
        publisher = await values.publisher(first.address)
        made = publisher.publish_all((f"/p/{number}", number) for number in range(500))
        await publisher.replicated(10)
        subscriber = await values.subscriber(first.address)
        subscription = await subscriber.subscribe("/p/1")
        await stack.aclose()
        async with ResolverServer.open(port=port, ttl_ms=600) as second:
            caller = await second.caller()
            paths = [value.path for value in made]
            await until(
                lambda: publisher.members[0].is_current and len(publisher.members) == 1,
                "the publisher is back",
            )
            while set(await codes(caller, *paths)) != {""}:
                await asyncio.sleep(0.01)
            assert subscription.is_alive
            made[1].update(7)
            await publisher.commit()
            await until(lambda: subscription.value == 7, "the old subscription goes on")


async def test_a_resolver_that_lost_some_gets_just_those_back(values: Values) -> None:
    """The digest of the next heartbeat tells; nothing else travels."""
    async with ResolverServer.open(ttl_ms=600) as server:
        publisher = await values.publisher(server.address)
        publisher.publish_all((f"/p/{number}", number) for number in range(2_000))
        await publisher.replicated(10)
        (registration,) = server.broker.registry
        lost = [f"/p/{number}" for number in range(10)]
        server.broker.registry.unpublish(registration, lost, 0)
        caller = await server.caller()
        assert set(await codes(caller, *lost)) == {"NOT_FOUND"}
        await until(lambda: len(registration.entries) == 2_000, "they are back")
        assert set(await codes(caller, *lost)) == {""}


async def test_what_is_published_while_a_resolver_is_compared_with_arrives_too(
    values: Values,
) -> None:
    """A comparison hashes everything in a thread, and publishing goes on meanwhile."""
    async with ResolverServer.open(ttl_ms=600) as server:
        publisher = await values.publisher(server.address)
        await publisher.current(10)
        publisher.publish_all((f"/p/{number}", number) for number in range(60_000))
        await publisher.current(60)
        (registration,) = server.broker.registry
        server.broker.registry.close(registration)
        (member,) = publisher.judges()
        count = 0
        # The next heartbeat finds that it is not known any more; what it has is compared behind that.
        async with asyncio.timeout(60):
            while member.state != "comparing":
                await asyncio.sleep(0)
        interval_s = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        try:
            while member.state == "comparing" and count < 5_000:
                publisher.publish(f"/late/{count}", count)
                count += 1
                await asyncio.sleep(0)
        finally:
            sys.setswitchinterval(interval_s)
        await publisher.current(60)
        assert count, "nothing was published meanwhile"
        (registration,) = server.broker.registry
        assert len(registration.entries) == 60_000 + count


async def test_t35_a_resolver_that_is_away_fails_nothing(
    values: Values, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T35: batches go on, the member is degraded with an event, and comes back by itself."""
    monkeypatch.setattr("moorline.core.directory.replica.REPLICA_PAUSE_MS_MIN", 10)
    monkeypatch.setattr("moorline.core.directory.replica.REPLICA_PAUSE_MS_MAX", 40)
    monkeypatch.setattr("moorline.core.directory.replica.REPLICA_TTL_MS", 400)
    async with ResolverServer.open() as gone:
        port = port_of(gone)
    degraded: list[MemberFacts] = []
    addresses = [values.server.address, f"tcp://127.0.0.1:{port}"]
    async with Publisher(
        addresses, settings=PublisherSettings(heartbeat_ms=200), on_degraded=degraded.append
    ) as publisher:
        value = publisher.publish("/x", 1)
        await until(lambda: len(degraded) > 0, "the absent one is degraded")
        assert degraded[0].address == addresses[1]
        metrics = Metrics()
        watch_publisher(metrics, publisher)
        assert figures_of(metrics) == {
            "moorline_publisher_resolvers": 2,
            "moorline_publisher_resolvers_degraded": 1,
            "moorline_publisher_values": 1,
        }
        value.update(2)
        await publisher.commit()
        publisher.publish_all((f"/y/{number}", 0) for number in range(3_000))
        subscriber = await values.subscriber()
        assert (await subscriber.subscribe("/x")).value == 2
        async with ResolverServer.open(port=port) as back:
            await until(lambda: all(one.is_current for one in publisher.members), "it is back")
            caller = await back.caller()
            assert await codes(caller, "/x", "/y/2999") == ["", ""]


async def test_t36_what_is_published_while_a_member_is_away_comes_with_it(values: Values) -> None:
    """T36: no batch is missing behind a recovery."""
    async with ResolverServer.open(ttl_ms=400) as first:
        port = port_of(first)
        publisher = await values.publisher(values.server.address, first.address)
        publisher.publish("/before", 1)
        await publisher.replicated(10)
    publisher.publish("/meanwhile", 2)
    async with ResolverServer.open(port=port, ttl_ms=400) as second:
        await until(lambda: all(one.is_current for one in publisher.members), "it is back", 30)
        caller = await second.caller()
        assert await codes(caller, "/before", "/meanwhile") == ["", ""]


async def test_one_path_that_is_refused_does_not_fail_the_others(values: Values) -> None:
    """Nor does it make the resolver differ for ever; and granted later, it comes by itself."""
    await values.server.change_rights(Row("/p/no", LOOPBACK, denies=PUBLISH))
    publisher = await values.publisher()
    publisher.publish_all([("/p/yes", 1), ("/p/no", 2), ("/nodes/mine", 3)])
    (facts,) = await publisher.replicated(10)
    assert facts.is_current
    assert facts.refused == 2
    caller = await values.server.caller()
    assert await codes(caller, "/p/yes", "/p/no") == ["", "NOT_FOUND"]
    await values.server.change_rights(Row("/p/no", LOOPBACK, grants=EVERYTHING))
    await until(lambda: publisher.members[0].refused == 1, "it is taken now")
    assert await codes(caller, "/p/no") == [""]


async def test_many_paths_that_are_refused_are_one_line_of_the_log(
    values: Values, caplog: pytest.LogCaptureFixture
) -> None:
    await values.server.change_rights(Row("/p", LOOPBACK, denies=PUBLISH))
    publisher = await values.publisher()
    publisher.publish_all((f"/p/{number}", number) for number in range(500))
    (facts,) = await publisher.replicated(10)
    assert facts.refused == 500
    lines = [text for text in caplog.messages if "does not take" in text]
    assert len(lines) == 1
    assert lines[0].endswith("DENIED and 499 more")


async def test_t32_a_publisher_that_stops_leaves_all_resolvers_first(values: Values) -> None:
    """T32: and its subscribers hear the end behind that."""
    async with ResolverServer.open() as other, AsyncExitStack() as stack:
        made = Publisher([values.server.address, other.address])
        publisher = await stack.enter_async_context(made)
        publisher.publish("/x", 1)
        await publisher.replicated(10)
        subscriber = await values.subscriber()
        subscription = await subscriber.subscribe("/x")
        await stack.aclose()
        for server in (values.server, other):
            assert await codes(await server.caller(), "/x") == ["NOT_FOUND"]
        await until(lambda: subscription.is_over, "the subscriber hears of it")
        assert "STOPPING" in subscription.why


async def test_a_publisher_does_not_wait_for_a_resolver_that_is_silent(
    values: Values, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it had there goes with its time to live; at the others it is gone at once."""
    monkeypatch.setattr("moorline.client.values.members.WRITE_ANSWER_MS", 3_600_000)
    monkeypatch.setattr("moorline.client.values.members.CLOSE_ANSWER_MS", 50)
    async with ResolverServer.open(ttl_ms=400) as silent, LinkProxy() as way:
        way.target = port_of(silent)
        publisher = await values.publisher(
            values.server.address, f"tcp://127.0.0.1:{way.port}", hello_timeout_ms=60_000
        )
        publisher.publish("/x", 1)
        await publisher.replicated(10)
        way.hold()
        async with asyncio.timeout(60):
            await publisher.close()
        assert await codes(await values.server.caller(), "/x") == ["NOT_FOUND"]
        await until(lambda: not list(silent.broker.registry), "it is purged")


async def test_t40_a_publisher_that_is_cut_from_one_member_is_found_at_the_other(
    values: Values, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T40: what it says to one of two is dropped, and nothing else. That one purges it and is degraded; the
    other keeps it, subscribers of both follow it, and when the way is there again all is as it was."""
    monkeypatch.setattr("moorline.client.values.members.WRITE_ANSWER_MS", 200)
    monkeypatch.setattr("moorline.core.directory.replica.REPLICA_PAUSE_MS_MIN", 10)
    monkeypatch.setattr("moorline.core.directory.replica.REPLICA_PAUSE_MS_MAX", 40)
    async with ResolverServer.open(ttl_ms=400) as cut, LinkProxy() as way:
        way.target = port_of(cut)
        publisher = await values.publisher(
            values.server.address, f"tcp://127.0.0.1:{way.port}", hello_timeout_ms=200
        )
        value = publisher.publish("/x", 1)
        await publisher.replicated(10)
        # Its readers reach that one: they were given the publisher there, and have it still.
        of_cut, of_other = await values.subscriber(cut.address), await values.subscriber()
        subscriptions = [await one.subscribe("/x") for one in (of_cut, of_other)]
        way.hold()
        await until(lambda: not list(cut.broker.registry), "it is purged")
        await until(lambda: publisher.members[1].is_degraded, "it is degraded")
        assert await codes(await cut.caller(), "/x") == ["NOT_FOUND"]
        assert await codes(await values.server.caller(), "/x") == [""]
        value.update(2)
        assert await publisher.commit() == 2
        await until(lambda: {one.value for one in subscriptions} == {2}, "both have it")
        way.release()
        await until(lambda: all(one.is_current for one in publisher.members), "it is reached again")
        assert await codes(await cut.caller(), "/x") == [""]
        assert all(one.is_alive for one in subscriptions)


async def test_delegated_paths_are_published_at_the_cluster_that_has_them(values: Values) -> None:
    async with AsyncExitStack() as stack:
        eu = await stack.enter_async_context(ResolverServer.open())
        open_root = ResolverServer.open(delegations=[f"/eu={eu.address}"])
        root = await stack.enter_async_context(open_root)
        publisher = await values.publisher(root.address)
        value = publisher.publish("/eu/oslo", 4)
        publisher.publish("/us/ohio", 5)
        await until(lambda: len(publisher.members) == 2, "the referral is followed")
        await publisher.replicated(10)
        assert await codes(await eu.caller(), "/eu/oslo") == [""]
        assert await codes(await root.caller(), "/eu/oslo", "/us/ohio") == ["REFERRED", ""]
        value.unpublish()
        caller = await eu.caller()
        while await codes(caller, "/eu/oslo") != ["NOT_FOUND"]:
            await asyncio.sleep(0.01)
