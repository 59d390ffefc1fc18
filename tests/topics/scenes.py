"""What the scenarios of topics and groups share: small times, and readers that keep what they got."""

import asyncio
import re
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Self

from tests.process.nodes import NodeProcess
from tests.waiting import until

import moorline
from moorline.client.moor import Moor
from moorline.client.topic import Subscription, TopicMessage
from moorline.wire.group import GroupDescribed

SHARDS = 4

SMALL = (
    f"--set=streams.shards={SHARDS}",
    "--set=streams.sync=process",
    "--set=groups.lease_ms=20000",
    "--set=groups.ping_ms=200",
    "--set=groups.member_timeout_ms=60000",
    "--set=groups.revoke_ms=3000",
    "--set=groups.rebalance_ms=20",
    "--set=groups.commit_ms=10",
    "--set=groups.idle_ms=300",
    "--set=groups.lock_ms=3000",
)
"""Short where a scenario waits for it; long where only a machine that is too busy would run into it."""

WITHIN_S = 20


def without(flags: Iterable[str], *settings: str) -> list[str]:
    """The flags but those of some settings, which a test gives by itself."""
    return [
        flag for flag in flags if not flag.startswith(tuple(f"--set={one}=" for one in settings))
    ]


class Reader:
    """Reads a subscription to its end, acknowledges or not, and keeps what it got."""

    def __init__(self, subscription: Subscription, *, acks: bool = True) -> None:
        self.subscription = subscription
        self.acks = acks
        self.got: list[TopicMessage] = []
        self.ended = ""
        self._task = asyncio.create_task(self._read())

    @property
    def bodies(self) -> list[bytes]:
        return [message.body for message in self.got]

    async def _read(self) -> None:
        try:
            async for message in self.subscription:
                self.got.append(message)
                if self.acks:
                    await message.ack()
        except moorline.SubscriptionEnded as error:
            self.ended = error.reason
        except moorline.ConnectionLost:
            self.ended = "LOST"

    async def until(self, condition: Callable[[Self], bool]) -> None:
        await until(lambda: condition(self))

    async def has(self, bodies: Iterable[bytes]) -> None:
        """Waits until it has got each of these once, and nothing else."""
        wanted = Counter(bodies)
        await until(lambda: Counter(self.bodies) == wanted)

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])


async def described(
    moor: Moor, group: str, condition: Callable[[GroupDescribed], bool]
) -> GroupDescribed:
    """The group, once that is true of it."""
    end = time.monotonic() + WITHIN_S
    while not condition(found := await moor.group(group).info()):
        assert time.monotonic() < end, f"it did not come true in time: {found}"
        await asyncio.sleep(0.01)
    return found


def is_done(group: GroupDescribed) -> bool:
    return all(cursor.lag == 0 for cursor in group.cursors)


def is_shared_by(count: int) -> Callable[[GroupDescribed], bool]:
    """That many members are there, everything is granted, and nobody has two more than another."""

    def is_so(group: GroupDescribed) -> bool:
        streams = [member.streams for member in group.members]
        return (
            len(streams) == count
            and all(cursor.status == "granted" for cursor in group.cursors)
            and max(streams) - min(streams) <= 1
        )

    return is_so


async def publish_all(moor: Moor, topic: str, bodies: Iterable[bytes], topics: int = 16) -> None:
    """Over so many topics that every shard has some."""
    records = [
        moorline.record(f"{topic}/{number % topics}", body) for number, body in enumerate(bodies)
    ]
    await moor.publish_all(records)


def numbered(count: int, first: int = 0) -> list[bytes]:
    return [b"%06d" % number for number in range(first, first + count)]


def each_once(readers: Iterable[Reader], bodies: Iterable[bytes]) -> bool:
    found = Counter(body for reader in readers for body in reader.bodies)
    return found == Counter(bodies)


def all_there(readers: Iterable[Reader], bodies: Iterable[bytes]) -> bool:
    return set(bodies) <= {body for reader in readers for body in reader.bodies}


async def metric(http: str, name: str) -> float:
    """One figure of a node's /metrics."""

    def fetch() -> str:
        with urllib.request.urlopen(f"{http}/metrics", timeout=10) as answer:
            text: str = answer.read().decode()
            return text

    found = re.search(rf"^moorline_{name} (\S+)$", await asyncio.to_thread(fetch), re.MULTILINE)
    assert found is not None, name
    return float(found[1])


def mistakes(node: NodeProcess) -> list[str]:
    """What the node's log has of mistakes of its own."""
    return [line for line in node.errors.splitlines() if " error " in line[:16]]


async def die(moor: Moor) -> None:
    """Cuts the connection as the death of a client does: without a word."""
    moor._caller.abort()
    await moor._caller.gone
