"""C17 with real processes: `kill -9`, SIGSTOP and a full disk under senders that do not wait."""

import asyncio
import contextlib
import os
import random
import shutil
import signal
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from pathlib import Path
from typing import cast

import pytest
from chaos.small_disk import SmallDisk
from tests.process.nodes import NodeProcess
from tests.process.small_disk import NodeInside, disk, free_mib

import moorline
from moorline.client.moor import Moor
from moorline.client.queue import Message
from moorline.errors import CallFailed, ConnectionLost, NodeDiskFull
from moorline.journal.disk import FileDisk
from moorline.journal.queues.files import StoreOptions
from moorline.journal.queues.store import Store
from moorline.limits import MIB
from moorline.net.clock import wall_ms

pytestmark = pytest.mark.process

__all__ = ["disk"]

SMALL = (
    "--set=queues.max_queue_messages=60",
    "--set=queues.max_file_messages=61",
    # The log is checkpointed at half of this: some of the kills meet one.
    "--set=queues.log_bytes_max=1_048_576",
)
QUEUES, BATCH, WINDOW = 4, 24, 600
BODY_BYTES = 2_000


class Ledger:
    """What the client knows of one queue, by the text that each of its messages begins with."""

    def __init__(self, queue_id: bytes) -> None:
        self.id = queue_id
        self.numbers = 0
        self.waiting: list[bytes] = []
        """Sends that were answered and not acknowledged, in the order of their ids."""
        self.maybe_sent: list[bytes] = []
        """Sends without an answer, in the order in which they left."""
        self.maybe_acked = 0
        """Acknowledgements without an answer; they were of the first in `waiting`."""
        self.answered_sends = 0
        self.answered_acks = 0

    def draw(self) -> bytes:
        self.numbers += 1
        return b"%08d " % self.numbers

    def settle(self, found: list[bytes]) -> None:
        """Compares with what a node holds after a kill, and takes it for the truth from now on."""
        assert len(found) == len(set(found)), "a message is there twice"
        gone = len(self.waiting) - sum(name in set(found) for name in self.waiting)
        assert gone <= self.maybe_acked, f"{gone - self.maybe_acked} answered sends are lost"
        kept = self.waiting[gone:]
        assert found[: len(kept)] == kept, "the order changed, or an answered ack was undone"
        rest = found[len(kept) :]
        assert rest == [name for name in self.maybe_sent if name in rest], "a strange message"
        # Of one batch a part may be there only from its beginning on: changes are logged in order.
        assert rest == self.maybe_sent[: len(rest)]
        self.waiting, self.maybe_sent, self.maybe_acked = found, [], 0


def name_of(message: Message) -> bytes:
    return message.body[:9]


async def everything_in(moor: Moor, queue_id: bytes) -> list[Message]:
    """All messages of a queue, as a subscriber gets them; none is acknowledged."""
    queue = moor.queue(queue_id)
    waiting = (await queue.info()).waiting
    reading = cast("AsyncGenerator[Message]", queue.read(window=WINDOW))
    # Closed here, not when it is collected: that could end the next reader's subscription.
    async with asyncio.timeout(20), contextlib.aclosing(reading):
        return [await anext(reading) for _ in range(waiting)] if waiting else []


class Inflow:
    """What a subscriber has been given, by name."""

    def __init__(self) -> None:
        self.held: dict[bytes, Message] = {}
        self._news = asyncio.Event()

    async def collect(self, reading: AsyncIterator[Message]) -> None:
        try:
            async for message in reading:
                self.held[name_of(message)] = message
                self._news.set()
        finally:
            self._news.set()

    async def has(self, names: list[bytes], collecting: "asyncio.Task[None]") -> None:
        while not all(name in self.held for name in names):
            if collecting.done():
                await collecting
            self._news.clear()
            await self._news.wait()


async def work(moor: Moor, ledger: Ledger) -> None:
    """Sends and acknowledges in batches, as fast as it can, until the node is gone."""
    inflow = Inflow()
    queue = moor.queue(ledger.id)
    collecting = asyncio.create_task(inflow.collect(queue.read(window=WINDOW)))
    try:
        while not (await queue.info()).is_subscribed:
            await asyncio.sleep(0)
        while True:
            await _send(moor, ledger)
            # A few stay, so that the queue is seldom empty.
            names = ledger.waiting[:-3][:BATCH]
            await inflow.has(names, collecting)
            await _acknowledge(moor, ledger, [inflow.held.pop(name) for name in names])
    finally:
        collecting.cancel()
        await asyncio.gather(collecting, return_exceptions=True)


async def _send(moor: Moor, ledger: Ledger) -> None:
    room = 55 - len(ledger.waiting)
    names = [ledger.draw() for _ in range(min(BATCH, room))]
    ledger.maybe_sent = names
    answers = await moor.send_all([(ledger.id, name + bytes(BODY_BYTES)) for name in names])
    assert all(isinstance(answer, int) for answer in answers), answers
    ledger.maybe_sent = []
    ledger.waiting += names
    ledger.answered_sends += len(names)


