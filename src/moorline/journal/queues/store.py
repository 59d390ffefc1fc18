"""Room: journal/queues. The store of all queues: memory, log, folders and index, kept in step.

Everything here is synchronous and on one thread but for two kinds of calls that a shell may make in another:
`write` and `begin_segment` (the log, one thread), and the disk work that `checkpoint.steps` hands out;
`begin` is `write` without a thread, for small batches. The order of one change:

    change memory, add to the batch  →  write the batch (and sync)  →  committed: readers see it

Design, invariants and the table of failures: docs/design/queues.md.
"""

import logging
import secrets
from collections import deque
from collections.abc import Callable, Iterator

from moorline.core.queue.queue import MARK, MESSAGE, QUOTA_MARKER, STORE, Entry, Queue
from moorline.ids import drawn
from moorline.journal.begun_syncs import BegunSyncs, Done
from moorline.journal.disk import Disk
from moorline.journal.queues.files import QueueFiles, StoreOptions
from moorline.journal.queues.index import INDEX, Index, IndexDamaged, newest_index
from moorline.journal.queues.log_replay import LogReplay
from moorline.journal.queues.owner_numbers import OwnerNumbers
from moorline.journal.queues.wal import Batch, Kind, WriteAheadLog
from moorline.limits import DISCARDS_PER_TURN, LIVE_QUEUES_IDLE_MAX, LOG_BEGUN_BYTES_MAX

log = logging.getLogger("moorline.journal")

LOG = "wal"
NOBODY = 0

# Plain numbers on the hot path: to look up a member of an Enum is slow.
SEND, ACKNOWLEDGE = int(Kind.SEND), int(Kind.ACKNOWLEDGE)


