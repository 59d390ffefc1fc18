"""A real node whose audit trail has a disk of its own, which is full: it says so, and stops or goes on."""

import asyncio
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from chaos.small_disk import SmallDisk
from tests.process.nodes import NodeProcess
from tests.process.proving import audited
from tests.process.template import copy_catalog

import moorline
from moorline.client.moor import Moor
from moorline.errors import Denied, NotAudited

pytestmark = pytest.mark.process

FLAGS = ("--set=streams.shards=2", "--set=streams.sync=process", "--set=queues.sync=process")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    made = SmallDisk(tmp_path / "disk", size_mib=1)
    try:
        if made.why_not or not made.outside.is_dir():
            pytest.skip(made.why_not or "this machine shows nobody a small disk")
        yield made
    finally:
        made.close()


def health(node: NodeProcess) -> str:
    try:
        with urllib.request.urlopen(f"{node.http}/healthz", timeout=5) as answer:
            return str(answer.read().decode())
    except urllib.error.HTTPError as error:
        return error.read().decode()


async def is_told(node: NodeProcess, *, is_full: bool) -> None:
    async with asyncio.timeout(30):
        while ("audit trail" in await asyncio.to_thread(health, node)) != is_full:
            await asyncio.sleep(0.02)


async def others_go_on(moor: Moor) -> None:
    """What is no operator's act needs no line to be done, nor to be refused."""
    await moor.publish("orders", b"1")
    with pytest.raises(Denied):
        await moor.publish("$SYS/forged", b"1")


async def test_operators_stop_or_go_on_as_the_setting_says(disk: SmallDisk, tmp_path: Path) -> None:
    """A42: told in /healthz, typed, and what could not be written is counted by a line behind it."""
    data = tmp_path / "data"
    copy_catalog(data / "catalog")
    (data / "audit").symlink_to(disk.outside)
    with NodeProcess(data, *FLAGS, "--set=access.audit_full=stop") as node:
        async with moorline.connect(node.address, reconnect=False) as operator:
            await operator.confirm_clock()
            disk.fill(left_bytes=0)
            await _cannot_be_written(operator)
            await others_go_on(operator)
            await is_told(node, is_full=True)
            disk.empty()
            await operator.confirm_clock()
            await is_told(node, is_full=False)
            await asyncio.to_thread(node.kill)

    with NodeProcess(data, *FLAGS, "--set=access.audit_full=go_on") as node:
        async with moorline.connect(node.address, reconnect=False) as operator:
            disk.fill(left_bytes=0)
            await _until_lost(operator, node)
            await operator.access.add_grant("/topics/x", "vera", "s")
            await others_go_on(operator)
            disk.empty()
            await is_told(node, is_full=False)
            await operator.confirm_clock()
        gaps = [line for line in audited(node) if line["act"] == "AuditGap"]
        assert gaps
        assert gaps[-1]["verdict"] == "failed"
        assert sum(line["count"] for line in gaps) >= 2
        assert "Traceback" not in node.errors


async def _cannot_be_written(operator: Moor) -> None:
    """The block that the file has may still take some lines."""

    async def confirm_forever() -> None:
        while True:
            await operator.confirm_clock()

    with pytest.raises(NotAudited, match=r"access\.audit_full"):
        await asyncio.wait_for(confirm_forever(), 30)
    with pytest.raises(NotAudited):
        await operator.access.add_grant("/topics/x", "vera", "s")
    assert not await operator.access.check("s", "/topics/x", "vera"), "nothing was done"


async def _until_lost(operator: Moor, node: NodeProcess) -> None:
    async with asyncio.timeout(30):
        while "audit trail" not in await asyncio.to_thread(health, node):
            await operator.confirm_clock()
