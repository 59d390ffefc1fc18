"""Room: journal/queues. The checkpoint: what the log holds goes into the queues' files and the index.

    1  begin a new segment of the log                                      (on the thread that writes the log)
    2  flush every queue with changes: records, then a state line          (in a thread, group by group)
    3  sync the whole disk                                                 (in a thread; every so many queues)
    4  remove the files that no state needs any more                       (in a thread)
    5  write the new index                                                 (in a thread)
    6  drop the old segments                                               (in a thread)

A crash before 6 leaves the log, and the log has everything. The order 3 before 4 is what keeps a message
file until the state that skips it is durable. Senders go on throughout, into the new segment: what is flushed
is a copy of each queue (`journal/queues/flight.py`), and no copy is written before all that is in it is
committed.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from itertools import chain, islice
from typing import Any

import numpy as np
import numpy.typing as npt

from moorline.core.effects import Effect
from moorline.core.queue.journal import Acknowledge, Add, Clean, QueueState
from moorline.core.queue.queue import QUOTA_MARKER, Entry, Queue
from moorline.journal.queues.files import QueueFiles, Reader
from moorline.journal.queues.flight import Flight
from moorline.journal.queues.folder import Damaged, QueueFolder
from moorline.journal.queues.index import INDEX, INDEX_BEFORE, INDEX_NEXT, ROW, rows_of
from moorline.journal.queues.record import encode
from moorline.journal.queues.store import Store
from moorline.limits import (
    CHECKPOINT_GROUP_QUEUES,
    CHECKPOINT_QUEUE_BYTES,
    CHECKPOINT_SLICE_MS,
    CHECKPOINT_SPARE_BYTES,
    CHECKPOINT_SYNC_QUEUES,
)

DiskWork = Callable[[], None]
Steps = Generator[DiskWork | None, None, None]


def turn() -> None:
    """In place of disk work: others have their turn of the loop, and no commit is waited for."""


class Checkpoint:
    """One checkpoint, in steps of a few milliseconds that leave room for other work."""

    def __init__(
        self, store: Store, wall_ms: Callable[[], int], monotonic_ms: Callable[[], int]
    ) -> None:
        self.queues = 0
        """How many queues are to be flushed, as far as is known."""
        self.flushed = 0
        self._store = store
        self._wall_ms = wall_ms
        self._monotonic_ms = monotonic_ms
        self._writer = QueueFiles(store.disk, store.options, wall_ms, store.draw, store.mark)
        self._flight: Flight | None = None
        self._changed: dict[bytes, Queue] = {}
        """Queues that are still to be flushed."""
        self._claimed: deque[Queue] = deque()
        """And those whose turn comes once more."""
        self._rows: list[npt.NDArray[Any]] = []
        self._unsynced = 0

    def steps(self) -> Steps:
        """A step gives back disk work to be done before the next one, in a thread, or None.

        With None others have their turn; where something is not committed, the next step is asked for behind
        a commit. `store.begin_segment` is done by whoever writes the log, between two batches. Disk work that
        ended with `DiskFull` may be done again, all but the sync of the whole disk. With `turn` nothing is to
        be done, but that others have theirs.
        """
        store = self._store
        yield store.begin_segment
        # Every queue with a change in an earlier segment is among these.
        first = store.log.first
        # Handed over and taken one by one: to copy them all, or to let them go together, is a long turn.
        self._changed, store.dirty = store.dirty, {}
        self.queues = len(self._changed)
        # Of a checkpoint before, that somebody cut short.
        store.unindexed |= store.indexing
        store.deleted |= store.deleting
        store.indexing, store.unmade, store.deleting = set(), set(), set()
        yield from self._flush_all()
        if store.options.sync:
            yield store.disk.sync_all
        yield from self._remove_superseded()
        yield from self._write_index()
        while store.has_discards:
            # The log knows that they are to be removed, and is about to go.
            store.after_commit()
            yield None
        yield lambda: store.log.drop_before(first)
        spare, store.files.spare = store.files.spare, {}
        yield from self._sliced(_emptied(spare), turn)
        yield turn
        yield from self._sliced(store.forget_idle(), turn)

    def stop(self) -> None:
        """Disk work that is under way ends soon: at a stop of the node. From any thread."""
        self._store.files.removals.stop()
        if self._flight is not None:
            self._flight.stop()

    def close(self) -> None:
        """Behind the last disk work, also of a checkpoint that was cut short."""
        self._store.files.take_counts(self._writer)
        self._writer.handles.close()

    # --- the queues -------------------------------------------------------------------------------

    def _flush_all(self) -> Steps:
        store = self._store
        flight = self._flight = Flight(store.files, self._writer, _flush)
        while self._changed or self._claimed:
            yield from self._sliced(self._copy_some(flight), turn)
            # Of all copies: the first ones may be older, and more than they need is waited for.
            upto = store.next_lsn - 1
            yield None
            while store.committed_lsn < upto:
                # A change that is not committed could reach the files and then be lost from the log.
                yield None
            now_ms = self._wall_ms()
            yield lambda now_ms=now_ms: flight.write(now_ms)  # type: ignore[misc]
            yield from self._sliced(flight.land(), turn)
            landed, claimed = flight.leave()
            self._landed(landed)
            # Their turn comes again, and again: what is read meanwhile is stored, and that becomes less. It
            # comes behind all others: those that are always in use must not keep them from theirs.
            self._claimed += claimed
            self._unsynced += len(landed)
            if store.options.sync and self._unsynced >= CHECKPOINT_SYNC_QUEUES:
                self._unsynced = 0
                yield store.disk.sync_all
            yield turn
        self.close()

    def _copy_some(self, flight: Flight) -> Iterator[None]:
        """A group of them; pauses after each."""
        store = self._store
        for _ in range(min(CHECKPOINT_GROUP_QUEUES, len(self._changed) + len(self._claimed))):
            queue = self._changed.popitem()[1] if self._changed else self._claimed.popleft()
            if store.live.get(queue.id) is queue:  # else it was deleted meanwhile
                store.dirty.pop(queue.id, None)
                flight.copy(queue)
            yield

    def _landed(self, landed: list[tuple[Queue, Queue]]) -> None:
        store = self._store
        there = [copy for queue, copy in landed if store.live.get(queue.id) is queue]
        # Group by group: at the end nothing is left to be done for each of very many.
        fresh = [copy.id for copy in there if copy.id in store.unindexed]
        store.indexing.update(fresh)
        store.unindexed.difference_update(fresh)
        self._rows.append(rows_of(there))
        self.flushed += len(landed)

    # --- what follows -----------------------------------------------------------------------------

    def _remove_superseded(self) -> Steps:
        files = self._store.files
        yield from self._sliced(map(files.handles.forget_folder, files.removals.synced()))
        yield files.removals.perform_all

    def _write_index(self) -> Steps:
        store = self._store
        gone = store.begin_index()
        # A deletion that is not committed may never have been: left out of the index, its queue would be gone
        # with all its messages, and the rest of its batch would not.
        upto = store.next_lsn - 1
        while store.committed_lsn < upto:
            yield None
        fold = Fold(store, self._rows, gone)
        yield fold.save
        yield from self._sliced(store.take_index(fold.index), turn)

    def _sliced(self, each: Iterable[None], between: DiskWork | None = None) -> Steps:
        """`between` is what is given back between two slices."""
        slice_end = self._monotonic_ms() + CHECKPOINT_SLICE_MS
        for _ in each:
            if self._monotonic_ms() >= slice_end:
                yield between
                slice_end = self._monotonic_ms() + CHECKPOINT_SLICE_MS


def steps(store: Store, wall_ms: Callable[[], int], monotonic_ms: Callable[[], int]) -> Steps:
    """One checkpoint, step by step: see `Checkpoint.steps`."""
    return Checkpoint(store, wall_ms, monotonic_ms).steps()


def run(store: Store, wall_ms: Callable[[], int]) -> None:
    """A whole checkpoint on this thread: at the end of a node, and in tools."""
    store.commit()
    for disk_work in steps(store, wall_ms, lambda: 0):
        if disk_work is not None:
            disk_work()


def flush(store: Store, queue: Queue, now_ms: int) -> None:
    """Moves a queue's pending changes into its files, on this thread; all of them must be committed."""
    store.files.claim(queue)
    _flush(store.files, queue, now_ms)


