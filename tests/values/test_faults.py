"""Publishers in processes that are stopped, killed and cut off, and subscribers that follow to the next."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

import msgspec
import pytest
from chaos.proxy import LinkProxy
from tests.process.nodes import clean_environment
from tests.resolver.publishing import codes
from tests.resolver.server import ResolverServer
from tests.values.world import Values
from tests.waiting import until

from moorline.client.values.subscription import Kind, ValueSubscription
from moorline.config.addresses import listen_address

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]
DEAD_MS = 1_000


class PublisherProcess:
    """One publisher, started as a user starts one."""

    def __init__(self, resolver: str, name: str, count: int = 10, priority: int = 1) -> None:
        self.name = name
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "tests.values.publisher_program"),
                *(resolver, name, str(count), str(priority)),
            ],
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**clean_environment(), "PYTHONPATH": str(ROOT)},
        )

    async def ready(self) -> "PublisherProcess":
        assert self.process.stdout is not None
        line = await asyncio.to_thread(self.process.stdout.readline)
        assert line.startswith("ready "), line
        self.address = line.split()[1]
        return self

    def stop(self) -> None:
        os.kill(self.process.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        os.kill(self.process.pid, signal.SIGCONT)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


class Processes:
    def __init__(self, server: ResolverServer, stack: AsyncExitStack) -> None:
        self.values = Values(server, stack)
        self.server = server
        self._stack = stack

    async def publisher(self, name: str, count: int = 10, priority: int = 1) -> PublisherProcess:
        made = PublisherProcess(self.server.address, name, count, priority)
        self._stack.callback(made.kill)
        return await made.ready()


@pytest.fixture
async def processes() -> AsyncIterator[Processes]:
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(ResolverServer.open(ttl_ms=1_000))
        yield Processes(server, stack)


def is_at(subscription: ValueSubscription, value: object) -> bool:
    return bool(subscription.value == value)


async def next_of(subscription: ValueSubscription, name: str) -> None:
    await until(
        lambda: subscription.is_alive and subscription.value[0] == name, f"it follows to {name}"
    )


async def test_t20_a_publisher_that_hangs_is_left_and_nothing_stale_comes_behind(
    processes: Processes,
) -> None:
    """T20: noticed between dead and 2 × dead; then the second publisher; after SIGCONT nothing stale."""
    first = await processes.publisher("first", priority=0)
    await processes.publisher("second", priority=2)
    subscriber = await processes.values.subscriber(dead_ms=DEAD_MS)
    subscription = subscriber.durable_subscribe("/count/0")
    await next_of(subscription, "first")
    seen: list[tuple[str, int]] = []

    async def read() -> None:
        async for event in subscription:
            seen.extend([tuple(event.value)] if event.kind is not Kind.DEAD else [])

    reading = asyncio.create_task(read())
    first.stop()
    stopped_s = time.monotonic()
    await until(lambda: not subscription.is_alive, "the hang is noticed")
    assert time.monotonic() - stopped_s >= DEAD_MS / 1_000 * 0.8
    await next_of(subscription, "second")
    first.go_on()
    count = len(seen)
    await until(lambda: len(seen) > count + 50, "the second goes on")
    reading.cancel()
    # In the order in which they came: all of the first, and then none of it.
    names = [name for name, _ in seen]
    assert "first" not in names[names.index("second") :]
    numbers = [number for name, number in seen if name == "second"]
    assert numbers == sorted(numbers)


@asynccontextmanager
async def following(
    resolver: str, *arguments: int
) -> AsyncIterator[tuple[asyncio.subprocess.Process, asyncio.StreamReader]]:
    """A subscriber in a process of its own, and what it says."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.values.subscriber_program"),
        *(resolver, *map(str, arguments)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        cwd=ROOT,
        env={**clean_environment(), "PYTHONPATH": str(ROOT)},
    )
    assert process.stdout is not None
    try:
        yield process, process.stdout
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def _tell(process: asyncio.subprocess.Process, number: int) -> None:
    assert process.stdin is not None
    process.stdin.write(b"%d\n" % number)


