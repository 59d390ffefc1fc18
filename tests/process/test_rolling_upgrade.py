"""Three nodes of an older program are stopped, and started with this one, one after the other, under load."""

import asyncio
import contextlib
import socket
import subprocess
import tarfile
from collections.abc import Awaitable, Callable
from functools import partial
from io import BytesIO
from pathlib import Path

import pytest
from tests.catalog.databases import empty_database
from tests.process.nodes import NodeProcess

import moorline
from moorline.catalog import EmbeddedPostgres
from moorline.client.moor import Moor
from moorline.errors import CallFailed, ConnectionLost, MoorlineError
from moorline.version import SOFTWARE

pytestmark = [pytest.mark.process, pytest.mark.long]

ROOT = Path(__file__).parents[2]
OLDER = "f32389a1"
"""The last commit of 0.1.0: its program, taken from the history, with the packages of this one."""
NODES = 3
TOPIC, GROUP = "upgrade/numbers", "$shared/upgrade/upgrade/#"
LARGE = ("--set=queues.max_queue_messages=900000", "--set=queues.max_file_messages=1000000")


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Path:
    packed = subprocess.run(
        ["git", "archive", OLDER, "src"], cwd=ROOT, capture_output=True, check=False
    )
    if packed.returncode:
        pytest.skip("no history of the program here, as in an sdist or a shallow clone")
    folder = tmp_path_factory.mktemp("older")
    with tarfile.open(fileobj=BytesIO(packed.stdout)) as files:
        files.extractall(folder)  # ours; older Pythons have no filter
    return folder / "src"


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class Sender:
    """Gives numbers, each until it is answered; what was answered is in `answered`."""

    def __init__(self, give: Callable[[int], Awaitable[object]]) -> None:
        self._give = give
        self.answered: list[int] = []
        self.unknown: set[int] = set()
        """Tried again: they may be there more than once where nothing tells duplicates."""
        self.task = asyncio.create_task(self._go_on())

    async def _go_on(self) -> None:
        number = 1
        while True:
            try:
                await self._give(number)
            except (CallFailed, ConnectionLost):
                self.unknown.add(number)
                await asyncio.sleep(0.05)  # as a client does between two tries
                continue
            self.answered.append(number)
            number += 1

    async def has(self, count: int) -> None:
        while len(self.answered) < count:
            assert not self.task.done(), self.task.exception()
            await asyncio.sleep(0.01)

    async def end(self) -> None:
        self.task.cancel()
        await asyncio.wait([self.task])


@pytest.mark.timeout(300)
async def test_nothing_answered_is_lost(
    older: Path, tmp_path: Path, postgres: EmbeddedPostgres
) -> None:
    dsn = await empty_database(postgres)
    ports = [free_port() for _ in range(NODES)]
    addresses = [f"tcp://127.0.0.1:{port}" for port in ports]

    def started(number: int, *before: str) -> NodeProcess:
        return NodeProcess(
            tmp_path / f"n{number}",
            f"--node=n{number}",
            f"--listen={addresses[number]}",
            f"--catalog={dsn}",
            "--set=streams.shards=2",
            *LARGE,
            before=before,
        )

    with contextlib.ExitStack() as stack:
        nodes = [
            stack.enter_context(started(number, "env", f"PYTHONPATH={older}"))
            for number in range(NODES)
        ]
        async with contextlib.AsyncExitStack() as links:
            moors: list[Moor] = [
                await links.enter_async_context(moorline.connect(address)) for address in addresses
            ]
            assert {(await moor.describe()).software for moor in moors} == {"moorline/0.1.0"}
            queues = [await moor.create_queue() for moor in moors]
            await moors[0].group(GROUP).create(start="beginning")
            got: list[int] = []
            reading = asyncio.create_task(read(addresses, got))
            senders = [Sender(partial(send, moors[at], queues[at].id)) for at in range(NODES)]
            publishers = [Sender(partial(publish, moors[at], at)) for at in range(NODES)]
            for at in range(NODES):
                await asyncio.gather(*(one.has(len(one.answered) + 20) for one in senders))
                assert await asyncio.to_thread(nodes[at].stop) == 0
                nodes[at] = stack.enter_context(await asyncio.to_thread(started, at))
            # All of them are answered by the new ones.
            for one in (*senders, *publishers):
                await one.has(len(one.answered) + 20)
                await one.end()
            assert {(await moor.describe()).software for moor in moors} == {SOFTWARE}
            for moor, queue, sender in zip(moors, queues, senders, strict=True):
                await in_queue(moor, queue.id, sender)
            wanted = {(at, number) for at in range(NODES) for number in publishers[at].answered}
            while not wanted <= set(map(divided, got)):
                assert not reading.done(), reading.exception()
                await asyncio.sleep(0.05)
            reading.cancel()
            await asyncio.wait([reading])


async def send(moor: Moor, queue: bytes, number: int) -> None:
    await moor.send(queue, b"%d" % number)


async def publish(moor: Moor, at: int, number: int) -> None:
    """Numbered, so that a second try stores nothing twice."""
    await moor.publish(f"{TOPIC}/{at}", b"%d" % number, producer=f"p{at}", sequence=number)


def divided(body: int) -> tuple[int, int]:
    return divmod(body, 10**9)


async def read(addresses: list[str], got: list[int]) -> None:
    """A member of the group, which goes to another node when its own stops."""
    async with moorline.connect(addresses) as moor:
        async for message in (await moor.subscribe(GROUP)).acking():
            at = int(message.topic.rpartition("/")[2])
            got.append(at * 10**9 + int(message.body))


async def in_queue(moor: Moor, queue: bytes, sender: Sender) -> None:
    """All that was answered is there in order; only what was tried again may be there twice."""
    found: list[int] = []
    with contextlib.suppress(MoorlineError):
        async for message in moor.queue(queue):
            found.append(int(message.body))
            if await message.ack() == 0:
                break
    assert [number for number in dict.fromkeys(found) if number in set(sender.answered)] == (
        sender.answered
    )
    doubled = {number for number in found if found.count(number) > 1}
    assert doubled <= sender.unknown