def _flush(files: QueueFiles, queue: Queue, now_ms: int) -> None:
    if queue.damaged:
        if queue.is_dirty:
            # Of a log that was replayed after the queue was set aside.
            files.give_up(queue)
        return
    if not (queue.pending or queue.stored or queue.consumed or queue.popped is not None):
        # Nothing in the files, nothing to be put there: all it had came and went in the log.
        queue.settle(queue.touched_lsn, 0)
        queue.weigh(0)
        queue.oldest_s = 0
        return
    if not (queue.pending or queue.consumed or queue.popped is not None):
        queue.settle(queue.touched_lsn, queue.stored)
        return
    reader = files.reader(queue)
    if reader is None:
        return
    try:
        _flush_into(files, queue, reader, now_ms)
    except Damaged as error:
        files.quarantine(queue, str(error))


def wanted(store: Store, free_bytes: int) -> Generator[None, None, int]:
    """Room that a checkpoint takes before it gives any back; at most, if that is free, and else exactly.

    Pauses after each queue that has changed.
    """
    count = len(store.index) + len(store.unindexed) + len(store.indexing)
    rows = count * ROW.itemsize + CHECKPOINT_SPARE_BYTES
    at_most = rows + store.log.size_bytes + CHECKPOINT_QUEUE_BYTES * len(store.dirty)
    if at_most <= free_bytes:
        return at_most
    # Of what the log holds, most may be acknowledged: only what still waits goes into the files.
    size = waiting = 0
    for queue in list(store.dirty.values()):
        if queue.pending:
            waiting += 1
            size += queue.pending_bytes if queue.stored else queue.bytes
        yield
    return rows + size + CHECKPOINT_QUEUE_BYTES * waiting


