"""Room: journal. The only disk: a small interface, and its real implementation on a folder.

    disk = FileDisk(Path("/var/lib/moorline"))
    file = disk.open("queues/log", create=True)
    file.append(record)
    file.sync()

Paths are plain text relative to the disk's root, parts joined by `/`; `""` is the root itself.
`moorline.testing.MemoryDisk` is the second implementation: it loses what a real machine would lose.

What is durable, and when:

    appended, truncated or written over   after `DiskFile.sync`
    created, renamed, removed, folder made or removed   after `sync_folder` of the parent
    `write_whole`           when it returns, if its folder is durable
"""

import ctypes
import errno
import fcntl
import os
import shutil
import sys
from pathlib import Path
from typing import Final, Protocol

from moorline.errors import DiskFull, FolderUnusable, TooManyFiles

TEMPORARY_SUFFIX: Final = ".new"
"""Name ending of a `write_whole` that has not finished. A crash may leave one behind: whoever lists
a folder passes over it, and the next `write_whole` of the same path takes its place."""

_PARTS_PER_WRITE_MAX: Final = os.sysconf("SC_IOV_MAX")
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_NO_DESCRIPTOR: Final = frozenset({errno.EMFILE, errno.ENFILE})

# The data belong to the user who runs the node and to nobody else.
_FILE_MODE: Final = 0o600
_FOLDER_MODE: Final = 0o700

# A file's data and size are all that must be durable, its times are not. macOS has no fdatasync.
_sync_data = getattr(os, "fdatasync", os.fsync)

_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


class DiskFile(Protocol):
    """An open file that grows at its end."""

    def append(self, data: bytes | bytearray | memoryview) -> None:
        """Adds the whole buffer. After `DiskFull` a part of it may be there: truncate it away."""

    def append_many(self, parts: list[bytes]) -> None:
        """Adds all parts in order, without joining them in memory first."""

    def write_at(self, offset: int, data: bytes | memoryview) -> None:
        """Writes over bytes that are there, all of them below the present size.

        Until the next sync each block of them may be the old one or the new one, in any order. From the
        first call on this handle appends no more.
        """

    def read_at(self, offset: int, length: int) -> bytes:
        """The bytes from there on; fewer than asked for only where the file ends."""

    def size(self) -> int: ...

    def truncate(self, size: int) -> None:
        """Cuts the file to that size, which must not be above the present one."""

    def sync(self) -> None:
        """Returns when all appended so far is durable. After an error do not try again: the system
        may have dropped the data and would report success."""

    def close(self) -> None:
        """Gives the handle back; closing twice is harmless."""


class Disk(Protocol):
    """A tree of folders and files."""

    @property
    def open_handles(self) -> int: ...

    def open(self, path: str, *, create: bool) -> DiskFile:
        """Opens for reading and appending; a missing file is made or is a `FileNotFoundError`.

        `TooManyFiles` says nothing of the file: the process has no descriptor left for it.
        """

    def exists(self, path: str) -> bool: ...

    def is_folder(self, path: str) -> bool: ...

    def list_folder(self, path: str) -> list[str]:
        """The names in a folder, sorted."""

    def make_folders(self, path: str) -> None:
        """Makes the folder and those above it; one that is there already is fine."""

    def rename(self, source: str, target: str) -> None:
        """Moves a file or folder; a file at the target is replaced, with no moment without one."""

    def remove(self, path: str) -> None:
        """Removes a file."""

    def remove_folder(self, path: str) -> None:
        """Removes a folder with all that is in it. A crash may leave it half empty."""

    def sync_folder(self, path: str) -> None:
        """Returns when the names in that folder are durable."""

    def sync_all(self) -> None:
        """Returns when everything written to this disk so far, names included, is durable."""

    def write_whole(self, path: str, data: bytes) -> None:
        """Replaces a small file: readers and crashes see the old content or the new, whole."""

    def free_bytes(self, path: str) -> int: ...


