"""Room: journal/streams. The folder of streams as a start would make it, for who only reads: what only
the log of small commits has is where it belongs.

Behind a power cut, or in a copy that somebody made, a segment may lack bytes that only the log has. Nothing
is written: the bytes are laid over the file as it is read.
"""

import contextlib
from pathlib import Path

from moorline.journal.disk import DiskFile
from moorline.journal.read_only_disk import ReadOnlyDisk, ReadOnlyFile
from moorline.journal.streams.log_recovery import Patch, logs_of, patches_of

_LogState = list[tuple[str, int, int]]


class PatchedDisk(ReadOnlyDisk):
    """`look` finds out what is to be laid over; until then files are as they are."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self._patches: dict[str, list[Patch]] = {}
        self._state: _LogState | None = None

    def look(self, *, again: bool) -> None:
        """Reads the logs, once; `again` if they have changed since."""
        if self._state is not None and not again:
            return
        state = self._log_state()
        if state != self._state:
            self._patches = patches_of(ReadOnlyDisk(self.where("")))
            self._state = state

    def _log_state(self) -> _LogState:
        found = []
        for path in logs_of(self):
            with contextlib.suppress(FileNotFoundError):
                status = self.where(path).stat()
                found.append((path, status.st_ino, status.st_mtime_ns))
        return found

    def open(self, path: str, *, create: bool) -> DiskFile:
        patches = self._patches.get(path)
        if patches is None:
            return super().open(path, create=create)
        return PatchedFile(self, self.descriptor_of(path), path, patches)


class PatchedFile(ReadOnlyFile):
    """A file with bytes laid over it; where it is shorter, what is between is zeros."""

    __slots__ = ("_patches",)

    def __init__(
        self, disk: ReadOnlyDisk, descriptor: int, path: str, patches: list[Patch]
    ) -> None:
        super().__init__(disk, descriptor, path)
        self._patches = patches

    def size(self) -> int:
        return max(super().size(), *(one.position + len(one.data) for one in self._patches))

    def read_at(self, offset: int, length: int) -> bytes:
        data = bytearray(max(0, min(length, self.size() - offset)))
        self.read_into(memoryview(data), offset)
        return bytes(data)

    def read_into(self, buffer: memoryview, offset: int) -> int:
        count = max(0, min(len(buffer), self.size() - offset))
        done = super().read_into(buffer[:count], offset)
        buffer[done:count] = bytes(count - done)
        for position, data in self._patches:
            first = max(position, offset)
            upto = min(position + len(data), offset + count)
            if first < upto:
                buffer[first - offset : upto - offset] = data[first - position : upto - position]
        return count

    def sync(self) -> None:
        """The log is as durable as what it was read from."""
        with contextlib.suppress(OSError):
            super().sync()
