"""Room: journal. Performs the disk effects of machines on a real disk, for `net.driver`.

    Driver(machine, {**sockets, **DiskPerformer(disk).performers()}, failed)

An append happens at once. A sync happens in a thread and comes back as `Synced`, so that the loop goes
on meanwhile; syncs of one file keep their order.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from moorline.core.effects import Append, Effect, Event, Sync, Synced
from moorline.journal.disk import Disk, DiskFile, parent


class DiskPerformer:
    """The files of one machine."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._files: dict[str, DiskFile] = {}
        self._named: set[str] = set()
        self._turns: dict[str, asyncio.Lock] = {}

    def performers(self) -> dict[type[Effect], Callable[[Any], Awaitable[Event] | None]]:
        return {Append: self.append, Sync: self.sync}

    def append(self, effect: Append) -> None:
        self._file(effect.file).append(effect.data)

    async def sync(self, effect: Sync) -> Event:
        async with self._turns.setdefault(effect.file, asyncio.Lock()):
            await asyncio.to_thread(self._sync, effect.file)
        return Synced(effect.file, effect.upto)

    def close(self) -> None:
        for file in self._files.values():
            file.close()
        self._files.clear()

    def _file(self, name: str) -> DiskFile:
        file = self._files.get(name)
        if file is None:
            self._disk.make_folders(parent(name))
            file = self._files[name] = self._disk.open(name, create=True)
        return file

    def _sync(self, name: str) -> None:
        self._file(name).sync()
        if name not in self._named:
            # Contents are nothing without a name: once, the folders above are made durable too.
            folder = parent(name)
            self._disk.sync_folder(folder)
            while folder:
                folder = parent(folder)
                self._disk.sync_folder(folder)
            self._named.add(name)
