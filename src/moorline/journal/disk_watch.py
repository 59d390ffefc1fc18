"""Room: journal. A look at the disk's room again and again: whoever fills it is told before it is full.

When messages are refused is decided here for streams; for queues, which need room for a checkpoint too, by
`look_for_room` of `queues/checkpoints.py`.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from moorline.journal.disk import Disk
from moorline.limits import DISK_FREE_BYTES_MIN, DISK_LOOK_MS

log = logging.getLogger("moorline.journal")


class FillsDisk:
    """Takes messages, and refuses them while `is_disk_full`; whoever must go on waits for room."""

    def __init__(self) -> None:
        self.disk_problem = ""
        """Why nobody knows whether there is room; empty if somebody does."""
        self.is_disk_full = False
        self._has_room = asyncio.Event()
        self._has_room.set()

    def fill_disk(self, *, is_full: bool) -> None:
        self.is_disk_full = is_full
        if is_full:
            self._has_room.clear()
        else:
            self._has_room.set()

    async def has_room_within(self, wait_ms: int) -> bool:
        """Whether messages are taken, now or within that time."""
        try:
            async with asyncio.timeout(wait_ms / 1_000):
                await self._has_room.wait()
        except TimeoutError:
            return False
        return True


async def is_below_reserve(free_bytes: int) -> bool:
    return free_bytes < DISK_FREE_BYTES_MIN


class DiskWatch:
    """Looks at one disk for one that fills it. `look` before anything is served, `forever` after it."""

    def __init__(
        self,
        disk: Disk,
        what: str,
        filling: FillsDisk,
        lacks_room: Callable[[int], Awaitable[bool]] = is_below_reserve,
    ) -> None:
        """`lacks_room` is told how many bytes are free, and says whether messages must be refused. It may
        take as long as it likes, in slices."""
        self._disk = disk
        self._what = what
        self._filling = filling
        self._lacks_room = lacks_room

    async def look(self) -> None:
        """Says so once each way, also in the log."""
        try:
            # Not on the loop: a disk that hangs must not take it along.
            free = await asyncio.to_thread(self._disk.free_bytes, "")
        except OSError as error:
            self._cannot_look(error)
            return
        self._seen(free, is_full=await self._lacks_room(free))

    async def forever(self) -> None:
        while True:
            await self.look()
            await asyncio.sleep(DISK_LOOK_MS / 1_000)

    def _seen(self, free_bytes: int, *, is_full: bool) -> None:
        self._filling.disk_problem = ""
        if is_full != self._filling.is_disk_full:
            self._filling.fill_disk(is_full=is_full)
            happens = "messages are refused" if is_full else "messages are taken again"
            log.warning(f"disk of the {self._what}: {happens}", extra={"free_bytes": free_bytes})

    def _cannot_look(self, error: OSError) -> None:
        if not self._filling.disk_problem:
            log.error("the disk cannot be looked at", extra={"of": self._what, "error": str(error)})
        self._filling.disk_problem = (
            f"the disk of the {self._what} cannot be looked at: {error.strerror}"
        )
