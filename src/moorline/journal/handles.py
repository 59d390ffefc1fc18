"""Room: journal. Open files, at most so many: the one not used for longest is closed."""

from collections import OrderedDict
from typing import Final

from moorline.errors import TooManyFiles
from moorline.journal.disk import Disk, DiskFile, parent

_GIVEN_OUT: Final = 4
"""Newest files that whoever asks for another may still have in hand: state, messages, a copy."""


class Handles:
    """Files by their path, opened when they are used."""

    def __init__(self, disk: Disk, open_max: int) -> None:
        self._disk = disk
        self._open_max = open_max
        self._files: OrderedDict[str, DiskFile] = OrderedDict()
        self._by_folder: dict[str, set[str]] = {}

    def __len__(self) -> int:
        return len(self._files)

    def get(self, path: str, *, create: bool) -> DiskFile:
        file = self._files.get(path)
        if file is not None:
            self._files.move_to_end(path)
            return file
        file = self._opened(path, create=create)
        self._files[path] = file
        self._by_folder.setdefault(parent(path), set()).add(path)
        if len(self._files) > self._open_max:
            self.forget(next(iter(self._files)))
        return file

    def _opened(self, path: str, *, create: bool) -> DiskFile:
        """Where the process has no descriptor left, one of ours goes for it: not one just given out."""
        try:
            return self._disk.open(path, create=create)
        except TooManyFiles:
            if len(self._files) <= _GIVEN_OUT:
                raise
            self.forget(next(iter(self._files)))
            return self._disk.open(path, create=create)

    def forget(self, path: str) -> None:
        """Closes a file that is to be removed or renamed."""
        file = self._files.pop(path, None)
        if file is None:
            return
        file.close()
        folder = parent(path)
        self._by_folder[folder].discard(path)
        if not self._by_folder[folder]:
            del self._by_folder[folder]

    def forget_folder(self, path: str) -> None:
        for name in list(self._by_folder.get(path, ())):
            self.forget(name)

    def close(self) -> None:
        for file in self._files.values():
            file.close()
        self._files.clear()
        self._by_folder.clear()
