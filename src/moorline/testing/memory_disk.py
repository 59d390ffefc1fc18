"""Room: testing. A disk in memory that loses what a real machine would lose.

    disk = MemoryDisk()
    ...                                        # run the code under test
    disk.crash(random.Random(7), lose="some")  # the power goes
    ...                                        # open it again and see what is there

`lose` says which machine crashed, and how:

    "none"  the process alone: the system keeps everything, synced or not
    "all"   the machine: all that was not synced is gone
    "some"  the machine: of what was not synced, each file and each folder keeps a random run from
            the oldest change on; the last append may be torn, and of the last bytes that were
            written over any may be the old ones

Names are not contents: a file that was synced, but whose folder was not, may be gone as a whole.
"""

import errno
import os
import random
from collections.abc import Iterator
from typing import Final, Literal, TypeAlias

from moorline.journal.disk import DiskFile, check_path, disk_full, write_whole
from moorline.testing.memory_tree import (
    MemoryFile,
    MemoryFolder,
    Node,
    all_nodes,
    change_names,
)

Lose: TypeAlias = Literal["none", "some", "all"]

UNBOUNDED_FREE_BYTES: Final = 1 << 40
"""What a disk without a capacity says is free: more than any test writes."""


class Crashed(BaseException):
    """The machine stopped here. Not an `Exception`: no handler in the code under test may survive
    the loss of the machine it runs on."""


class MemoryDisk:
    """A `Disk` with the failures of a real one.

    `steps` counts the operations that change something, syncs included. Operation number `crash_at`
    (from 0) does not happen: it raises `Crashed`, and so does all that follows until `crash`. Run
    the same code with 0, 1, 2, … to stop it at every step. `capacity_bytes` bounds the contents.
    While `fail_sync` is set a sync fails with EIO; what it should have saved can then never be
    synced, as on Linux.
    """

    def __init__(
        self,
        *,
        crash_at: int | None = None,
        capacity_bytes: int | None = None,
        fail_sync: bool = False,
    ) -> None:
        self.steps = 0
        self.crash_at = crash_at
        self.capacity_bytes = capacity_bytes
        self.fail_sync = fail_sync
        self.life = 0
        self._dead = False
        self._root = MemoryFolder()
        self._open_handles = 0
        self._change_number = 0

    # --- what a test does with it -----------------------------------------------------------------

    def crash(self, chance: random.Random, lose: Lose = "all") -> None:
        """The machine stops and starts again; all handles are dead."""
        if lose != "none":
            nodes = all_nodes(self._root)
            if lose == "some":
                for node in nodes:
                    node.lose_some(chance)
            for node in nodes:
                node.lose_all()
                node.sync_failed = False
        self.life += 1
        self._open_handles = 0
        self._dead = False
        self.crash_at = None

    def files(self) -> dict[str, bytes]:
        """Everything on the disk, by path."""
        return {path: bytes(file.content) for path, file in _walk("", self._root)}

    def used_bytes(self) -> int:
        return sum(len(file.content) for _, file in _walk("", self._root))

    # --- the interface `Disk` ---------------------------------------------------------------------

    @property
    def open_handles(self) -> int:
        return self._open_handles

    def open(self, path: str, *, create: bool) -> DiskFile:
        folder, name = self._parent(path)
        node = folder.names.get(name)
        if node is None:
            if not create:
                raise _failure(errno.ENOENT, path)
            self.begin()
            node = MemoryFile()
            self._change([(folder, name, node)])
        if isinstance(node, MemoryFolder):
            raise _failure(errno.EISDIR, path)
        self._open_handles += 1
        return _MemoryHandle(self, node, path)

    def exists(self, path: str) -> bool:
        return self._look_up(path) is not None

    def is_folder(self, path: str) -> bool:
        return isinstance(self._look_up(path), MemoryFolder)

    def list_folder(self, path: str) -> list[str]:
        return sorted(self._folder(path).names)

    def make_folders(self, path: str) -> None:
        self._check(path)
        folder = self._root
        names = path.split("/") if path else []
        for depth, name in enumerate(names, start=1):
            node = folder.names.get(name)
            if node is None:
                self.begin()
                node = MemoryFolder()
                self._change([(folder, name, node)])
            if isinstance(node, MemoryFile):
                raise _failure(errno.EEXIST if depth == len(names) else errno.ENOTDIR, path)
            folder = node

    def rename(self, source: str, target: str) -> None:
        source_folder, source_name = self._parent(source)
        target_folder, target_name = self._parent(target)
        node = source_folder.names.get(source_name)
        if node is None:
            raise _failure(errno.ENOENT, source)
        if source == target:
            return
        if target.startswith(source + "/"):
            raise _failure(errno.EINVAL, target)
        if source.startswith(target + "/"):
            raise _failure(errno.ENOTEMPTY, target)
        _check_replace(node, target_folder.names.get(target_name), target)
        self.begin()
        self._change([(target_folder, target_name, node), (source_folder, source_name, None)])

    def remove(self, path: str) -> None:
        folder, name = self._parent(path)
        node = folder.names.get(name)
        if node is None:
            raise _failure(errno.ENOENT, path)
        if isinstance(node, MemoryFolder):
            raise _failure(errno.EISDIR, path)
        self.begin()
        self._change([(folder, name, None)])

    def remove_folder(self, path: str) -> None:
        folder, name = self._parent(path)
        inner = self._folder(path)
        # One by one, as a real disk must: a crash may leave the folder half empty.
        for child in sorted(inner.names):
            if isinstance(inner.names[child], MemoryFolder):
                self.remove_folder(f"{path}/{child}")
            else:
                self.remove(f"{path}/{child}")
        self.begin()
        self._change([(folder, name, None)])

    def sync_folder(self, path: str) -> None:
        folder = self._folder(path)
        self.begin()
        self.sync_node(folder)

    def sync_all(self) -> None:
        self.begin()
        for node in all_nodes(self._root):
            self.sync_node(node)

    def write_whole(self, path: str, data: bytes) -> None:
        write_whole(self, path, data)

    def free_bytes(self, path: str) -> int:
        if self._look_up(path) is None:
            raise _failure(errno.ENOENT, path)
        return self.room_bytes()

    # --- for the handles --------------------------------------------------------------------------

    def begin(self) -> None:
        """Every operation that changes something passes here, before it does."""
        self.check_alive()
        if self.crash_at is not None and self.steps >= self.crash_at:
            self._dead = True
            raise Crashed(f"at step {self.steps}")
        self.steps += 1

    def check_alive(self) -> None:
        if self._dead:
            raise Crashed("the machine has stopped; call crash() to start it again")

    def sync_node(self, node: Node) -> None:
        if self.fail_sync:
            node.sync_failed = True
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        node.sync()

    def room_bytes(self) -> int:
        if self.capacity_bytes is None:
            return UNBOUNDED_FREE_BYTES
        return max(0, self.capacity_bytes - self.used_bytes())

    def handle_closed(self) -> None:
        self._open_handles -= 1

    # --- finding and changing names ---------------------------------------------------------------

    def _change(self, parts: list[tuple[MemoryFolder, str, Node | None]]) -> None:
        self._change_number += 1
        change_names(self._change_number, parts)

    def _check(self, path: str) -> None:
        check_path(path)
        self.check_alive()

    def _look_up(self, path: str) -> Node | None:
        self._check(path)
        node: Node | None = self._root
        for name in path.split("/") if path else []:
            if not isinstance(node, MemoryFolder):
                return None
            node = node.names.get(name)
        return node

    def _folder(self, path: str) -> MemoryFolder:
        self._check(path)
        node: Node | None = self._root
        for name in path.split("/") if path else []:
            assert isinstance(node, MemoryFolder)
            node = node.names.get(name)
            if node is None:
                raise _failure(errno.ENOENT, path)
            if isinstance(node, MemoryFile):
                raise _failure(errno.ENOTDIR, path)
        assert isinstance(node, MemoryFolder)
        return node

    def _parent(self, path: str) -> tuple[MemoryFolder, str]:
        assert path, "the root itself cannot be opened, renamed or removed"
        above, _, name = path.rpartition("/")
        check_path(path)
        return self._folder(above), name


