"""Peers that take all descriptors they can get, from a real node with few: it goes on, and has them back."""

import asyncio
import contextlib
import os
import shutil
import socket
import sys
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.process.nodes import NodeProcess, run_moor
from tests.waiting import eventually, until

import moorline
from moorline.client.moor import Moor
from moorline.core.descriptors import Use, shared_out
from moorline.limits import (
    CATALOG_CONNECTIONS_MAX,
    HTTP_CONNECTIONS_MAX,
    STAGES_OPEN_PER_CONNECTION_MAX,
)
from moorline.net.descriptors import raised_limit
from moorline.wire.frame import LENGTH, Splitter, frame
from moorline.wire.link import PROTOCOL, Goodbye, Hello, Welcome
from moorline.wire.message import Message
from moorline.wire.protocol import client_decoder
from moorline.wire.staging import OpenStage, StageOpened

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(
        sys.platform != "linux" or shutil.which("prlimit") is None,
        reason="limits are set with prlimit, and counted in /proc",
    ),
]

FILES = 512
SOCKETS = 700
"""More than the node may open, and few enough for the test's own limit."""
STAGES = 20_000
CONNECT = b"\x10\x10\x00\x04MQTT\x05\x02\x00\x3c\x00\x00\x03abc"
HELLO = bytes(frame([Hello(PROTOCOL, 1, 1)]))


def limited(files: int) -> list[str]:
    return ["prlimit", f"--nofile={files}:{files}"]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    flags = (
        "--set=streams.shards=1",
        "--set=streams.generation_bytes_max=4096",
        "--set=hello_timeout_ms=2000",
    )
    folder = tmp_path_factory.mktemp("descriptors") / "data"
    assert raised_limit() > SOCKETS + 100, "the open-files limit is too low to say anything"
    with NodeProcess(folder, *flags, before=limited(FILES)) as node:
        asyncio.run(warm(node))
        yield node
        assert "Traceback" not in node.errors
        assert " error " not in node.errors


async def warm(node: NodeProcess) -> None:
    async with moorline.connect(node.address, reconnect=False) as moor:
        await used(moor, node)


def descriptors(node: NodeProcess) -> int:
    return len(os.listdir(f"/proc/{node.process.pid}/fd"))


def seals(node: NodeProcess) -> int:
    return len(list((node.data / "streams").glob("*/*.seal")))


async def used(moor: Moor, node: NodeProcess) -> None:
    """All that opens files: a queue and a checkpoint, and a stream until its next seal."""
    queue = await moor.create_queue()
    await moor.send(queue.id, b"waiting")
    before = seals(node)
    await moor.checkpoint()
    while seals(node) == before:
        await moor.publish("busy", bytes(3_000))
        await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def sockets(
    node: NodeProcess, count: int, said: bytes, address: str = ""
) -> AsyncIterator[list[socket.socket]]:
    """So many connections that say that, and read nothing."""
    host, _, port = (address or node.address.removeprefix("tcp://")).rpartition(":")
    loop = asyncio.get_running_loop()
    made: list[socket.socket] = []
    try:
        for _ in range(count):
            made.append(socket.socket())
            made[-1].setblocking(False)
            await loop.sock_connect(made[-1], (host, int(port)))
            with contextlib.suppress(OSError):
                made[-1].send(said)
        yield made
    finally:
        for one in made:
            one.close()


@contextlib.contextmanager
def nothing_is_kept(node: NodeProcess) -> Iterator[None]:
    """All descriptors come back; but the connections to the catalog may be more than before."""
    before = descriptors(node)
    yield
    assert node.process.poll() is None
    eventually(lambda: descriptors(node) <= before + CATALOG_CONNECTIONS_MAX, within_s=60)


def heard(one: socket.socket) -> list[Message]:
    """What the node has said, as far as it is here."""
    splitter, messages = Splitter(1 << 20), []
    with contextlib.suppress(OSError):
        for payload in splitter.feed(one.recv(1 << 20)):
            messages += client_decoder.decode(payload)
    return messages


async def test_sockets_that_say_nothing_keep_nobody_out(node: NodeProcess) -> None:
    """A31: sockets, beside files that others need."""
    with nothing_is_kept(node):
        async with (
            moorline.connect(node.address, reconnect=False) as inside,
            sockets(node, SOCKETS, b""),
        ):
            assert descriptors(node) < FILES
            await used(inside, node)
            async with moorline.connect(node.address, reconnect=False) as late:
                await used(late, node)


@pytest.mark.parametrize("said", [b"", CONNECT[:1], CONNECT[:-1]])
async def test_clients_of_mqtt_without_a_whole_connect_keep_nobody_out(
    node: NodeProcess, said: bytes
) -> None:
    host, port = node.mqtt
    async with moorline.connect(node.address, reconnect=False) as inside:
        places = (await inside.describe()).connections_max
        async with sockets(node, SOCKETS, said, f"{host}:{port}"):
            await until(lambda: descriptors(node) > places, "all places are taken")
            # Refused at once where nobody makes room.
            async with moorline.connect(node.address, reconnect=False) as late:
                assert await late.echo(b"in") == b"in"


