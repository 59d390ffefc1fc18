"""The disk's interface, on the real disk and on the one in memory: both must do the same."""

import contextlib
import os
import resource
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.drawing import examples
from tests.journal.queues.stores import contents, filled, opened

from moorline.errors import DiskFull, FolderUnusable, TooManyFiles
from moorline.journal.disk import TEMPORARY_SUFFIX, Disk, DiskFile, FileDisk
from moorline.journal.handles import Handles
from moorline.testing import MemoryDisk


@pytest.fixture(params=["file", "memory"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    return FileDisk(tmp_path / "root") if request.param == "file" else MemoryDisk()


def content(disk: Disk, path: str) -> bytes:
    file = disk.open(path, create=False)
    try:
        return file.read_at(0, file.size())
    finally:
        file.close()


def put(disk: Disk, path: str, data: bytes = b"") -> None:
    file = disk.open(path, create=True)
    file.append(data)
    file.close()


# --- files ----------------------------------------------------------------------------------------


def test_appends_and_reads_back(disk: Disk) -> None:
    file = disk.open("log", create=True)
    file.append(b"one")
    file.append(bytearray(b"two"))
    file.append(memoryview(b"three"))
    file.append(b"")
    file.sync()
    assert file.size() == 11
    assert file.read_at(0, 11) == b"onetwothree"
    assert file.read_at(3, 3) == b"two"


def test_reads_short_only_at_the_end(disk: Disk) -> None:
    file = disk.open("log", create=True)
    file.append(b"0123456789")
    assert file.read_at(8, 100) == b"89"
    assert file.read_at(10, 1) == b""
    assert file.read_at(1_000, 1) == b""
    assert file.read_at(2, 0) == b""


def test_appends_more_parts_than_one_system_call_takes(disk: Disk) -> None:
    parts = [b"%d," % number for number in range(3_000)]
    file = disk.open("log", create=True)
    file.append_many(parts)
    file.append_many([])
    file.append_many([b"", b"end", b""])
    assert file.read_at(0, file.size()) == b"".join(parts) + b"end"


def test_appends_after_a_truncate_go_to_the_new_end(disk: Disk) -> None:
    file = disk.open("log", create=True)
    file.append(b"0123456789")
    file.truncate(4)
    file.append(b"x")
    assert file.read_at(0, 100) == b"0123x"


def test_truncate_never_makes_a_file_longer(disk: Disk) -> None:
    file = disk.open("log", create=True)
    with pytest.raises(AssertionError):
        file.truncate(1)


def test_two_handles_see_one_file(disk: Disk) -> None:
    writer, reader = disk.open("log", create=True), disk.open("log", create=False)
    writer.append(b"a")
    reader.append(b"b")
    writer.append(b"c")
    assert reader.read_at(0, 9) == b"abc"


def test_a_missing_file_is_made_only_if_asked_for(disk: Disk) -> None:
    with pytest.raises(FileNotFoundError):
        disk.open("log", create=False)
    assert not disk.exists("log")
    disk.open("log", create=True).close()
    assert disk.exists("log")
    with pytest.raises(FileNotFoundError):
        disk.open("no/log", create=True)


def test_counts_its_handles(disk: Disk) -> None:
    first, second = disk.open("a", create=True), disk.open("a", create=True)
    assert disk.open_handles == 2
    first.close()
    first.close()
    assert disk.open_handles == 1
    second.close()
    assert disk.open_handles == 0
    disk.write_whole("b", b"x")
    assert disk.open_handles == 0
    with pytest.raises(FileNotFoundError):
        disk.open("c", create=False)
    assert disk.open_handles == 0


def test_a_closed_handle_is_of_no_use(disk: Disk) -> None:
    file = disk.open("a", create=True)
    file.close()
    for use in (file.sync, file.size, lambda: file.append(b"x"), lambda: file.read_at(0, 1)):
        with pytest.raises((OSError, ValueError), match=r"Bad file descriptor|negative"):
            use()


def test_a_removed_file_lives_on_in_its_handle(disk: Disk) -> None:
    file = disk.open("a", create=True)
    disk.remove("a")
    file.append(b"x")
    assert file.read_at(0, 1) == b"x"
    assert not disk.exists("a")


# --- names ----------------------------------------------------------------------------------------


def test_lists_names_sorted(disk: Disk) -> None:
    assert disk.list_folder("") == []
    disk.make_folders("b/inner")
    put(disk, "c")
    put(disk, "a")
    assert disk.list_folder("") == ["a", "b", "c"]
    assert disk.list_folder("b") == ["inner"]
    assert disk.is_folder("")
    assert disk.is_folder("b/inner")
    assert not disk.is_folder("a")
    assert not disk.is_folder("nothing")
    assert disk.exists("b/inner")
    assert not disk.exists("a/below-a-file")


def test_makes_folders_again_and_again(disk: Disk) -> None:
    disk.make_folders("")
    disk.make_folders("a/b")
    disk.make_folders("a/b/c")
    disk.make_folders("a/b")
    put(disk, "a/file")
    with pytest.raises(FileExistsError):
        disk.make_folders("a/file")
    with pytest.raises(NotADirectoryError):
        disk.make_folders("a/file/b/c")


def test_rename_replaces(disk: Disk) -> None:
    put(disk, "a", b"new")
    put(disk, "b", b"old")
    disk.rename("a", "b")
    assert disk.list_folder("") == ["b"]
    assert content(disk, "b") == b"new"
    disk.rename("b", "b")
    assert content(disk, "b") == b"new"


def test_renames_folders_whole(disk: Disk) -> None:
    disk.make_folders("a/b")
    disk.make_folders("z")
    put(disk, "a/b/file", b"x")
    disk.rename("a/b", "z/c")
    assert content(disk, "z/c/file") == b"x"
    assert disk.list_folder("a") == []
    disk.rename("z/c", "a")
    assert content(disk, "a/file") == b"x"


def test_removes(disk: Disk) -> None:
    disk.make_folders("a/b/c")
    put(disk, "a/b/file")
    put(disk, "file")
    disk.remove("file")
    disk.remove_folder("a")
    assert disk.list_folder("") == []


@pytest.mark.parametrize(
    ("kind", "act"),
    [
        (FileNotFoundError, lambda disk: disk.list_folder("no")),
        (NotADirectoryError, lambda disk: disk.list_folder("file")),
        (FileNotFoundError, lambda disk: disk.remove("no")),
        (IsADirectoryError, lambda disk: disk.remove("full")),
        (FileNotFoundError, lambda disk: disk.remove_folder("no")),
        (NotADirectoryError, lambda disk: disk.remove_folder("file")),
        (FileNotFoundError, lambda disk: disk.rename("no", "x")),
        (FileNotFoundError, lambda disk: disk.rename("file", "no/x")),
        (IsADirectoryError, lambda disk: disk.rename("file", "full")),
        (NotADirectoryError, lambda disk: disk.rename("full", "file")),
        (OSError, lambda disk: disk.rename("full", "full/x")),
        (OSError, lambda disk: disk.rename("empty", "full")),
        (OSError, lambda disk: disk.rename("full/file", "full")),
        (IsADirectoryError, lambda disk: disk.open("full", create=True)),
        (NotADirectoryError, lambda disk: disk.open("file/x", create=True)),
        (FileNotFoundError, lambda disk: disk.sync_folder("no")),
        (NotADirectoryError, lambda disk: disk.sync_folder("file")),
        (FileNotFoundError, lambda disk: disk.free_bytes("no")),
        (AssertionError, lambda disk: disk.open("../x", create=True)),
        (AssertionError, lambda disk: disk.open("/x", create=True)),
        (AssertionError, lambda disk: disk.exists("a//b")),
        (AssertionError, lambda disk: disk.remove_folder("")),
        (AssertionError, lambda disk: disk.rename("", "x")),
    ],
)
def test_refuses(disk: Disk, kind: type[Exception], act: Callable[[Disk], object]) -> None:
    disk.make_folders("full")
    disk.make_folders("empty")
    put(disk, "full/file")
    put(disk, "file")
    with pytest.raises(kind):
        act(disk)


def test_write_whole_replaces_and_leaves_nothing_else(disk: Disk) -> None:
    disk.make_folders("a")
    put(disk, "a/state" + TEMPORARY_SUFFIX, b"left by a crash, and longer than the new content")
    disk.write_whole("a/state", b"one")
    disk.write_whole("a/state", b"two")
    assert content(disk, "a/state") == b"two"
    assert disk.list_folder("a") == ["state"]
    disk.write_whole("at-the-root", b"three")
    assert content(disk, "at-the-root") == b"three"


def test_says_what_is_free(disk: Disk) -> None:
    assert disk.free_bytes("") > 0


# --- any sequence of operations -------------------------------------------------------------------

PATHS = st.sampled_from(["a", "b", "a/x", "a/y", "b/x", "a/x/deep"])
OPERATIONS = st.one_of(
    st.tuples(st.just("put"), PATHS, st.binary(max_size=4)),
    st.tuples(st.just("write_whole"), PATHS, st.binary(max_size=4)),
    st.tuples(st.just("rename"), PATHS, PATHS),
    st.tuples(st.sampled_from(["make_folders", "remove", "remove_folder", "sync_folder"]), PATHS),
    st.tuples(st.sampled_from(["content", "list_folder", "exists", "is_folder"]), PATHS),
)


def outcome(disk: Disk, operation: tuple[object, ...]) -> object:
    name, *arguments = operation
    act: Callable[..., object]
    match name:
        case "put":
            act = partial(put, disk)
        case "content":
            act = partial(content, disk)
        case _:
            act = getattr(disk, str(name))
    try:
        return act(*arguments)
    except OSError as error:
        return error.errno


@settings(deadline=None, max_examples=examples(150))
@given(st.lists(OPERATIONS, max_size=25))
def test_memory_does_as_files_do(operations: list[tuple[object, ...]]) -> None:
    with TemporaryDirectory() as folder:
        real, memory = FileDisk(Path(folder)), MemoryDisk()
        for operation in operations:
            assert outcome(memory, operation) == outcome(real, operation), operation
        assert memory.open_handles == real.open_handles == 0


# --- the real disk alone --------------------------------------------------------------------------


def test_finishes_short_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, bytes(data[:3])))
    monkeypatch.setattr(os, "writev", lambda fd, parts: write(fd, b"".join(parts)[:5]))
    file = FileDisk(tmp_path).open("log", create=True)
    file.append(b"0123456789")
    file.append_many([b"ab", b"", b"cdefghi", b"j"])
    assert file.read_at(0, 100) == b"0123456789abcdefghij"


