"""What the sides of the queue benchmark share, and our own side: a real node and a thin client.

A side is a server in a process of its own, and a client that makes it work as hard as it can: bytes are
prepared before the clock starts, and answers are counted, not matched. The peers' sides are in `peers`.
"""

import asyncio
import contextlib
import os
import re
import selectors
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from moorline.client.connecting import connect
from moorline.config.addresses import Address, listen_address
from moorline.limits import HELLO_TIMEOUT_MS, KEEPALIVE_MS, MIB, QUEUE_WINDOW_MAX
from moorline.net.caller import Caller, open_caller
from moorline.wire.message import Failed, Message
from moorline.wire.queue import (
    Acknowledge,
    Acknowledged,
    Delivery,
    Send,
    Sent,
    Subscribe,
    Subscribed,
)

BODY = b"x" * 100
READY_S_MAX = 60
STOP_S_MAX = 120
SETUP_BATCH = 1_000
"""Queues that are made, or subscribed to, in one call."""

Item = TypeVar("Item")


class Tickets:
    """Who waits for how many answers. Answers come in the order of the calls, so counting is enough."""

    def __init__(self) -> None:
        self._due = 0
        self._paid = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._error: Exception | None = None

    def take(self, count: int) -> "asyncio.Future[None]":
        """Done when so many more answers have come."""
        future = asyncio.get_running_loop().create_future()
        self._due += count
        if self._error is not None:
            future.set_exception(self._error)
        else:
            self._waiting.append((self._due, future))
        return future

    def pay(self, count: int) -> None:
        self._paid += count
        while self._waiting and self._waiting[0][0] <= self._paid:
            self._waiting.popleft()[1].set_result(None)

    def fail(self, error: Exception) -> None:
        self._error = error
        for _, future in self._waiting:
            if not future.done():
                future.set_exception(error)
        self._waiting.clear()


class Side(ABC):
    """A server that runs, and a client of it. Messages go to the queues in turn."""

    name: str
    process: "subprocess.Popen[bytes]"

    @abstractmethod
    async def prepare(self, queues: int, batch: int) -> None:
        """Makes the queues, and all that is sent to them in batches of that size."""

    @abstractmethod
    def send(self, count: int) -> "asyncio.Future[None]":
        """The next so many messages; done when each of them was said to be stored."""

    @abstractmethod
    async def listen(self) -> None:
        """From here on messages are received and acknowledged."""

    @abstractmethod
    async def cycle(self, count: int) -> None:
        """Sends so many; done when as many were received and their acknowledgements answered."""

    @abstractmethod
    async def unlisten(self) -> None:
        """From here on messages stay where they are."""

    @abstractmethod
    async def close(self) -> None:
        """Ends the client, not the server."""

    def stop(self) -> None:
        """Ends the server as its operator would."""
        stop(self.process)

    def kill(self) -> None:
        """Ends the server where it stands; for those whose files nobody will look at."""
        self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


