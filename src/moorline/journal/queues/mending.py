"""Room: journal/queues. One queue of a running node, looked at or mended, while the node serves all others.

    work = QueueWork(store, queue)        on the loop: takes down what memory knows of the queue
    report = work.check()                 in a thread: on a copy of the files in memory
    report = work.repair()                in a thread: on the files
    work.take_over(store, queue)          on the loop: what the repair left is what the queue is

The procedure is that of `journal/queues/check.py`. Between the first line and the last nobody else may
touch the
queue or its files: it is in `store.mending`, all its changes are in its files, and these are closed.
"""

from collections import deque
from collections.abc import Callable

from moorline.core.queue.queue import Queue
from moorline.errors import QueueDamaged
from moorline.ids import text_of
from moorline.journal.disk import Disk
from moorline.journal.overlay import OverlayDisk
from moorline.journal.queues.check import Mending
from moorline.journal.queues.files import StoreOptions
from moorline.journal.queues.report import Report
from moorline.journal.queues.store import Store

_OF_FILES = (
    *("acknowledged_lsn", "can_write", "consumed", "damaged", "flushed_lsn", "oldest_s"),
    *("pending", "popped", "settled_lsn", "stored", "touched_lsn"),
)
"""What a queue knows of its files and of what is not in them yet."""


class QueueWork:
    """A check or a repair of one queue."""

    def __init__(self, store: Store, queue: Queue, wall_ms: Callable[[], int]) -> None:
        assert queue.id in store.mending, "others must keep away"
        self._disk = store.disk
        self._options = store.options
        self._wall_ms = wall_ms
        self._next_lsn = store.next_lsn
        self._known = _copy(queue)
        self._mended: _OneQueue | None = None

    @property
    def has_begun(self) -> bool:
        """Whether a repair may have changed something on the disk."""
        return self._mended is not None

    def check(self) -> Report:
        """What is wrong with it, and what a repair would save; changes nothing."""
        return self._on(OverlayDisk(self._disk)).mend()

    def repair(self) -> tuple[Report, Report]:
        """Puts right what is wrong; what that was, and what is found afterwards."""
        # On a copy first: what cannot be mended here must not be begun.
        self._refuse_foreign(self._on(OverlayDisk(self._disk)))
        self._mended = self._on(self._disk)
        found = self._mended.mend()
        again = _OneQueue(
            OverlayDisk(self._disk),
            self._options,
            self._wall_ms,
            _copy(self._mended.queue),
            self._next_lsn,
        )
        return found, again.mend()

    def take_over(self, store: Store, queue: Queue) -> None:
        """The queue is what the repair left of it."""
        assert self._mended is not None
        for name in _OF_FILES:
            setattr(queue, name, getattr(self._mended.queue, name))
        queue.weigh(self._mended.queue.bytes)
        store.files.close_queue(queue)
        store.files.quarantined += self._mended.quarantined
        store.files.lost_messages += self._mended.report.lost
        store.files.doubled_messages += self._mended.report.doubled
        store.files.records_aside += self._mended.report.aside
        store.dirty[queue.id] = queue

    def _on(self, disk: Disk) -> "_OneQueue":
        return _OneQueue(disk, self._options, self._wall_ms, _copy(self._known), self._next_lsn)

    def _refuse_foreign(self, tried: "_OneQueue") -> None:
        tried.mend()
        if tried.highest_lsn >= self._next_lsn:
            # To number on behind it, the log would need a gap, which a start would refuse.
            raise QueueDamaged(
                f"the files of {text_of(self._known.id)} hold message {tried.highest_lsn}, and this node has "
                f"given no id above {self._next_lsn - 1}: they are of another node, or of another time. "
                "Stop the node and run `moor journal check --repair`"
            )


class _OneQueue(Mending):
    """The procedure of a whole store, with one queue in it. Its store is never opened, and has no log."""

    def __init__(
        self,
        disk: Disk,
        options: StoreOptions,
        wall_ms: Callable[[], int],
        queue: Queue,
        next_lsn: int,
    ) -> None:
        super().__init__(disk, options, wall_ms, lambda _done, _total: None)
        self.queue = queue
        self._store.next_lsn = next_lsn
        self._store.live[queue.id] = queue

    @property
    def quarantined(self) -> int:
        return self._store.files.quarantined

    @property
    def highest_lsn(self) -> int:
        """Of all messages and states that were found."""
        return self._lsn

    def _mend(self) -> Report:
        self.report.queues = 1
        try:
            self._look_at(self.queue)
            self._salvage_all()
        finally:
            self._handles.close()
            self._store.close()
        return self.report


def _copy(queue: Queue) -> Queue:
    copy = Queue(queue.id, queue.owner, queue.created_s)
    for name in _OF_FILES:
        value = getattr(queue, name)
        setattr(copy, name, type(value)(value) if isinstance(value, deque | list) else value)
    copy.bytes = queue.bytes
    return copy
