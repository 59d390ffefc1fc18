"""A small file whose room is taken before: it is the old one or the new one at every step."""

import random

import pytest

from moorline.errors import DiskFull
from moorline.journal.disk import TEMPORARY_SUFFIX, read_all
from moorline.journal.reserved_whole import ReservedWhole
from moorline.testing import MemoryDisk
from moorline.testing.memory_disk import Crashed

OLD, NEW = b"old", b"something new"


def replaced(disk: MemoryDisk) -> None:
    reserved = ReservedWhole(disk, "list", 40)
    reserved.write(NEW)
    reserved.drop()


@pytest.mark.parametrize("step", range(16))
def test_a_crash_leaves_the_old_or_the_new(step: int) -> None:
    disk = MemoryDisk()
    disk.write_whole("list", OLD)
    disk.steps, disk.crash_at = 0, step
    try:
        replaced(disk)
    except Crashed:
        disk.crash(random.Random(step), lose="some")
        assert read_all(disk, "list") in (OLD, NEW)
        disk.write_whole("list", OLD)
        replaced(disk)
    assert read_all(disk, "list") == NEW
    assert [path for path in disk.files() if path.endswith(TEMPORARY_SUFFIX)] == []


def test_where_there_is_no_room_nothing_has_changed() -> None:
    disk = MemoryDisk(capacity_bytes=42)
    disk.write_whole("list", OLD)
    with pytest.raises(DiskFull):
        ReservedWhole(disk, "list", 40)
    assert disk.files() == {"list": OLD}


def test_one_that_is_not_written_leaves_nothing() -> None:
    disk = MemoryDisk()
    disk.write_whole("list", OLD)
    ReservedWhole(disk, "list", 40).drop()
    assert disk.files() == {"list": OLD}
