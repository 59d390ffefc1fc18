"""Room: journal/queues. Whose the queues of a folder are, and how far their log came at least: `manifest`.

    {"node": "q3fJ…", "lsn": 8812, "check": "9f2c41aa03be77d0"}

Written whole, at each start and at each orderly stop. What is missing in the middle of the log its own
numbers tell, and keep a node from starting; what is missing at its end, or all of it, only this file tells.
"""

import logging
from collections.abc import Callable

import msgspec
import xxhash

from moorline.errors import FolderUnusable
from moorline.journal.disk import Disk, read_all
from moorline.journal.queues import checkpoint
from moorline.journal.queues.store import Store

log = logging.getLogger("moorline.journal")

MANIFEST = "manifest"


class QueueManifest(msgspec.Struct, frozen=True):
    node: str
    """The id of the node."""
    lsn: int
    """Changes below it were stored."""
    check: str = ""

    def encoded(self) -> bytes:
        check = xxhash.xxh3_64_hexdigest(f"{self.node} {self.lsn}".encode())
        return msgspec.json.encode(msgspec.structs.replace(self, check=check))


def found_manifest(disk: Disk) -> tuple[QueueManifest | None, str]:
    """The manifest, or None and why it is of no use; nothing to say of one that is not there."""
    if not disk.exists(MANIFEST):
        return None, ""
    data = read_all(disk, MANIFEST)
    try:
        found = msgspec.json.decode(data, type=QueueManifest)
    except (msgspec.DecodeError, UnicodeDecodeError):
        found = None
    if found is None or found.encoded() != data:
        return None, f"{MANIFEST} is damaged"
    return found, ""


def read_manifest(disk: Disk) -> QueueManifest | None:
    """None if there is none, or if it is damaged: that is said, and costs nothing."""
    found, why = found_manifest(disk)
    if why:
        log.error("the manifest of the queues is damaged: what is missing of them cannot be told")
    return found


def write_manifest(disk: Disk, node: str, lsn: int) -> None:
    disk.write_whole(MANIFEST, QueueManifest(node, lsn).encoded())


def check_owner(disk: Disk, node: str) -> None:
    """Refuses the queues of another node: who may read and write them is in another catalog."""
    found = read_manifest(disk)
    if found is not None and found.node != node:
        raise FolderUnusable(
            f"the folder queues holds those of the node with the id {found.node}, and this one is {node}: "
            "put the queues of this node back, or move these away; `moor journal export` and `import` take "
            "queues from one node to another. Nothing was changed"
        )


def go_on_behind(store: Store, wall_ms: Callable[[], int]) -> None:
    """Behind the opening of a store: says what is gone of the end of its log, and gives no number twice."""
    found = read_manifest(store.disk)
    if found is None:
        return
    if store.has_no_log:
        # A manifest is written behind the first file of the log, and there is always one from then on.
        log.error(
            "no file of the write-ahead log is there: what was stored behind the last checkpoint is gone",
            extra={"behind": store.next_lsn - 1},
        )
    if found.lsn <= store.next_lsn:
        return
    log.error(
        "changes of queues are gone: files of the write-ahead log are missing, or older than they were",
        extra={"first": store.next_lsn, "upto": found.lsn, "changes": found.lsn - store.next_lsn},
    )
    store.skip_to(found.lsn)
    checkpoint.run(store, wall_ms)
