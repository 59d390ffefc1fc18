"""Room: journal. A look at the disk's room again and again: whoever fills it is told before it is full."""

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from moorline.journal.disk import Disk
from moorline.limits import DISK_FREE_BYTES_MIN, DISK_LOOK_MS

log = logging.getLogger("moorline.journal")


class Filling(Protocol):
    """Takes messages, and refuses them while `is_disk_full`."""

    is_disk_full: bool


class DiskWatch:
    """Looks at one disk for one that fills it. `look` before anything is served, `forever` after it."""

    def __init__(
        self,
        disk: Disk,
        what: str,
        filling: Filling,
        lacks_room: Callable[[int], bool] = lambda free_bytes: free_bytes < DISK_FREE_BYTES_MIN,
    ) -> None:
        self._disk = disk
        self._what = what
        self._filling = filling
        self._lacks_room = lacks_room

    def look(self) -> None:
        """Says so once each way, also in the log."""
        try:
            free = self._disk.free_bytes("")
        except OSError:
            log.exception("the disk cannot be looked at")
            return
        is_full = self._lacks_room(free)
        if is_full != self._filling.is_disk_full:
            self._filling.is_disk_full = is_full
            happens = "messages are refused" if is_full else "messages are taken again"
            log.warning(f"disk of the {self._what}: {happens}", extra={"free_bytes": free})

    async def forever(self) -> None:
        while True:
            self.look()
            await asyncio.sleep(DISK_LOOK_MS / 1_000)