async def test_clients_too_many_are_told_and_those_inside_are_served(node: NodeProcess) -> None:
    with nothing_is_kept(node):
        async with moorline.connect(node.address, reconnect=False) as inside:
            places = (await inside.describe()).connections_max
            async with sockets(node, SOCKETS, HELLO) as made:
                await used(inside, node)
                described = await inside.describe()
                assert described.connections >= places, "all places are taken"
                assert described.descriptors < described.descriptors_max == FILES
                said: Counter[str] = Counter()
                for one in made:
                    for message in heard(one):
                        match message:
                            case Welcome():
                                said["welcome"] += 1
                            case Goodbye(code, text):
                                assert "connections at once" in text
                                said[code] += 1
            assert set(said) == {"welcome", "BUSY"}
            assert said["welcome"] - said["BUSY"] == places - 1, "and the one that was inside"

            async def is_alone() -> bool:
                return (await inside.describe()).connections == 1

            await until(is_alone, "the places of those who left are free")
    async with moorline.connect(node.address, reconnect=False) as moor:
        assert await moor.echo(b"as before") == b"as before"


async def test_one_client_opens_very_many_stages(node: NodeProcess) -> None:
    """A31: stages."""
    folder = node.data / "staging" / "stages"
    with nothing_is_kept(node):
        async with (
            moorline.connect(node.address, reconnect=False) as moor,
            moorline.connect(node.address, reconnect=False) as other,
        ):
            calls = [lambda call, n=n: OpenStage(call, "q", 0, n, 0) for n in range(STAGES)]
            opening = asyncio.gather(
                *(moor._caller.call(call, StageOpened) for call in calls), return_exceptions=True
            )
            await used(other, node)
            answers = Counter(str(getattr(one, "code", "opened")) for one in await opening)
            assert answers == {
                "opened": STAGES_OPEN_PER_CONNECTION_MAX,
                "LIMIT": STAGES - STAGES_OPEN_PER_CONNECTION_MAX,
            }
            assert descriptors(node) < FILES // 2
    eventually(lambda: not list(folder.iterdir()))


async def test_sockets_stages_and_segments_together_stay_below_the_limit(node: NodeProcess) -> None:
    """A31: while all are asked for at once, what the node itself must open can be opened."""
    peak = 0
    stages = [
        lambda call, n=n: OpenStage(call, "q", 0, n, 0)
        for n in range(STAGES_OPEN_PER_CONNECTION_MAX + 10)
    ]
    with nothing_is_kept(node):
        async with contextlib.AsyncExitStack() as stack:
            moors = [
                await stack.enter_async_context(moorline.connect(node.address, reconnect=False))
                for _ in range(4)
            ]
            opening = asyncio.gather(*(moor._caller.call_all(stages) for moor in moors[1:]))
            async with sockets(node, SOCKETS, HELLO):
                while not opening.done():
                    peak = max(peak, descriptors(node))
                    await used(moors[0], node)
                answers = await opening
                await used(moors[0], node)
                peak = max(peak, descriptors(node))
    for answered in answers:
        opened = [one for one in answered if isinstance(one, StageOpened)]
        assert len(opened) == STAGES_OPEN_PER_CONNECTION_MAX
    shares = shared_out(FILES, SOCKETS, 1)
    assert shares.most[Use.CONNECTIONS] < peak < FILES


async def test_stages_of_connections_that_went_are_gone_with_all_they_held(
    node: NodeProcess,
) -> None:
    """Also those whose calls had their turn only after the connection was over."""
    folder = node.data / "staging" / "stages"
    stages = [OpenStage(call, "q", 0, call, 0) for call in range(60)]
    with nothing_is_kept(node):
        async with moorline.connect(node.address, reconnect=False) as moor:
            for _ in range(5):
                async with sockets(node, 60, HELLO + bytes(frame(stages))):
                    await moor.echo(b"meanwhile")
            await used(moor, node)
    eventually(lambda: not list(folder.iterdir()), within_s=60)


async def test_half_requests_do_not_keep_a_probe_from_its_answer(node: NodeProcess) -> None:
    host, _, port = node.http.removeprefix("http://").rpartition(":")
    loop = asyncio.get_running_loop()
    with nothing_is_kept(node), contextlib.ExitStack() as stack:
        for _ in range(3 * HTTP_CONNECTIONS_MAX):
            one = stack.enter_context(socket.socket())
            one.setblocking(False)
            await loop.sock_connect(one, (host, int(port)))
            with contextlib.suppress(OSError):
                one.send(b"GET /healthz HTTP/1.1\r\n")
        for page in ("/healthz", "/metrics"):
            text = await asyncio.to_thread(_fetched, node.http + page)
        assert f"moorline_descriptors_max {FILES}.0" in text
        assert "moorline_connections_refused_total" in text


def _fetched(url: str) -> str:
    with urllib.request.urlopen(url, timeout=60) as answer:
        return str(answer.read().decode())


async def test_a_hello_that_comes_byte_by_byte_has_no_more_time_than_another(
    node: NodeProcess,
) -> None:
    """As many as fit, so that nobody is cut for another's sake."""
    with nothing_is_kept(node):
        async with sockets(node, 100, LENGTH.pack(4_000)) as made:
            open_yet = set(made)
            while open_yet:
                for one in list(open_yet):
                    try:
                        one.send(HELLO[4:5])
                    except OSError:
                        open_yet.discard(one)
                await asyncio.sleep(0.2)  # its pace


def test_a_limit_that_is_too_low_is_told_at_the_start(tmp_path: Path) -> None:
    node = NodeProcess(tmp_path / "data", before=limited(100), wait=False)
    with node:
        assert node.process.wait(60) == 1
    assert "this process may open 100 files" in node.errors
    assert "LimitNOFILE" in node.errors


def test_status_says_how_many_descriptors_there_are(node: NodeProcess) -> None:
    shown = run_moor("status", f"--address={node.address}").stdout
    (line,) = [line for line in shown.splitlines() if line.startswith("descriptors")]
    assert line.endswith(f" of {FILES}")
