"""X19: a clock that jumps changes nothing: timers do not look at it, times never go back, nothing expires."""

import asyncio
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.running import SMALL, Got
from tests.waiting import until

import moorline
from moorline.catalog.groups import Groups
from moorline.client.moor import Moor
from moorline.config.load import load
from moorline.config.settings import Config
from moorline.node.node import Node
from moorline.queues import upkeep as queue_upkeep
from moorline.topics.upkeep import StreamUpkeep

pytestmark = pytest.mark.process

GROUP = "$shared/billing/orders/#"
DAY_NS = 86_400 * 10**9


class WallClock:
    """The wall clock of this process, which a test may set."""

    def __init__(self) -> None:
        self.jump_ns = 0
        self._real = time.time_ns

    def __call__(self) -> int:
        return self._real() + self.jump_ns


@pytest.fixture
def wall_clock(monkeypatch: pytest.MonkeyPatch) -> WallClock:
    clock = WallClock()
    monkeypatch.setattr(time, "time_ns", clock)
    return clock


class Upkeep:
    """How often the node has looked for what is due, on its own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.turns: Counter[str] = Counter()
        self._patch = monkeypatch
        self._count(Groups, "renew_all")
        self._count(queue_upkeep.Upkeep, "expire")
        self._count(StreamUpkeep, "_keep_up")

    def _count(self, owner: type, name: str) -> None:
        work = getattr(owner, name)

        async def counted(*values: Any) -> Any:
            result = await work(*values)
            self.turns[name] += 1
            return result

        self._patch.setattr(owner, name, counted)

    async def had_its_turn(self, *names: str, turns: int = 2) -> None:
        """Each of these has begun and ended since now: one that ends next may have begun before."""
        before = self.turns.copy()
        await until(
            lambda: all(self.turns[name] >= before[name] + turns for name in names),
            within_s=60,
            what=f"{turns} turns of {names}",
        )


@pytest.fixture
def upkeep(monkeypatch: pytest.MonkeyPatch) -> Upkeep:
    return Upkeep(monkeypatch)


def configured(dsn: str, folder: Path, more: Mapping[str, object]) -> Config:
    flags: dict[str, object] = {
        "data": folder / "a",
        "node": "a",
        "listen": "tcp://127.0.0.1:0",
        "http": "off",
        "catalog": dsn,
        **SMALL,
        **more,
    }
    return load({key: str(value) for key, value in flags.items()}, {}, None).config


async def started(config: Config, stack: AsyncExitStack) -> Moor:
    """A node in this process, whose clock is ours, and a client of it."""
    node = Node(config)
    await node.start(stack)
    return await stack.enter_async_context(
        moorline.connect(str(node.addresses[0]), reconnect=False)
    )


async def test_x19_a_clock_jump_changes_nothing(
    dsn: str, tmp_path: Path, wall_clock: WallClock, upkeep: Upkeep
) -> None:
    config = configured(dsn, tmp_path, {})
    async with AsyncExitStack() as stack:
        moor = await started(config, stack)
        leads = await _epoch(moor)
        got = Got()
        subscription = await moor.subscribe(GROUP)
        for turn, jump_ns in enumerate((0, DAY_NS, -DAY_NS, 0)):
            wall_clock.jump_ns = jump_ns
            for number in range(20):
                await moor.publish("orders/eu", b"%d %d" % (turn, number), key=b"one")
                message = await subscription.get(5)
                assert message is not None
                got.messages.append(("a", message))
                await message.ack()
            # It renews four times in a lease: one that is counted on the wrong clock has run out by then.
            await upkeep.had_its_turn("renew_all", turns=5)
        assert await _epoch(moor) == leads + 1, "the first Leader still leads"
    times = [message.time_us for _, message in got.messages]
    assert times == sorted(times)
    assert got.bodies() == [b"%d %d" % (turn, number) for turn in range(4) for number in range(20)]
    assert all(message.deliveries == 1 for _, message in got.messages)


async def test_a_clock_that_jumps_forward_drops_nothing_until_it_is_confirmed(
    dsn: str, tmp_path: Path, wall_clock: WallClock, upkeep: Upkeep
) -> None:
    """Neither by retention nor by expiry, in queues and topics, on send and at intervals, over a restart."""
    more = {
        "queues.ttl_s": 3_600,
        "queues.expire_interval_s": 1,
        "streams.retention_s": 3_600,
        "streams.generation_s": 1,
    }
    config = configured(dsn, tmp_path, more)
    async with AsyncExitStack() as stack:
        moor = await started(config, stack)
        queue = await moor.create_queue()
        for number in range(20):
            await moor.send(queue.id, b"%d" % number)
        for number in range(90):
            await moor.publish(f"orders/{number}", b"%d" % number, ttl_s=600)
        assert (await moor.describe()).warnings == ()
        # All of it in generations that have ended, which are what retention drops.
        await until_all_sealed(moor, 90)
        wall_clock.jump_ns = DAY_NS
        await moor.send(queue.id, b"expires on send")
        assert (await queue.info()).waiting == 21
        await held_for_a_while(moor, upkeep)
        assert (await queue.info()).waiting == 21
        assert (await moor.streams()).dropped_messages == 0
        subscription = await moor.subscribe("orders/#", start="beginning")
        assert len([await subscription.get(10) for _ in range(90)]) == 90
    async with AsyncExitStack() as stack:
        moor = await started(config, stack)
        queue = moor.queue(queue.id)
        await held_for_a_while(moor, upkeep)
        assert (await queue.info()).waiting == 21, "a restart confirms nothing"
        assert (await moor.streams()).dropped_messages == 0
        done = await moor.confirm_clock()
        assert done.was_held
        assert abs(done.jump_ms - DAY_NS // 10**6) < 60_000
        assert (await moor.describe()).warnings == ()
        async with asyncio.timeout(30):
            while (await moor.streams()).dropped_messages < 90:
                await asyncio.sleep(0.05)
            while (await queue.info()).waiting > 1:
                await asyncio.sleep(0.05)
        head = await queue.get()
        assert head is not None
        assert head.body == b"expires on send", "what was sent by the new clock is not old by it"
        assert not (await moor.confirm_clock()).was_held


async def test_what_is_sent_while_the_clock_is_behind_is_not_old_when_it_is_right(
    dsn: str, tmp_path: Path, wall_clock: WallClock, upkeep: Upkeep
) -> None:
    more = {
        "queues.ttl_s": 3_600,
        "queues.expire_interval_s": 1,
    }
    config = configured(dsn, tmp_path, more)
    async with AsyncExitStack() as stack:
        moor = await started(config, stack)
        queue = await moor.create_queue()
        wall_clock.jump_ns = -DAY_NS
        await moor.send(queue.id, b"1")
        await held_for_a_while(moor, upkeep)
        await moor.send(queue.id, b"2")
        wall_clock.jump_ns = 0
        async with asyncio.timeout(30):
            while (await moor.describe()).warnings:
                await asyncio.sleep(0.05)
        await upkeep.had_its_turn("expire")
        await moor.send(queue.id, b"3")
        assert (await queue.info()).waiting == 3
        head = await queue.get()
        assert head is not None
        assert abs(head.time_ms - wall_clock() // 10**6) < 600_000


async def held_for_a_while(moor: Moor, upkeep: Upkeep) -> None:
    """Until the node says that its clock jumped, and then until every upkeep has had its turn."""
    async with asyncio.timeout(30):
        while not any("moor clock confirm" in text for text in (await moor.describe()).warnings):
            await asyncio.sleep(0.05)
    await upkeep.had_its_turn("expire", "_keep_up")


async def until_all_sealed(moor: Moor, count: int) -> None:
    async with asyncio.timeout(60):
        while True:
            streams = (await moor.streams()).streams
            if sum(one.end - one.first for one in streams if one.is_sealed) >= count:
                return
            await asyncio.sleep(0.1)


async def _epoch(moor: Moor) -> int:
    group = moor.group(GROUP)
    await group.create()
    return (await group.info()).group.epoch
