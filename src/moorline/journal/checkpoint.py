"""Room: journal. The checkpoint: what the log holds goes into the queues' files and the index.

    1  begin a new segment of the log
    2  flush every queue with changes: records, then a state line          (nothing is synced yet)
    3  one sync of the whole disk                                          (in a thread)
    4  remove the files that no state needs any more
    5  write the new index                                                 (in a thread)
    6  drop the old segments

A crash before 6 leaves the log, and the log has everything. The order 3 before 4 is what keeps a message
file until the state that skips it is durable.
"""

from collections.abc import Callable, Generator
from itertools import islice

from moorline.core.effects import Effect
from moorline.core.queue import QUOTA_MARKER, Queue
from moorline.core.queue_journal import Acknowledge, Add, Clean, QueueState
from moorline.journal.files import Reader
from moorline.journal.folder import Damaged, QueueFolder
from moorline.journal.index import ROW, rows_of
from moorline.journal.record import encode, record_bytes
from moorline.journal.store import INDEX, INDEX_BEFORE, INDEX_NEXT, Store
from moorline.limits import (
    CACHE_BYTES_PER_QUEUE,
    CHECKPOINT_QUEUE_BYTES,
    CHECKPOINT_SLICE_MS,
    CHECKPOINT_SPARE_BYTES,
    PENDING_COUNTED_MAX,
)

DiskWork = Callable[[], None]


def steps(
    store: Store,
    wall_ms: Callable[[], int],
    monotonic_ms: Callable[[], int],
    slice_ms: Callable[[], int] = lambda: CHECKPOINT_SLICE_MS,
) -> Generator[DiskWork | None, None, None]:
    """One checkpoint, in steps of `slice_ms` that leave room for other work.

    A step gives back disk work to be done before the next one, in a thread if that is better, or
    None. Whenever a step is asked for, everything must be committed: a change that is not could reach
    the files and then be lost from the log.
    """
    _check_committed(store)
    first = store.next_lsn
    store.log.begin_segment(first)
    work, store.dirty = store.dirty, {}
    changed: list[Queue] = []
    slice_end = monotonic_ms() + slice_ms()
    for queue in work.values():
        if store.live.get(queue.id) is not queue:
            continue  # deleted meanwhile
        flush(store, queue, wall_ms())
        changed.append(queue)
        if monotonic_ms() >= slice_end:
            yield None
            _check_committed(store)
            slice_end = monotonic_ms() + slice_ms()
    if store.options.sync:
        yield store.disk.sync_all
        _check_committed(store)
    remove_superseded(store)
    changed = [queue for queue in changed if store.live.get(queue.id) is queue]
    deleted = set(store.deleted)
    fold = Fold(store, changed, deleted)
    yield fold.save
    store.index = fold.index
    store.unindexed -= {queue.id for queue in changed}
    # One that was deleted while the index was written is in it, and must stay deleted.
    gone = {queue.id for queue in changed if store.live.get(queue.id) is not queue}
    store.deleted = (store.deleted - deleted) | gone
    store.log.drop_before(first)
    store.files.spare.clear()
    store.forget_idle()


def run(store: Store, wall_ms: Callable[[], int]) -> None:
    """A whole checkpoint on this thread: at the end of a node, and in tools."""
    store.commit()
    for disk_work in steps(store, wall_ms, lambda: 0):
        if disk_work is not None:
            disk_work()


def flush(store: Store, queue: Queue, now_ms: int) -> None:
    """Moves a queue's pending changes into its files."""
    if queue.damaged:
        if queue.is_dirty:
            # Of a log that was replayed after the queue was set aside.
            store.files.give_up(queue)
        return
    if not (queue.pending or queue.stored or queue.consumed or queue.popped is not None):
        # Nothing in the files, nothing to be put there: all it had came and went in the log.
        queue.settle(queue.touched_lsn, 0)
        queue.oldest_s = 0
        return
    if not (queue.pending or queue.consumed or queue.popped is not None):
        queue.settle(queue.touched_lsn, queue.stored)
        return
    reader = store.files.reader(queue)
    if reader is None:
        return
    try:
        _flush_into(store, queue, reader, now_ms)
    except Damaged as error:
        store.files.quarantine(queue, str(error))


