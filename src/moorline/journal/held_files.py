"""Room: journal. Files of a running node, held for a copy: each is linked, with as many bytes as count.

    <folder>/links/12/12345   the same file under another name: it stays when the node removes its own
    <folder>/files            a line of JSON for each: [path, link, bytes]

Files of the journals grow at their end, or are replaced whole under their names. So a link and a size are the
file as it was at that moment, whatever the node does with it later. What is written over in place is named by
whoever holds: the log of the queues, whose caller says how far it came.

Memory holds the names of one tree that may still change. A tree that rests is written down at once.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import IO, NamedTuple

import msgspec

from moorline.errors import BackupRefused, FolderUnusable
from moorline.limits import HELD_LINKS_PER_FOLDER

LINKS = "links"
LIST = "files"
FIRST = ("queue.log",)
"""Of the files of a folder these come first: what they name is linked behind them, or is there already."""


class Linked(NamedTuple):
    inode: int
    link: str
    bytes: int


class HeldFiles:
    """What is held of one data folder, until `release`."""

    def __init__(self, data: Path, folder: Path) -> None:
        self._data, self._folder = data, folder
        self._links = 0
        self._changing: dict[str, Linked] = {}
        self.files = 0
        self.bytes = 0
        self.is_given_up = False
        """Set from another thread: what is under way ends at its next file."""
        folder.mkdir(mode=0o700)
        (folder / LINKS).mkdir(mode=0o700)
        self._list: IO[bytes] = (folder / LIST).open("wb")

    def hold_resting(self, tree: str) -> None:
        """All files below that folder. Nobody but a reader works there; a file may vanish meanwhile."""
        for path, found in self._walk(tree, ()):
            linked = self._linked(path, found)
            if linked is not None:
                self._write(path, linked)

    def hold(self, tree: str, passed_over: Collection[str] = ()) -> None:
        """All files below that folder, or it, but for those paths. Called again it looks for what changed,
        and costs a look at each; what it found last counts."""
        seen = set()
        for path, found in self._walk(tree, passed_over):
            seen.add(path)
            before = self._changing.get(path)
            if before is not None and before.inode == found.st_ino:
                self._changing[path] = before._replace(bytes=found.st_size)
                continue
            linked = self._linked(path, found)
            if linked is not None:
                self._changing[path] = linked
        for path in [one for one in self._changing if _is_in(one, tree) and one not in seen]:
            del self._changing[path]

    def cut(self, sizes: Mapping[str, int]) -> None:
        """Of those files only so many bytes count."""
        for path, size in sizes.items():
            self._changing[path] = self._changing[path]._replace(bytes=size)

    def add(self, path: str, file: Path) -> None:
        """A file that was made for the copy, in the folder of what is held."""
        where = str(file.relative_to(self._folder))
        self._write(path, Linked(0, where, file.stat().st_size))

    def finish(self) -> None:
        """The list is whole."""
        for path in sorted(self._changing):
            self._write(path, self._changing[path])
        self._changing.clear()
        self._list.close()

    def close(self) -> None:
        self._list.close()

    def _walk(
        self, tree: str, passed_over: Collection[str]
    ) -> Iterator[tuple[str, os.stat_result]]:
        start = self._data / tree
        with contextlib.suppress(FileNotFoundError):
            status = start.lstat()
            if stat.S_ISREG(status.st_mode):
                yield tree, status
                return
        folders = [tree]
        while folders:
            folder = folders.pop()
            try:
                names = os.listdir(self._data / folder)
            except FileNotFoundError:
                continue
            names.sort(key=lambda name: (name not in FIRST, name))
            for name in names:
                path = f"{folder}/{name}"
                if path in passed_over:
                    continue
                try:
                    status = os.stat(self._data / path)
                except FileNotFoundError:
                    continue
                if stat.S_ISDIR(status.st_mode):
                    folders.append(path)
                elif stat.S_ISREG(status.st_mode):
                    yield path, status

    def _linked(self, path: str, found: os.stat_result) -> Linked | None:
        if self.is_given_up:
            raise BackupRefused("the backup was given up")
        number = self._links
        self._links += 1
        folder = self._folder / LINKS / str(number // HELD_LINKS_PER_FOLDER)
        if number % HELD_LINKS_PER_FOLDER == 0:
            folder.mkdir(mode=0o700)
        link = folder / str(number)
        try:
            source = self._data / path
            os.link(source.resolve() if source.is_symlink() else source, link)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno in {errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK}:
                raise BackupRefused(
                    f"{self._data / path} cannot be held for a copy ({error.strerror}): a backup of a "
                    "running node needs all of its folder on one file system that knows links. "
                    "Stop the node, and copy the folder"
                ) from error
            raise FolderUnusable(f"{link}: {error.strerror}") from error
        # Behind the link: it may have been replaced since it was looked at.
        status = link.stat()
        assert stat.S_ISREG(status.st_mode), path
        size = status.st_size if status.st_ino != found.st_ino else max(found.st_size, 0)
        return Linked(status.st_ino, str(link.relative_to(self._folder)), size)

    def _write(self, path: str, one: Linked) -> None:
        self.files += 1
        self.bytes += one.bytes
        self._list.write(msgspec.json.encode((path, one.link, one.bytes)) + b"\n")


def _is_in(path: str, tree: str) -> bool:
    return path == tree or path.startswith(tree + "/")


def held_list(folder: Path) -> Iterator[tuple[str, Path, int]]:
    """What is held there: the path in the data folder, the file, and how many of its bytes count."""
    decoder = msgspec.json.Decoder(tuple[str, str, int])
    with (folder / LIST).open("rb") as lines:
        for line in lines:
            path, link, size = decoder.decode(line)
            yield path, folder / link, size