def use_full_append(file: DiskFile) -> None:
    file.append(b"x")


def use_full_append_many(file: DiskFile) -> None:
    file.append_many([b"x", b"y"])


@pytest.mark.parametrize("use", [use_full_append, use_full_append_many])
def test_a_full_device_says_what_to_do(tmp_path: Path, use: Callable[[DiskFile], None]) -> None:
    (tmp_path / "log").symlink_to("/dev/full")
    with pytest.raises(DiskFull, match="Free some space"):
        use(FileDisk(tmp_path).open("log", create=False))


def test_a_full_device_leaves_no_temporary_file(tmp_path: Path) -> None:
    disk = FileDisk(tmp_path)
    (tmp_path / ("state" + TEMPORARY_SUFFIX)).symlink_to("/dev/full")
    with pytest.raises(DiskFull):
        disk.write_whole("state", b"x")
    assert disk.list_folder("") == []
    assert disk.open_handles == 0


def test_a_root_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for root in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(FolderUnusable, match="choose another folder"):
            FileDisk(root)


def test_a_root_that_may_not_be_written_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The superuser may write everywhere, and tests may run as one: the system's answer is forced.
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(FolderUnusable, match="may not write"):
        FileDisk(tmp_path)


def test_keeps_others_out(tmp_path: Path) -> None:
    disk = FileDisk(tmp_path / "root")
    disk.make_folders("a")
    put(disk, "a/log")
    for path, mode in (("", 0o700), ("a", 0o700), ("a/log", 0o600)):
        assert (tmp_path / "root" / path).stat().st_mode & 0o777 == mode


