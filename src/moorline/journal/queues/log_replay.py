"""Room: journal/queues. What a start makes of the changes in the log: queues as they were.

The log begins where the index ends, or before. A change that the files of its queue have already is not made
again; its message is kept as a spare, should they be damaged.
"""

from typing import TYPE_CHECKING

from moorline.core.queue.queue import MESSAGE, QUOTA_MARKER, Entry, Queue
from moorline.errors import LogDamaged
from moorline.journal.queues.wal import Change, Kind

if TYPE_CHECKING:
    from moorline.journal.queues.store import Store


_REVIVING = (
    *(Kind.SEND, Kind.MARK, Kind.SUSPEND),
    *(Kind.BLOCK, Kind.UNBLOCK, Kind.CLOSE, Kind.OPEN),
)
"""What shows that a queue was there: what it was set to must hold for the messages that follow."""


class LogReplay:
    """Takes one change of the log after the other."""

    def __init__(self, store: "Store") -> None:
        self._store = store
        self.count = 0
        self.revives = False
        """Whether a change of a queue that nobody knows makes it anew: its row may be lost."""
        self.revived: list[bytes] = []
        """Those queues: nobody's, since nothing says whose they were."""

    def take(self, change: Change) -> None:
        store = self._store
        if change.lsn > store.next_lsn:
            raise LogDamaged(
                f"the changes {store.next_lsn} to {change.lsn - 1} are missing from the write-ahead "
                "log: run `moor journal check --repair`"
            )
        store.next_lsn = max(store.next_lsn, change.lsn + 1)
        self.count += 1
        if change.kind == Kind.NEW:
            if store.find(change.queue) is None and not store.is_deleted(change.queue):
                store.created(change.queue, change.body, change.number, change.lsn)
            return
        queue = store.find(change.queue) or self._revived(change)
        if queue is None:
            return
        if change.lsn <= queue.flushed_lsn:
            self._keep_spare(queue, change)
            return
        if queue.popped is None and not queue.damaged:
            queue.popped = []
        match change.kind:
            case Kind.SEND | Kind.MARK:
                kind = MESSAGE if change.kind == Kind.SEND else QUOTA_MARKER
                # Whatever the row says: a queue that took a message was open then.
                queue.can_write = True
                queue.push(Entry(change.lsn, change.number, kind, change.body))
            case Kind.ACKNOWLEDGE:
                _forget_upto(queue, change.lsn, change.number, 1)
            case Kind.EXPIRE:
                last = int.from_bytes(change.body, "big")
                _forget_upto(queue, change.lsn, last, change.number)
            case Kind.DELETE:
                store.forget(queue, change.lsn)
                return
            case _:
                store.apply_flag(queue, Kind(change.kind), change.lsn)
        store.dirty[queue.id] = queue

    def _keep_spare(self, queue: Queue, change: Change) -> None:
        """The files have it. Until the log is dropped it is here too, should they be damaged."""
        if change.kind not in (Kind.SEND, Kind.MARK) or queue.damaged:
            return
        store = self._store
        kind = MESSAGE if change.kind == Kind.SEND else QUOTA_MARKER
        spare = store.files.spare_of(queue)
        spare.append(Entry(change.lsn, change.number, kind, change.body))
        # The next checkpoint looks at its files, before it drops the log.
        store.dirty[queue.id] = queue
        queue.popped = queue.popped or []

    def _revived(self, change: Change) -> Queue | None:
        """A queue that is known only by a message for it, or by what it was set to: its row and its beginning
        are lost."""
        store = self._store
        if not self.revives or change.kind not in _REVIVING or store.is_deleted(change.queue):
            return None
        self.revived.append(change.queue)
        # Only a message has a time.
        return store.created(change.queue, b"", change.number or store.now_ms(), 0)


def _forget_upto(queue: Queue, lsn: int, message: int, count: int) -> None:
    """Forgets so many messages, of which `message` is the last; what is above it stays in any case."""
    for _ in range(min(count, queue.stored)):
        queue.pop(lsn, message)
    while not queue.stored and queue.pending and queue.pending[0].lsn <= message:
        queue.pop(lsn, message)
    # Also where the messages themselves are lost: when their files are read this is needed.
    queue.touched_lsn, queue.acknowledged_lsn = lsn, message
