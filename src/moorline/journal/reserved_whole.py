"""Room: journal. A small file that is to be replaced, with its room taken before.

    reserved = ReservedWhole(disk, "list", 4_096)    # DiskFull: nothing has changed
    …                                                # what the new file is to speak of
    reserved.write(data)                             # or `drop`

So what goes along with a file is begun only where the file itself will find room.
"""

from moorline.journal.disk import TEMPORARY_SUFFIX, Disk, parent, write_whole


class ReservedWhole:
    """`Disk.write_whole` in two steps. In a thread: each of them syncs."""

    def __init__(self, disk: Disk, path: str, size: int) -> None:
        self._disk, self._path, self._size = disk, path, size
        # The name that an unfinished `write_whole` has: what a crash leaves is passed over and replaced.
        self._temporary = path + TEMPORARY_SUFFIX
        write_whole(disk, self._temporary, bytes(size))

    def write(self, data: bytes) -> None:
        """Readers and crashes see the old content or this one, whole."""
        assert len(data) <= self._size, f"{len(data)} bytes, and {self._size} are reserved"
        file = self._disk.open(self._temporary, create=False)
        try:
            file.write_at(0, data)
            file.truncate(len(data))
            file.sync()
        finally:
            file.close()
        self._disk.rename(self._temporary, self._path)
        self._disk.sync_folder(parent(self._path))

    def drop(self) -> None:
        """It will not be written; behind `write` this does nothing."""
        if self._disk.exists(self._temporary):
            self._disk.remove(self._temporary)