class FileDisk:
    """The real disk: a folder, and raw descriptors in it."""

    def __init__(self, root: Path) -> None:
        self._root = os.fspath(root.absolute())
        self._open_handles = 0
        try:
            os.makedirs(self._root, mode=_FOLDER_MODE, exist_ok=True)
            os.listdir(self._root)
            if not os.access(self._root, os.W_OK | os.X_OK):
                raise PermissionError(errno.EACCES, "this user may not write there")
        except OSError as error:
            _raise_if_full(error, self._root)
            raise FolderUnusable(
                f"the data folder {self._root} cannot be used: {error.strerror}. Give this user the "
                "right to read and write it, or choose another folder."
            ) from error

    @property
    def open_handles(self) -> int:
        return self._open_handles

    def open(self, path: str, *, create: bool) -> DiskFile:
        flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        where = self._where(path)
        try:
            descriptor = os.open(where, flags, _FILE_MODE)
        except OSError as error:
            _raise_if_full(error, where)
            _raise_if_no_descriptor(error, where)
            raise
        self._open_handles += 1
        return _OpenFile(self, descriptor, where)

    def exists(self, path: str) -> bool:
        return os.path.exists(self._where(path))

    def is_folder(self, path: str) -> bool:
        return os.path.isdir(self._where(path))

    def list_folder(self, path: str) -> list[str]:
        where = self._where(path)
        try:
            return sorted(os.listdir(where))
        except OSError as error:
            _raise_if_no_descriptor(error, where)
            raise

    def make_folders(self, path: str) -> None:
        where = self._where(path)
        try:
            self._make(where)
        except OSError as error:
            _raise_if_full(error, where)
            raise

    def _make(self, where: str) -> None:
        """From the innermost outwards: mostly the folder above is there, and one call is enough."""
        try:
            os.mkdir(where, _FOLDER_MODE)
        except FileNotFoundError:
            self._make(os.path.dirname(where))
            self._make(where)
        except FileExistsError:
            if not os.path.isdir(where):
                raise

    def rename(self, source: str, target: str) -> None:
        assert source, "the root itself cannot be renamed"
        assert target, "the root itself cannot be replaced"
        where = self._where(target)
        try:
            os.replace(self._where(source), where)
        except OSError as error:
            _raise_if_full(error, where)
            raise

    def remove(self, path: str) -> None:
        assert path, "the root itself cannot be removed"
        os.unlink(self._where(path))

    def remove_folder(self, path: str) -> None:
        assert path, "the root itself cannot be removed"
        shutil.rmtree(self._where(path))

    def sync_folder(self, path: str) -> None:
        where = self._where(path)
        descriptor = _opened_folder(where)
        try:
            os.fsync(descriptor)
        except OSError as error:
            _raise_if_full(error, where)
            raise
        finally:
            os.close(descriptor)

    def sync_all(self) -> None:
        descriptor = _opened_folder(self._root)
        try:
            # One call for thousands of files; Python has no name for it. Elsewhere than on Linux
            # the blunt one must do.
            if _libc is None:
                os.sync()
            elif _libc.syncfs(descriptor):
                number = ctypes.get_errno()
                error = OSError(number, os.strerror(number), self._root)
                _raise_if_full(error, self._root)
                raise error
        finally:
            os.close(descriptor)

    def write_whole(self, path: str, data: bytes) -> None:
        write_whole(self, path, data)

    def free_bytes(self, path: str) -> int:
        room = os.statvfs(self._where(path))
        return room.f_bavail * room.f_frsize

    def _where(self, path: str) -> str:
        check_path(path)
        return f"{self._root}/{path}" if path else self._root

    def _closed(self) -> None:
        self._open_handles -= 1


