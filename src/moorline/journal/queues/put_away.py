"""Room: journal/queues. Folders that are in the way: kept if a message is in them, also one of another queue.

quarantine/kept-<time>/orphan-messages-ab-cd-…      whoever needs it no more removes it
"""

import contextlib

from moorline.journal.disk import Disk, parent
from moorline.journal.queues.files import remove_whatever
from moorline.journal.queues.record import seed_of
from moorline.journal.queues.salvage import Salvaged, entries_in

QUARANTINE = "quarantine"
KEPT = "kept-"


def put_away(disk: Disk, path: str, queue_id: bytes, stamp: str) -> str:
    """Removes a folder in which no message is; any other is kept. Returns what was done."""
    found = Salvaged({})
    if disk.is_folder(path):
        found = entries_in(disk, path, seed_of(queue_id))
    if not found.entries and not found.strange:
        with contextlib.suppress(FileNotFoundError):  # a link to nothing, in a copy
            remove_whatever(disk, path)
        return "it holds no message and is removed"
    target = f"{kept_folder(disk, stamp)}/orphan-{path.replace('/', '-')}"
    disk.rename(path, target)
    count = len(found.entries) + found.strange
    return f"it holds {count} messages and is kept as {target}"


def kept_folder(disk: Disk, stamp: str) -> str:
    """A folder for what is set aside at that time."""
    folder = f"{QUARANTINE}/{KEPT}{stamp}"
    make_durable(disk, folder)
    return folder


def make_durable(disk: Disk, folder: str) -> None:
    """A folder that something can be moved to, whatever happens next."""
    disk.make_folders(folder)
    while folder:
        folder = parent(folder)
        disk.sync_folder(folder)
