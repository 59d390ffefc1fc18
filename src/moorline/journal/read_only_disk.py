"""Room: journal. A folder of which nothing can be changed: the base of every read without a server.

The node that owns the folder may run meanwhile. What only looks opens files for reading, makes none, and
needs no right to write.
"""

import os
from pathlib import Path

from moorline.errors import FolderUnusable
from moorline.journal.disk import DiskFile, check_path


class ReadOnlyDisk:
    """A `Disk` whose every change is a mistake of ours; lay an `OverlayDisk` over it to allow them."""

    def __init__(self, root: Path) -> None:
        self._root = root.absolute()
        if not self._root.is_dir():
            raise FolderUnusable(f"{self._root} is no folder: give the path of a data folder")
        self._open_handles = 0

    @property
    def open_handles(self) -> int:
        return self._open_handles

    def where(self, path: str) -> Path:
        check_path(path)
        return self._root / path if path else self._root

    def open(self, path: str, *, create: bool) -> DiskFile:
        assert not create, f"{path} would be made"
        return ReadOnlyFile(self, self.descriptor_of(path), path)

    def descriptor_of(self, path: str) -> int:
        """Opened for reading; whoever wraps it closes it."""
        descriptor = os.open(self.where(path), os.O_RDONLY | os.O_CLOEXEC)
        self._open_handles += 1
        return descriptor

    def exists(self, path: str) -> bool:
        return self.where(path).exists()

    def is_folder(self, path: str) -> bool:
        return self.where(path).is_dir()

    def list_folder(self, path: str) -> list[str]:
        return sorted(os.listdir(self.where(path)))

    def free_bytes(self, path: str) -> int:
        room = os.statvfs(self.where(path))
        return room.f_bavail * room.f_frsize

    def make_folders(self, path: str) -> None:
        raise _refused(path)

    def rename(self, source: str, target: str) -> None:  # noqa: ARG002
        raise _refused(source)

    def remove(self, path: str) -> None:
        raise _refused(path)

    def remove_folder(self, path: str) -> None:
        raise _refused(path)

    def write_whole(self, path: str, data: bytes) -> None:  # noqa: ARG002
        raise _refused(path)

    def sync_folder(self, path: str) -> None:
        """Nothing was changed."""

    def sync_all(self) -> None:
        """As above."""

    def closed(self) -> None:
        self._open_handles -= 1


class ReadOnlyFile:
    """A `DiskFile` that is only read."""

    __slots__ = ("_descriptor", "_disk", "_path")

    def __init__(self, disk: ReadOnlyDisk, descriptor: int, path: str) -> None:
        self._disk = disk
        self._descriptor = descriptor
        self._path = path

    def read_at(self, offset: int, length: int) -> bytes:
        data = os.pread(self._descriptor, length, offset)
        while len(data) < length:
            more = os.pread(self._descriptor, length - len(data), offset + len(data))
            if not more:
                break
            data += more
        return data

    def read_into(self, buffer: memoryview, offset: int) -> int:
        """Fills the buffer; fewer bytes only where the file ends."""
        done = 0
        while done < len(buffer):
            count = os.preadv(self._descriptor, [buffer[done:]], offset + done)
            if not count:
                break
            done += count
        return done

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def sync(self) -> None:
        """What was seen in the file survives a power cut from now on, whoever wrote it."""
        os.fsync(self._descriptor)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
            self._disk.closed()

    def append(self, data: bytes | bytearray | memoryview) -> None:  # noqa: ARG002
        raise _refused(self._path)

    def append_many(self, parts: list[bytes]) -> None:  # noqa: ARG002
        raise _refused(self._path)

    def write_at(self, offset: int, data: bytes | memoryview) -> None:  # noqa: ARG002
        raise _refused(self._path)

    def truncate(self, size: int) -> None:  # noqa: ARG002
        raise _refused(self._path)


def _refused(path: str) -> AssertionError:
    return AssertionError(f"{path} would be changed by a read")
