"""Room: journal/queues. All queues of a store into rows, and rows into a store.

An export looks and changes nothing. An import reads its rows twice: first to check every one of them, and
that none of the queues is there already, then to build the queues' folders. What makes them exist is the
index, which is replaced at the very end: before that moment nothing is imported, after it everything is.
Whoever is killed in between leaves folders that no row of the index names; the same import, or
`moor journal check --repair`, sets them aside.
"""

import struct
from collections.abc import Callable

import msgspec

from moorline.core.queue.queue import MESSAGE, QUOTA_MARKER, Entry, Queue
from moorline.core.sets.digest import Digest
from moorline.errors import ImportRefused
from moorline.ids import id_of, text_of
from moorline.journal.disk import Disk
from moorline.journal.queues.build import FolderBuilder
from moorline.journal.queues.files import StoreOptions
from moorline.journal.queues.folder import path_of
from moorline.journal.queues.offline import every_queue, opened, raise_lsn, viewed, waiting
from moorline.journal.queues.put_away import put_away
from moorline.journal.queues.store import Store
from moorline.journal.queues.transfer_rows import (
    VERSION,
    AnyRow,
    EndRow,
    HeadRow,
    MessageRow,
    QueueRow,
    Rows,
    RowWriter,
)
from moorline.limits import MIB

BATCH_ROWS, BATCH_BYTES = 4_096, 4 * MIB
"""Rows that are in memory at once, whichever is reached first."""

ROWS_PER_FOLD = 65_536
"""Queues that are put into the index together: each fold copies it."""

DIGESTED = struct.Struct(">24sQQB")
"""What the digest is taken over: queue, message, time, kind; then the body."""

Progress = Callable[[int, int], None]
"""Hears how many are done, and of how many (0 where that is not known)."""


class Moved(msgspec.Struct, frozen=True):
    """What was exported or imported."""

    queues: int
    digest: Digest

    @property
    def messages(self) -> int:
        return self.digest.count


def export(
    disk: Disk,
    options: StoreOptions,
    wall_ms: Callable[[], int],
    writer: RowWriter,
    progress: Progress,
) -> Moved:
    """Writes every queue and message, ordered by the queues' ids. Changes nothing on disk."""
    with viewed(disk, options, wall_ms) as (store, _):
        return _Export(store, writer, progress).run()


class _Export:
    def __init__(self, store: Store, writer: RowWriter, progress: Progress) -> None:
        self._store = store
        self._writer = writer
        self._progress = progress
        self._digest = Digest.empty()
        self._rows: list[AnyRow] = [HeadRow(VERSION)]
        self._digested: list[bytes] = []
        self._bytes = 0

    def run(self) -> Moved:
        total, count = len(self._store), 0
        for queue in every_queue(self._store):
            self._rows.append(self._row_of(queue))
            self._messages(queue)
            count += 1
            self._progress(count, total)
        self._flush()
        self._writer.write([EndRow(count, self._digest.count, str(self._digest))])
        return Moved(count, self._digest)

    def _row_of(self, queue: Queue) -> QueueRow:
        return QueueRow(
            queue=text_of(queue.id),
            owner=self._store.owners[queue.owner].hex(),
            created_s=queue.created_s,
            blocked=queue.blocked,
            suspended=queue.suspended,
            over_quota=not queue.can_write,
            closed=queue.closed,
        )

    def _messages(self, queue: Queue) -> None:
        queue_id, name = queue.id, text_of(queue.id)
        for entry in waiting(self._store, queue):
            is_marker = entry.kind == QUOTA_MARKER
            self._rows.append(MessageRow(name, entry.lsn, entry.time_ms, is_marker, entry.body))
            self._digested.append(_digested(queue_id, entry))
            self._bytes += len(entry.body)
            if len(self._rows) >= BATCH_ROWS or self._bytes >= BATCH_BYTES:
                self._flush()

    def _flush(self) -> None:
        self._digest = self._digest.merge(Digest.of(self._digested))
        self._writer.write(self._rows)
        self._rows, self._digested, self._bytes = [], [], 0


def import_rows(
    disk: Disk,
    options: StoreOptions,
    wall_ms: Callable[[], int],
    read: Callable[[], Rows],
    progress: Progress,
) -> Moved:
    """Takes in what `read` gives, all of it or nothing; `read` is called twice."""
    with viewed(disk, options, wall_ms) as (store, _):
        checking = _Import(store, _nothing, progress, 0)
        moved = checking.run(read())
    with opened(disk, options, wall_ms) as store:
        building = _Building(store)
        try:
            again = _Import(store, building.take, progress, moved.messages).run(read())
            if again != moved:
                raise ImportRefused("the file was changed while it was read; nothing was imported")
            building.finish()
        except BaseException:
            building.abandon()
            raise
    return moved


Take = Callable[[Queue, bytes, list[Entry], bool], None]
"""Gets a queue, its owner and the next of its messages; True with the last ones."""


def _nothing(_queue: Queue, _owner: bytes, _entries: list[Entry], _is_last: bool) -> None:
    """The first reading only checks."""


