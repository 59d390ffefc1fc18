"""Resolvers as real processes: stopped, killed, flooded, and full of a million paths."""

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path

import pytest
from tests.process.nodes import NodeProcess
from tests.resolver.processes import resolver_node
from tests.resolver.publishing import Listener, WirePublisher, caller_to, codes, resolve

import moorline
from moorline.client.resolution import Grant, Resolution
from moorline.client.resolver import Resolver
from moorline.client.values.link import LinkSettings, PublisherLink
from moorline.client.values.publisher import Publisher
from moorline.client.values.subscriber import Subscriber
from moorline.client.values.subscription import ValueSubscription
from moorline.config.addresses import listen_address
from moorline.core.sets.digest import Digest
from moorline.errors import NotFound, Unreachable
from moorline.limits import PATHS_PER_CALL_MAX

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

ANSWER_S_MAX = 30
"""A second is the promise, and a tenth is usual; a machine that has other work gets more."""
PATHS = [f"/oslo/{number}" for number in range(50)]


@contextmanager
def two_nodes(folder: Path) -> Iterator[list[NodeProcess]]:
    with resolver_node(folder, name="one") as one, resolver_node(folder, name="two") as two:
        yield [one, two]


@asynccontextmanager
async def publisher_at(*nodes: NodeProcess) -> AsyncIterator[Publisher]:
    async with Publisher([node.address for node in nodes]) as publisher:
        for path in PATHS:
            publisher.publish(path, 1)
        await publisher.commit()
        await publisher.replicated(30)
        yield publisher


async def all_found(resolver: Resolver) -> bool:
    found = await resolver.resolve_all(PATHS)
    return all(isinstance(one, Resolution) and len(one.publishers) == 1 for one in found)


async def until_found(resolver: Resolver) -> None:
    async with asyncio.timeout(60):
        while not await all_found(resolver):
            await asyncio.sleep(0.05)


async def test_t22_a_resolver_that_hangs_is_left_for_another_and_comes_back(tmp_path: Path) -> None:
    with two_nodes(tmp_path) as nodes:
        one, two = nodes
        async with publisher_at(one, two):
            addresses = [node.address for node in nodes]
            async with Resolver(addresses, answer_ms=500, connect_ms=500) as resolver:
                assert await all_found(resolver)
                (member,) = resolver._home.connected
                # With the batch under way: the one that is connected hears it, and says nothing.
                nodes[member].signal(signal.SIGSTOP)
                assert await all_found(resolver)
                nodes[1 - member].signal(signal.SIGSTOP)
                with pytest.raises(Unreachable):
                    await resolver.resolve_all(PATHS)
                for node in nodes:
                    node.signal(signal.SIGCONT)
                await until_found(resolver)


async def test_t23_a_resolver_that_stood_still_loses_nothing(tmp_path: Path) -> None:
    with resolver_node(tmp_path) as node:
        async with publisher_at(node), Resolver(node.address, answer_ms=2_000) as resolver:
            assert await all_found(resolver)
            for stopped_s in (0.8, 4.0):
                node.signal(signal.SIGSTOP)
                # The time itself is what is tested: less than the ttl, and more.
                await asyncio.sleep(stopped_s)
                node.signal(signal.SIGCONT)
                await until_found(resolver)
                assert sorted(await resolver.match("/oslo/*")) == sorted(PATHS)


