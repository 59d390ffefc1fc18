"""MQTT beside mosquitto and amqtt, each with the same raw client.

    python -m bench.mqtt [--quick] [--json]

Messages of 100 bytes, MQTT 3.1.1. A PUBACK of Moorline means that the message is on disk; mosquitto and amqtt
answer before anything is. Rates count what was acknowledged (published), and what had reached its subscribers
(delivered). At the end each server is killed, and what it had acknowledged is looked for.
"""

import asyncio
import contextlib
import os
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import msgspec

from bench.mqtt_client import Raw, Template, joined, subscribe_packet
from bench.node import BenchNode, cpu_seconds
from bench.peers import free_port, installed
from bench.report import Report, run_bench, tell

PAYLOAD = 100
WINDOW = 1_000
CHUNK = 250
"""Publishes without an answer, and how many leave together."""
MANY = 100


class Plan(msgspec.Struct, frozen=True):
    rounds: int
    messages: int
    singles: int
    idle: int
    kept: int


FULL = Plan(3, 100_000, 2_000, 10_000, 1_000)
QUICK = Plan(1, 20_000, 300, 1_000, 1_000)


class Server(Protocol):
    name: str
    port: int

    @property
    def pid(self) -> int: ...
    def start(self) -> None: ...
    def stop(self) -> None: ...
    def kill(self) -> None: ...


class Moorline:
    name = "moorline"

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self._node = BenchNode(folder, [f"--mqtt=mqtt://127.0.0.1:{self.port}"])

    @property
    def pid(self) -> int:
        return self._node.pid

    def start(self) -> None:
        self._node.__enter__()

    def stop(self) -> None:
        self._node.__exit__(None, None, None)

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        self.stop()


class Program:
    """A server of others, started by a command."""

    def __init__(self, name: str, port: int, command: list[str]) -> None:
        self.name = name
        self.port = port
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        null = subprocess.DEVNULL
        self._process = subprocess.Popen(self._command, stdout=null, stderr=null)

    def stop(self) -> None:
        assert self._process is not None
        self._process.terminate()
        self._process.wait(30)

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait(30)


def mosquitto(folder: Path) -> Program:
    port = free_port()
    (folder / "data").mkdir()
    (folder / "mosquitto.conf").write_text(
        f"listener {port} 127.0.0.1\nallow_anonymous true\npersistence true\n"
        f"persistence_location {folder}/data/\nmax_queued_messages 0\nmax_inflight_messages 0\n"
        # Without it an answer waits for the acknowledgement of the one before, 40 ms: not what is compared.
        f"set_tcp_nodelay true\n"
        # As root it would become another user, who may not write there.
        f"user root\n"
    )
    binary = shutil.which("mosquitto") or "/usr/sbin/mosquitto"
    return Program("mosquitto", port, [binary, "-c", str(folder / "mosquitto.conf")])


def amqtt(folder: Path) -> Program:
    port = free_port()
    (folder / "amqtt.yaml").write_text(
        f"listeners:\n  default:\n    type: tcp\n    bind: 127.0.0.1:{port}\n"
        "plugins:\n  amqtt.plugins.authentication.AnonymousAuthPlugin:\n    allow_anonymous: true\n"
    )
    return Program("amqtt", port, [amqtt_binary(), "-c", str(folder / "amqtt.yaml")])


def amqtt_binary() -> str:
    """It wants other versions of what is beside us: an environment of its own on the PATH is taken too."""
    beside = Path(sys.executable).with_name("amqtt")
    return str(beside) if beside.exists() else shutil.which("amqtt") or ""


def servers(folder: Path) -> list[Server]:
    found: list[Server] = [Moorline(folder / "moorline")]
    (folder / "moorline").mkdir()
    if shutil.which("mosquitto", path="/usr/sbin:/usr/bin:/usr/local/sbin") or installed(
        "mosquitto"
    ):
        (folder / "mosquitto").mkdir()
        found.append(mosquitto(folder / "mosquitto"))
    if amqtt_binary():
        (folder / "amqtt").mkdir()
        found.append(amqtt(folder / "amqtt"))
    return found


@contextlib.contextmanager
def running(server: Server) -> Iterator[None]:
    server.start()
    try:
        yield
    finally:
        server.stop()


async def arrived(server: Server) -> None:
    """It takes connections."""
    end = time.monotonic() + 60
    while True:
        try:
            (await joined(server.port, "probe")).transport.close()
        except (OSError, ConnectionError, TimeoutError):
            if time.monotonic() > end:
                raise
            await asyncio.sleep(0.02)
        else:
            return


async def publish(client: Raw, template: Template, count: int) -> None:
    """As fast as its window allows, until all have their last answer."""
    sent, finished = 0, client.finished
    while sent < count:
        some = min(CHUNK, count - sent)
        if template.qos:
            mark = finished + sent + some - WINDOW
            assert await client.until(lambda: client.finished >= mark), "no answer came"  # noqa: B023
        client.transport.write(template.many(sent, some))
        sent += some
        if not template.qos:
            # What is not answered is bounded by what the socket takes.
            while client.transport.get_write_buffer_size() > 1 << 18:  # noqa: ASYNC110
                await asyncio.sleep(0)
    if template.qos:
        assert await client.until(lambda: client.finished >= finished + count), "no answer came"


Figures = dict[tuple[str, str, str], list[float]]


