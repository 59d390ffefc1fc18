"""Room: journal/streams. A compaction of the log of retained messages, a slice at each commit.

    copy = RetainedCopy(disk, "retained.log", head, frames)    `retained.log.new` begins with the head
    copy.add(frames)                                           what the log was given meanwhile
    copy.write_slice(bytes_max)                                True when the copy has all that the log has
    file, size_bytes = copy.take_place()                       the copy is the log

The log is as it was until the copy takes its name, whole and synced. So a crash at any step finds one or the
other, and both say the same; of an unfinished copy nothing is ever read.
"""

from collections import deque

from moorline.errors import DiskFull
from moorline.journal.disk import TEMPORARY_SUFFIX, Disk, DiskFile, parent


class RetainedCopy:
    """Belongs to the thread that writes the log."""

    def __init__(self, disk: Disk, path: str, head: bytes, frames: list[bytes]) -> None:
        self._disk = disk
        self._path = path
        self._waiting = deque([head, *frames])
        self._size_bytes = 0
        self._file = disk.open(path + TEMPORARY_SUFFIX, create=True)
        if self._file.size():
            # One that a crash cut short: the log has all of it.
            self._file.truncate(0)

    def add(self, frames: list[bytes]) -> None:
        self._waiting.extend(frames)

    def write_slice(self, bytes_max: int) -> bool:
        """About so many bytes more, and at least one frame; whether nothing is left."""
        frames, size = [], 0
        while self._waiting and size < bytes_max:
            frames.append(self._waiting.popleft())
            size += len(frames[-1])
        try:
            self._file.append_many(frames)
            # At each slice, or the last one would wait for the bytes of all.
            self._file.sync()
        except (OSError, DiskFull):
            # As of any file that is written whole: the log stays the log, and the room is given back.
            self._disk.remove(self._path + TEMPORARY_SUFFIX)
            raise
        self._size_bytes += size
        return not self._waiting

    def take_place(self) -> tuple[DiskFile, int]:
        """The copy as the log, and its bytes."""
        assert not self._waiting, "the copy has all that the log has"
        self._disk.rename(self._path + TEMPORARY_SUFFIX, self._path)
        self._disk.sync_folder(parent(self._path))
        return self._file, self._size_bytes

    def close(self) -> None:
        """Unfinished: the log stays the log, and the next start writes over what is there."""
        self._file.close()
