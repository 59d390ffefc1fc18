"""A folder that is only read: everything can be looked at, and nothing can be changed."""

from collections.abc import Callable
from pathlib import Path

import pytest

from moorline.errors import FolderUnusable
from moorline.journal.read_only_disk import ReadOnlyDisk

CHANGES: list[Callable[[ReadOnlyDisk], object]] = [
    lambda disk: disk.make_folders("new"),
    lambda disk: disk.rename("file", "other"),
    lambda disk: disk.remove("file"),
    lambda disk: disk.remove_folder(""),
    lambda disk: disk.write_whole("file", b"other"),
    lambda disk: disk.open("new", create=True),
    lambda disk: disk.open("file", create=False).append(b"more"),
    lambda disk: disk.open("file", create=False).append_many([b"more"]),
    lambda disk: disk.open("file", create=False).truncate(0),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "file").write_bytes(b"content")
    return tmp_path


def test_what_is_there_can_be_read(folder: Path) -> None:
    disk = ReadOnlyDisk(folder)
    assert disk.list_folder("") == ["file"]
    assert disk.exists("file")
    assert not disk.exists("other")
    assert disk.is_folder("")
    assert disk.free_bytes("") > 0
    file = disk.open("file", create=False)
    assert disk.open_handles == 1
    assert (file.size(), file.read_at(3, 100), file.read_at(7, 1)) == (7, b"tent", b"")
    file.sync()
    file.close()
    file.close()
    assert disk.open_handles == 0


def test_syncs_of_what_nobody_changed_do_nothing(folder: Path) -> None:
    disk = ReadOnlyDisk(folder)
    disk.sync_folder("")
    disk.sync_all()


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_a_mistake_of_ours_and_changes_nothing(
    folder: Path, change: Callable[[ReadOnlyDisk], object]
) -> None:
    with pytest.raises(AssertionError):
        change(ReadOnlyDisk(folder))
    assert [path.name for path in folder.iterdir()] == ["file"]
    assert (folder / "file").read_bytes() == b"content"


def test_what_is_no_folder_is_refused_by_name(folder: Path) -> None:
    with pytest.raises(FolderUnusable, match="is no folder: give the path of a data folder"):
        ReadOnlyDisk(folder / "file")
