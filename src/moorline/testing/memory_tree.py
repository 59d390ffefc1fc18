"""Room: testing. The files and folders of a `MemoryDisk`, each with the way back to its last sync.

A file or folder holds what a process sees now, and a log of the changes since its last sync, each
with what is needed to undo it. So a sync costs nothing, and a crash is: undo what did not last.

A rename changes two folders in one change, which both hold in their logs. It lasts in both or in
neither, as on every journaling file system; `settle` sees to it.
"""

import random
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple, TypeAlias


class Overwritten(NamedTuple):
    """Bytes that were written over, and where."""

    offset: int
    before: bytes


SECTOR_BYTES = 512
"""What a disk writes as a whole or not at all."""
_TORN_PIECES = 8
"""Pieces of what was written over last, of which each lands or does not."""


class MemoryFile:
    """The content of a file, and its log: a number is an append of so many bytes, bytes are what a
    truncate cut off, and `Overwritten` is what was there before."""

    __slots__ = ("content", "log", "sync_failed")

    def __init__(self) -> None:
        self.content = bytearray()
        self.log: list[int | bytes | Overwritten] = []
        self.sync_failed = False

    def append(self, data: bytes | bytearray | memoryview) -> None:
        self.content += data
        self.log.append(len(data))

    def truncate(self, size: int) -> None:
        cut = bytes(self.content[size:])
        del self.content[size:]
        self.log.append(cut)

    def write_at(self, offset: int, data: bytes | memoryview) -> None:
        end = offset + len(data)
        self.log.append(Overwritten(offset, bytes(self.content[offset:end])))
        self.content[offset:end] = data

    def sync(self) -> None:
        # Once a sync has failed, Linux takes the pages for clean: the next one lies.
        if not self.sync_failed:
            self.log.clear()

    def lose_all(self) -> None:
        while self.log:
            self._undo(self.log.pop())

    def lose_some(self, chance: random.Random) -> None:
        """Keeps a random run of the changes from the oldest on; the last of it may be torn."""
        kept = chance.randint(0, len(self.log))
        while len(self.log) > kept + 1:
            self._undo(self.log.pop())
        if len(self.log) > kept:
            change = self.log.pop()
            # Of an append a part may have reached the disk; a truncate has happened or it has not.
            torn = chance.randrange(change) if isinstance(change, int) and change else 0
            if isinstance(change, Overwritten):
                self._undo_some(change, chance)
            else:
                self._undo(change - torn if isinstance(change, int) else change)
        self.log.clear()

    def _undo_some(self, change: Overwritten, chance: random.Random) -> None:
        """Its sectors reach the disk in any order, each as a whole: some are the old ones, some the new."""
        pieces = chance.randint(1, _TORN_PIECES)
        size = max(1, len(change.before) // pieces // SECTOR_BYTES) * SECTOR_BYTES
        end = change.offset + len(change.before)
        for sector in range(change.offset - change.offset % SECTOR_BYTES, end, size):
            if chance.random() < 0.5:
                start = max(change.offset, sector)
                piece = change.before[start - change.offset : sector + size - change.offset]
                self._undo(Overwritten(start, piece))

    def _undo(self, change: int | bytes | Overwritten) -> None:
        if isinstance(change, Overwritten):
            self.content[change.offset : change.offset + len(change.before)] = change.before
        elif isinstance(change, int):
            del self.content[len(self.content) - change :]
        else:
            self.content += change


class MemoryFolder:
    """The names in a folder, and its log."""

    __slots__ = ("log", "names", "sync_failed")

    def __init__(self) -> None:
        self.names: dict[str, Node] = {}
        self.log: deque[Change] = deque()
        self.sync_failed = False

    def sync(self) -> None:
        if self.log and not self.sync_failed:
            settle(self, self.log[-1].number)

    def lose_all(self) -> None:
        while self.log:
            self._undo(self.log.pop())

    def lose_some(self, chance: random.Random) -> None:
        """Settles a random run of the changes from the oldest on. The rest is undone later by
        `lose_all`: another folder may still settle some of it, by a rename that both share."""
        kept = chance.randint(0, len(self.log))
        if kept:
            settle(self, self.log[kept - 1].number)

    def _undo(self, change: "Change") -> None:
        for folder, name, before in reversed(change.parts):
            if folder is not self:
                continue
            if before is None:
                del self.names[name]
            else:
                self.names[name] = before


Node: TypeAlias = MemoryFile | MemoryFolder


class Change(NamedTuple):
    """One change of names, in the order of all changes: (folder, name, what was there before)."""

    number: int
    parts: tuple[tuple[MemoryFolder, str, Node | None], ...]


def change_names(number: int, parts: list[tuple[MemoryFolder, str, Node | None]]) -> None:
    """Puts a node, or nothing, under each name, as one change."""
    undo = tuple((folder, name, folder.names.get(name)) for folder, name, _ in parts)
    change = Change(number, undo)
    for folder, name, node in parts:
        if node is None:
            del folder.names[name]
        else:
            folder.names[name] = node
        if not folder.log or folder.log[-1] is not change:
            folder.log.append(change)


def settle(folder: MemoryFolder, upto: int) -> None:
    """Makes the changes up to that number durable, here and in the folders that share one."""
    while folder.log and folder.log[0].number <= upto:
        change = folder.log.popleft()
        for other, _, _ in change.parts:
            if other is not folder:
                settle(other, change.number)


def all_nodes(root: MemoryFolder) -> list[Node]:
    """Every node that is there or would be there again after an undo, in an order that depends on
    nothing but the operations that led here."""
    found: dict[int, Node] = {id(root): root}
    waiting: deque[MemoryFolder] = deque([root])
    while waiting:
        for node in _nodes_in(waiting.popleft()):
            if id(node) not in found:
                found[id(node)] = node
                if isinstance(node, MemoryFolder):
                    waiting.append(node)
    return list(found.values())


def _nodes_in(folder: MemoryFolder) -> Iterator[Node]:
    yield from folder.names.values()
    for change in folder.log:
        yield from (before for _, _, before in change.parts if before is not None)
