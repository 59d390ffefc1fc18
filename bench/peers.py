"""The peers of the benchmarks, Redis Streams and NATS JetStream: started, stopped, and called raw.

Their own client libraries would be slower than they are, so each has a client that knows just the bytes
it needs: commands are joined before they are written, replies are counted by their line ends. Bodies hold
no line ends, and every reply is of a shape that is known before it comes; anything else ends the run.
"""

import asyncio
import contextlib
import json
import os
import random
import shutil
import socket
import subprocess
import sys
import time
from collections import Counter, deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

from bench.queue_client import BODY, SETUP_BATCH, Ring, Side, Tickets

PACKAGES = {
    "redis-server": "redis-server",
    "nats-server": "nats-server",
    "mosquitto": "mosquitto",
}
"""Debian's package of each binary."""

START_S_MAX = 60
REQUEST_S = 0.2
LINE_END = b"\r\n"


def installed(binary: str) -> bool:
    """Whether a peer's server is here; installs Debian's package of it where we may."""
    if shutil.which(binary):
        return True
    root = [] if os.geteuid() == 0 else ["sudo", "-n"]
    # A package that starts a service would disturb what is measured: policy-rc.d's answer is no.
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    for command in (
        ["apt-get", "update", "-qq"],
        ["apt-get", "install", "-y", "-qq", "--no-install-recommends", PACKAGES[binary]],
    ):
        if shutil.which("apt-get") is None or (root and shutil.which("sudo") is None):
            break
        done = subprocess.run(
            [*root, *command], env=environment, capture_output=True, check=False, timeout=300
        )
        if done.returncode:
            break
    if shutil.which(binary):
        _stop_service(root, PACKAGES[binary])
        return True
    print(f"bench: {binary} is not here and cannot be installed: left out", file=sys.stderr)
    return False


def _stop_service(root: list[str], service: str) -> None:
    if Path("/run/systemd/system").exists():
        subprocess.run([*root, "systemctl", "stop", service], capture_output=True, check=False)


class Lines(asyncio.Protocol):
    """A connection that is written to in bulk and read in whole lines."""

    def __init__(self, heard: Callable[[bytes], None], tickets: Tickets) -> None:
        self._heard = heard
        self._tickets = tickets
        self._tail = b""
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        # The bench bounds what is under way; the transport need not.
        self.transport.set_write_buffer_limits(high=1 << 30)

    def data_received(self, data: bytes) -> None:
        if self._tail:
            data = self._tail + data
        end = data.rfind(LINE_END) + len(LINE_END)
        if end < len(LINE_END):
            self._tail = data
            return
        self._tail = data[end:]
        self.heard(data[:end] if self._tail else data)

    def heard(self, block: bytes) -> None:
        self._heard(block)

    def connection_lost(self, exc: Exception | None) -> None:
        self._tickets.fail(exc or ConnectionError("the peer has closed the connection"))

    def write(self, data: bytes) -> None:
        assert self.transport is not None
        self.transport.write(data)

    def close(self) -> None:
        assert self.transport is not None
        self.transport.close()


Made = TypeVar("Made", bound=Lines)


async def opened(port: int, make: Callable[[], Made]) -> Made:
    """A connection to a server that may just be starting."""
    loop = asyncio.get_running_loop()
    end = time.monotonic() + START_S_MAX
    while True:
        try:
            return (await loop.create_connection(make, "127.0.0.1", port))[1]
        except OSError:
            if time.monotonic() > end:
                raise
            await asyncio.sleep(0.002)


def free_port() -> int:
    """A port that is free now and that no connection is given by chance, not even ours to a starting
    server: below those that Linux hands out."""
    while True:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def start_server(folder: Path, *command: str) -> "subprocess.Popen[bytes]":
    with folder.with_suffix(".log").open("ab") as log:
        return subprocess.Popen(command, stdout=log, stderr=log)


# --- Redis ----------------------------------------------------------------------------------------


def command(*parts: bytes) -> bytes:
    """A command as Redis wants it: the count of its parts, and each with its length."""
    encoded = b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)
    return b"*%d\r\n%s" % (len(parts), encoded)


