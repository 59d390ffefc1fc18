from pathlib import Path

import pytest
from tests.journal.queues.queue_life import Damage, QueueLife
from tests.journal.streams.lives import Lives

from moorline.journal.disk import FileDisk
from moorline.testing import MemoryDisk


@pytest.fixture(params=["memory", "file"])
def lives(request: pytest.FixtureRequest, tmp_path: Path) -> Lives:
    """Of streams."""
    return Lives(MemoryDisk() if request.param == "memory" else FileDisk(tmp_path / "streams"))


@pytest.fixture(params=["memory", "files"])
def life(request: pytest.FixtureRequest, tmp_path: Path) -> QueueLife:
    return QueueLife(MemoryDisk() if request.param == "memory" else FileDisk(tmp_path / "queues"))


@pytest.fixture(params=["memory", "files"])
def damage(request: pytest.FixtureRequest, tmp_path: Path) -> Damage:
    return Damage(MemoryDisk() if request.param == "memory" else FileDisk(tmp_path / "queues"))