async def test_t17_behind_a_restart_old_tokens_are_denied_and_durable_subscribers_recover(
    tmp_path: Path,
) -> None:
    with resolver_node(tmp_path) as node:
        address = node.address
        async with publisher_at(node) as publisher, Subscriber(address) as subscriber:
            before = await (resolver := Resolver(address)).resolve(PATHS[0])
            await resolver.close()
            # By an identity of its own: what the subscriber has stays out of it.
            link = await PublisherLink.open(
                listen_address(publisher.address),
                publisher.instance,
                LinkSettings(20_000, 60_000, 60_000),
                updated=lambda *_: None,
                ended=lambda *_: None,
                lost=lambda *_: None,
            )

            async def shown(grant: Grant) -> str:
                (answer,) = await link.subscribe([(PATHS[0], grant)])
                return answer.code

            assert await shown(before.publishers[0].grant) == ""
            durable = subscriber.durable_subscribe(PATHS[0])
            assert await durable.wait(10) == 1
            node.kill()
            with resolver_node(tmp_path, f"--listen={address}"):
                async with Resolver(address) as again:
                    await until_found(again)
                    after = await again.resolve(PATHS[0])
                    old, new = before.publishers[0].grant, after.publishers[0].grant
                    assert old.resolver != new.resolver
                    assert [await shown(old), await shown(new)] == ["DENIED", ""]
                link.close()
                # What runs goes on, and what is lost behind it comes back by itself.
                assert durable.is_alive
                next(one for one in publisher.values.values() if one.path == PATHS[0]).unpublish()
                async with asyncio.timeout(20):
                    while durable.is_alive:
                        await asyncio.sleep(0.01)
                publisher.publish(PATHS[0], 3)
                assert await durable.wait(30) == 3
                publisher.publish("/oslo/new", 2)
                await publisher.commit()
                await publisher.replicated(30)
                assert await subscriber.durable_subscribe("/oslo/new").wait(20) == 2


async def test_t34_three_resolvers_that_are_killed_and_start_empty_are_whole_again(
    tmp_path: Path,
) -> None:
    """T34: every path is back at each of them by itself, and running subscriptions never drop."""
    names = ("one", "two", "three")
    paths = [f"/oslo/{number}" for number in range(2_000)]
    async with AsyncExitStack() as stack:
        nodes = [stack.enter_context(resolver_node(tmp_path, name=name)) for name in names]
        addresses = [node.address for node in nodes]
        publisher = await stack.enter_async_context(Publisher(addresses))
        values = publisher.publish_all((path, 0) for path in paths)
        await publisher.current(30)
        subscriber = await stack.enter_async_context(Subscriber(addresses))
        found = await subscriber.subscribe_all(paths[:50])
        handles = [one for one in found if isinstance(one, ValueSubscription)]
        assert len(handles) == 50
        for node in nodes:
            node.kill()
        for number in range(1, 20):
            publisher.update_all([value.id for value in values], [number] * len(values))
            assert await publisher.commit(10) == 1
        # In threads: the publisher is in this process, and goes on saying that it lives.
        starts = [
            asyncio.to_thread(resolver_node, tmp_path, f"--listen={address}", name=name)
            for name, address in zip(names, addresses, strict=True)
        ]
        for again in await asyncio.gather(*starts):
            stack.enter_context(again)
        await publisher.current(60)
        for address in addresses:
            async with Resolver(address) as resolver:
                everything = await resolver.resolve_all(paths)
                assert all(isinstance(one, Resolution) for one in everything), address
        async with asyncio.timeout(20):
            while {handle.value for handle in handles} != {19}:
                await asyncio.sleep(0.01)
        assert all(handle.is_alive and not handle.why for handle in handles)


@pytest.mark.parametrize("waves", [4, pytest.param(40, marks=pytest.mark.long)])
async def test_t51_idle_sockets_are_closed_and_others_are_served(
    tmp_path: Path, waves: int
) -> None:
    """A thousand, and ten thousand of them, in waves of fewer than the node may have: each is closed by the
    hello's timeout."""
    with resolver_node(tmp_path, "--set=hello_timeout_ms=500", "--set=connections_max=400") as node:
        host, port = node.address.removeprefix("tcp://").split(":")
        reader = await caller_to(node.address)
        for _ in range(waves):
            idle = await asyncio.gather(
                *(asyncio.open_connection(host, int(port)) for _ in range(250))
            )
            assert (await resolve(reader, "/nodes/node-1")).found[0].code == ""
            async with asyncio.timeout(60):
                ends = await asyncio.gather(
                    *(near.read() for near, _ in idle), return_exceptions=True
                )
            # A goodbye that says why, or the end itself; none of them stays.
            assert not any(isinstance(end, TimeoutError) for end in ends)
            for _, writer in idle:
                writer.close()
        reader.abandon()


