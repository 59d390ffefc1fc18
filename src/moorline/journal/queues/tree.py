"""Room: journal/queues. What stands in the tree of queues, and what was set aside in it and beside it."""

from collections.abc import Iterator

from moorline.journal.disk import Disk
from moorline.journal.queues.folder_changes import ASIDE
from moorline.journal.queues.layout import queue_of_folder
from moorline.journal.queues.put_away import KEPT, QUARANTINE

REPAIRED = ".repaired-"
"""In the name of the files of a queue that was repaired."""


def kept(disk: Disk, levels: int) -> list[str]:
    """What repairs, and recoveries of single queues, have set aside and nobody has removed yet."""
    found = [
        f"{path}/{name}"
        for path, queue_id in tree(disk, levels)
        if queue_id is not None
        for name in disk.list_folder(path)
        if ASIDE in name
    ]
    names = disk.list_folder(QUARANTINE) if disk.exists(QUARANTINE) else []
    found += [f"{QUARANTINE}/{name}" for name in names if REPAIRED in name or KEPT in name]
    return found


def tree(disk: Disk, levels: int) -> Iterator[tuple[str, bytes | None]]:
    """Every queue's folder with its id, and everything else with None. Two-letter folders are neither."""
    if disk.exists("messages"):
        yield from _below(disk, "messages", "", levels)


def _below(disk: Disk, path: str, text: str, levels: int) -> Iterator[tuple[str, bytes | None]]:
    for name in disk.list_folder(path):
        below = f"{path}/{name}"
        if not disk.is_folder(below) or (levels and len(name) != 2):
            yield below, None
        elif levels:
            yield from _below(disk, below, text + name, levels - 1)
        else:
            yield below, queue_of_folder(text + name)
