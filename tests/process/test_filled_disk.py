"""Somebody fills the disk of a real node under its checkpoint: nothing ends, and all goes on with room."""

import asyncio
import contextlib
import json
import os
from pathlib import Path

import pytest
from chaos.small_disk import SmallDisk
from tests.catalog.databases import new_database
from tests.process.nodes import NodeProcess
from tests.process.small_disk import NodeInside, disk, run_inside
from tests.process.test_serve import fetch

import moorline
from moorline.catalog import EmbeddedPostgres
from moorline.client.moor import Moor
from moorline.errors import NodeDiskFull
from moorline.limits import MIB

pytestmark = pytest.mark.process

__all__ = ["disk"]

QUEUES, WITHIN_S = 1_500, 60
ROUNDS = 20
"""Checkpoints under which the disk is filled until one of them is caught under way."""


async def caught(moor: Moor, node: NodeProcess, disk: SmallDisk, queues: list[bytes]) -> int:
    """Fills the disk under a checkpoint; returns how many messages each queue has by then."""
    for count in range(1, ROUNDS + 1):
        await asyncio.gather(*(moor.send(queue, b"x" * 1_000) for queue in queues))
        before = used_files(disk)
        checkpoint = asyncio.create_task(moor.checkpoint())
        while used_files(disk) < before + 20 and not checkpoint.done():
            await asyncio.sleep(0)
        fill_up(disk)
        while not checkpoint.done():
            if "a checkpoint waits for room on the disk" in node.errors:
                checkpoint.cancel()
                return count
            await asyncio.sleep(0.05)
        # It was done before the disk was full.
        await asyncio.gather(checkpoint, return_exceptions=True)
        disk.empty()
        await taken_again(moor, queues[0])
        head = await moor.queue(queues[0]).get()
        assert head is not None
        await head.ack()
    pytest.fail("no checkpoint was caught under way")


def fill_up(disk: SmallDisk) -> None:
    """To the last block, whatever the node takes of it meanwhile."""
    with contextlib.suppress(OSError):
        disk.fill(left_bytes=8 * MIB)
    with contextlib.suppress(OSError), (disk.outside / "ballast").open("ab", buffering=0) as file:
        while True:
            file.write(bytes(4_096))


def used_files(disk: SmallDisk) -> int:
    room = os.statvfs(disk.outside)
    return room.f_files - room.f_ffree


async def taken_again(moor: Moor, queue: bytes) -> None:
    async with asyncio.timeout(WITHIN_S):
        while True:
            try:
                await moor.send(queue, b"more")
                return
            except NodeDiskFull:
                await asyncio.sleep(0.05)


@pytest.fixture
async def dsn(postgres: EmbeddedPostgres) -> str:
    """A catalog on another disk: what a full one does to Postgres is not looked at here."""
    return await new_database(postgres)


async def test_a_node_goes_on_when_somebody_has_filled_its_disk_under_a_checkpoint(
    disk: SmallDisk, tmp_path: Path, dsn: str
) -> None:
    flags = (f"--catalog={dsn}",)
    with NodeInside(disk, tmp_path / "first", *flags) as node:

        async def scenario() -> int:
            async with moorline.connect(node.address, reconnect=False) as moor:
                made = await asyncio.gather(*(moor.create_queue() for _ in range(QUEUES)))
                queues = [queue.id for queue in made]
                count = await caught(moor, node, disk, queues)
                async with asyncio.timeout(WITHIN_S):
                    while fetch(f"{node.http}/healthz")[0] == 200:
                        await asyncio.sleep(0.05)
                status, body = fetch(f"{node.http}/readyz")
                assert status == 503
                assert "messages are refused" in json.loads(body)["problems"][0]
                assert fetch(f"{node.http}/livez")[0] == 200, "a restart would not help"
                with pytest.raises(NodeDiskFull):
                    await moor.send(queues[-1], b"refused")
                disk.empty()
                await taken_again(moor, queues[-1])
                async with asyncio.timeout(WITHIN_S):
                    while fetch(f"{node.http}/healthz")[0] != 200:
                        await asyncio.sleep(0.05)
                await moor.checkpoint()
                return count

        count = await scenario()
    assert node.process.returncode == 0
    assert "the checkpoint goes on" in node.errors

    done = run_inside(disk, "journal", "check", f"--data={disk.folder}/data", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["messages"], found["problems"]) == (QUEUES * count + 1, [])
