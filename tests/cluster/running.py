"""Several real nodes with one catalog, members that write down what they get, publishers that try again."""

import asyncio
import contextlib
import re
import signal
import time
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

from tests.process.nodes import NodeProcess
from tests.waiting import until

import moorline
from moorline.catalog import Catalog
from moorline.catalog.groups import Groups
from moorline.client.moor import Moor
from moorline.client.topic import Subscription, TopicMessage
from moorline.core.delivery.progress import Cursor
from moorline.core.stream import Shard
from moorline.core.topic import shared_name
from moorline.errors import CallFailed, HomeAway, MoorlineError, NotFound
from moorline.groups.cursor_commits import CursorCommits

LEASE_MS = 600
SMALL: dict[str, object] = {
    "groups.lease_ms": LEASE_MS,
    "groups.ping_ms": 100,
    "groups.member_timeout_ms": 500,
    "groups.rebalance_ms": 10,
    "streams.shards": 4,
    "streams.sync": "process",
}
"""Everything that waits for a fault to be noticed, made short."""

PATIENT = SMALL | {"groups.lease_ms": 5_000, "groups.member_timeout_ms": 60_000}
"""For counts that must be exact: nobody is taken for dead because the machine is busy."""

WITHIN_S = 20


class Nodes:
    """Nodes by their names; one that was killed can be started again on its folder."""

    def __init__(self, dsn: str, folder: Path) -> None:
        self.dsn = dsn
        self._folder = folder
        self._running: dict[str, NodeProcess] = {}

    def __getitem__(self, name: str) -> NodeProcess:
        return self._running[name]

    async def start(
        self,
        *names: str,
        settings: Mapping[str, object] = SMALL,
        dsn: str | None = None,
        flags: Sequence[str] = (),
    ) -> list[NodeProcess]:
        """Side by side; returns when all are ready and have found each other."""
        given = [
            *(f"--set={key}={value}" for key, value in settings.items()),
            f"--catalog={dsn or self.dsn}",
            *flags,
        ]
        await asyncio.gather(*(self._start(name, given) for name in names))
        await self.linked()
        return [self._running[name] for name in names]

    async def _start(self, name: str, flags: Sequence[str]) -> None:
        self._running[name] = await asyncio.to_thread(
            NodeProcess, self._folder / name, f"--node={name}", *flags
        )

    async def linked(self) -> None:
        """Waits until every node has a link to every other."""
        for name, node in self.alive().items():
            others = [other for other in self.alive() if other != name]
            await until(
                lambda node=node, others=others: set(others) <= links_of(node.errors),  # type: ignore[misc]
                what=f"links of {name} to {others}",
            )

    def alive(self) -> dict[str, NodeProcess]:
        return {name: node for name, node in self._running.items() if node.process.poll() is None}

    async def __aenter__(self) -> "Nodes":
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for node in self.alive().values():
            node.signal(signal.SIGCONT)
            node.signal(signal.SIGTERM)
        for node in self._running.values():
            await asyncio.to_thread(node.process.wait, 30)
            assert node.process.stdout is not None
            node.process.stdout.close()
            if kind is None:
                check_log(node.errors)


async def is_found(client: moorline.Moor, queue: bytes) -> bool:
    """What a node knows of homes may be some seconds old."""
    with contextlib.suppress(NotFound, HomeAway):
        await client.queue(queue).info()
        return True
    return False


def links_of(log: str) -> set[str]:
    """The nodes that a log says there is a link to."""
    linked: set[str] = set()
    for line in log.splitlines():
        if found := re.search(r"(linked|link lost)\b.*\bnode=(\S+)", line):
            if found[1] == "linked":
                linked.add(found[2])
            else:
                linked.discard(found[2])
    return linked


def check_log(log: str) -> None:
    """No mistakes of ours are in it."""
    assert "Traceback" not in log, log
    assert "a task failed" not in log, log
    assert "a Leader failed" not in log, log