class Redis(Side):
    """A stream with a consumer group for each queue: XADD, XREADGROUP, XACK."""

    def __init__(self, folder: Path, appendfsync: str) -> None:
        self.name = f"redis-{appendfsync}"
        self.folder = folder
        folder.mkdir(exist_ok=True)
        self.port = free_port()
        options = ["--save", "", "--appendonly", "yes", "--appendfsync", appendfsync]
        where = ["--bind", "127.0.0.1", "--port", str(self.port), "--dir", str(folder)]
        self._started = time.perf_counter()
        self.process = start_server(folder, "redis-server", *where, *options)
        self._sent = Replies()
        self._read = Replies()

    async def ready(self) -> float:
        """Waits until commands are answered; returns the seconds since the start."""
        self._out = await opened(self.port, lambda: Lines(self._sent.heard, self._sent.tickets))
        while True:
            self._out.write(command(b"PING"))
            if (await self._sent.take(1))[0] == b"+PONG":
                return time.perf_counter() - self._started
            await asyncio.sleep(0.005)

    async def make_queues(self, count: int) -> None:
        await self.ready()
        for start in range(0, count, SETUP_BATCH):
            some = [self._key(queue) for queue in range(start, min(count, start + SETUP_BATCH))]
            self._out.write(
                b"".join(command(b"XGROUP", b"CREATE", k, b"g", b"$", b"MKSTREAM") for k in some)
            )
            await self._sent.take(len(some))

    async def prepare(self, queues: int, batch: int) -> None:
        await self.make_queues(queues)
        self._queues = queues
        self._ring = Ring(
            lambda queue: command(b"XADD", self._key(queue), b"*", b"b", BODY), queues, batch
        )
        self._keys = Ring(self._key, queues, batch)

    def send(self, count: int) -> "asyncio.Future[None]":
        self._out.write(b"".join(self._ring.cut(count)))
        return self._sent.tickets.take(2 * count)  # a length and an id for each

    async def listen(self) -> None:
        self._in = await opened(self.port, lambda: Lines(self._read.heard, self._read.tickets))

    async def cycle(self, count: int) -> None:
        counts = Counter(self._keys.cut(count))
        await self.send(count)
        # Each key has so many new entries for us, now that they are stored: COUNT is for each stream.
        keys, (each, *others) = list(counts), {*counts.values()}
        assert not others, "a batch has as many messages for each of its queues"
        read = [b"XREADGROUP", b"GROUP", b"g", b"c", b"COUNT", b"%d" % each, b"STREAMS"]
        self._in.write(command(*read, *keys, *[b">"] * len(keys)))
        lines = await self._read.take(1 + len(keys) * (4 + each * 8))
        acknowledge = []
        for place in range(1, len(lines), 4 + each * 8):
            # *2, length, key, *each; then for each entry *2, length, id, *2, two fields
            ids = lines[place + 6 : place + 4 + each * 8 : 8]
            acknowledge.append(command(b"XACK", lines[place + 2], b"g", *ids))
        self._in.write(b"".join(acknowledge))
        answers = await self._read.take(len(acknowledge))
        assert answers.count(b":%d" % each) == len(acknowledge), "Redis did not take an XACK"

    async def unlisten(self) -> None:
        self._in.close()

    async def close(self) -> None:
        self._out.close()

    def _key(self, queue: int) -> bytes:
        return b"q:%06d" % queue


class Replies:
    """Counts lines of replies for those who need no more, and keeps them for those who read them."""

    def __init__(self) -> None:
        self.tickets = Tickets()
        self._readers: deque[tuple[int, asyncio.Future[list[bytes]]]] = deque()
        self._lines: list[bytes] = []

    async def take(self, count: int) -> list[bytes]:
        """The next so many lines; not to be mixed with tickets that are still open."""
        future: asyncio.Future[list[bytes]] = asyncio.get_running_loop().create_future()
        self._readers.append((count, future))
        return await future

    def heard(self, block: bytes) -> None:
        if (block.startswith(b"-") or b"\n-" in block) and b"-LOADING" not in block:
            self.tickets.fail(ValueError(f"the peer said {block[:200]!r}"))
        if not self._readers:
            self.tickets.pay(block.count(LINE_END))
            return
        self._lines += block.split(LINE_END)[:-1]
        while self._readers and len(self._lines) >= self._readers[0][0]:
            count, future = self._readers.popleft()
            future.set_result(self._lines[:count])
            del self._lines[:count]


# --- NATS -----------------------------------------------------------------------------------------