class _OpenFile:
    """A descriptor opened for appending. `append` is the hot path: one call, one system call."""

    __slots__ = ("_appends", "_descriptor", "_disk", "_where")

    def __init__(self, disk: FileDisk, descriptor: int, where: str) -> None:
        self._disk = disk
        self._descriptor = descriptor
        self._where = where
        self._appends = True

    def append(self, data: bytes | bytearray | memoryview) -> None:
        assert self._appends, "this handle writes in place"
        try:
            written = os.write(self._descriptor, data)
            if written != len(data):
                self._append_rest(memoryview(data)[written:])
        except OSError as error:
            _raise_if_full(error, self._where)
            raise

    def append_many(self, parts: list[bytes]) -> None:
        assert self._appends, "this handle writes in place"
        try:
            for start in range(0, len(parts), _PARTS_PER_WRITE_MAX):
                chunk = parts[start : start + _PARTS_PER_WRITE_MAX]
                written = os.writev(self._descriptor, chunk)
                if written != sum(map(len, chunk)):
                    # Short writes are rare enough that joining costs nothing.
                    self._append_rest(memoryview(b"".join(chunk))[written:])
        except OSError as error:
            _raise_if_full(error, self._where)
            raise

    def _append_rest(self, rest: memoryview) -> None:
        while rest:
            rest = rest[os.write(self._descriptor, rest) :]

    def write_at(self, offset: int, data: bytes | memoryview) -> None:
        if self._appends:
            # On Linux pwrite adds to the end of a file that is open for appending, whatever the offset.
            flags = fcntl.fcntl(self._descriptor, fcntl.F_GETFL)
            fcntl.fcntl(self._descriptor, fcntl.F_SETFL, flags & ~os.O_APPEND)
            self._appends = False
        assert offset + len(data) <= self.size(), "only what is there is written over"
        try:
            rest = memoryview(data)
            while rest:
                written = os.pwrite(self._descriptor, rest, offset)
                rest, offset = rest[written:], offset + written
        except OSError as error:
            _raise_if_full(error, self._where)
            raise

    def read_at(self, offset: int, length: int) -> bytes:
        data = os.pread(self._descriptor, length, offset)
        while len(data) < length:
            more = os.pread(self._descriptor, length - len(data), offset + len(data))
            if not more:
                break
            data += more
        return data

    def size(self) -> int:
        # The position is free to move: appends ignore it and reads bring their own.
        return os.lseek(self._descriptor, 0, os.SEEK_END)

    def truncate(self, size: int) -> None:
        assert 0 <= size <= self.size(), f"truncate only cuts: {size} > {self.size()}"
        os.ftruncate(self._descriptor, size)

    def sync(self) -> None:
        try:
            _sync_data(self._descriptor)
        except OSError as error:
            _raise_if_full(error, self._where)
            raise

    def fileno(self) -> int:
        return self._descriptor

    def close(self) -> None:
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            self._disk._closed()  # noqa: SLF001 - the handle is a part of its disk
            os.close(descriptor)


def write_whole(disk: Disk, path: str, data: bytes) -> None:
    """`Disk.write_whole` in terms of the rest of the interface: the same steps on every disk."""
    temporary = path + TEMPORARY_SUFFIX
    file = disk.open(temporary, create=True)
    try:
        if file.size():
            file.truncate(0)
        file.append(data)
        file.sync()
    except (OSError, DiskFull):
        disk.remove(temporary)
        raise
    finally:
        file.close()
    disk.rename(temporary, path)
    disk.sync_folder(parent(path))


def parent(path: str) -> str:
    """The folder that a path is in."""
    return path.rpartition("/")[0]


def check_path(path: str) -> None:
    """Paths are made by us, never by a peer: one that leaves the root is our mistake."""
    assert not path or not {"", ".", ".."} & set(path.split("/")), f"not a path in a disk: {path!r}"


def disk_full(where: str) -> DiskFull:
    return DiskFull(
        f"no room left on the device for {where}. Free some space or enlarge the volume, then start "
        "the node again."
    )


def _opened_folder(where: str) -> int:
    try:
        return os.open(where, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        _raise_if_no_descriptor(error, where)
        raise


def _raise_if_no_descriptor(error: OSError, where: str) -> None:
    """Not as an OSError: whoever takes one for a missing or damaged file must not take this for one."""
    if error.errno in _NO_DESCRIPTOR:
        raise TooManyFiles(
            f"the node could not open {where}: {error.strerror}. Try again later; if it stays, raise the "
            "limit of open files (ulimit -n, LimitNOFILE=)"
        ) from error


def _raise_if_full(error: OSError, where: str) -> None:
    if error.errno in _FULL:
        raise disk_full(where) from error


def read_all(disk: Disk, path: str) -> bytes:
    """A small file; nothing if it is not there."""
    try:
        file: DiskFile = disk.open(path, create=False)
    except FileNotFoundError:
        return b""
    try:
        return file.read_at(0, file.size())
    finally:
        file.close()