def metric(node: NodeProcess, name: str) -> float:
    with urllib.request.urlopen(f"{node.http}/metrics", timeout=5) as answer:
        text = answer.read().decode()
    found = re.search(rf"^moorline_{name}(?:\{{.*\}})? (\S+)$", text, re.MULTILINE)
    assert found is not None, f"{name} is not in\n{text}"
    return float(found[1])


class Got:
    """What all members of a group got, in the order in which they got it."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, TopicMessage]] = []

    def bodies(self) -> list[bytes]:
        return [message.body for _, message in self.messages]

    def of(self, member: str) -> list[bytes]:
        return [message.body for name, message in self.messages if name == member]

    def repeated(self, since: int) -> list[TopicMessage]:
        """Deliveries, from a place in the order on, of what was delivered before."""
        seen: set[bytes] = set()
        found = []
        for place, (_, message) in enumerate(self.messages):
            if message.body in seen and place >= since:
                found.append(message)
            seen.add(message.body)
        return found

    async def has(self, bodies: Sequence[bytes], *, within_s: float = WITHIN_S) -> None:
        wanted = set(bodies)
        end = time.monotonic() + within_s
        while missing := wanted - set(self.bodies()):
            assert time.monotonic() < end, f"{len(missing)} missing, such as {sorted(missing)[:5]}"
            await asyncio.sleep(0.02)

    def is_exactly(self, bodies: Sequence[bytes]) -> None:
        """Each of them once."""
        assert Counter(self.bodies()) == Counter(bodies)

    def is_all(self, bodies: Sequence[bytes], *, once: Sequence[bytes]) -> None:
        """Each of them; those that were stored before a fault once, the others perhaps again."""
        times = Counter(self.bodies())
        assert set(times) == set(bodies)
        assert not [body for body in once if times[body] != 1]


class Member:
    """A client that takes part in a group."""

    def __init__(self, name: str, moor: Moor, subscription: Subscription, got: Got) -> None:
        self.name = name
        self.moor = moor
        self.acks = asyncio.Event()
        """While it is not set, messages are taken and not acknowledged."""
        self._subscription = subscription
        self._got = got
        self._unacked: list[TopicMessage] = []
        self._task = asyncio.create_task(self._work())

    async def _work(self) -> None:
        with contextlib.suppress(MoorlineError):
            async for message in self._subscription:
                self._got.messages.append((self.name, message))
                if self.acks.is_set():
                    await message.ack()
                else:
                    self._unacked.append(message)

    async def ack_all(self) -> None:
        """Acknowledges what it holds, and from now on whatever comes."""
        self.acks.set()
        for message in self._unacked:
            await message.ack()
        self._unacked.clear()

    async def leave(self) -> None:
        """Goes in peace."""
        self._task.cancel()
        await asyncio.wait([self._task])
        await self.moor.close()

    @property
    def is_over(self) -> bool:
        return self._task.done()


async def join(
    node: NodeProcess,
    group: str,
    got: Got,
    name: str,
    *,
    window: int = 64,
    start: str = "now",
    acks: bool = True,
) -> Member:
    moor = await moorline.connect(node.address, reconnect=False)
    member = Member(name, moor, await moor.subscribe(group, window=window, start=start), got)
    if acks:
        member.acks.set()
    return member


@contextlib.asynccontextmanager
async def members(*joining: Awaitable[Member]) -> AsyncIterator[list[Member]]:
    """Several, who leave at the end."""
    joined = [await one for one in joining]
    try:
        yield joined
    finally:
        for member in joined:
            await member.leave()


class Publisher:
    """Publishes numbered messages with some keys, and tries again what was not answered."""

    def __init__(self, name: str, topic: str, keys: int = 4) -> None:
        self.name = name
        self.sent: list[bytes] = []
        """What was answered."""
        self._topic = topic
        self._keys = keys
        self._stop = asyncio.Event()

    def stop(self) -> None:
        self._stop.set()

    async def run(self, address: Callable[[], str], *, count: int | None = None) -> None:
        """Until it is stopped or has sent that many; `address` is asked whenever it must connect."""
        while not self._is_done(count):
            try:
                async with moorline.connect(address(), reconnect=False) as moor:
                    while not self._is_done(count):
                        await self._publish(moor, len(self.sent))
            except (MoorlineError, KeyError):
                await asyncio.sleep(0.02)  # the node is down: it is tried again until it is back

    async def _publish(self, moor: Moor, number: int) -> None:
        key = f"{self.name}-{number % self._keys}"
        body = f"{key} {number:06}".encode()
        await moor.publish(self._topic, body, key=key, producer=self.name, sequence=number + 1)
        self.sent.append(body)

    def _is_done(self, count: int | None) -> bool:
        return self._stop.is_set() or (count is not None and len(self.sent) >= count)


async def publish(node: NodeProcess, topic: str, bodies: Sequence[bytes]) -> None:
    """All of them, each with its own key, so that they spread over the shards."""
    async with moorline.connect(node.address, reconnect=False) as moor:
        await moor.publish_all([moorline.record(topic, body, key=body) for body in bodies])


def numbered(prefix: str, count: int) -> list[bytes]:
    return [f"{prefix} {number:06}".encode() for number in range(count)]


async def leader_of(node: NodeProcess, group: str) -> str:
    """The node that leads, as another one says; empty if none does."""
    async with moorline.connect(node.address, reconnect=False) as moor:
        try:
            return (await moor.group(group).info()).group.leader
        except CallFailed:
            return ""


async def led_by(node: NodeProcess, group: str, *names: str, within_s: float = WITHIN_S) -> None:
    """Waits until one of these leads."""

    async def is_led() -> bool:
        return await leader_of(node, group) in names

    await until(is_led, within_s=within_s, what=f"a Leader among {names}")


async def lag_of(node: NodeProcess, group: str) -> int:
    async with moorline.connect(node.address, reconnect=False) as moor:
        return sum(cursor.lag for cursor in (await moor.group(group).info()).cursors)


async def all_done(node: NodeProcess, group: str) -> None:
    """Waits until the group has nothing left to do."""

    async def is_done() -> bool:
        try:
            return await lag_of(node, group) == 0
        except MoorlineError:
            return False

    await until(is_done, what=f"{group} is done")


async def stored_cursors(dsn: str, group: str) -> dict[Shard, Cursor]:
    """What the catalog has of a group, whoever leads it."""
    name = shared_name(group)
    assert name is not None
    async with Catalog.open(dsn) as catalog:
        row = await Groups(catalog).find(name)
        assert row is not None
        return dict(await CursorCommits(Groups(catalog)).load(row.reader))


def is_stored(cursors: dict[Shard, Cursor], message: TopicMessage) -> bool:
    """Whether a message is done for good by these places."""
    assert message.stream is not None
    cursor = cursors.get(message.stream.shard, Cursor(0))
    return message.offset < cursor.offset or any(
        first <= message.offset < upto for first, upto in cursor.acked
    )


async def all_stored(dsn: str, group: str, got: Got) -> None:
    """Waits until the catalog has all that members got as done."""

    async def is_all_stored() -> bool:
        cursors = await stored_cursors(dsn, group)
        return all(is_stored(cursors, message) for _, message in got.messages)

    await until(is_all_stored, what=f"all of {group} is stored")


def in_order(bodies: Sequence[bytes]) -> None:
    """First deliveries of each key are in the order of publishing."""
    last: dict[bytes, bytes] = {}
    seen: set[bytes] = set()
    for body in bodies:
        if body not in seen:
            seen.add(body)
            key = body.split()[0]
            assert last.get(key, b"") < body, f"{body!r} came behind {last[key]!r}"
            last[key] = body
