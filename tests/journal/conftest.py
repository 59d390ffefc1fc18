from pathlib import Path

import pytest
from tests.journal.lives import Lives

from moorline.journal.disk import FileDisk
from moorline.testing import MemoryDisk


@pytest.fixture(params=["memory", "file"])
def lives(request: pytest.FixtureRequest, tmp_path: Path) -> Lives:
    return Lives(MemoryDisk() if request.param == "memory" else FileDisk(tmp_path / "streams"))
