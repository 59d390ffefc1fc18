"""Room: journal. A look at the disk's room again and again: whoever fills it is told before it is full."""

import asyncio
import logging
from typing import Protocol

from moorline.journal.disk import Disk
from moorline.limits import DISK_FREE_BYTES_MIN, DISK_LOOK_MS

log = logging.getLogger("moorline.journal")


class Filling(Protocol):
    """Takes messages, and refuses them while `is_disk_full`."""

    is_disk_full: bool


async def watch_disk_forever(disk: Disk, what: str, filling: Filling) -> None:
    """Says so once each way, also in the log."""
    while True:
        try:
            free = disk.free_bytes("")
        except OSError:
            log.exception("the disk cannot be looked at")
        else:
            is_full = free < DISK_FREE_BYTES_MIN
            if is_full != filling.is_disk_full:
                filling.is_disk_full = is_full
                happens = "messages are refused" if is_full else "messages are taken again"
                log.warning(f"disk of the {what}: {happens}", extra={"free_bytes": free})
        await asyncio.sleep(DISK_LOOK_MS / 1_000)
