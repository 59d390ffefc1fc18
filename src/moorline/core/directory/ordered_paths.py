"""Room: core/directory. Many paths in the order of their levels, of which any may come and go.

    paths.add("/a/b")
    paths.behind("/a")          the paths behind it, from the next one on
    paths.beyond("/a")          those that are neither /a nor below it, from the next one on

The order compares level by level, so that what is below a path stands right behind it: `/a`, `/a/b`, `/a-b`.
Plain text order would put `/a-b` between `/a` and `/a/b`.

Paths are kept in chunks, each a sorted list: a change moves the rest of one chunk and not a million places.
A path costs eight bytes here beside itself, and a level that only leads to others costs nothing.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from typing import Final

from moorline.limits import ORDERED_CHUNK_PATHS_MAX

_SLASH: Final = "\0"
"""Stands for `/` where paths are compared: no path has a character as low."""
_BEHIND_SLASH: Final = "\1"
"""The end of what is below a path: behind `_SLASH`, and before every character of a level."""


def rank(path: str) -> str:
    """What paths are compared by."""
    return path.replace("/", _SLASH)


class OrderedPaths:
    """A path is there once; whoever adds and removes knows whether it is."""

    def __init__(self) -> None:
        self._chunks: list[list[str]] = []
        self._firsts: list[str] = []
        """The rank of the first path that a chunk has, or had: nothing of a chunk is before it."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[str]:
        for chunk in self._chunks:
            yield from chunk

    def add(self, path: str) -> None:
        own = rank(path)
        self._count += 1
        if not self._chunks:
            self._chunks.append([path])
            self._firsts.append(own)
            return
        place = max(bisect_right(self._firsts, own) - 1, 0)
        chunk = self._chunks[place]
        if own > rank(chunk[-1]):
            chunk.append(path)  # many publish in order
        else:
            insort(chunk, path, key=rank)
            if own < self._firsts[place]:
                self._firsts[place] = own
        if len(chunk) > ORDERED_CHUNK_PATHS_MAX:
            self._split(place)

    def remove(self, path: str) -> None:
        own = rank(path)
        place = bisect_right(self._firsts, own) - 1
        chunk = self._chunks[place]
        at = bisect_left(chunk, own, key=rank)
        assert chunk[at] == path, f"{path} is not there"
        del chunk[at]
        self._count -= 1
        if not chunk:
            del self._chunks[place]
            del self._firsts[place]

    def behind(self, path: str) -> Iterator[str]:
        """The path need not be there. Good until the next change."""
        # What is below it is the next that can be behind it.
        return self._from(rank(path) + _SLASH)

    def beyond(self, path: str) -> Iterator[str]:
        """As above; beyond `/` there is nothing."""
        return self._from(_BEHIND_SLASH if path == "/" else rank(path) + _BEHIND_SLASH)

    def _from(self, own: str) -> Iterator[str]:
        place = max(bisect_right(self._firsts, own) - 1, 0)
        if place >= len(self._chunks):
            return
        at = bisect_left(self._chunks[place], own, key=rank)
        while True:
            chunk = self._chunks[place]
            for at in range(at, len(chunk)):  # noqa: B020  a slice would copy it for one path
                yield chunk[at]
            place, at = place + 1, 0
            if place == len(self._chunks):
                return

    def _split(self, place: int) -> None:
        chunk = self._chunks[place]
        # Where paths come in order, nothing is put into the part before any more: it stays full.
        at = len(chunk) - 1 if place == len(self._chunks) - 1 else len(chunk) // 2
        self._chunks.insert(place + 1, chunk[at:])
        self._firsts.insert(place + 1, rank(chunk[at]))
        del chunk[at:]
