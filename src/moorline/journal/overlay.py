"""Room: journal. A disk that shows another one and keeps every change of it in memory.

    store = Store(OverlayDisk(disk), …)
    store.open()                          # replays, repairs, sets aside: nothing of it reaches the disk

So the tools that only look run the very code that a node runs, and the folder stays as it was, byte for
byte. Memory is used for what is changed: a cut file costs a number, an appended one its new bytes.
"""

import errno
import os

from moorline.journal.disk import Disk, DiskFile, check_path, write_whole


class _File:
    """A file as it would be: so many bytes of a real one, then those that were appended."""

    __slots__ = ("base", "kept", "tail")

    def __init__(self, base: str | None, kept: int) -> None:
        self.base = base
        self.kept = kept
        self.tail = bytearray()


class _Folder:
    """A folder as it would be: the names of a real one, but for these. None is a removed name."""

    __slots__ = ("base", "names")

    def __init__(self, base: str | None) -> None:
        self.base = base
        self.names: dict[str, _File | _Folder | None] = {}


class OverlayDisk:
    """A `Disk` over another one that it never changes."""

    def __init__(self, base: Disk) -> None:
        self.base = base
        self._root = _Folder("")
        self._open_handles = 0

    @property
    def open_handles(self) -> int:
        return self._open_handles

    def open(self, path: str, *, create: bool) -> DiskFile:
        found = self._look_up(path)
        if found is None:
            if not create:
                raise _failure(errno.ENOENT, path)
            folder, name = self._changed_parent(path)
            found = folder.names[name] = _File(None, 0)
        if isinstance(found, _Folder) or (isinstance(found, str) and self.base.is_folder(found)):
            raise _failure(errno.EISDIR, path)
        self._open_handles += 1
        return _Handle(self, path)

    def exists(self, path: str) -> bool:
        return self._look_up(path) is not None

    def is_folder(self, path: str) -> bool:
        found = self._look_up(path)
        return self.base.is_folder(found) if isinstance(found, str) else isinstance(found, _Folder)

    def list_folder(self, path: str) -> list[str]:
        found = self._look_up(path)
        if found is None:
            raise _failure(errno.ENOENT, path)
        if isinstance(found, str):
            return self.base.list_folder(found)
        if isinstance(found, _File):
            raise _failure(errno.ENOTDIR, path)
        names = set() if found.base is None else set(self.base.list_folder(found.base))
        for name, node in found.names.items():
            if node is None:
                names.discard(name)
            else:
                names.add(name)
        return sorted(names)

    def make_folders(self, path: str) -> None:
        parts = path.split("/") if path else []
        for depth in range(1, len(parts) + 1):
            above = "/".join(parts[:depth])
            if not self.exists(above):
                folder, name = self._changed_parent(above)
                folder.names[name] = _Folder(None)
            elif not self.is_folder(above):
                raise _failure(errno.EEXIST if depth == len(parts) else errno.ENOTDIR, path)

    def rename(self, source: str, target: str) -> None:
        if not self.exists(source):
            raise _failure(errno.ENOENT, source)
        if source == target:
            return
        if self.is_folder(target):
            if not self.is_folder(source):
                raise _failure(errno.EISDIR, target)
            if self.list_folder(target):
                raise _failure(errno.ENOTEMPTY, target)
        elif self.is_folder(source) and self.exists(target):
            raise _failure(errno.ENOTDIR, target)
        node = self._changed(source)
        # The target first: a missing folder above it must leave the source where it is.
        folder, name = self._changed_parent(target)
        folder.names[name] = node
        folder, name = self._changed_parent(source)
        folder.names[name] = None

    def remove(self, path: str) -> None:
        if self.is_folder(path):
            raise _failure(errno.EISDIR, path)
        self._remove(path)

    def remove_folder(self, path: str) -> None:
        if self.exists(path) and not self.is_folder(path):
            raise _failure(errno.ENOTDIR, path)
        self._remove(path)

    def sync_folder(self, path: str) -> None:
        """Nothing to be done: nothing of this is ever durable."""

    def sync_all(self) -> None:
        """As above."""

    def write_whole(self, path: str, data: bytes) -> None:
        write_whole(self, path, data)

    def free_bytes(self, path: str) -> int:
        return self.base.free_bytes("") if self.exists(path) else 0

    # --- for the handles --------------------------------------------------------------------------

    def file_at(self, path: str) -> "_File | str":
        """The file as it was changed, or the path of the real one."""
        found = self._look_up(path)
        if found is None or isinstance(found, _Folder):
            raise _failure(errno.ENOENT, path)
        return found

    def changed_file(self, path: str) -> _File:
        node = self._changed(path)
        assert isinstance(node, _File)
        return node

    def handle_closed(self) -> None:
        self._open_handles -= 1

    # --- finding and changing names ---------------------------------------------------------------

    def _look_up(self, path: str) -> "_File | _Folder | str | None":
        """What is there: something changed, the path of something real, or nothing."""
        check_path(path)
        node: _File | _Folder | None = self._root
        parts = path.split("/") if path else []
        for depth, name in enumerate(parts):
            if not isinstance(node, _Folder):
                return None
            if name not in node.names:
                if node.base is None:
                    return None
                real = "/".join([*([node.base] if node.base else []), *parts[depth:]])
                return real if self.base.exists(real) else None
            node = node.names[name]
        return node

    def _changed(self, path: str) -> _File | _Folder:
        """The node to be changed; what was only real until now gets one."""
        found = self._look_up(path)
        if found is None:
            raise _failure(errno.ENOENT, path)
        if not isinstance(found, str):
            return found
        node: _File | _Folder
        if self.base.is_folder(found):
            node = _Folder(found)
        else:
            file = self.base.open(found, create=False)
            node = _File(found, file.size())
            file.close()
        folder, name = self._changed_parent(path)
        folder.names[name] = node
        return node

    def _changed_parent(self, path: str) -> tuple[_Folder, str]:
        above, _, name = path.rpartition("/")
        folder = self._changed(above) if above else self._root
        if isinstance(folder, _File):
            raise _failure(errno.ENOTDIR, path)
        return folder, name

    def _remove(self, path: str) -> None:
        if not self.exists(path):
            raise _failure(errno.ENOENT, path)
        folder, name = self._changed_parent(path)
        folder.names[name] = None


