"""Nodes on a small disk that only they see."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from chaos.small_disk import SmallDisk
from tests.process.nodes import MOOR, NodeProcess, clean_environment

from moorline.limits import MIB


@contextmanager
def made_disk(folder: Path, files_max: int = 0) -> Iterator[SmallDisk]:
    made = SmallDisk(folder, size_mib=400, files_max=files_max)
    try:
        if made.why_not or subprocess.run([*made.prefix(), "true"], check=False).returncode:
            pytest.skip(made.why_not or "this machine lets nobody enter a small disk")
        yield made
    finally:
        made.close()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with made_disk(tmp_path / "disk") as made:
        yield made


class NodeInside(NodeProcess):
    """A node whose data folder is on that disk; what it says is in the folder of `errors`."""

    def __init__(self, disk: SmallDisk, errors: Path, *flags: str) -> None:
        self.data = errors
        self.process = subprocess.Popen(
            [
                *disk.prefix(),
                *MOOR,
                *("serve", f"--data={disk.folder}/data", "--listen=tcp://127.0.0.1:0"),
                "--http=127.0.0.1:0",
                *flags,
            ],
            stdout=subprocess.PIPE,
            stderr=(errors.parent / f"{errors.name}.stderr").open("ab"),
            env=clean_environment(),
        )
        self.ready_line = self._wait_ready()


def run_inside(disk: SmallDisk, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A command of `moor` that sees the disk."""
    return subprocess.run(
        [*disk.prefix(), *MOOR, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        env=clean_environment(),
        check=False,
    )


def free_mib(disk: SmallDisk) -> float:
    room = os.statvfs(disk.outside)
    return room.f_bavail * room.f_frsize / MIB
