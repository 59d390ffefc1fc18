"""Losses of streams that lie on one node, told to readers on another."""

import asyncio
import time
from collections import Counter

import pytest
from tests.cluster.running import PATIENT, WITHIN_S, Nodes
from tests.waiting import until

import moorline
from moorline.client.moor import Moor
from moorline.client.topic import Subscription

pytestmark = pytest.mark.process

GENERATION_BYTES = 8_192
SETTINGS = PATIENT | {
    "streams.shards": 1,
    "streams.generation_bytes_max": GENERATION_BYTES,
    "streams.retention_bytes": 3 * GENERATION_BYTES,
    "groups.lock_ms": 60_000,
    "groups.revoke_ms": 60_000,
    "groups.idle_ms": 200,
}


class Slow:
    """Takes what comes, and acknowledges nothing until it is told to."""

    def __init__(self, subscription: Subscription) -> None:
        self.subscription = subscription
        self.got: Counter[int] = Counter()
        self._waiting = asyncio.Event()
        self._task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for message in self.subscription:
            if message.stream is not None and message.stream.home == "a":
                self.got[message.offset] += 1
            await self._waiting.wait()
            await message.ack()

    def go_on(self) -> None:
        self._waiting.set()

    def lost(self) -> Counter[int]:
        return Counter(
            offset
            for one in self.subscription.lost
            if one.shard == "a/0"
            for offset in range(one.first, one.upto)
        )

    def knows(self, count: int) -> bool:
        return set(self.got) | set(self.lost()) == set(range(count))

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])


async def fill(moor: Moor, count: int) -> None:
    for number in range(count):
        await moor.publish("far", (b"%06d" % number).ljust(500, b"."))


async def test_readers_on_another_node_are_told_of_all_that_they_did_not_acknowledge(
    nodes: Nodes,
) -> None:
    a, b = await nodes.start("a", "b", settings=SETTINGS)
    groups = ("$shared/g/far", "$queue/g/far")
    async with (
        moorline.connect(a.address, reconnect=False) as writer,
        moorline.connect(b.address, reconnect=False) as reader,
    ):
        for name in (*groups, "$shared/late/far"):
            await reader.group(name).create(start="beginning")
        slow = [Slow(await reader.subscribe(name, window=4)) for name in ("far", *groups)]
        for name in groups:
            await until(lambda name=name: has_member(reader, name))  # type: ignore[misc]
        await fill(writer, 100)
        end = time.monotonic() + WITHIN_S
        while min(one.first for one in (await writer.streams()).streams) < 40:
            assert time.monotonic() < end, "retention did not take it"
            await asyncio.sleep(0.02)
        # Each has a little in hand, and is told of the rest.
        for one in slow:
            await until(lambda one=one: len(one.lost()) >= 30)  # type: ignore[misc]
            one.go_on()
        late = Slow(await reader.subscribe("$shared/late/far"))
        late.go_on()
        for one in (*slow, late):
            await until(lambda one=one: one.knows(100))  # type: ignore[misc]
            assert set(one.lost().values()) == {1}, "told twice"
            assert not set(one.got) & set(one.lost()), "acknowledged, and told to be lost"
        for name, one in zip((*groups, "$shared/late/far"), (*slow[1:], late), strict=True):
            await until(lambda name=name, one=one: counts(reader, name, len(one.lost())))  # type: ignore[misc]
        for one in (*slow, late):
            await one.stop()


async def has_member(moor: Moor, group: str) -> bool:
    return bool((await moor.group(group).info()).members)


async def counts(moor: Moor, group: str, lost: int) -> bool:
    found = await moor.group(group).info()
    return sum(cursor.lost for cursor in found.cursors) == lost and not any(
        cursor.lag for cursor in found.cursors
    )