class _Import:
    """Checks rows in their order, and gives what they mean to `take`."""

    def __init__(self, store: Store, take: Take, progress: Progress, total: int) -> None:
        self._store = store
        self._take = take
        self._progress = progress
        self._total = total
        self._digest = Digest.empty()
        self._seen: set[bytes] = set()
        self._queue: Queue | None = None
        self._name = ""
        self._owner = b""
        self._last = 0
        self._entries: list[Entry] = []
        self._digested: list[bytes] = []
        self._bytes = 0

    def run(self, rows: Rows) -> Moved:
        place, head = next(rows, ("the file", None))
        if not isinstance(head, HeadRow) or head.version != VERSION:
            raise _refused(place, f"not the head of an export of version {VERSION}")
        for place, row in rows:
            if isinstance(row, MessageRow):
                self._message(place, row)
            elif isinstance(row, QueueRow):
                self._begin(place, row)
            elif isinstance(row, EndRow):
                self._end(place, row)
                for place, _ in rows:
                    raise _refused(place, "nothing may stand behind the end")
                return Moved(len(self._seen), self._digest)
            else:
                raise _refused(place, "a second head")
        raise _refused(place, "the file ends without its last row: it is cut off")

    def _begin(self, place: str, row: QueueRow) -> None:
        self._hand_over(is_last=True)
        queue_id = id_of(row.queue)
        if queue_id in self._seen:
            raise _refused(place, f"the queue {row.queue} stands here twice")
        if self._store.find(queue_id) is not None:
            raise _refused(place, f"the queue {row.queue} is in the store already")
        self._seen.add(queue_id)
        queue = self._queue = Queue(queue_id, 0, row.created_s)
        queue.blocked, queue.suspended = row.blocked, row.suspended
        queue.can_write, queue.closed = not row.over_quota, row.closed
        self._name, self._owner, self._last = row.queue, bytes.fromhex(row.owner), 0

    def _message(self, place: str, row: MessageRow) -> None:
        if self._queue is None or row.queue != self._name:
            raise _refused(place, f"the message is not behind the row of its queue {row.queue}")
        if row.message <= self._last:
            raise _refused(place, f"message {row.message} stands behind {self._last}")
        if row.is_quota_marker and row.body:
            raise _refused(place, "a quota marker has no body")
        self._last = row.message
        kind = QUOTA_MARKER if row.is_quota_marker else MESSAGE
        entry = Entry(row.message, row.time_ms, kind, row.body)
        self._entries.append(entry)
        self._digested.append(_digested(self._queue.id, entry))
        self._bytes += len(row.body)
        if len(self._entries) >= BATCH_ROWS or self._bytes >= BATCH_BYTES:
            self._hand_over(is_last=False)

    def _hand_over(self, *, is_last: bool) -> None:
        if self._queue is None:
            return
        self._digest = self._digest.merge(Digest.of(self._digested))
        # What its files and its row account for: known when the last message is.
        self._queue.flushed_lsn = self._queue.touched_lsn = self._last
        self._take(self._queue, self._owner, self._entries, is_last)
        self._entries, self._digested, self._bytes = [], [], 0
        self._progress(self._digest.count, self._total)

    def _end(self, place: str, row: EndRow) -> None:
        self._hand_over(is_last=True)
        found = EndRow(len(self._seen), self._digest.count, str(self._digest))
        if row != found:
            raise _refused(
                place,
                f"it promises {row.queues} queues, {row.messages} messages and the digest "
                f"{row.digest}, but the rows have {found.queues}, {found.messages} and {found.digest}",
            )


class _Building:
    """The folders of imported queues, and in the end the index that names them."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._index = store.index
        self._lsn = 0
        self._built: list[bytes] = []
        self._unfolded: list[Queue] = []
        self._builder: FolderBuilder | None = None

    def take(self, queue: Queue, owner: bytes, entries: list[Entry], is_last: bool) -> None:
        store = self._store
        if self._builder is None:
            path = path_of(queue.id, store.options.levels)
            if store.disk.exists(path):
                # Of an import that was killed, of a queue that was deleted, or of another node: no row
                # names it, and what is whole in it is kept.
                store.files.handles.forget_folder(path)
                put_away(store.disk, path, queue.id, store.files.stamp())
            self._built.append(queue.id)
            queue.owner = store.owners.number_of(owner)
            self._builder = FolderBuilder(
                store.disk, path, queue, store.options.file_messages_max, store.options.node
            )
        for entry in entries:
            self._builder.add(entry)
        if is_last:
            self._builder.finish()
            self._builder = None
            self._lsn = max(self._lsn, queue.flushed_lsn)
            self._unfolded.append(queue)
            if len(self._unfolded) >= ROWS_PER_FOLD:
                self._fold()

    def finish(self) -> None:
        """From the checkpoint that follows on the queues exist."""
        self._fold()
        self._store.index = self._index
        raise_lsn(self._store, self._lsn + 1)

    def abandon(self) -> None:
        store = self._store
        if self._builder is not None:
            self._builder.abandon()
        for queue_id in self._built:
            path = path_of(queue_id, store.options.levels)
            if store.disk.exists(path):
                store.disk.remove_folder(path)

    def _fold(self) -> None:
        self._index = self._index.folded(self._unfolded, [], self._store.owners, self._index.lsn)
        self._unfolded = []


def _digested(queue_id: bytes, entry: Entry) -> bytes:
    return DIGESTED.pack(queue_id, entry.lsn, entry.time_ms, entry.kind) + entry.body


def _refused(place: str, why: str) -> ImportRefused:
    return ImportRefused(f"{place}: {why}; nothing was imported")
