"""The peers of the value benchmark: NATS core, by a raw client and by nats-py, and its key-value store.

The raw client has its bytes ready before the clock starts and counts heads of messages: the server is the
limit, not the client. nats-py is the library that a program in Python would use. Each end is a process of
its own; the server is one more, which our values do not need.
"""

import asyncio
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bench.peers import LINE_END, Nats, NatsLines, free_port, opened, start_server
from bench.queue_client import Tickets
from bench.report import tell
from bench.value_roles import WAIT_S, now_ns, path_of, value_of, when

NATS_PY = "nats-py==2.16.0"
CONNECT = b'CONNECT {"verbose":false,"pedantic":false,"protocol":1}\r\n'
AHEAD = 8
"""Batches that the server has not confirmed: it cuts who reads slower than is written."""

ADDRESS = b"tcp://127.0.0.1:33829 0011223344556677"
"""A value of the key-value store: where a publisher is, as short as it can be told."""

BUCKET = "KV_bench"
ANSWERS = b"answers"


def nats_py_folder(folder: Path) -> str:
    """Where nats-py is, installed there alone; empty if it cannot be had."""
    where = folder / "nats-py"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target"]
    done = subprocess.run([*command, str(where), NATS_PY], capture_output=True, check=False)
    if done.returncode:
        tell(f"bench: {NATS_PY} cannot be installed: left out")
        return ""
    return str(where)


