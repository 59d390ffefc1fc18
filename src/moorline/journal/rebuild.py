"""Room: journal. An index made anew from the folders, when the file is lost or damaged.

The folders know the messages; who owned a queue and which empty queues there were is only known to an
index. So the last one that can be read is the base, if there is one; queues that are found without it
belong to the anonymous owner, and their number is logged.
"""

import logging

from moorline.core.queue import Queue
from moorline.ids import text_of
from moorline.journal.folder import Damaged, QueueFolder, path_of
from moorline.journal.folder_recovery import recovered
from moorline.journal.index import Index, IndexDamaged
from moorline.journal.layout import folders
from moorline.journal.store import ANONYMOUS_OWNER, INDEX_BEFORE, Store

log = logging.getLogger("moorline.journal")

PROGRESS_EVERY = 10_000
ALL = 1 << 62


def rebuilt_index(store: Store) -> Index:
    """Visits every folder; slow with many queues, and only ever needed after damage."""
    base = _base(store)
    queues: list[Queue] = []
    unknown = 0
    for visited, queue_id in enumerate(folders(store.disk, store.options.levels), 1):
        queue = base.find(queue_id)
        if queue is None:
            queue = Queue(queue_id, ANONYMOUS_OWNER, 0)
            unknown += 1
        _take_in(store, queue)
        queues.append(queue)
        if not visited % PROGRESS_EVERY:
            log.info("rebuilding the index", extra={"queues": visited})
    lsn = max([base.lsn, *(queue.flushed_lsn + 1 for queue in queues)])
    log.warning("index rebuilt", extra={"queues": len(queues), "without_owner": unknown})
    return base.folded(queues, [], base.owners, lsn)


def _base(store: Store) -> Index:
    try:
        return Index.load(store.disk, INDEX_BEFORE)
    except (FileNotFoundError, IndexDamaged):
        return Index.empty()


def _take_in(store: Store, queue: Queue) -> None:
    """Sets a queue to what its folder says."""
    folder = QueueFolder(store.disk, store.files.handles, path_of(queue.id, store.options.levels))
    try:
        # Whatever is there counts, all of it if need be: nothing else knows.
        state = recovered(folder, expected=ALL, upto_lsn=ALL, stamp="0" * 14).state
    except Damaged as error:
        store.files.quarantine(queue, str(error))
        log.error("set aside", extra={"queue": text_of(queue.id)})
        return
    queue.stored = state.size if state else 0
    queue.flushed_lsn = queue.touched_lsn = state.lsn if state else 0
    queue.can_write = state.can_write if state else True
    # Unknown, so as old as can be: the next look for expired messages finds out.
    queue.oldest_s = 0