class Nats(Side):
    """One stream in files with a subject for each queue, and one push consumer for all of them."""

    ANSWERS = b"stored"
    DELIVERIES = b"deliver"
    DONE = b"done"
    API = b"api"

    def __init__(self, folder: Path) -> None:
        self.name = "nats"
        self.folder = folder
        folder.mkdir(exist_ok=True)
        self.port = free_port()
        where = ["-a", "127.0.0.1", "-p", str(self.port)]
        self.process = start_server(folder, "nats-server", *where, "-js", "-sd", str(folder))
        self._stored = Tickets()
        self._done = Tickets()
        self._replies: list[bytes] = []
        self._reply = asyncio.Event()

    async def open_interface(self) -> None:
        """Connects what `request` speaks through."""
        self.api = await self.subscribed(self._heard_api, Tickets(), self.API)

    async def prepare(self, queues: int, batch: int) -> None:
        await self.open_interface()
        self._out = await self.subscribed(self._heard_answers, self._stored, self.ANSWERS)
        await self.request(
            "STREAM.CREATE.Q",
            {"name": "Q", "subjects": ["q.*"], "storage": "file", "retention": "limits"},
        )
        self._ring = Ring(
            lambda queue: b"PUB q.%06d %s %d\r\n%s\r\n" % (queue, self.ANSWERS, len(BODY), BODY),
            queues,
            batch,
        )

    def send(self, count: int) -> "asyncio.Future[None]":
        self._out.write(b"".join(self._ring.cut(count)))
        return self._stored.take(count)

    async def listen(self) -> None:
        subjects = (self.DELIVERIES, self.DONE)
        self._in = await self.subscribed(self._heard_deliveries, self._done, *subjects)
        config = {
            "durable_name": "C",
            "deliver_subject": self.DELIVERIES.decode(),
            "deliver_policy": "new",
            "ack_policy": "explicit",
            "max_ack_pending": 1_000_000,
        }
        await self.request("CONSUMER.DURABLE.CREATE.Q.C", {"stream_name": "Q", "config": config})

    async def cycle(self, count: int) -> None:
        done = self._done.take(count)
        await self.send(count)
        await done

    async def unlisten(self) -> None:
        await self.request("CONSUMER.DELETE.Q.C", None)
        self._in.close()

    async def close(self) -> None:
        self._out.close()
        self.api.close()

    async def subscribed(
        self, heard: Callable[[bytes], None], tickets: Tickets, *subjects: bytes
    ) -> "NatsLines":
        lines = await opened(self.port, lambda: NatsLines(heard, tickets))
        lines.write(b'CONNECT {"verbose":false,"pedantic":false,"protocol":1}\r\n')
        for number, subject in enumerate(subjects, 1):
            lines.write(b"SUB %s %d\r\n" % (subject, number))
        return lines

    async def request(self, subject: str, body: object) -> dict[str, Any]:
        """A call of JetStream's own interface; it may still be starting."""
        end = time.monotonic() + START_S_MAX
        data = json.dumps(body).encode() if body else b""
        head = b"PUB $JS.API.%s %s %d\r\n" % (subject.encode(), self.API, len(data))
        while True:
            self._replies.clear()
            self._reply.clear()
            self.api.write(head + data + LINE_END)
            try:
                await asyncio.wait_for(self._reply.wait(), REQUEST_S)
            except TimeoutError:
                if time.monotonic() > end:
                    raise
                continue
            answer: dict[str, Any] = json.loads(self._replies[-1])
            if "error" in answer:
                raise ValueError(f"NATS refused {subject}: {answer['error']}")
            return answer

    def _heard_api(self, block: bytes) -> None:
        self._replies += [line for line in block.split(LINE_END) if line.startswith(b"{")]
        if self._replies:
            self._reply.set()

    def _heard_answers(self, block: bytes) -> None:
        if b'"error"' in block:
            self._stored.fail(ValueError(f"NATS said {block[:200]!r}"))
        self._stored.pay(block.count(b'{"stream"'))

    def _heard_deliveries(self, block: bytes) -> None:
        """`MSG q.7 1 $JS.ACK.… 100`: the fourth word is where its acknowledgement goes."""
        heads = [line for line in block.split(LINE_END) if line.startswith(b"MSG ")]
        acknowledge = [
            # With a subject for the answer: an acknowledgement that nobody confirms proves nothing.
            b"PUB %s %s 4\r\n+ACK\r\n" % (line.split(b" ", 4)[3], self.DONE)
            for line in heads
            if line.startswith(b"MSG q.")
        ]
        if acknowledge:
            self._in.write(b"".join(acknowledge))
        self._done.pay(len(heads) - len(acknowledge))


class NatsLines(Lines):
    """Takes out what is about the connection itself, and answers pings."""

    def heard(self, block: bytes) -> None:
        if b"-ERR" in block:
            self._tickets.fail(ValueError(f"NATS said {block[:200]!r}"))
        if b"PING\r\n" in block:
            self.write(b"PONG\r\n")
        self._heard(block)
