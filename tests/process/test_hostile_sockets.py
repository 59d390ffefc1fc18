"""T51 against a real node: idlers, half hellos, giants and garbage do not keep others out."""

import asyncio
import contextlib
import resource
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.net.authority import Authority
from tests.process.nodes import NodeProcess
from tests.process.proving import audited

import moorline
from moorline.errors import ConnectionLost, Refused
from moorline.wire.frame import LENGTH, frame
from moorline.wire.link import PROTOCOL, Hello

pytestmark = pytest.mark.process

HELLO_TIMEOUT_MS = 3_000
IDLERS_WANTED = 10_000
FLOOD = 200
BUSY_MACHINE_S = 60
"""Far above what the timeouts of these tests ask for: they are about whether, not about when."""


def idlers_allowed() -> int:
    """As many as the open-files limit gives to the test and to the node, which inherits it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return min(IDLERS_WANTED, hard - 512)


async def closed_after(address: str, data: bytes) -> float:
    """Seconds until the node hangs up on a peer that sends these bytes and then waits."""
    host, _, port = address.removeprefix("tcp://").rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    started = time.monotonic()
    writer.write(data)
    with contextlib.suppress(ConnectionError):
        while await reader.read(65_536):
            pass
    writer.close()
    return time.monotonic() - started


async def siege(address: str, count: int) -> tuple[int, float, float]:
    """An honest client among idlers: how many calls it made, its slowest, and the longest idler."""
    gate = asyncio.Semaphore(500)

    async def idle() -> float:
        async with gate:
            host, _, port = address.removeprefix("tcp://").rpartition(":")
            reader, writer = await asyncio.open_connection(host, int(port))
        started = time.monotonic()
        with contextlib.suppress(ConnectionError):
            while await reader.read(65_536):
                pass
        writer.close()
        return time.monotonic() - started

    idlers = asyncio.gather(*(idle() for _ in range(count)))
    calls, slowest = 0, 0.0
    async with moorline.connect(address, reconnect=False) as moor:
        while not idlers.done():
            started = time.monotonic()
            await moor.echo(b"honest")
            slowest = max(slowest, time.monotonic() - started)
            calls += 1
            await asyncio.sleep(0.005)
    return calls, slowest, max(await idlers)


def test_t51_ten_thousand_idle_sockets_are_closed_while_others_are_served(tmp_path: Path) -> None:
    """T51: 10,000 idle sockets."""
    count = idlers_allowed()
    assert count >= 1_000, "the open-files limit is too low to say anything"
    flags = [f"--set=hello_timeout_ms={HELLO_TIMEOUT_MS}", f"--set=connections_max={count + 100}"]
    with NodeProcess(tmp_path / "data", *flags) as node:
        calls, slowest, longest = asyncio.run(siege(node.address, count))
        # The honest client was answered all the time; a call may wait for a burst of closes.
        assert calls > 10
        # Of the order of the timeout, and not of that of the siege: a busy machine has all its time.
        assert max(slowest, longest) < BUSY_MACHINE_S
        assert node.process.poll() is None


@pytest.mark.parametrize(
    "data",
    [
        b"",
        LENGTH.pack(20),
        bytes(frame([Hello(PROTOCOL, 1, 1)]))[:-1],
        LENGTH.pack(0x7FFFFFFF) + bytes(100_000),
        b"\x16\x03\x01\x02\x00" + bytes(600),
        b"\xff" * 1_000_000,
        bytes(frame([Hello(PROTOCOL, 1, 1)])) + LENGTH.pack(0xFFFFFFFF) + bytes(1_000_000),
        bytes(frame([Hello(PROTOCOL, 1, 1)])) + LENGTH.pack(9) + b"\xc1" * 9,
    ],
    ids=[
        "silence",
        "a length",
        "half a hello",
        "giant",
        "tls",
        "ones",
        "giant later",
        "garbage later",
    ],
)
def test_t51_hostile_bytes_are_closed_by_the_hello_timeout(
    hostile_node: NodeProcess, data: bytes
) -> None:
    """T51: slow hello, half hello, oversize frame, garbage."""
    assert asyncio.run(closed_after(hostile_node.address, data)) < BUSY_MACHINE_S
    assert asyncio.run(_echo(hostile_node.address)) == b"served"


@pytest.fixture(scope="module")
def hostile_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with NodeProcess(
        tmp_path_factory.mktemp("hostile") / "data", "--set=hello_timeout_ms=500"
    ) as n:
        yield n


def test_whoever_is_sent_away_before_its_welcome_is_in_the_audit_and_a_flood_is_few_lines(
    tmp_path: Path,
) -> None:
    """G7: garbage, other versions, silence, no room, and what is no TLS."""
    shown = Authority("nodes").issue_node().write(tmp_path / "node.pem")
    flags = [
        "--set=hello_timeout_ms=500",
        "--set=connections_max=2",
        "--listen=tls://127.0.0.1:0",
        f"--tls-certificate={shown}",
        f"--tls-key={shown}",
    ]
    with NodeProcess(tmp_path / "data", *flags) as node:
        asyncio.run(_send_away(node))
    lines = [line for line in audited(node) if line["verdict"] == "denied"]
    told: Counter[tuple[str, str, str]] = Counter()
    for line in lines:
        key = (line["act"], line["path"], line.get("detail", {}).get("reason", ""))
        told[key] += line.get("count", 1)
    assert told == {
        ("Malformed", "/", "MALFORMED"): FLOOD,
        ("FrameTooLarge", "/", "FRAME_TOO_LARGE"): 1,
        ("Version", "/", "VERSION"): 1,
        ("HelloTimeout", "/", "HELLO_TIMEOUT"): 1,
        ("Handshake", "/", "TLS"): 1,
        ("Busy", "/", "BUSY"): 1,
    }
    # A line of its own for the first of each kind, and sums: by the time that it took, not by their number.
    assert len(lines) < FLOOD // 4
    assert {line["principal"] for line in lines} == {"anonymous"}


async def _send_away(node: NodeProcess) -> None:
    for _ in range(FLOOD):
        await closed_after(node.address, LENGTH.pack(4) + b"\xc1\xc1\xc1\xc1")
    for data in (LENGTH.pack(0xFFFFFFFF), bytes(frame([Hello(PROTOCOL, 90, 91)])), b""):
        await closed_after(node.address, data)
    await closed_after(node._found(r"tls://(\S+)"), b"\xff" * 1_000)
    async with (
        moorline.connect(node.address, reconnect=False) as first,
        moorline.connect(node.address, reconnect=False) as second,
    ):
        assert await first.echo(b"in") == await second.echo(b"in")
        with pytest.raises((Refused, ConnectionLost), match="BUSY"):
            async with moorline.connect(node.address, reconnect=False) as third:
                await third.echo(b"too many")


async def _echo(address: str) -> bytes:
    async with moorline.connect(address, reconnect=False) as moor:
        return await moor.echo(b"served")
