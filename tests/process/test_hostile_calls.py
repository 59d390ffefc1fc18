"""Clients that ask a real node for much in few bytes and read nothing: it stays small, and serves others."""

import asyncio
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.process.nodes import NodeProcess

import moorline
from moorline.core.group.message import Disconnect
from moorline.limits import FRAME_BYTES_MAX, MIB, STREAM_READ_BYTES_MAX
from moorline.wire.frame import frame
from moorline.wire.group import (
    FindOffsets,
    ForLeader,
    ListGroups,
    ReadStream,
)
from moorline.wire.link import PROTOCOL, Hello
from moorline.wire.message import Message
from moorline.wire.queue import ListQueues
from moorline.wire.stream_file import DescribeCluster, ReadStreamFile
from moorline.wire.topic import DescribeStreams, ListTopics

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(sys.platform != "linux", reason="the memory is read from /proc"),
]

CALLS = 4_000
"""Of half a MiB each they are two GiB."""

GROWTH_BYTES_MAX = 160 * MIB
"""What one such client may cost: its calls as tasks, a few buffers, and what the allocator keeps."""

KINDS: dict[str, Callable[[int], Message]] = {
    "stream": lambda call: ReadStream(call, 0, 1, 0, STREAM_READ_BYTES_MAX),
    "news": lambda call: ReadStream(call, 0, 1, 1 << 40, STREAM_READ_BYTES_MAX, 100),
    "file": lambda call: ReadStreamFile(call, 0, 1, "segment", 0, STREAM_READ_BYTES_MAX),
    "topics": ListTopics,
    "streams": DescribeStreams,
    "offsets": lambda call: FindOffsets(call, 1),
    "groups": ListGroups,
    "nodes": DescribeCluster,
    "queues": lambda call: ListQueues(call, b"", 4_096),
}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    folder = tmp_path_factory.mktemp("hostile-calls") / "data"
    with NodeProcess(folder, "--set=streams.shards=1") as node:
        asyncio.run(_fill(node.address))
        yield node
        assert "Traceback" not in node.errors


async def _fill(address: str) -> None:
    async with moorline.connect(address, reconnect=False) as moor:
        await asyncio.gather(
            *(
                moor.publish(f"long/{'name' * 100}/{number}", bytes(1_000), retain=True)
                for number in range(1_500)
            )
        )
        await moor.create_queues(1_000)


def _memory_bytes(node: NodeProcess, field: str) -> int:
    lines = Path(f"/proc/{node.process.pid}/status").read_text().splitlines()
    (line,) = [line for line in lines if line.startswith(field)]
    return int(line.split()[1]) * 1_024


async def _siege(node: NodeProcess, make: Callable[[int], Message]) -> None:
    """One client asks for all that and never reads; another one is served meanwhile."""
    host, _, port = node.address.removeprefix("tcp://").rpartition(":")
    _, writer = await asyncio.open_connection(host, int(port), limit=1)
    writer.write(bytes(frame([Hello(PROTOCOL, 1, 1)])))
    writer.write(bytes(frame([make(call) for call in range(CALLS)])))
    async with moorline.connect(node.address, reconnect=False) as moor:
        for _ in range(200):
            assert await moor.echo(b"honest") == b"honest"
            await asyncio.sleep(0.005)
    writer.transport.abort()


@pytest.mark.parametrize("kind", KINDS)
def test_whoever_asks_for_much_and_reads_nothing_costs_little(node: NodeProcess, kind: str) -> None:
    before = _memory_bytes(node, "VmRSS")
    Path(f"/proc/{node.process.pid}/clear_refs").write_text("5")  # the peak is counted anew
    asyncio.run(_siege(node, KINDS[kind]))
    assert _memory_bytes(node, "VmHWM") - before < GROWTH_BYTES_MAX


FORGERIES = 400
NAME_LENGTH = FRAME_BYTES_MAX - 64


async def _forge(node: NodeProcess) -> list[bytes]:
    """Goodbyes of members that never were, to every group there is; what the node says to each."""
    host, _, port = node.address.removeprefix("tcp://").rpartition(":")
    told = []
    async with moorline.connect(node.address, reconnect=False) as moor:
        subscription = await moor.subscribe("$shared/forged/#")
        for number in range(FORGERIES):
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(bytes(frame([Hello(PROTOCOL, 1, 1)])))
            await reader.readexactly(4)
            name = f"{number}".ljust(NAME_LENGTH, "x")
            writer.write(bytes(frame([ForLeader(1 + number % 4, Disconnect(name, 0, ()))])))
            told.append(await reader.read())
            writer.close()
        await moor.publish("forged/none", b"honest")
        message = await subscription.get(30)
        assert message is not None
        assert message.body == b"honest", "the group goes on"
    return told


def test_forged_goodbyes_under_long_names_leave_nothing_behind(node: NodeProcess) -> None:
    before = _memory_bytes(node, "VmRSS")
    told = asyncio.run(_forge(node))
    assert all(b"MALFORMED" in one for one in told)
    assert _memory_bytes(node, "VmRSS") - before < GROWTH_BYTES_MAX
