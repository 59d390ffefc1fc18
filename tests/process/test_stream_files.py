"""Files of streams and queues that vanish: under a node that runs, and between two starts."""

import asyncio
import json
import shutil
from pathlib import Path

import pytest
from tests.cluster.running import metric
from tests.process.nodes import NodeProcess, run_moor
from tests.waiting import eventually

import moorline

pytestmark = pytest.mark.process

FLAGS = ("--set=streams.shards=1", "--set=streams.sync=process")
LOST = "stream_messages_lost_total"


async def publish(node: NodeProcess, count: int) -> None:
    async with moorline.connect(node.address, reconnect=False) as moor:
        await moor.publish_all([moorline.record("orders", b"%d" % one) for one in range(count)])


def segments(data: Path) -> list[Path]:
    return sorted((data / "streams" / "000").glob("*.seg"))


def test_segments_that_vanish_under_a_running_node_are_told(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with NodeProcess(data, *FLAGS) as node:
        asyncio.run(publish(node, 50))
        assert metric(node, LOST) == 0
        for path in segments(data):
            path.unlink()
        eventually(lambda: metric(node, LOST) == 50, within_s=60)
        eventually(lambda: "vanished while the node runs" in node.errors)
        # What comes now is in a file that has a name.
        asyncio.run(publish(node, 5))
        eventually(lambda: len(segments(data)) == 1)
    with NodeProcess(data, *FLAGS) as node:
        streams = run_moor("topic", "show", "--json", f"--data={data}")
        assert streams.returncode == 0, streams.stderr
        assert metric(node, LOST) == 50
    (found,) = [path for path in segments(data) if path.stat().st_size > 64]
    assert found.name == "00000002.seg"


def test_a_segment_that_vanishes_between_two_starts_is_told(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with NodeProcess(data, *FLAGS) as node:
        asyncio.run(publish(node, 50))
    segments(data)[-1].unlink()
    checked = run_moor("journal", "check", "--json", f"--data={data}")
    assert checked.returncode == 15, checked.stderr
    report = json.loads(checked.stdout)["streams"]
    assert [(one["kind"], one["lost"]) for one in report["problems"]] == [("missing", 50)]
    with NodeProcess(data, *FLAGS) as node:
        assert "is gone: messages 0 to 50" in node.errors
        assert metric(node, LOST) == 50
        asyncio.run(publish(node, 1))
    again = run_moor("journal", "check", "--json", f"--data={data}")
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["streams"]["known_lost"] == 50


def test_the_streams_of_another_node_are_refused(tmp_path: Path) -> None:
    for name in ("one", "two"):
        with NodeProcess(tmp_path / name, *FLAGS) as node:
            asyncio.run(publish(node, 5))
    (tmp_path / "one" / "streams").rename(tmp_path / "kept")
    (tmp_path / "two" / "streams").rename(tmp_path / "one" / "streams")
    refused = run_moor(
        "serve", f"--data={tmp_path / 'one'}", "--listen=tcp://127.0.0.1:0", "--http=off", *FLAGS
    )
    assert refused.returncode == 6, refused.stderr
    assert "holds the streams of the node with the id" in refused.stderr


async def send(node: NodeProcess, count: int) -> bytes:
    async with moorline.connect(node.address, reconnect=False) as moor:
        queue = await moor.create_queue()
        for number in range(count):
            await moor.send(queue.id, b"%d" % number)
        return queue.id


async def waiting(node: NodeProcess, queue: bytes) -> int:
    async with moorline.connect(node.address, reconnect=False) as moor:
        return (await moor.queue(queue).info()).waiting


def test_a_log_that_vanishes_under_a_running_node_costs_nothing(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with NodeProcess(data, *FLAGS) as node:
        queue = asyncio.run(send(node, 20))
        for path in (data / "queues" / "wal").iterdir():
            path.unlink()
        eventually(lambda: "log of the queues vanished" in node.errors, within_s=60)
        eventually(lambda: metric(node, "queue_checkpoints_total") > 0)
        node.kill()
    with NodeProcess(data, *FLAGS) as node:
        assert asyncio.run(waiting(node, queue)) == 20
        assert metric(node, "queue_changes_lost_total") == 0


def test_a_store_that_is_removed_whole_is_told(tmp_path: Path) -> None:
    """It takes its own manifest with it: the folder above knows that it was there."""
    data = tmp_path / "data"
    with NodeProcess(data, *FLAGS) as node:
        asyncio.run(publish(node, 50))
        node.kill()
    shutil.rmtree(data / "streams")
    checked = run_moor("journal", "check", "--json", f"--data={data}")
    assert (checked.returncode, json.loads(checked.stdout)["gone"]) == (15, ["streams"])
    assert "streams/ is gone: bring it back from a copy" in checked.stderr
    with NodeProcess(data, *FLAGS) as node:
        assert "streams was gone at the start" in node.errors
        (warning,) = json.loads(run_moor("status", "--json", f"--address={node.address}").stdout)[
            "warnings"
        ]
        assert "streams was gone at the start" in warning
    shutil.rmtree(data / "queues")
    checked = run_moor("journal", "check", f"--data={data}")
    assert checked.returncode == 15
    assert "queues is gone: bring it back from a copy" in checked.stderr
    with NodeProcess(data, *FLAGS) as node:
        assert "queues was gone at the start" in node.errors