class Store:
    """All queues of a node."""

    def __init__(
        self,
        disk: Disk,
        options: StoreOptions,
        wall_ms: Callable[[], int],
        draw: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        self.options = options
        self._queue_messages_max = options.queue_messages_max
        self.disk = disk
        self.files = QueueFiles(disk, options, wall_ms, draw, self.mark)
        self.replay = LogReplay(self)
        self.has_no_log = False
        """No file of the log was there when this was opened: it is new, or somebody removed them."""
        self.lost_changes = 0
        """Changes that were stored, and are in no file any more."""
        self.index = Index.empty()
        self.live: dict[bytes, Queue] = {}
        self.dirty: dict[bytes, Queue] = {}
        self.unindexed: set[bytes] = set()
        """New queues; those that a checkpoint under way has rows of are in `indexing`, and not here."""
        self.indexing: set[bytes] = set()
        self.unmade: set[bytes] = set()
        """Those of them that were deleted since."""
        self.deleted: set[bytes] = set()
        """Queues of the index that were deleted since; those that the index which is being written leaves out
        are in `deleting`, and not here."""
        self.deleting: set[bytes] = set()
        self.mending: set[bytes] = set()
        """Queues whose files are in other hands just now: nothing here may touch them."""
        self.log = WriteAheadLog(disk, LOG, sync=options.sync, draw=draw)
        self._wall_ms = wall_ms
        self.draw = draw
        self.owners = OwnerNumbers()
        self._doomed: deque[tuple[int, bytes]] = deque()
        self.next_lsn = 1
        self.committed_lsn = 0
        self.batch = Batch(1)
        self.writing: Batch | None = None
        self._written_lsn = 0
        self.begun_syncs: BegunSyncs | None = None
        """Whoever syncs small batches without a thread."""
        self.is_log_in_thread = False
        """The thread that writes begins a segment, or will: every batch is for it meanwhile."""

    # --- start and stop ---------------------------------------------------------------------------

    def open(self, rebuild: Callable[["Store"], Index] | None = None) -> None:
        """Reads the index and the log. `rebuild` makes an index where there is none to trust."""
        self.has_no_log = self.log.is_new
        self.index = self._load_index(rebuild)
        self.owners = OwnerNumbers(self.index.owners)
        self.owners.counted(self.index.owned())
        self.next_lsn = self.index.lsn
        for change in self.log.replay():
            self.replay.take(change)
        if self.log.torn_bytes:
            # What a crash leaves: nobody was answered for it.
            log.warning("a torn end of the log was cut", extra={"bytes": self.log.torn_bytes})
        if self.replay.revived:
            log.warning("queues without an owner", extra={"queues": len(self.replay.revived)})
        self.committed_lsn = self.next_lsn - 1
        self.batch = Batch(self.next_lsn)
        self._written_lsn = self.committed_lsn
        self.log.begin_segment(self.next_lsn)
        while self.has_discards:
            self.after_commit()

    def _load_index(self, rebuild: Callable[["Store"], Index] | None) -> Index:
        found = newest_index(self.disk)
        if found is None and self.log.is_new and not self.disk.exists("messages"):
            # From now on a missing index is a lost one, never one that was not yet written.
            self.index.save(self.disk, INDEX)
            return self.index
        if isinstance(found, Index):
            return found
        if found is not None:
            log.warning("the index is rebuilt from the folders", extra={"why": str(found)})
        if rebuild is None:
            raise IndexDamaged("the index is lost")
        self.replay.revives = True
        return rebuild(self)

    def skip_to(self, lsn: int) -> None:
        """Behind the opening: numbers below that one were given, although nothing is left of them.

        A checkpoint must follow before anything else: the log may not have a gap.
        """
        assert lsn > self.next_lsn
        assert not self.batch.count, "nothing is under way"
        self.lost_changes += lsn - self.next_lsn
        self.next_lsn = lsn
        self.committed_lsn = self._written_lsn = lsn - 1
        self.batch = Batch(lsn)

    def close(self) -> None:
        self.log.close()
        self.files.handles.close()

    # --- queues -----------------------------------------------------------------------------------

    def __len__(self) -> int:
        """How many queues there are."""
        fresh = len(self.unindexed) + len(self.indexing)
        return len(self.index) + fresh - len(self.deleted) - len(self.deleting)

    def is_deleted(self, queue_id: bytes) -> bool:
        """Whether the index has it although it was deleted."""
        return queue_id in self.deleted or queue_id in self.deleting

    def find(self, queue_id: bytes) -> Queue | None:
        queue = self.live.get(queue_id)
        if queue is None and not self.is_deleted(queue_id):
            queue = self.index.find(queue_id)
            if queue is not None:
                self.live[queue_id] = queue
                queue.owned = self.owners.owned[queue.owner]
        return queue

    def glance(self, queue_id: bytes) -> Queue | None:
        """As `find`, to look and not to change: an idle queue stays a row."""
        queue = self.live.get(queue_id)
        if queue is None and not self.is_deleted(queue_id):
            return self.index.find(queue_id)
        return queue

    def waiting(self, queue_ids: list[bytes]) -> list[Queue]:
        """Those of the queues in which something waits."""
        live = [self.live[queue_id] for queue_id in queue_ids if queue_id in self.live]
        rest = [queue_id for queue_id in queue_ids if queue_id not in self.live]
        stored = [self.find(queue_id) for queue_id in self.index.with_messages(rest)]
        return [queue for queue in [*live, *stored] if queue is not None and queue.size]

    def lacking(self, queue_ids: list[bytes]) -> int:
        """How many of the queues are not here."""
        idle = [queue_id for queue_id in queue_ids if queue_id not in self.live]
        there = [queue_id for queue_id in idle if not self.is_deleted(queue_id)]
        return len(idle) - len(there) + len(self.index.lacking(there))

    def page(self, after: bytes, count: int) -> list[bytes]:
        """Ids behind that one, in order: of the index, and of those that are not in it yet."""
        ids: list[bytes] = []
        start = after
        while len(ids) < count:
            found = self.index.page(start, count)
            ids += [queue_id for queue_id in found if not self.is_deleted(queue_id)]
            if len(found) < count:
                break
            start = found[-1]
        fresh = [queue_id for queue_id in self.fresh() if queue_id > after]
        return sorted([*ids, *fresh])[:count]

    def fresh(self) -> list[bytes]:
        """The ids of new queues, which are in no index yet."""
        return [*self.unindexed, *self.indexing]

    def rename_owner(self, before: bytes, now: bytes) -> bool:
        """All that was one owner's is another's; durable with the next checkpoint. False if nothing was."""
        if not self.owners.rename(before, now):
            return False
        for queue in self.live.values():
            queue.owned = self.owners.owned[queue.owner]
        return True

    def now_ms(self) -> int:
        """The time of what is stored now."""
        return self._wall_ms()

    # --- changes: each goes into the batch and changes memory -------------------------------------

    def create(self, owner: bytes) -> Queue:
        queue_id = drawn(self.draw, self.options.home)
        now_ms = self._wall_ms()
        lsn = self._add(Kind.NEW, queue_id, now_ms, owner)
        return self.created(queue_id, owner, now_ms, lsn)

    def send(self, queue: Queue, body: bytes, now_ms: int, *, is_decided: bool = False) -> int:
        """Stores a message and returns its id, or 0 if the quota refuses it.

        Of one that `is_decided` the quota was asked before: what came from others since does not undo it.
        """
        verdict = STORE if is_decided else queue.admit(self._queue_messages_max)
        if verdict is STORE:
            queue_id = queue.id
            self.next_lsn += 1
            lsn = self.batch.add(SEND, queue_id, now_ms, body)
            queue.push(Entry(lsn, now_ms, MESSAGE, body))
            self.dirty[queue_id] = queue
            return lsn
        if verdict is MARK:
            lsn = self._add(Kind.MARK, queue.id, now_ms, b"")
            queue.push(Entry(lsn, now_ms, QUOTA_MARKER, b""))
            self.dirty[queue.id] = queue
        return 0

    def acknowledge(self, queue: Queue, message: int) -> bool:
        """Removes the head if that is its id; anything else changes nothing."""
        # Asked of memory first, without the way through `head`: once for each message that anybody reads.
        head = queue.peek(0) or self.head(queue)
        if head is None or head.lsn != message:
            return False
        self.next_lsn += 1
        queue.pop(self.batch.add(ACKNOWLEDGE, queue.id, message, b""), message)
        self.dirty[queue.id] = queue
        return True

    def is_gone(self, queue: Queue, message: int) -> bool:
        """Whether a message that is not the head has left the queue: ids rise, the head's is lowest."""
        head = self.head(queue)
        if head is None:
            return not queue.damaged and not queue.size and 0 < message < self.next_lsn
        return 0 < message < head.lsn

    def expire(self, queue: Queue, before_ms: int) -> int:
        """Removes from the head what is older than that; returns how many."""
        expired = 0
        while self.head(queue) is not None:
            count = queue.expired(before_ms)
            if not count:
                break
            last = queue.peek(count - 1)
            assert last is not None, "what has expired was looked at"
            lsn = self._add(Kind.EXPIRE, queue.id, count, last.lsn.to_bytes(8, "big"))
            for _ in range(count):
                queue.pop(lsn, last.lsn)
            self.dirty[queue.id] = queue
            expired += count
        if not expired and queue.stored and queue.cache:
            # Nothing was old enough: the row's time was a bound, now it is exact.
            queue.oldest_s = queue.cache[0].time_ms // 1_000
            self.dirty[queue.id] = queue
        return expired

    def drop_some(self, queue: Queue, upto: int, count_max: int) -> int:
        """Removes from the head what is up to that number, markers too, and so many at most; how many."""
        last, count = self.head(queue), 0
        if last is None or last.lsn > upto:
            return 0
        while (entry := queue.peek(count)) is not None and entry.lsn <= upto and count < count_max:
            last, count = entry, count + 1
        lsn = self._add(Kind.EXPIRE, queue.id, count, last.lsn.to_bytes(8, "big"))
        for _ in range(count):
            queue.pop(lsn, last.lsn)
        self.dirty[queue.id] = queue
        return count

    def suspend(self, queue: Queue) -> None:
        self._flag(queue, Kind.SUSPEND)

    def block(self, queue: Queue, *, blocked: bool) -> None:
        self._flag(queue, Kind.BLOCK if blocked else Kind.UNBLOCK)

    def close_to_strangers(self, queue: Queue, *, closed: bool) -> None:
        self._flag(queue, Kind.CLOSE if closed else Kind.OPEN)

    def delete(self, queue: Queue) -> None:
        self.forget(queue, self._add(Kind.DELETE, queue.id, 0, b""))

    def mark(self, queue: Queue) -> None:
        """Something about the queue, or about a copy of it, must reach the index with the next checkpoint."""
        queue = self.live.get(queue.id, queue)
        self.dirty[queue.id] = queue

    def _flag(self, queue: Queue, kind: Kind) -> None:
        lsn = self._add(kind, queue.id, 0, b"")
        self.apply_flag(queue, kind, lsn)

    def _add(self, kind: int, queue_id: bytes, number: int, body: bytes) -> int:
        self.next_lsn += 1
        return self.batch.add(kind, queue_id, number, body)

    # --- group commit -----------------------------------------------------------------------------

    def take_batch(self) -> Batch | None:
        """The changes since the last call, to be given to `write`; one at a time."""
        assert self.writing is None, "one commit at a time"
        if not self.batch.count:
            return None
        self.writing, self.batch = self.batch, Batch(self.next_lsn)
        return self.writing

    def batch_of(self, lsn: int) -> Batch:
        """The batch that carries a change that is not committed yet."""
        return self.writing if self.writing is not None and lsn < self.batch.first else self.batch

    @property
    def batch_bytes(self) -> int:
        """What waits for the next commit."""
        return self.batch.size if self.batch.count else 0

    def is_quick(self, batch: Batch) -> bool:  # noqa: ARG002
        """Whether to write it is less work than to hand it to a thread."""
        return not self.options.sync

    @property
    def last_batch(self) -> Batch | None:
        """The batch of the newest change that is not committed; None if all are."""
        return self.batch if self.batch.count else self.writing

    def write(self, batch: Batch) -> None:
        """Puts a batch on disk; may run in another thread."""
        self.log.write(batch)
        self._written_lsn = batch.first + batch.count - 1

    def begin(self, batch: Batch, done: Done) -> bool:
        """As `write`, on the loop: the kernel syncs it and `done` is called then. False if that is for the
        thread, and nothing is done yet."""
        syncs = self.begun_syncs
        if syncs is None or self.is_log_in_thread or batch.size > LOG_BEGUN_BYTES_MAX:
            return False
        if not self.log.begin(batch, syncs, done):
            return False
        self._written_lsn = batch.first + batch.count - 1
        return True

    def begin_segment(self) -> None:
        """What is written from here on goes to a new file of the log; on the thread that writes it."""
        try:
            self.log.begin_segment(self._written_lsn + 1)
        finally:
            self.is_log_in_thread = False

    def committed(self, batch: Batch) -> None:
        """The batch is as durable as it will be: what it carries may be delivered."""
        assert batch is self.writing
        self.writing = None
        self.committed_lsn = batch.first + batch.count - 1
        self.after_commit()

    def commit(self) -> None:
        """All of it at once, on this thread."""
        batch = self.take_batch()
        if batch is not None:
            self.write(batch)
            self.committed(batch)

    def after_commit(self) -> None:
        """Removes folders of deleted queues, now that the deletion is certain; of many some at a time."""
        for _ in range(DISCARDS_PER_TURN):
            if not self.has_discards:
                break
            self.files.discard(self._doomed.popleft()[1])

    @property
    def has_discards(self) -> bool:
        """Whether folders of queues that are certainly deleted are still there."""
        return bool(self._doomed) and self._doomed[0][0] <= self.committed_lsn

    # --- reading ----------------------------------------------------------------------------------

    def head(self, queue: Queue) -> Entry | None:
        """The first message, read from the files if it is there."""
        return self.peek(queue, 0)

    def peek(self, queue: Queue, place: int) -> Entry | None:
        """The message that many places behind the head; None where the queue ends."""
        while place < queue.size:
            entry = queue.peek(place)
            if entry is not None:
                return entry
            if queue.id in self.mending:
                return None
            self.files.read_ahead(queue, place)
            if queue.damaged:
                return None
        return None

    def forget_idle(self) -> Iterator[None]:
        """Lets idle queues live as rows only, when there are many of them; pauses after each."""
        if len(self.live) <= LIVE_QUEUES_IDLE_MAX:
            return
        for queue_id in list(self.live):
            queue = self.live.get(queue_id)
            if queue is None:
                continue
            is_used = queue.is_subscribed or queue_id in self.mending
            is_new = queue_id in self.unindexed or queue_id in self.indexing
            if not (queue.is_dirty or is_used or is_new or queue_id in self.dirty):
                del self.live[queue_id]
                self.files.close_queue(queue)
            yield

    # --- the index of a checkpoint ----------------------------------------------------------------

    def begin_index(self) -> list[set[bytes]]:
        """What the index that is about to be written leaves out; nothing is added to it any more."""
        # Handed over and not copied: of very many that would be a turn of the loop that others notice.
        self.deleting, self.deleted = self.deleted, set()
        unmade, self.unmade = self.unmade, set()
        return [self.deleting, unmade]

    def take_index(self, index: Index) -> Iterator[None]:
        """The index is written. What it has made needless is forgotten one by one; pauses after each."""
        self.index = index
        # Deleted while it was written: they are in it, and must stay deleted.
        self.deleted |= self.unmade
        needless = [self.deleting, self.indexing]
        self.deleting, self.indexing, self.unmade = set(), set(), set()
        for ids in needless:
            while ids:
                ids.pop()
                yield

    # --- what a change and its replay share -------------------------------------------------------

    def created(self, queue_id: bytes, owner: bytes, now_ms: int, lsn: int) -> Queue:
        queue = Queue(queue_id, self.owners.number_of(owner), now_ms // 1_000)
        queue.touched_lsn = lsn
        queue.owned = self.owners.owned[queue.owner]
        queue.owned.queues += 1
        self.live[queue_id] = queue
        self.dirty[queue_id] = queue
        self.unindexed.add(queue_id)
        return queue

    def apply_flag(self, queue: Queue, kind: Kind, lsn: int) -> None:
        match kind:
            case Kind.SUSPEND:
                queue.suspended = True
            case Kind.CLOSE | Kind.OPEN:
                queue.closed = kind is Kind.CLOSE
            case _:
                queue.blocked = kind is Kind.BLOCK
        queue.touched_lsn = lsn
        self.dirty[queue.id] = queue

    def forget(self, queue: Queue, lsn: int) -> None:
        self.files.close_queue(queue)
        owned = self.owners.owned[queue.owner]
        owned.queues -= 1
        owned.bytes -= queue.bytes
        self.live.pop(queue.id, None)
        self.dirty.pop(queue.id, None)
        if queue.id in self.unindexed:
            self.unindexed.discard(queue.id)
        elif queue.id in self.indexing:
            self.indexing.discard(queue.id)
            self.unmade.add(queue.id)
        else:
            self.deleted.add(queue.id)
        self._doomed.append((lsn, queue.id))