async def _acknowledge(moor: Moor, ledger: Ledger, messages: list[Message]) -> None:
    ledger.maybe_acked = len(messages)
    answers = await moor.ack_all(messages)
    assert answers == [None] * len(messages)
    ledger.maybe_acked = 0
    del ledger.waiting[: len(messages)]
    ledger.answered_acks += len(messages)


async def work_until_lost(address: str, ledgers: list[Ledger]) -> None:
    """One connection for each queue; ends when every one of them has lost its node."""

    async def one(ledger: Ledger) -> None:
        with contextlib.suppress(ConnectionLost):
            async with moorline.connect(address, reconnect=False) as moor:
                await work(moor, ledger)

    await asyncio.gather(*(one(ledger) for ledger in ledgers))


async def settle(address: str, ledgers: list[Ledger]) -> None:
    async with moorline.connect(address, reconnect=False) as moor:
        for ledger in ledgers:
            ledger.settle([name_of(found) for found in await everything_in(moor, ledger.id)])


async def drain(address: str, ledgers: list[Ledger]) -> None:
    """Reads every queue to its end and compares with the client's own record."""
    async with moorline.connect(address, reconnect=False) as moor:
        for ledger in ledgers:
            found = await everything_in(moor, ledger.id)
            assert [name_of(message) for message in found] == ledger.waiting
            assert await moor.ack_all(found) == [None] * len(found)
            assert await moor.queue(ledger.id).get() is None


async def new_ledgers(address: str) -> list[Ledger]:
    async with moorline.connect(address, reconnect=False) as moor:
        return [Ledger(queue.id) for queue in await moor.create_queues(QUEUES)]


def killed_after(node: NodeProcess, seconds: float, ledgers: list[Ledger]) -> None:
    """Lets the clients work and kills the node at that moment."""

    async def scenario() -> None:
        working = asyncio.create_task(work_until_lost(node.address, ledgers))
        await asyncio.wait([working], timeout=seconds)
        node.process.kill()
        await working

    asyncio.run(scenario())
    node.kill()


@pytest.mark.parametrize(
    ("sync", "rounds"),
    [("power", 5), pytest.param("power", 12, marks=pytest.mark.long), ("process", 5)],
)
def test_c17_killed_at_random_moments_under_load(tmp_path: Path, sync: str, rounds: int) -> None:
    """C17: no answered send is lost, none comes twice, no answered ack is undone."""
    chance = random.Random(17)
    flags = (*SMALL, f"--set=queues.sync={sync}")
    ledgers: list[Ledger] = []
    for turn in range(rounds):
        with NodeProcess(tmp_path / "data", *flags) as node:
            if not ledgers:
                ledgers = asyncio.run(new_ledgers(node.address))
            asyncio.run(settle(node.address, ledgers))
            # Soon after the start, and when the log has been checkpointed under load.
            killed_after(node, chance.uniform(0.02, 0.3 if turn % 2 else 1.5), ledgers)
    with NodeProcess(tmp_path / "data", *flags) as node:
        asyncio.run(settle(node.address, ledgers))
        asyncio.run(drain(node.address, ledgers))
        assert node.stop() == 0
        checkpoints = node.errors.count("checkpoint")
    # There was work in every round, and checkpoints in some: else this would say little.
    assert sum(ledger.answered_sends for ledger in ledgers) > 500 * rounds
    assert sum(ledger.answered_acks for ledger in ledgers) > 500 * rounds
    assert checkpoints > 1
    # What was read to its end is empty after a clean stop, too.
    with NodeProcess(tmp_path / "data", *flags) as node:
        for ledger in ledgers:
            ledger.waiting = []
        asyncio.run(settle(node.address, ledgers))


def test_a_stopped_and_continued_node_loses_nothing(tmp_path: Path) -> None:
    """SIGSTOP for a second under load: everybody waits, then everything goes on."""

    async def scenario(node: NodeProcess, ledgers: list[Ledger]) -> None:
        working = asyncio.create_task(work_until_lost(node.address, ledgers))

        async def progress(count: int) -> None:
            goal = sum(ledger.answered_sends for ledger in ledgers) + count
            async with asyncio.timeout(20):
                while sum(ledger.answered_sends for ledger in ledgers) < goal:
                    await asyncio.sleep(0.005)

        await progress(500)
        node.signal(signal.SIGSTOP)
        # The second is the scenario itself: nothing is waited for.
        await asyncio.wait([working], timeout=1)
        stopped = sum(ledger.answered_sends for ledger in ledgers)
        assert not working.done(), "nobody lost the connection"
        node.signal(signal.SIGCONT)
        await progress(500)
        assert sum(ledger.answered_sends for ledger in ledgers) >= stopped + 500
        node.process.kill()
        await working

    with NodeProcess(tmp_path / "data", *SMALL) as node:
        ledgers = asyncio.run(new_ledgers(node.address))
        asyncio.run(scenario(node, ledgers))
        node.kill()
    with NodeProcess(tmp_path / "data", *SMALL) as node:
        asyncio.run(settle(node.address, ledgers))
        asyncio.run(drain(node.address, ledgers))