def wanted_bytes(store: Store, free_bytes: int) -> int:
    """Room that a checkpoint takes before it gives any back; at most, if that is free, and else exactly."""
    rows = (len(store.index) + len(store.unindexed)) * ROW.itemsize + CHECKPOINT_SPARE_BYTES
    at_most = rows + store.log.size_bytes + CHECKPOINT_QUEUE_BYTES * len(store.dirty)
    if at_most <= free_bytes:
        return at_most
    # Of what the log holds, most may be acknowledged: only what still waits goes into the files.
    waiting = [queue.pending for queue in store.dirty.values() if queue.pending]
    if sum(map(len, waiting)) > PENDING_COUNTED_MAX:
        size = store.log.size_bytes
    else:
        size = sum(record_bytes(entry) for pending in waiting for entry in pending)
    return rows + size + CHECKPOINT_QUEUE_BYTES * len(waiting)


def remove_superseded(store: Store, folder: str | None = None) -> None:
    """Does the removals that waited for a sync: all, or those of one queue's folder."""
    removals = [one for one in store.files.removals if folder in (None, one.folder)]
    for removal in removals:
        path = f"{removal.folder}/{removal.name}"
        store.files.handles.forget(path)
        if store.disk.exists(path):
            store.disk.remove(path)
    # All at once: there may be hundreds of thousands.
    store.files.removals[:] = [
        one for one in store.files.removals if folder not in (None, one.folder)
    ]


def _flush_into(store: Store, queue: Queue, reader: Reader, now_ms: int) -> None:
    journal = reader.journal
    effects: list[Effect] = []
    # Every state says the same: what is in the log up to here is accounted for, also the messages that
    # came and went without ever reaching a file.
    lsn = queue.touched_lsn
    consumed = queue.consumed or []
    if consumed:
        assert journal.stored is not None, "consumed messages were stored"
        sizes = _sizes(reader.folder, journal.stored, len(consumed))
        for size in sizes:
            effects += journal.handle(Acknowledge(size, lsn), now_ms)
    records = [encode(entry, reader.folder.seed) for entry in queue.pending or ()]
    pieces = []
    is_open = not any(entry.kind == QUOTA_MARKER for entry in queue.pending or ())
    while records:
        some, records = records[: journal.room], records[journal.room :]
        piece = b"".join(some)
        pieces.append(piece)
        added = Add(len(piece), store.files.fresh_name(), lsn, is_open, len(some))
        effects += journal.handle(added, now_ms)
    if journal.stored is not None and not journal.size:
        effects += journal.handle(Clean(), now_ms)
    store.files.perform(reader, effects, pieces)
    _set_oldest(queue)
    _keep_at_hand(queue)
    queue.pending = None
    queue.settle(queue.touched_lsn, journal.size)


def _set_oldest(queue: Queue) -> None:
    """The time of the first message as far as it is known without reading: a lower bound."""
    if not queue.size:
        queue.oldest_s = 0
    elif not queue.stored or queue.cache:
        first = queue.peek(0)
        assert first is not None
        queue.oldest_s = first.time_ms // 1_000


def _keep_at_hand(queue: Queue) -> None:
    """A subscriber will want what was just flushed: it need not be read back."""
    cached = len(queue.cache or ())
    if queue.subscriber is None or not queue.pending or cached != queue.stored:
        return
    size = sum(record_bytes(entry) for entry in queue.pending)
    if size <= CACHE_BYTES_PER_QUEUE:
        queue.cache = queue.pending if queue.cache is None else queue.cache + queue.pending


def _sizes(folder: QueueFolder, state: QueueState, count: int) -> list[int]:
    sizes = [size for _, size in islice(folder.entries(state, 0), count)]
    if len(sizes) < count:
        raise Damaged(f"only {len(sizes)} of {count} acknowledged messages are in the files")
    return sizes


class Fold:
    """The next index: what changed is taken down at once, the rest is done by `save` in a thread."""

    def __init__(self, store: Store, changed: list[Queue], deleted: set[bytes]) -> None:
        self.index = store.index
        self._disk = store.disk
        self._rows = rows_of(changed)
        self._deleted = deleted
        self._owners = list(store.owners)
        self._lsn = store.next_lsn

    def save(self) -> None:
        """Writes it; the one before is kept for a rebuild, if it was worth anything."""
        self.index = self.index.with_rows(self._rows, self._deleted, self._owners, self._lsn)
        self.index.save(self._disk, INDEX_NEXT)
        if self._disk.exists(INDEX):
            self._disk.rename(INDEX, INDEX_BEFORE)
        self._disk.rename(INDEX_NEXT, INDEX)
        self._disk.sync_folder("")


def _check_committed(store: Store) -> None:
    assert store.writing is None, "a commit is on its way"
    assert not store.batch.count, "a change is not committed"