def remove_superseded(store: Store, folder: str) -> None:
    """Does the removals in one queue's folder that waited for a sync."""
    store.files.handles.forget_folder(folder)
    store.files.removals.synced_in(folder)
    store.files.removals.perform(folder)


def _flush_into(files: QueueFiles, queue: Queue, reader: Reader, now_ms: int) -> None:
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
        added = Add(len(piece), files.fresh_name(), lsn, is_open, len(some))
        effects += journal.handle(added, now_ms)
    if journal.stored is not None and not journal.size:
        effects += journal.handle(Clean(), now_ms)
    files.perform(reader, effects, pieces)
    _set_oldest(queue)
    queue.pending = None
    queue.settle(queue.touched_lsn, journal.size)
    queue.weigh(0 if journal.stored is None else journal.stored.waiting_bytes)


def _set_oldest(queue: Queue) -> None:
    """The time of the first message as far as it is known without reading: a lower bound."""
    if not queue.size:
        queue.oldest_s = 0
    elif not queue.stored or queue.cache:
        first = queue.peek(0)
        assert first is not None
        queue.oldest_s = first.time_ms // 1_000


def _sizes(folder: QueueFolder, state: QueueState, count: int) -> list[int]:
    sizes = [size for _, size in islice(folder.entries(state, 0), count)]
    if len(sizes) < count:
        raise Damaged(f"only {len(sizes)} of {count} acknowledged messages are in the files")
    return sizes


def _emptied(many: dict[bytes, list[Entry]]) -> Iterator[None]:
    """Forgets them; pauses after each. All at once is one step, whoever is to do it holds the interpreter."""
    while many:
        many.popitem()
        yield


class Fold:
    """The next index: what changed is at hand, the rest is done by `save` in a thread."""

    def __init__(self, store: Store, rows: list[npt.NDArray[Any]], gone: list[set[bytes]]) -> None:
        self.index = store.index
        self._disk = store.disk
        self._rows = rows
        self._gone = gone
        self._owners = list(store.owners)
        # Not the next one to be given: what is not committed may never have been.
        self._lsn = store.committed_lsn + 1

    def save(self) -> None:
        """Writes it; the one before is kept for a rebuild, if it was worth anything."""
        rows = _joined(self._rows)
        index = self.index.with_rows(rows, chain(*self._gone), self._owners, self._lsn)
        index.save(self._disk, INDEX_NEXT)
        if self._disk.exists(INDEX):
            self._disk.rename(INDEX, INDEX_BEFORE)
        self._disk.rename(INDEX_NEXT, INDEX)
        self._disk.sync_folder("")
        self.index = index


def _joined(parts: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """Not np.concatenate: it may change the byte order, and these bytes are the file's."""
    rows = np.empty(sum(map(len, parts)), ROW)
    place = 0
    for part in parts:
        rows[place : place + len(part)] = part
        place += len(part)
    return rows
