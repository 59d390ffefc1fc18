"""A real node on a small disk, with less room than its reserve: it is checked, exported, started, drained."""

import asyncio
import json
from pathlib import Path

import pytest
from chaos.small_disk import SmallDisk
from tests.process.nodes import NodeProcess
from tests.process.small_disk import NodeInside, disk, free_mib, run_inside
from tests.process.test_serve import fetch

import moorline
from moorline.client.moor import Moor
from moorline.errors import NodeDiskFull
from moorline.limits import DISK_FREE_BYTES_MIN, MIB

pytestmark = pytest.mark.process

__all__ = ["disk"]

FREE_MIB = 20
"""Room that is left: below the reserve, and below what a queue's log and files could need."""


async def fill(address: str) -> str:
    async with moorline.connect(address, reconnect=False) as moor:
        queue = await moor.create_queue()
        for number in range(5):
            await moor.send(queue.id, b"%d" % number + bytes(10_000))
            await moor.publish("orders/eu", b"%d" % number)
        return str(queue)


async def check_refusals(moor: Moor, queue: str) -> None:
    for call in (
        moor.send(moor.queue(queue).id, b"more"),
        moor.create_queue(),
        moor.publish("orders/eu", b"more"),
    ):
        with pytest.raises(NodeDiskFull):
            await call


async def drain(moor: Moor, queue: str) -> None:
    found = moor.queue(queue)
    for number in range(5):
        head = await found.get()
        assert head is not None
        assert head.body[:1] == b"%d" % number
        assert await head.ack() == 4 - number
    subscription = await moor.subscribe("$shared/billing/orders/#", start="beginning")
    for _ in range(5):
        message = await subscription.get(30)
        assert message is not None
        await message.ack()


def health(node: NodeProcess) -> dict[str, tuple[int, list[str]]]:
    """What the pages say: their status, and what is wrong."""
    found = {}
    for page in ("/livez", "/readyz", "/healthz"):
        status, body = fetch(f"{node.http}{page}")
        said = json.loads(body)
        assert said["ok"] == (status == 200)
        found[page] = (status, said["problems"])
    return found


async def taken_again(moor: Moor, queue: str) -> None:
    async with asyncio.timeout(30):
        while True:
            try:
                await moor.send(moor.queue(queue).id, b"more")
                await moor.publish("orders/eu", b"more")
                return
            except NodeDiskFull:
                await asyncio.sleep(0.05)


def test_a_node_below_its_reserve_is_checked_exported_started_and_drained(
    disk: SmallDisk, tmp_path: Path
) -> None:
    with NodeInside(disk, tmp_path / "first") as node:
        queue = asyncio.run(fill(node.address))
    disk.fill(left_bytes=FREE_MIB * MIB)
    assert free_mib(disk) * MIB < DISK_FREE_BYTES_MIN
    data = f"--data={disk.folder}/data"
    done = run_inside(disk, "journal", "check", data, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["messages"] == 5
    done = run_inside(disk, "journal", "export", str(tmp_path / "queues.jsonl"), data, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["messages"] == 5
    # What would need room is refused by its name, with nothing begun.
    assert (
        run_inside(disk, "journal", "import", str(tmp_path / "queues.jsonl"), data).returncode == 9
    )
    done = run_inside(disk, "serve", f"--data={disk.folder}/new", "--listen=tcp://127.0.0.1:0")
    assert done.returncode == 9
    assert f"only {FREE_MIB - 1} MiB left" in done.stderr or f"only {FREE_MIB} MiB" in done.stderr

    with NodeInside(disk, tmp_path / "second") as node:

        async def scenario() -> None:
            async with moorline.connect(node.address, reconnect=False) as moor:
                await check_refusals(moor, queue)
                await drain(moor, queue)
                await moor.checkpoint()
                await check_refusals(moor, queue)
                warnings = (await moor.describe()).warnings
                assert [warning for warning in warnings if "disk" in warning]
                pages = await asyncio.to_thread(health, node)
                assert pages["/livez"] == (200, []), "a restart would not help"
                assert pages["/readyz"] == pages["/healthz"] == (503, list(warnings))
                disk.empty()
                await taken_again(moor, queue)
                assert (await moor.describe()).warnings == ()
                pages = await asyncio.to_thread(health, node)
                assert all(found == (200, []) for found in pages.values())

        asyncio.run(scenario())
    assert node.process.returncode == 0
    assert "messages are refused" in node.errors
    assert "messages are taken again" in node.errors