class _MemoryHandle:
    """An open file of a `MemoryDisk`. It dies in a crash."""

    def __init__(self, disk: MemoryDisk, file: MemoryFile, path: str) -> None:
        self._disk = disk
        self._file = file
        self._path = path
        self._life = disk.life
        self._closed = False

    def append(self, data: bytes | bytearray | memoryview) -> None:
        file = self._alive()
        self._disk.begin()
        room = self._disk.room_bytes()
        if len(data) > room:
            # A full disk takes what still fits before it refuses.
            file.append(memoryview(data)[:room])
            raise disk_full(self._path)
        if data:
            file.append(data)

    def append_many(self, parts: list[bytes]) -> None:
        self.append(b"".join(parts))

    def write_at(self, offset: int, data: bytes | memoryview) -> None:
        file = self._alive()
        assert offset + len(data) <= len(file.content), "only what is there is written over"
        self._disk.begin()
        file.write_at(offset, data)

    def read_at(self, offset: int, length: int) -> bytes:
        if offset < 0 or length < 0:
            raise _failure(errno.EINVAL, self._path)
        return bytes(memoryview(self._alive().content)[offset : offset + length])

    def size(self) -> int:
        return len(self._alive().content)

    def truncate(self, size: int) -> None:
        file = self._alive()
        assert 0 <= size <= len(file.content), f"truncate only cuts: {size} > {len(file.content)}"
        self._disk.begin()
        file.truncate(size)

    def sync(self) -> None:
        file = self._alive()
        self._disk.begin()
        self._disk.sync_node(file)

    def close(self) -> None:
        # Quiet even after a crash: a `finally` of the code under test may run that late.
        if not self._closed and self._life == self._disk.life:
            self._disk.handle_closed()
        self._closed = True

    def _alive(self) -> MemoryFile:
        assert self._life == self._disk.life, f"the handle of {self._path} died in a crash"
        self._disk.check_alive()
        if self._closed:
            raise _failure(errno.EBADF, self._path)
        return self._file


def _check_replace(node: Node, replaced: Node | None, path: str) -> None:
    """What a rename may replace: a file a file, a folder an empty folder."""
    if isinstance(replaced, MemoryFolder):
        if isinstance(node, MemoryFile):
            raise _failure(errno.EISDIR, path)
        if replaced.names:
            raise _failure(errno.ENOTEMPTY, path)
    if isinstance(replaced, MemoryFile) and isinstance(node, MemoryFolder):
        raise _failure(errno.ENOTDIR, path)


def _walk(path: str, folder: MemoryFolder) -> Iterator[tuple[str, MemoryFile]]:
    for name, node in sorted(folder.names.items()):
        below = f"{path}/{name}" if path else name
        if isinstance(node, MemoryFile):
            yield below, node
        else:
            yield from _walk(below, node)


def _failure(number: int, path: str) -> OSError:
    """The same kinds of `OSError` as the system's: Python picks the class by the number."""
    return OSError(number, os.strerror(number), path)
