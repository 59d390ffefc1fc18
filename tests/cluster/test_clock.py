"""X19: a clock that jumps changes nothing: timers do not look at it, and messages' times never go back."""

import time
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from tests.cluster.running import SMALL, Got, until

import moorline
from moorline.client.moor import Moor
from moorline.config.load import load
from moorline.node.node import Node

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


async def test_x19_a_clock_jump_changes_nothing(
    dsn: str, tmp_path: Path, wall_clock: WallClock
) -> None:
    flags = {
        "data": str(tmp_path / "a"),
        "node": "a",
        "listen": "tcp://127.0.0.1:0",
        "http": "off",
        "catalog": dsn,
        **SMALL,
    }
    config = load({key: str(value) for key, value in flags.items()}, {}, None).config
    async with AsyncExitStack() as stack:
        node = Node(config)
        await node.start(stack)
        moor = await stack.enter_async_context(moorline.connect(str(node.addresses[0])))
        leads = await _epoch(moor)
        got = Got()
        subscription = await moor.subscribe(GROUP)
        for turn, jump_ns in enumerate((0, DAY_NS, -DAY_NS, 0)):
            wall_clock.jump_ns = jump_ns
            before = time.monotonic()
            for number in range(20):
                await moor.publish("orders/eu", b"%d %d" % (turn, number), key=b"one")
                message = await subscription.get(5)
                assert message is not None
                got.messages.append(("a", message))
                await message.ack()
            # Long enough for a lease to run out, if it were counted on the wrong clock.
            await until(lambda before=before: time.monotonic() - before > 0.8)  # type: ignore[misc]
        assert await _epoch(moor) == leads + 1, "the first Leader still leads"
    times = [message.time_us for _, message in got.messages]
    assert times == sorted(times)
    assert got.bodies() == [b"%d %d" % (turn, number) for turn in range(4) for number in range(20)]
    assert all(message.deliveries == 1 for _, message in got.messages)


async def _epoch(moor: Moor) -> int:
    group = moor.group(GROUP)
    await group.create()
    return (await group.info()).group.epoch