class _Handle:
    """A file by its path: as long as nobody changes it, reads go to the real one."""

    def __init__(self, disk: OverlayDisk, path: str) -> None:
        self._disk = disk
        self._path = path
        self._real: tuple[str, DiskFile] | None = None
        self._closed = False

    def append(self, data: bytes | bytearray | memoryview) -> None:
        self._disk.changed_file(self._path).tail += data

    def append_many(self, parts: list[bytes]) -> None:
        self.append(b"".join(parts))

    def write_at(self, offset: int, data: bytes | memoryview) -> None:
        assert offset + len(data) <= self.size(), "only what is there is written over"
        behind = self.read_at(offset + len(data), self.size())
        self.truncate(offset)
        self.append(bytes(data) + behind)

    def read_at(self, offset: int, length: int) -> bytes:
        found = self._disk.file_at(self._path)
        if isinstance(found, str):
            return self._opened(found).read_at(offset, length)
        data = b""
        if found.base is not None and offset < found.kept:
            data = self._opened(found.base).read_at(offset, min(length, found.kept - offset))
        start = max(0, offset - found.kept)
        return data + bytes(memoryview(found.tail)[start : start + length - len(data)])

    def size(self) -> int:
        found = self._disk.file_at(self._path)
        if isinstance(found, str):
            return self._opened(found).size()
        return found.kept + len(found.tail)

    def truncate(self, size: int) -> None:
        assert 0 <= size <= self.size(), f"truncate only cuts: {size} > {self.size()}"
        file = self._disk.changed_file(self._path)
        del file.tail[max(0, size - file.kept) :]
        file.kept = min(file.kept, size)

    def sync(self) -> None:
        """Nothing to be done: nothing of this is ever durable."""

    def close(self) -> None:
        if self._real is not None:
            self._real[1].close()
            self._real = None
        if not self._closed:
            self._closed = True
            self._disk.handle_closed()

    def _opened(self, real: str) -> DiskFile:
        if self._real is None or self._real[0] != real:
            if self._real is not None:
                self._real[1].close()
            self._real = real, self._disk.base.open(real, create=False)
        return self._real[1]


def _failure(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)