@contextlib.contextmanager
def no_descriptor_left() -> Iterator[None]:
    """The process may open no more files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest_free = os.open(os.devnull, os.O_RDONLY)
    os.close(lowest_free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_no_descriptor_left_says_nothing_of_the_file(tmp_path: Path) -> None:
    disk = FileDisk(tmp_path)
    disk.open("there", create=True).close()
    with no_descriptor_left(), pytest.raises(TooManyFiles, match="limit of open files") as found:
        disk.open("there", create=False)
    assert not isinstance(found.value, OSError), "it would be taken for a missing file"
    for act in (disk.list_folder, disk.sync_folder):
        with no_descriptor_left(), pytest.raises(TooManyFiles):
            act("")
    with no_descriptor_left(), pytest.raises(TooManyFiles):
        disk.sync_all()
    assert disk.open_handles == 0


def test_a_cache_of_files_gives_one_of_its_own_for_the_next(tmp_path: Path) -> None:
    disk = FileDisk(tmp_path)
    handles = Handles(disk, 10)
    names = [f"file {number}" for number in range(6)]
    with no_descriptor_left(), pytest.raises(TooManyFiles):
        handles.get(names[0], create=True)
    for name in names[:5]:
        handles.get(name, create=True).append(name.encode())
    with no_descriptor_left():
        handles.get(names[5], create=True).append(names[5].encode())
        for name in names:
            assert handles.get(name, create=False).read_at(0, 10) == name.encode()
    assert len(handles) == disk.open_handles == 5
    handles.close()


def test_a_queue_is_not_set_aside_for_want_of_a_descriptor(tmp_path: Path) -> None:
    disk = FileDisk(tmp_path)
    queue_id = filled(disk)[0]
    before = contents(disk)
    store = opened(disk)
    queue = store.find(queue_id)
    assert queue is not None
    with no_descriptor_left(), pytest.raises(TooManyFiles):
        store.head(queue)
    assert not queue.damaged
    assert store.head(queue) is not None, "as soon as there is one again"
    store.close()
    assert contents(disk) == before