class Bench:
    def __init__(self, plan: Plan, report: Report, folder: Path) -> None:
        self.plan = plan
        self.report = report
        self.folder = folder
        self.figures: dict[tuple[str, str, str], dict[str, list[float]]] = {}

    def note(self, server: Server, case: str, metric: str, value: float, unit: str) -> None:
        sides = self.figures.setdefault((case, metric, unit), {})
        sides.setdefault(server.name, []).append(value)
        tell(f"  {server.name} {case}: {value:,.4g} {metric}")

    async def run(self) -> None:
        for number in range(self.plan.rounds):
            folder = self.folder / str(number)
            folder.mkdir()
            for server in servers(folder):
                tell(f"round {number + 1}: {server.name}")
                with running(server):
                    await arrived(server)
                    # First: later it would have memory that others have left.
                    await self.idle(server)
                    await self.rates(server)
                    await self.kept(server)
        for (case, metric, unit), sides in self.figures.items():
            values = {name: statistics.median(found) for name, found in sides.items()}
            if unit == "%":
                for name, value in values.items():
                    self.report.row(case, f"{metric} ({name})", value, unit)
                continue
            ours = values.pop("moorline")
            for peer, theirs in values.items():
                self.report.row(case, metric, ours, unit, peer=peer, peer_value=theirs or 1e-9)
            if not values:
                self.report.row(case, metric, ours, unit)

    async def rates(self, server: Server) -> None:
        count = self.plan.messages
        if server.name == "amqtt":
            count //= 10  # it would take minutes
        for qos in (0, 1, 2):
            if qos:
                await self.stored(server, qos, count)
            await self.through(server, f"1:1 qos={qos}", qos, count, 1, 1)
        await self.through(server, f"fan-out 1:{MANY} qos=0", 0, count // 20, 1, MANY)
        await self.through(server, f"fan-out 1:{MANY} qos=1", 1, count // 20, 1, MANY)
        await self.through(server, f"fan-in {MANY}:1 qos=1", 1, count, MANY, 1)
        await self.one_at_a_time(server)

    async def stored(self, server: Server, qos: int, count: int) -> None:
        """Nobody listens: what a publish costs alone."""
        client = await joined(server.port, "alone")
        before, start = cpu_seconds(server.pid), time.monotonic()
        await publish(client, Template("bench/stored", qos, PAYLOAD), count)
        took = time.monotonic() - start
        case = f"publish qos={qos}"
        self.note(server, case, "publish_per_s", count / took, "1/s")
        cpu = (cpu_seconds(server.pid) - before) / count * 1e6
        self.note(server, case, "server_cpu_us", cpu, "us")
        client.transport.close()

    async def through(
        self, server: Server, case: str, qos: int, count: int, senders: int, readers: int
    ) -> None:
        template = Template(f"bench/{qos}/{senders}/{readers}", qos, PAYLOAD)
        heard = []
        for number in range(readers):
            reader = await joined(server.port, f"reader{number}", template)
            await reader.ask(subscribe_packet(f"bench/{qos}/{senders}/{readers}", qos))
            heard.append(reader)
        clients = [await joined(server.port, f"sender{number}") for number in range(senders)]
        each = count // senders
        start = time.monotonic()
        await asyncio.gather(*(publish(client, template, each) for client in clients))
        wanted = each * senders
        came = [await one.until(lambda one=one: one.received >= wanted, 20) for one in heard]  # type: ignore[misc]
        took = time.monotonic() - start
        delivered = sum(one.received for one in heard)
        self.note(server, case, "delivered_per_s", delivered / took, "1/s")
        if not all(came):
            lost = 1 - delivered / (wanted * readers)
            self.note(server, case, "not_delivered", lost * 100, "%")
        for one in [*clients, *heard]:
            one.transport.close()

    async def one_at_a_time(self, server: Server) -> None:
        client = await joined(server.port, "single")
        template = Template("bench/single", 1, PAYLOAD)
        took = []
        for number in range(self.plan.singles):
            start = time.perf_counter()
            client.transport.write(template.many(number, 1))
            assert await client.until(lambda: client.finished > number)  # noqa: B023
            took.append((time.perf_counter() - start) * 1e3)
        took.sort()
        self.note(server, "one at a time qos=1", "p50_ms", took[len(took) // 2], "ms")
        self.note(server, "one at a time qos=1", "p99_ms", took[len(took) * 99 // 100], "ms")
        client.transport.close()

    async def idle(self, server: Server) -> None:
        """What a connection that says nothing costs."""
        count = self.plan.idle
        before = rss_kib(server.pid)
        clients = []
        for first in range(0, count, 100):
            some = range(first, min(first + 100, count))
            clients += await asyncio.gather(*(joined(server.port, f"idle{one}") for one in some))
        used = rss_kib(server.pid) - before
        self.note(server, f"{count} idle connections", "KiB_each", used / count, "KiB")
        for client in clients:
            client.transport.close()

    async def kept(self, server: Server) -> None:
        """SIGKILL right behind the last acknowledgement, and a start: what is there for a session."""
        count = self.plan.kept
        template = Template("bench/kept", 1, PAYLOAD)
        reader = await joined(server.port, "lasting", template, clean=False)
        await reader.ask(subscribe_packet("bench/kept", 1))
        reader.transport.close()
        client = await joined(server.port, "before")
        await publish(client, template, count)
        server.kill()
        server.start()
        await arrived(server)
        back = await joined(server.port, "lasting", template, clean=False)
        await back.until(lambda: back.received >= count, 5)
        kept = min(back.received, count) / count * 100
        self.note(server, f"kill -9 after {count} acknowledged", "kept", kept, "%")
        back.transport.close()


def rss_kib(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1])


async def run(report: Report, folder: Path, quick: bool) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    await Bench(QUICK if quick else FULL, report, folder).run()


if __name__ == "__main__":
    run_bench("mqtt", __doc__, run)