async def test_t51_bad_hellos_and_idle_sockets_keep_nobody_from_being_served(
    tmp_path: Path,
) -> None:
    with resolver_node(tmp_path, "--set=hello_timeout_ms=500", "--set=connections_max=400") as node:
        host, port = node.address.removeprefix("tcp://").split(":")
        async with Listener.open() as listener:
            publisher = WirePublisher(await caller_to(node.address), listener)
            await publisher.open()
            await publisher.publish("/a")
            said = [
                b"",
                b"\0\0",
                b"\0\0\0\x10half",
                b"\x7f\xff\xff\xff",
                b"\0\0\0\x05\xc1\xc1\xc1\xc1\xc1",
            ]
            writers: list[asyncio.StreamWriter] = []
            for number in range(1_000):
                with contextlib.suppress(OSError):
                    _, writer = await asyncio.open_connection(host, int(port))
                    writer.write(said[number % len(said)])
                    writers.append(writer)
            reader = await caller_to(node.address)
            assert await codes(reader, "/a") == [""]
            reader.abandon()
            publisher.caller.abandon()
            for writer in writers:
                writer.close()


async def publish_many(publisher: WirePublisher, count: int) -> None:
    """In order, a few calls at once."""
    waiting: set[asyncio.Task[object]] = set()
    for start in range(0, count, PATHS_PER_CALL_MAX):
        stop = min(start + PATHS_PER_CALL_MAX, count)
        paths = [
            f"/site/{number % 97}/device-{number:07}/temperature" for number in range(start, stop)
        ]
        waiting.add(asyncio.create_task(publisher.publish(*paths)))
        if len(waiting) >= 8:
            _, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    if waiting:
        await asyncio.wait(waiting)


async def many_paths(node: NodeProcess, count: int) -> int:
    """Published, resolved and purged; how often another client was answered meanwhile."""
    answered = 0
    other = await caller_to(node.address)

    async def keep_asking() -> None:
        nonlocal answered
        while True:
            async with asyncio.timeout(ANSWER_S_MAX):
                await resolve(other, "/nodes/node-1")
            answered += 1
            await asyncio.sleep(0.005)

    async with Listener.open() as listener:
        publisher = WirePublisher(await caller_to(node.address), listener)
        await publisher.open()
        asking = asyncio.create_task(keep_asking())
        await publish_many(publisher, count)

        async def keep_alive() -> None:
            while True:
                await publisher.beat(Digest(1, bytes(16)))
                await asyncio.sleep(0.1)

        beating = asyncio.create_task(keep_alive())
        async with Resolver(node.address) as resolver:
            paths = [f"/site/{n % 97}/device-{n:07}/temperature" for n in range(count)]
            found = await resolver.resolve_all(paths)
            assert all(isinstance(one, Resolution) for one in found)
            assert not beating.done(), "the resolver has forgotten the publisher"
            beating.cancel()
            publisher.caller.abandon()
            # Silent from now on: gone within two ttls, and then every path leaves.
            async with asyncio.timeout(120):
                while not isinstance((await resolver.resolve_all(paths[:1]))[0], NotFound):
                    await asyncio.sleep(0.05)
                while await resolver.match("/site/**"):
                    await asyncio.sleep(0.05)
        assert not asking.done(), "the other client was not answered in time"
        asking.cancel()
    other.abandon()
    return answered


async def test_t50_many_paths_are_published_resolved_and_purged(tmp_path: Path) -> None:
    with resolver_node(tmp_path, ttl_ms=5_000) as node:
        assert await many_paths(node, 50_000) > 20


@pytest.mark.long
@pytest.mark.timeout(900)
async def test_t50_a_million_paths_are_published_resolved_and_purged(tmp_path: Path) -> None:
    with resolver_node(tmp_path, ttl_ms=20_000) as node:
        assert await many_paths(node, 1_000_000) > 200


async def test_a_list_of_resolvers_is_all_that_a_client_needs(tmp_path: Path) -> None:
    with resolver_node(tmp_path) as node:
        host = node.address.removeprefix("tcp://")
        async with moorline.connect(f"moor://127.0.0.1:1,{host}", reconnect=False) as moor:
            assert str(moor.address) == node.address
            queue = await moor.create_queue()
            await moor.send(queue.id, b"ahoy")
        with pytest.raises(moorline.ConfigError):
            moorline.connect("moor://", reconnect=False)
    with resolver_node(tmp_path, "--roles=resolver", name="alone") as alone:
        host = alone.address.removeprefix("tcp://")
        with pytest.raises(Unreachable, match="no node with the role broker"):
            await moorline.connect(f"moor://{host}", reconnect=False)