async def test_t21_a_subscriber_that_is_stopped_is_cut_and_comes_back(processes: Processes) -> None:
    """T21: one of two stands still with 500,000 updates flowing. The other has them all, the stopped one is
    cut with what waited for it bounded, and behind SIGCONT it subscribes anew."""
    publisher = await processes.values.publisher(processes.server.address)
    made = publisher.publish_all((f"/s/{place}", 0) for place in range(1_000))
    await publisher.replicated(20)
    subscriber = await processes.values.subscriber(dead_ms=60_000)
    handles = subscriber.durable_subscribe_all([value.path for value in made])
    await until(lambda: all(handle.is_alive for handle in handles), "all are there")
    async with following(processes.server.address, 1_000) as (other, said):
        async with asyncio.timeout(60):
            assert await said.readline() == b"alive\n"
        assert len(publisher.board._followed) == 2
        other.send_signal(signal.SIGSTOP)
        ids, waited, seen = [value.id for value in made], 0, 0
        body = "x" * 1_000
        for number in range(500):
            publisher.update_all(ids[:20], [f"{number} {body}"] * 20)
            publisher.update_all(ids[20:], [number] * 980)
            assert await publisher.commit(2) >= 1
            await until(partial(is_at, handles[999], number), "it is not stalled")
            seen += 1
            for follower in publisher._sessions._followers.values():
                waited = max(waited, follower.outlet.waiting_bytes)
        assert seen == 500
        await until(lambda: len(publisher.board._followed) == 1, "the stopped one is cut")
        assert 0 < waited <= publisher.settings.bytes_max
        publisher.update_all(ids, [500] * 1_000)
        await publisher.commit()
        other.send_signal(signal.SIGCONT)
        _tell(other, 500)
        async with asyncio.timeout(60):
            assert await said.readline() == b"alive\n"
            while (line := await said.readline()) != b"last 500\n":
                assert line == b"alive\n"


async def test_a_subscriber_that_stood_still_loses_nobody_who_spoke_meanwhile(
    processes: Processes,
) -> None:
    """Its clock says that the publisher was silent for longer than the dead interval; its socket does not."""
    publisher = await processes.values.publisher(processes.server.address)
    value = publisher.publish("/s/0", 0)
    await publisher.replicated(20)
    async with following(processes.server.address, 1, 3_000) as (other, said):
        async with asyncio.timeout(60):
            assert await said.readline() == b"alive\n"
        other.send_signal(signal.SIGSTOP)
        # The time itself is what is tested: longer than the dead interval.
        await asyncio.sleep(5)
        value.update(7)
        await publisher.commit()
        other.send_signal(signal.SIGCONT)
        _tell(other, 7)
        async with asyncio.timeout(60):
            assert await said.readline() == b"last 7\n", "it has subscribed anew"


async def test_t30_a_publisher_that_is_killed(processes: Processes) -> None:
    """T30: a plain subscription dies with an event; a durable one finds the next publisher; and the
    resolver has purged the dead one within 2 × ttl."""
    first = await processes.publisher("first")
    plain_of, durable_of = [await processes.values.subscriber() for _ in range(2)]
    plain = await plain_of.subscribe("/count/1")
    durable = durable_of.durable_subscribe("/count/1")
    await next_of(durable, "first")
    first.kill()
    kinds = [event.kind async for event in plain]
    assert kinds[-1] is Kind.DEAD
    assert plain.is_over
    await until(lambda: not durable.is_alive, "it is lost")
    caller = await processes.server.caller()
    async with asyncio.timeout(2 * 1.0 + 10):
        while await codes(caller, "/count/1") != ["NOT_FOUND"]:
            await asyncio.sleep(0.02)
    await processes.publisher("second")
    await next_of(durable, "second")