class NatsServer:
    """A server without JetStream; killed on leaving."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        where = ["-a", "127.0.0.1", "-p", str(self.port)]
        self.process = start_server(folder / "nats-core", "nats-server", *where)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def subject_of(number: int) -> bytes:
    return b"v.%06d" % number


def _publish(number: int, value: bytes) -> bytes:
    return b"PUB %s %d\r\n%s\r\n" % (subject_of(number), len(value), value)


class NatsPublisherRole:
    """PUB upon PUB, joined; a PING behind each batch tells how far the server is."""

    async def open(self, port: int) -> None:
        self._tickets = Tickets()
        self._lines = await opened(port, lambda: NatsLines(self._heard, self._tickets))
        self._lines.write(CONNECT)

    def _heard(self, block: bytes) -> None:
        self._tickets.pay(block.count(b"PONG\r\n"))

    async def flood(self, seconds: float, batch: int) -> tuple[int, int]:
        one = b"".join(_publish(number, value_of(number)) for number in range(batch)) + b"PING\r\n"
        waiting: list[asyncio.Future[None]] = []
        began, done = now_ns(), 0
        end = began + seconds * 1e9
        while now_ns() < end:
            self._lines.write(one)
            waiting.append(self._tickets.take(1))
            done += batch
            if len(waiting) > AHEAD:
                await waiting.pop(0)
        await asyncio.gather(*waiting)
        return began, done

    async def tick(self, count: int, per_s: int) -> None:
        started = time.perf_counter()
        for sent in range(count):
            await asyncio.sleep(max(0, started + sent / per_s - time.perf_counter()))
            self._lines.write(_publish(0, b"=%019d" % now_ns()))


class NatsSubscriberRole:
    """Counts heads; of what is stamped it knows how long it took."""

    def __init__(self) -> None:
        self._counted = 0
        self._times: list[int] = []

    async def open(self, port: int, subscribers: int) -> None:
        self._tickets = Tickets()
        ready = self._tickets.take(subscribers)
        self._lines = []
        for _ in range(subscribers):
            lines = await opened(port, lambda: NatsLines(self._heard, self._tickets))
            lines.write(CONNECT + b"SUB v.* 1\r\nPING\r\n")
            self._lines.append(lines)
        await ready

    def _heard(self, block: bytes) -> None:
        self._counted += block.count(b"MSG ")
        if b"PONG\r\n" in block:
            self._tickets.pay(block.count(b"PONG\r\n"))
        if b"=" in block:
            now = now_ns()
            lines = block.split(LINE_END)
            self._times += [now - int(line[1:]) for line in lines if line.startswith(b"=")]

    async def until(self, count: int) -> int:
        ended_ns = await when(lambda: self._counted >= count, WAIT_S)
        if self._counted > count:
            raise RuntimeError(f"{self._counted} messages came of {count}")
        self._counted = 0
        return ended_ns

    async def times(self) -> list[int]:
        times, self._times = self._times, []
        return times


class NatsPyPublisherRole:
    """`publish` for each message, `flush` behind each batch."""

    async def open(self, port: int, folder: str) -> None:
        self._client = await _nats_py(port, folder)

    async def flood(self, seconds: float, batch: int) -> tuple[int, int]:
        subjects = [subject_of(number).decode() for number in range(batch)]
        values = [value_of(number) for number in range(batch)]
        publish = self._client.publish
        began, done = now_ns(), 0
        end = began + seconds * 1e9
        while now_ns() < end:
            for subject, value in zip(subjects, values, strict=True):
                await publish(subject, value)
            await self._client.flush()
            done += batch
        return began, done


class NatsPySubscriberRole(NatsSubscriberRole):
    """A callback that counts."""

    async def open(self, port: int, folder: str) -> None:  # type: ignore[override]
        client = await _nats_py(port, folder)

        async def heard(_: object) -> None:
            self._counted += 1

        # Without bounds: what its own loop has not handed out yet must not be dropped.
        await client.subscribe("v.*", cb=heard, pending_msgs_limit=-1, pending_bytes_limit=-1)
        await client.flush()


async def _nats_py(port: int, folder: str) -> Any:
    if folder not in sys.path:
        sys.path.insert(0, folder)
    import nats  # type: ignore[import-not-found,unused-ignore]

    return await nats.connect(f"nats://127.0.0.1:{port}")


class KeyValueRole:
    """A bucket of the key-value store in memory, as a resolver's paths are: put and get, raw."""

    def __init__(self) -> None:
        self._tickets = Tickets()
        self._head = b""

    async def open(self, folder: str) -> int:
        """The number of the server's process."""
        self._server = Nats(Path(folder))
        await self._server.open_interface()
        config = {
            "name": BUCKET,
            "subjects": ["$KV.bench.>"],
            "storage": "memory",
            "max_msgs_per_subject": 1,
            "discard": "new",
            "allow_direct": True,
            "allow_rollup_hdrs": True,
        }
        await self._server.request(f"STREAM.CREATE.{BUCKET}", config)
        self._lines = await self._server.subscribed(self._heard, self._tickets, ANSWERS)
        return self._server.process.pid

    def _heard(self, block: bytes) -> None:
        if b'"error"' in block or b" 404 " in block or b" 503 " in block:
            self._tickets.fail(ValueError(f"NATS said {block[:200]!r}"))
        self._tickets.pay(block.count(self._head))

    async def put(self, count: int) -> float:
        self._head = b'{"stream"'
        return await self._ask(
            count,
            lambda key: b"PUB $KV.bench.%s %s %d\r\n%s\r\n" % (key, ANSWERS, len(ADDRESS), ADDRESS),
        )

    async def get(self, count: int) -> float:
        self._head = ADDRESS
        return await self._ask(
            count,
            lambda key: (
                b"PUB $JS.API.DIRECT.GET.%s.$KV.bench.%s %s 0\r\n\r\n"
                % (BUCKET.encode(), key, ANSWERS)
            ),
        )

    async def _ask(self, count: int, make: Any) -> float:
        """Thousands at a time, some of them under way at once."""
        blocks = [
            (b"".join(make(_key(number)) for number in range(first, stop)), stop - first)
            for first in range(0, count, 1_000)
            if (stop := min(first + 1_000, count))
        ]
        started = time.perf_counter()
        waiting: list[asyncio.Future[None]] = []
        for block, calls in blocks:
            if len(waiting) >= AHEAD:
                await waiting.pop(0)
            self._lines.write(block)
            waiting.append(self._tickets.take(calls))
        await asyncio.gather(*waiting)
        return time.perf_counter() - started

    async def close(self) -> None:
        self._server.kill()


def _key(number: int) -> bytes:
    """The same text as our path, with the signs that NATS takes."""
    return path_of(number)[1:].replace("/", ".").encode()
