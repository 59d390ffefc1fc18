"""Room: journal/queues. Files of queues that go once the state that no longer needs them is durable.

    waiting    a state that does not need the file is written, and not synced yet
    certain    it is synced: the file may go

A thread removes what is certain, folder by folder. Whoever is about to read or write a folder has its certain
removals done first; the lock is held for the few files of one folder and never longer.
"""

import threading

from moorline.journal.disk import Disk
from moorline.journal.queues.folder import Removal

Names = dict[str, None]
"""Names in one folder, in the order in which they are to go."""


class Removals:
    """What is to be removed, by folder. Any thread may call."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._waiting: dict[str, Names] = {}
        self._certain: dict[str, Names] = {}
        self._lock = threading.Lock()
        self._is_stopped = False

    def add(self, removal: Removal) -> None:
        with self._lock:
            self._waiting.setdefault(removal.folder, {})[removal.name] = None

    def has(self, folder: str) -> bool:
        return folder in self._waiting or folder in self._certain

    def synced(self) -> list[str]:
        """All that waits is certain now: everything before it was synced. Returns the folders."""
        with self._lock:
            for folder, names in self._waiting.items():
                self._certain.setdefault(folder, {}).update(names)
            self._waiting = {}
            return list(self._certain)

    def synced_in(self, folder: str) -> None:
        """The same for one folder."""
        with self._lock:
            names = self._waiting.pop(folder, None)
            if names:
                self._certain.setdefault(folder, {}).update(names)

    def perform(self, folder: str) -> None:
        """Removes what is certain in a folder."""
        if folder in self._certain:
            with self._lock:
                for name in self._certain.pop(folder, ()):
                    self._remove(folder, name)

    def perform_all(self) -> None:
        """Removes all that is certain; in a thread, for there may be hundreds of thousands."""
        for folder in list(self._certain):
            if self._is_stopped:
                return
            self.perform(folder)

    def stop(self) -> None:
        """`perform_all` ends behind the folder that it is at."""
        self._is_stopped = True

    def perform_now(self, removal: Removal) -> None:
        """Removes one file that was to be removed, whether or not that is synced."""
        with self._lock:
            for kept in (self._waiting, self._certain):
                names = kept.get(removal.folder, {})
                if removal.name in names:
                    del names[removal.name]
                    self._remove(removal.folder, removal.name)

    def forget(self, folder: str) -> None:
        """Nothing is removed from there any more."""
        with self._lock:
            self._waiting.pop(folder, None)
            self._certain.pop(folder, None)

    def _remove(self, folder: str, name: str) -> None:
        path = f"{folder}/{name}"
        if self._disk.exists(path):
            self._disk.remove(path)
