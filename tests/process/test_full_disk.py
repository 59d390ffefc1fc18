"""A real node on a small disk, with less room than its reserve: it is checked, exported, started, drained."""

import asyncio
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.process.nodes import MOOR, NodeProcess, clean_environment
from tests.process.test_serve import fetch

import moorline
from moorline.client.moor import Moor
from moorline.errors import NodeDiskFull
from moorline.limits import DISK_FREE_BYTES_MIN, MIB

pytestmark = pytest.mark.process

FREE_MIB = 20
"""Room that is left: below the reserve, and below what a queue's log and files could need."""


class SmallDisk:
    """A disk of a few hundred MiB, which only those see who are sent inside."""

    def __init__(self, folder: Path, size_mib: int) -> None:
        self.folder = folder / "disk"
        self.folder.mkdir()
        is_root = os.geteuid() == 0
        mount = f"mount -t tmpfs -o size={size_mib}m,mode=0777 small {self.folder}"
        self._process = subprocess.Popen(
            [
                "unshare",
                "-m" if is_root else "-rm",
                "sh",
                "-c",
                f"{mount} && echo made && exec cat",
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert self._process.stdout is not None
        self.is_made = self._process.stdout.readline() == b"made\n"
        rights = [] if is_root else ["-U", "--preserve-credentials"]
        self.inside = ["nsenter", "-t", str(self._process.pid), *rights, "-m"]
        self.seen = Path(f"/proc/{self._process.pid}/root{self.folder}")
        """The same folder as those outside reach it."""

    def close(self) -> None:
        self._process.communicate(timeout=30)

    def leave_free(self, mib: int) -> None:
        room = os.statvfs(self.seen)
        with (self.seen / "ballast").open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, room.f_bavail * room.f_frsize - mib * MIB)
        assert os.statvfs(self.seen).f_bavail * room.f_frsize < DISK_FREE_BYTES_MIN

    def moor(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self.inside, *MOOR, *arguments],
            capture_output=True,
            text=True,
            timeout=120,
            env=clean_environment(),
            check=False,
        )


class NodeInside(NodeProcess):
    """A node whose data folder is on that disk."""

    def __init__(self, disk: SmallDisk, errors: Path, data: str = "data") -> None:
        self.data = errors
        self.process = subprocess.Popen(
            [
                *disk.inside,
                *MOOR,
                *("serve", f"--data={disk.folder}/{data}", "--listen=tcp://127.0.0.1:0"),
                "--http=127.0.0.1:0",
            ],
            stdout=subprocess.PIPE,
            stderr=(errors.parent / f"{errors.name}.stderr").open("ab"),
            env=clean_environment(),
        )
        self.ready_line = self._wait_ready()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    try:
        made = SmallDisk(tmp_path, 400)
    except FileNotFoundError:
        pytest.skip("no unshare on this machine")
    try:
        if not made.is_made or subprocess.run([*made.inside, "true"], check=False).returncode:
            pytest.skip("this machine lets nobody mount a small disk")
        yield made
    finally:
        made.close()


async def fill(address: str) -> str:
    async with moorline.connect(address) as moor:
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
    disk.leave_free(FREE_MIB)
    data = f"--data={disk.folder}/data"
    done = disk.moor("journal", "check", data, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["messages"] == 5
    done = disk.moor("journal", "export", str(tmp_path / "queues.jsonl"), data, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["messages"] == 5
    # What would need room is refused by its name, with nothing begun.
    assert disk.moor("journal", "import", str(tmp_path / "queues.jsonl"), data).returncode == 9
    done = disk.moor("serve", f"--data={disk.folder}/new", "--listen=tcp://127.0.0.1:0")
    assert done.returncode == 9
    assert f"only {FREE_MIB - 1} MiB left" in done.stderr or f"only {FREE_MIB} MiB" in done.stderr

    with NodeInside(disk, tmp_path / "second") as node:

        async def scenario() -> None:
            async with moorline.connect(node.address) as moor:
                await check_refusals(moor, queue)
                await drain(moor, queue)
                await moor.checkpoint()
                await check_refusals(moor, queue)
                warnings = (await moor.describe()).warnings
                assert [warning for warning in warnings if "disk" in warning]
                pages = await asyncio.to_thread(health, node)
                assert pages["/livez"] == (200, []), "a restart would not help"
                assert pages["/readyz"] == pages["/healthz"] == (503, list(warnings))
                (disk.seen / "ballast").unlink()
                await taken_again(moor, queue)
                assert (await moor.describe()).warnings == ()
                pages = await asyncio.to_thread(health, node)
                assert all(found == (200, []) for found in pages.values())

        asyncio.run(scenario())
    assert node.process.returncode == 0
    assert "messages are refused" in node.errors
    assert "messages are taken again" in node.errors
