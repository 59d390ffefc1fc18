"""Room: testing. One node of a simulation: its disk, which outlives it, and what dies with it."""

import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Generic, Protocol, TypeAlias, TypeVar, assert_never

from moorline.core.effects import Effect, Event
from moorline.journal.disk import DiskFile, parent
from moorline.testing.agenda import FinishSync, Fire, Post, Restart, Resume
from moorline.testing.memory_disk import MemoryDisk

WAITING_MAX: Final = 65_536
"""What may wait for a paused node; a test that needs more has forgotten to resume it."""


class Runnable(Protocol):
    """The shape of `core.machine.Machine`, all that the simulator asks of a machine."""

    def handle(self, event: Event, now_ms: int) -> Sequence[Effect]: ...


Factory: TypeAlias = Callable[[MemoryDisk, random.Random], tuple[Runnable, Sequence[Event]]]
"""Builds a node's machine from what is on its disk, with the events it starts with. It is called at
the start and after every crash."""

Machine = TypeVar("Machine")

Waiting: TypeAlias = Post | Fire | FinishSync


class SimulatedNode(Generic[Machine]):
    """`life` counts the crashes: timers, syncs and handles belong to one life and die with it."""

    def __init__(self, name: str, disk: MemoryDisk) -> None:
        self.name = name
        self.disk = disk
        self.life = 0
        self.machine: Machine | None = None
        self.paused = False
        self.timers: dict[str, int] = {}
        self.sync_ends_ms: dict[str, int] = {}
        self._timer_number = 0
        self._waiting: deque[Waiting] = deque()
        self._files: dict[str, DiskFile] = {}
        self._unsynced_names: set[str] = set()
        # A dict for its order: a set's would differ from process to process.
        self.links: dict[str, None] = {}

    def stop(self) -> None:
        self.machine = None
        self.life += 1
        self.paused = False
        self.timers.clear()
        self.sync_ends_ms.clear()
        self._waiting.clear()
        self._files.clear()
        self._unsynced_names.clear()

    def is_of_life(self, life: int | None) -> bool:
        """Whether what is meant for that life (None: for any) finds somebody here."""
        return self.machine is not None and life in (None, self.life)

    def is_stale(self, entry: Fire | FinishSync | Restart | Resume) -> bool:
        """Whether the node has moved on and what was to be done is so no more."""
        if entry.life != self.life:
            return True
        match entry:
            case Fire():
                return self.timers.get(entry.name) != entry.number
            case FinishSync():
                return False
            case Restart():
                return self.machine is not None
            case Resume():
                return not self.paused
            case _:
                assert_never(entry)

    # --- pausing ----------------------------------------------------------------------------------

    def wait(self, entry: Waiting) -> None:
        assert len(self._waiting) < WAITING_MAX, f"more than {WAITING_MAX} wait for {self.name}"
        self._waiting.append(entry)

    def resume(self) -> list[Waiting]:
        """Wakes the node; returns what has waited, in order."""
        self.paused = False
        waited = list(self._waiting)
        self._waiting.clear()
        return waited

    def set_timer(self, name: str) -> int:
        self._timer_number += 1
        self.timers[name] = self._timer_number
        return self._timer_number

    # --- files ------------------------------------------------------------------------------------

    def file(self, path: str) -> DiskFile:
        if path not in self._files:
            self.disk.make_folders(parent(path))
            self._files[path] = self.disk.open(path, create=True)
            # Even a file that was there before: the life that made it may have ended before it
            # synced the folder.
            self._unsynced_names.add(path)
        return self._files[path]

    def sync(self, path: str) -> None:
        """Makes the file durable, and its name too the first time."""
        self.file(path).sync()
        if path in self._unsynced_names:
            folder = path
            while folder:
                folder = parent(folder)
                self.disk.sync_folder(folder)
            self._unsynced_names.discard(path)

    # --- links ------------------------------------------------------------------------------------

    def link(self, peer: "SimulatedNode[Machine]") -> None:
        """Both ends know of each other from the first message on."""
        self.links[peer.name] = None
        peer.links[self.name] = None

    def unlink(self, peer: "SimulatedNode[Machine]") -> None:
        self.links.pop(peer.name, None)
        peer.links.pop(self.name, None)

    def take_links(self, nodes: Mapping[str, "SimulatedNode[Machine]"]) -> list[str]:
        """Ends all links; returns the names of the peers."""
        peers = list(self.links)
        for peer in peers:
            self.unlink(nodes[peer])
        return peers