class Ring(list[Item]):
    """What is sent, prepared for each queue in turn; whole batches are cut from it."""

    def __init__(self, make: Callable[[int], Item], queues: int, batch: int) -> None:
        length = -(-max(queues, batch) // batch) * batch
        made = [make(queue) for queue in range(queues)]
        super().__init__(made[place % queues] for place in range(length))
        self._place = 0

    def cut(self, count: int) -> list[Item]:
        if self._place + count > len(self):
            self._place = 0
        self._place += count
        return self[self._place - count : self._place]


class Node(Side):
    """`moor serve` with a folder of its own."""

    def __init__(self, folder: Path, sync: str, *settings: str) -> None:
        self.name = f"sync={sync}"
        self.folder = folder
        started = time.perf_counter()
        self.process, line = _start_node(folder, f"queues.sync={sync}", *settings)
        self.start_s = time.perf_counter() - started
        found = re.search(r"tcp://\S+", line)
        assert found is not None, line
        self._address = listen_address(found[0])
        self._receiver: Receiver | None = None

    async def make_queues(self, count: int) -> list[bytes]:
        async with connect(str(self._address)) as moor:
            made: list[bytes] = []
            while len(made) < count:
                wanted = min(SETUP_BATCH, count - len(made))
                made += [queue.id for queue in await moor.create_queues(wanted)]
        return made

    async def prepare(self, queues: int, batch: int) -> None:
        self._queues = await self.make_queues(queues)
        self._ring = Ring(lambda place: Send(1, self._queues[place], BODY), queues, batch)
        self._sender = await _opened(self._address, Sender)

    def send(self, count: int) -> "asyncio.Future[None]":
        self._sender.send_all(self._ring.cut(count))
        return self._sender.tickets.take(count)

    async def listen(self) -> None:
        window = min(QUEUE_WINDOW_MAX, max(1, 16_384 // len(self._queues)))
        self._receiver = await _opened(self._address, Receiver)
        await self._receiver.subscribe(self._queues, window)

    async def cycle(self, count: int) -> None:
        assert self._receiver is not None
        acknowledged = self._receiver.tickets.take(count)
        await self.send(count)
        await acknowledged

    async def unlisten(self) -> None:
        assert self._receiver is not None
        self._receiver.close("DONE", "the benchmark is done")
        await self._receiver.gone

    async def close(self) -> None:
        self._sender.close("DONE", "the benchmark is done")
        await self._sender.gone


class Counting(Caller):
    """A caller whose answers are only counted. The hello and the pings are the library's."""

    def __init__(self) -> None:
        super().__init__("bench", hello_timeout_ms=HELLO_TIMEOUT_MS, keepalive_ms=KEEPALIVE_MS)
        self.tickets = Tickets()

    def ended(self, code: str, text: str) -> None:
        super().ended(code, text)
        self.tickets.fail(ConnectionError(f"{code}: {text}"))

    def refused(self, messages: Sequence[Message]) -> None:
        found = next((m for m in messages if isinstance(m, Failed)), None)
        self.tickets.fail(ValueError(f"the node said {found or {*map(type, messages)}}"))


class Sender(Counting):
    def received(self, messages: list[Message]) -> None:
        if {*map(type, messages)} != {Sent}:
            self.refused(messages)
        self.tickets.pay(len(messages))


class Receiver(Counting):
    """Acknowledges whatever is delivered."""

    async def subscribe(self, queues: Sequence[bytes], window: int) -> None:
        for start in range(0, len(queues), SETUP_BATCH):
            some = queues[start : start + SETUP_BATCH]
            self.send_all([Subscribe(1, queue, window) for queue in some])
            await self.tickets.take(len(some))

    def received(self, messages: list[Message]) -> None:
        acknowledgements = [
            Acknowledge(1, message.queue, message.message)
            for message in messages
            if type(message) is Delivery
        ]
        self.send_all(acknowledgements)
        if not {*map(type, messages)} <= {Delivery, Acknowledged, Subscribed}:
            self.refused(messages)
        self.tickets.pay(len(messages) - len(acknowledgements))


Kind = TypeVar("Kind", bound=Counting)


async def _opened(address: Address, kind: type[Kind]) -> Kind:
    caller = await open_caller(address, kind, timeout_ms=HELLO_TIMEOUT_MS)
    assert isinstance(caller, kind)
    return caller


# --- processes ------------------------------------------------------------------------------------


def _start_node(folder: Path, *settings: str) -> "tuple[subprocess.Popen[bytes], str]":
    """A node that has said that it is ready, and the line in which it did."""
    command = [sys.executable, "-m", "moorline.cli.main", "serve", f"--data={folder}"]
    command += ["--listen=tcp://127.0.0.1:0", "--http=off"]
    for setting in settings:
        command += ["--set", setting]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MOOR_")}
    with folder.with_suffix(".stderr").open("ab") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, env=environment)
    assert process.stdout is not None
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        line = process.stdout.readline().decode() if selector.select(READY_S_MAX) else ""
    if " ready: " not in line:
        stop(process)
        raise SystemExit(f"bench: no node: {folder.with_suffix('.stderr').read_text()[-2_000:]}")
    return process, line


def stop(process: "subprocess.Popen[bytes]") -> None:
    """Ends a process that we started, by its own id."""
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_S_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()


def cpu_s(pid: int) -> float:
    """CPU seconds of a process so far, its threads included, its children not."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rss_mib(pid: int) -> float:
    """Memory of a process alone that is in RAM."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / MIB


def disk_bytes(folder: Path) -> tuple[int, int]:
    """What the files in a folder hold, and what they and their folders take in blocks."""
    apparent = blocks = 0
    for path in folder.rglob("*"):
        found = path.lstat()
        apparent += found.st_size if path.is_file() else 0
        blocks += found.st_blocks * 512
    return apparent, blocks
