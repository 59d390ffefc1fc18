"""Room: journal. Open files, at most so many: the one not used for longest is closed."""

from collections import OrderedDict

from moorline.journal.disk import Disk, DiskFile


class Handles:
    """Files by their path, opened when they are used."""

    def __init__(self, disk: Disk, open_max: int) -> None:
        self._disk = disk
        self._open_max = open_max
        self._files: OrderedDict[str, DiskFile] = OrderedDict()

    def __len__(self) -> int:
        return len(self._files)

    def get(self, path: str, *, create: bool) -> DiskFile:
        file = self._files.get(path)
        if file is not None:
            self._files.move_to_end(path)
            return file
        file = self._disk.open(path, create=create)
        self._files[path] = file
        if len(self._files) > self._open_max:
            _, oldest = self._files.popitem(last=False)
            oldest.close()
        return file

    def forget(self, path: str) -> None:
        """Closes a file that is to be removed or renamed."""
        file = self._files.pop(path, None)
        if file is not None:
            file.close()

    def forget_folder(self, path: str) -> None:
        prefix = path + "/"
        for name in [name for name in self._files if name.startswith(prefix)]:
            self.forget(name)

    def close(self) -> None:
        for file in self._files.values():
            file.close()
        self._files.clear()
