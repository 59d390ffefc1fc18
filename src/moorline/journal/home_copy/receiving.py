"""Room: journal/home_copy. The side that is to have a home: writes what comes, reads it back, and counts it.

    homes/NAME.incoming/
        move           the id of the move: what came by another one is no part of this
        index.sqlite   what was hashed of the files
        files/         a data folder in the making

Nothing in it is served, and nothing of it is the only copy, before the catalog says that the home is ours.
One thread at a time.
"""

import os
import shutil
from pathlib import Path

from moorline.errors import CannotMove, NodeDiskFull
from moorline.journal.disk import FileDisk
from moorline.journal.home_copy.index import FileIndex, FileSet, HomeFiles
from moorline.journal.home_copy.sending import Part
from moorline.limits import DISK_FREE_BYTES_MIN, MIB

MOVE, INDEX, FILES = "move", "index.sqlite", "files"


class HomeReceiving:
    """A home on its way to here."""

    def __init__(
        self, folder: Path, move: bytes, names: tuple[tuple[str, ...], tuple[str, ...]]
    ) -> None:
        """`names` are those of the files and folders that a home has."""
        self.is_new = move_of(folder) != move
        if self.is_new and folder.exists():
            shutil.rmtree(folder)
        self.files = HomeFiles(folder / FILES, *names)
        self._make_folders()
        self._disk = FileDisk(folder)
        if self.is_new:
            self._disk.write_whole(MOVE, move.hex().encode())
        self._index = FileIndex(folder / INDEX)
        self.settled: FileSet | None = None
        """What there is, if nothing came since it was counted."""

    def close(self) -> None:
        self._index.close()

    def stop(self) -> None:
        """From any thread."""
        self._index.is_stopped = True

    def begin_anew(self) -> None:
        """Without what came: a file that the other side does not list any more would stay for ever."""
        shutil.rmtree(self.files.root)
        with self._index:
            self._index.clear()
        self._make_folders()
        self.settled, self.is_new = None, True

    def _make_folders(self) -> None:
        for name in ("", *self.files.folders):
            (self.files.root / name).mkdir(mode=0o700, parents=True, exist_ok=True)

    def check_room(self, bytes_coming: int) -> None:
        """Refuses what would leave less than the node's reserve."""
        free = self._disk.free_bytes("")
        if free - bytes_coming < DISK_FREE_BYTES_MIN:
            raise NodeDiskFull(
                f"the disk of the other node has {free // MIB} MiB left, of which "
                f"{DISK_FREE_BYTES_MIN // MIB} stay free, and {bytes_coming // MIB + 1} are to come: "
                "free some there, and it goes on"
            )

    def bytes_here(self) -> int:
        return sum(status.st_size for _, status in self.files.walk())

    def put(self, parts: list[Part], gone: list[str]) -> None:
        self.settled = None
        for path in (*gone, *(part.path for part in parts)):
            if not self.files.has(path):
                raise CannotMove(f"{path!r} is no file of a home")
        self.check_room(sum(len(part.data) for part in parts))
        with self._index:
            for path in {part.path for part in parts}:
                self._index.forget(path)
            for part in parts:
                self._write(part)
            for path in gone:
                (self.files.root / path).unlink(missing_ok=True)
                self._index.remove(path)

    def _write(self, part: Part) -> None:
        where = self.files.root / part.path
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            descriptor = os.open(where, flags, 0o600)
        except FileNotFoundError:
            where.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(where, flags, 0o600)
        try:
            os.ftruncate(descriptor, part.size)
            written = 0
            while written < len(part.data):
                written += os.pwrite(descriptor, part.data[written:], part.offset + written)
        finally:
            os.close(descriptor)

    def settle(self) -> FileSet:
        """Everything that came is durable, and read back from the disk."""
        self._disk.sync_all()
        with self._index:
            self.settled = self._index.look(self.files)
        return self.settled


def move_of(folder: Path) -> bytes:
    """By which move the files in a folder came; empty if there are none, or nobody can tell."""
    try:
        return bytes.fromhex((folder / MOVE).read_text("ascii"))
    except (OSError, ValueError):
        return b""