async def test_t31_killed_in_the_middle_of_batches_only_whole_ones_are_seen(
    processes: Processes,
) -> None:
    """T31: whoever dies, no batch is seen in part."""
    subscriber = await processes.values.subscriber()
    handles = subscriber.durable_subscribe_all([f"/count/{place}" for place in range(10)])
    for number in range(4):
        publisher = await processes.publisher(f"p{number}")
        for handle in handles:
            await next_of(handle, publisher.name)
        batches = 0
        async for batch in subscriber.batches():
            assert len(batch.paths) == 10
            assert len({value[1] for value in batch.values}) == 1
            batches += 1
            if batches == 20 + 7 * number:
                break
        publisher.kill()
        await until(lambda: not any(handle.is_alive for handle in handles), "all are lost")
        assert len({tuple(handle.value) for handle in handles}) == 1


async def test_t37_very_many_durable_subscriptions_come_back_together(
    processes: Processes,
) -> None:
    """T37: 10,000 lose their publisher at once: the resolver hears a few batches, not ten thousand."""
    first = await processes.publisher("first", 10_000)
    subscriber = await processes.values.subscriber()
    handles = subscriber.durable_subscribe_all([f"/count/{place}" for place in range(10_000)])
    await until(lambda: all(handle.is_alive for handle in handles), "all are there", 60)
    asked = 0
    resolve_all = subscriber._resolver.resolve_all

    async def counted(paths: object) -> object:
        nonlocal asked
        asked += 1
        return await resolve_all(paths)  # type: ignore[arg-type]

    subscriber._resolver.resolve_all = counted  # type: ignore[method-assign,assignment]
    second = await processes.publisher("second", 10_000)
    first.kill()
    await until(
        lambda: all(handle.is_alive and handle.value[0] == "second" for handle in handles),
        "all follow",
        60,
    )
    assert second.name == "second"
    assert asked < 100


async def test_t41_t43_packets_that_are_dropped_are_noticed_as_a_hang_is(
    processes: Processes,
) -> None:
    """T41, T43: cut off from one publisher and not from the other, without a reset: within the same bound."""
    first = await processes.publisher("first", priority=0)
    await processes.publisher("second", priority=2)
    subscriber = await processes.values.subscriber(dead_ms=DEAD_MS)
    async with LinkProxy() as proxy:
        proxy.target = listen_address(first.address).port
        way = f"tcp://127.0.0.1:{proxy.port}"
        # What the resolver told of it leads through somebody who drops.
        resolve_all = subscriber._resolver.resolve_all

        async def through(paths: object) -> object:
            answers = await resolve_all(paths)  # type: ignore[arg-type]
            return [_redirected(answer, first.address, way) for answer in answers]

        subscriber._resolver.resolve_all = through  # type: ignore[method-assign,assignment]
        subscription = subscriber.durable_subscribe("/count/2")
        await next_of(subscription, "first")
        assert any(one.address == way for one in subscriber._steps._found.values())
        proxy.hold()
        await next_of(subscription, "second")


async def test_t52_subscriptions_that_come_and_go_leave_nothing_behind(
    processes: Processes,
) -> None:
    """T52: 100,000 durable ones, dropped at every moment of their flow."""
    await processes.publisher("first", 50)
    subscriber = await processes.values.subscriber()
    for round_ in range(33_334):
        handles = subscriber.durable_subscribe_all(
            [f"/count/{(round_ + place) % 50}" for place in range(3)]
        )
        for _ in range(round_ % 5):
            await asyncio.sleep(0)
        if round_ % 1_000 == 0:
            await handles[0].wait(60)
        for handle in handles:
            handle.drop()
    held = subscriber._handles
    await until(
        lambda: not (held._at or held._ids or held._handles or held._read or held._awaited),
        "nothing is left",
    )
    await until(lambda: not subscriber._steps.links, "and no connection")
    assert not subscriber._steps._grants
    assert not subscriber._subscribing


def _redirected(answer: object, from_address: str, to_address: str) -> object:
    publishers = getattr(answer, "publishers", None)
    if publishers is None:
        return answer
    return msgspec.structs.replace(
        answer,  # type: ignore[type-var]
        publishers=[
            msgspec.structs.replace(one, address=to_address) if one.address == from_address else one
            for one in publishers
        ],
    )