# --- a full disk ----------------------------------------------------------------------------------


@pytest.fixture
def small_disk_node(disk: SmallDisk, tmp_path: Path) -> Iterator[NodeInside]:
    flags = ("--set=queues.max_queue_messages=500", "--set=queues.max_file_messages=501")
    node = NodeInside(disk, tmp_path / "data", *flags)
    with node:
        yield node


async def fill(moor: Moor, queue_id: bytes, sent: list[bytes], within_s: float) -> None:
    """Sends until the node says that its disk is full."""
    end = time.monotonic() + within_s
    while True:
        assert time.monotonic() < end, "the disk did not get full"
        names = [b"%08d " % (len(sent) + n) for n in range(5)]
        answers = await moor.send_all([(queue_id, name + bytes(16_000)) for name in names])
        for name, answer in zip(names, answers, strict=True):
            if isinstance(answer, int):
                sent.append(name)
        refused = [answer for answer in answers if isinstance(answer, CallFailed)]
        if refused:
            assert {type(answer) for answer in refused} == {NodeDiskFull}
            return
        # Far below the quota: it is the disk that refuses.
        assert len(sent) < 400
        await asyncio.sleep(0.05)


async def taken_again(moor: Moor, queue_id: bytes, sent: list[bytes]) -> None:
    async with asyncio.timeout(10):
        while True:
            name = b"%08d " % len(sent)
            with contextlib.suppress(NodeDiskFull):
                await moor.send(queue_id, name + bytes(100))
                sent.append(name)
                return
            await asyncio.sleep(0.05)


def test_a_nearly_full_disk_refuses_sends_takes_acks_and_recovers(
    small_disk_node: NodeInside, disk: SmallDisk
) -> None:
    """NODE_DISK_FULL to senders, acks pass, nothing answered is lost; with room it goes on."""
    node = small_disk_node

    async def scenario() -> None:
        async with moorline.connect(node.address, reconnect=False) as moor:
            queue = await moor.create_queue()
            sent: list[bytes] = []
            await taken_again(moor, queue.id, sent)
            disk.fill(left_bytes=60 * MIB)
            assert free_mib(disk) < 64
            await fill(moor, queue.id, sent, within_s=10)
            found = await everything_in(moor, queue.id)
            assert [name_of(message) for message in found] == sent
            half = len(found) // 2 + 1
            assert await moor.ack_all(found[:half]) == [None] * half
            del sent[:half]
            numbers = [b"%08d " % (10_000 + n) for n in range(3)]
            with pytest.raises(NodeDiskFull):
                await moor.send(queue.id, numbers[0])
            disk.empty()
            async with asyncio.timeout(10):
                while numbers:
                    with contextlib.suppress(NodeDiskFull):
                        await moor.send(queue.id, numbers[0])
                        sent.append(numbers.pop(0))
                    await asyncio.sleep(0.01)
            found = await everything_in(moor, queue.id)
            assert [name_of(message) for message in found] == sent

    asyncio.run(scenario())
    assert node.process.poll() is None
    assert "messages are refused" in node.errors
    assert "messages are taken again" in node.errors


def test_a_disk_that_is_full_to_the_last_byte_loses_nothing_answered(
    small_disk_node: NodeInside, disk: SmallDisk, tmp_path: Path
) -> None:
    """Somebody else fills the disk at once: what was answered is in the log, whole; the rest waits."""
    node = small_disk_node
    sent: list[bytes] = []

    async def waits(sending: "asyncio.Task[int]") -> bool:
        """Whether the write was the first to know, and not the look at the disk; else it is answered."""
        while not sending.done():
            if "wait for room on the disk" in node.errors:
                return True
            await asyncio.sleep(0.01)
        return False

    async def scenario() -> bytes:
        async with moorline.connect(node.address, reconnect=False) as moor:
            queue = await moor.create_queue()
            sent.append(b"%08d " % 0)
            await moor.send(queue.id, sent[0] + bytes(4_000))
            disk.fill(left_bytes=32 * os.statvfs(disk.outside).f_frsize)
            with contextlib.suppress(NodeDiskFull):
                while len(sent) < 400:
                    name = b"%08d " % len(sent)
                    sending = asyncio.create_task(moor.send(queue.id, name + bytes(4_000)))
                    if await waits(sending):
                        sending.cancel()
                        break
                    await sending
                    sent.append(name)
            assert len(sent) < 400, "the disk did not get full"
            return queue.id

    queue_id = asyncio.run(scenario())
    assert node.process.poll() is None, "it waits for room"
    node.kill()
    shutil.copytree(disk.outside / "data" / "queues", tmp_path / "copy")
    store = Store(FileDisk(tmp_path / "copy"), StoreOptions(queue_messages_max=500), wall_ms)
    store.open()
    queue = store.find(queue_id)
    assert queue is not None
    entries = [store.peek(queue, place) for place in range(queue.size)]
    store.close()
    found = [entry.body[:9] for entry in entries if entry is not None]
    assert found[: len(sent)] == sent
    assert len(found) <= len(sent) + 1, "at most the one without an answer"
