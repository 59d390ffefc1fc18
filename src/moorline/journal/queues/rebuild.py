"""Room: journal/queues. An index made anew from the folders, when the file is lost or damaged.

The folders know the messages; who owned a queue and which empty queues there were is only known to an
index. So the last one that can be read is the base, if there is one; queues that are found without it
are nobody's, and their number is logged.
"""

import logging
from collections.abc import Callable

from moorline.core.queue.queue import Queue
from moorline.journal.disk import Disk
from moorline.journal.overlay import OverlayDisk
from moorline.journal.queues.folder import Damaged, QueueFolder, path_of
from moorline.journal.queues.folder_recovery import Found, Known, recovered
from moorline.journal.queues.index import INDEX_BEFORE, Index, IndexDamaged, queue_of
from moorline.journal.queues.layout import folders
from moorline.journal.queues.store import LOG, NOBODY, Store
from moorline.journal.queues.wal import Kind, WriteAheadLog

log = logging.getLogger("moorline.journal")

PROGRESS_EVERY = 10_000
ALL = 1 << 62

Tell = Callable[[Queue, Found, int], None]


def rebuilt_index(store: Store, tell: Tell | None = None) -> Index:
    """Visits every folder; slow with many queues, and only ever needed after damage.

    `tell` hears what was out of order in a folder, and how many messages it lacks.
    """
    base = _base(store)
    queues: list[Queue] = []
    unknown = highest = 0
    logged = logged_ids(store.disk)
    for visited, queue_id in enumerate(folders(store.disk, store.options.levels), 1):
        queue = base.find(queue_id)
        if queue is None:
            queue = Queue(queue_id, NOBODY, 0)
            unknown += 1
        highest = max(highest, _take_in(store, queue, logged, tell or store.files.tell))
        queues.append(queue)
        if not visited % PROGRESS_EVERY:
            log.info("rebuilding the index", extra={"queues": visited})
    # Also above what only a state names: a number is never given twice.
    lsn = max([base.lsn, highest + 1, *(queue.flushed_lsn + 1 for queue in queues)])
    log.warning("index rebuilt", extra={"queues": len(queues), "without_owner": unknown})
    found = {queue.id for queue in queues}
    for row in base.rows[base.rows["size"] > 0]:
        queue = queue_of(row)
        if queue.id not in found:
            # Without a folder it was deleted since, or emptied before it ever had one.
            queue.stored = queue.bytes = queue.oldest_s = 0
            queues.append(queue)
    return base.folded(queues, [], base.owners, lsn)


def _base(store: Store) -> Index:
    try:
        return Index.load(store.disk, INDEX_BEFORE)
    except (FileNotFoundError, IndexDamaged):
        return Index.empty()


def logged_ids(disk: Disk) -> set[int]:
    """The ids of all messages that the log still has; the log on disk stays as it is."""
    log_copy = WriteAheadLog(OverlayDisk(disk), LOG, sync=False)
    changes = log_copy.replay(repair=True)
    return {change.lsn for change in changes if change.kind in (Kind.SEND, Kind.MARK)}


def _take_in(store: Store, queue: Queue, logged: set[int], tell: Tell) -> int:
    """Sets a queue to what its folder says; returns the highest number seen there."""
    path = path_of(queue.id, store.options.levels)
    folder = QueueFolder(store.disk, store.files.handles, path, queue.id, store.options.node)
    known = Known(None, ALL, logged, settled=queue.settled_lsn)
    try:
        # Whatever is there counts, all of it if need be: nothing else knows.
        found = recovered(folder, known, store.files.stamp())
    except Damaged as error:
        # What an older row counts is not what is there now: every record that can be read is kept.
        queue.stored = queue.bytes = queue.flushed_lsn = queue.touched_lsn = 0
        store.files.quarantine(queue, str(error))
        return 0
    tell(queue, found, found.missing)
    state = found.state
    queue.stored = state.size if state else 0
    queue.bytes = state.waiting_bytes if state else 0
    queue.flushed_lsn = queue.touched_lsn = state.lsn if state else 0
    queue.can_write = state.can_write if state else True
    # Unknown, so as old as can be: the next look for expired messages finds out.
    queue.oldest_s = 0
    return found.lsn
