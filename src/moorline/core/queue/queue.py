"""Room: core/queue. The behaviour of one queue: quota, order, acknowledgement, expiry.

A queue's messages are in two parts, in order:

    stored    in the queue's own files; the first few may be in `cache`
    pending   in memory and in the write-ahead log, not in the files yet

Every change has a number, its `lsn`. `flushed_lsn` is the last one that the index row and the files
account for. `consumed` holds the lsn of each acknowledgement of a stored message since then, and
`acknowledged_lsn` is the highest id that was acknowledged: whatever the files turn out to hold, nothing up
to it is delivered again, and nothing above it is taken for read. `settled_lsn` is what that was at the last
flush: no message up to it waits in the files, and one that does is of an earlier time.

After a crash in the middle of a checkpoint the files may know more than the index. Until such a queue's
files are read it is `unresolved`, and remembers which pending messages were acknowledged when, so that
`resolve` can tell exactly what the files already hold.

Invariants, looked at by `check`:

    K1  what waits in memory is in the order of its numbers, and none of them is newer than the last change
    K2  a quota marker is the last that waits, and while it does nobody may write
    K3  the cache is the head of what is stored, and no longer than that
    K4  no acknowledgement is remembered of a change that was not made
    K5  nothing that waits in memory is settled: it would be taken for one of an earlier time, and dropped
    K6  a queue in which nothing waits has no bytes, and none has less than none
"""

from collections import deque
from enum import Enum
from itertools import pairwise
from typing import NamedTuple

import msgspec

from moorline.core.queue.owned import NOT_COUNTED, Owned

RECORD_HEAD_BYTES = 29
"""What a message has in a file beside its body, and what it counts as beside it."""

MESSAGE = 0
QUOTA_MARKER = 1

NODES_OWN = b"moorline: staged commits"
"""The owner of the queue that a node keeps for itself: no certificate has this for a fingerprint."""


class Entry(msgspec.Struct, frozen=True, gc=False):
    """A message as it waits: its id is the lsn of its send."""

    lsn: int
    time_ms: int
    kind: int
    body: bytes


class SendVerdict(Enum):
    STORE = "store it"
    MARK = "refuse it and leave a marker"
    REFUSE = "refuse it"


# To look up a member of an Enum costs a tenth of a send; these are looked up once.
STORE, MARK, REFUSE = SendVerdict


class Queue:
    """One queue in memory. Small: there may be hundreds of thousands at work at once."""

    __slots__ = (
        "acknowledged_lsn",
        "blocked",
        "bytes",
        "cache",
        "can_write",
        "closed",
        "consumed",
        "created_s",
        "damaged",
        "delivered",
        "flushed_lsn",
        "id",
        "is_subscribed",
        "oldest_s",
        "owned",
        "owner",
        "pending",
        "popped",
        "settled_lsn",
        "stored",
        "suspended",
        "touched_lsn",
    )

    def __init__(self, queue_id: bytes, owner: int, created_s: int) -> None:
        self.id = queue_id
        self.owner = owner
        self.created_s = created_s
        self.blocked = False
        self.suspended = False
        self.closed = False
        """Its id is no right to send to it any more: its owner may, and whoever is granted that."""
        self.damaged = False
        self.can_write = True
        self.flushed_lsn = 0
        self.touched_lsn = 0
        self.acknowledged_lsn = 0
        self.settled_lsn = 0
        self.stored = 0
        self.bytes = 0
        """Of all that waits, as records: exact, but for what is acknowledged unread while a log is replayed,
        until the files are read or written."""
        self.owned: Owned = NOT_COUNTED
        self.oldest_s = 0
        self.pending: deque[Entry] | None = None
        self.consumed: list[int] | None = None
        self.cache: deque[Entry] | None = None
        self.popped: list[tuple[int, int]] | None = None
        # Whoever delivers keeps these two here: that somebody wants its messages, and how many are out.
        self.is_subscribed = False
        self.delivered = 0

    @property
    def size(self) -> int:
        return self.stored + (len(self.pending) if self.pending else 0)

    @property
    def is_shut(self) -> bool:
        """Whether senders are turned away, whoever they are and whatever the quota says."""
        return self.blocked or self.suspended or self.damaged

    @property
    def is_dirty(self) -> bool:
        """Whether the files and the index lag behind."""
        return self.touched_lsn > self.flushed_lsn

    def admit(self, quota: int) -> SendVerdict:
        """What is to be done with one more message."""
        pending = self.pending
        waiting = self.stored + len(pending) if pending else self.stored
        if not self.can_write:
            # Shut until all is read, the marker too, and not only until there is room: a sender that is let
            # in again and again for one message would leave a marker each time.
            if waiting:
                return REFUSE
            self.can_write = True
        return STORE if waiting < quota else MARK

    def push(self, entry: Entry) -> None:
        pending = self.pending
        if pending is None:
            pending = self.pending = deque()
        pending.append(entry)
        self.touched_lsn = entry.lsn
        owned, size = self.owned, len(entry.body) + RECORD_HEAD_BYTES
        self.bytes += size
        owned.bytes += size
        # Here and not where it was decided, so that a replay of the log comes to the same.
        if entry.kind == QUOTA_MARKER:
            self.can_write = False

    def pop(self, lsn: int, message: int) -> None:
        """Forgets the head; `lsn` is that of the acknowledgement, which names `message` or one behind it."""
        self.touched_lsn = lsn
        self.acknowledged_lsn = message
        # What is stored stands before what is pending, so the head is there as long as there is any.
        if self.stored:
            self._pop_stored(lsn)
            return
        assert self.pending, "an empty queue has no head"
        entry = self.pending.popleft()
        size = len(entry.body) + RECORD_HEAD_BYTES if self.pending else self.bytes
        self.bytes -= size
        self.owned.bytes -= size
        # Only while the files may know more than we do: otherwise a message that came and went in memory
        # leaves nothing behind.
        if self.popped is not None:
            self.popped.append((entry.lsn, lsn))

    def _pop_stored(self, lsn: int) -> None:
        # Of a log that is replayed nobody has read it: then it is taken to be as long as the others.
        head = self.cache.popleft() if self.cache else None
        size = self.bytes // self.size if head is None else len(head.body) + RECORD_HEAD_BYTES
        self.stored -= 1
        if self.consumed is None:
            self.consumed = []
        self.consumed.append(lsn)
        self.weigh(max(0, self.bytes - size) if self.stored else self.pending_bytes)

    @property
    def pending_bytes(self) -> int:
        """Of what waits and is not in the files, as records."""
        return sum([len(entry.body) + RECORD_HEAD_BYTES for entry in self.pending or ()])

    def weigh(self, size: int) -> None:
        """So many bytes wait in it, as somebody knows who has looked."""
        self.owned.bytes += size - self.bytes
        self.bytes = size

    def peek(self, place: int) -> Entry | None:
        """The message that many places behind the head, if it is in memory; None behind the last too."""
        if place < self.stored:
            if self.cache is not None and place < len(self.cache):
                return self.cache[place]
            return None
        pending, place = self.pending, place - self.stored
        return pending[place] if pending and place < len(pending) else None

    def expired(self, before_ms: int) -> int:
        """How many messages at the head are older than that, as far as they are in memory."""
        count = 0
        while count < self.size:
            entry = self.peek(count)
            # A marker never expires: it is what tells the reader that something is missing. And from the head
            # only, because messages leave in order.
            if entry is None or entry.kind == QUOTA_MARKER or entry.time_ms >= before_ms:
                break
            count += 1
        return count

    def maybe_expired(self, before_ms: int) -> bool:
        """Whether the head may be older than that; asks no file."""
        if self.stored:
            return self.oldest_s * 1_000 < before_ms
        pending = self.pending
        return pending[0].time_ms < before_ms if pending else False

    # --- files and memory, brought together -------------------------------------------------------

    def resolve(self, file_lsn: int, file_size: int, file_bytes: int, done: int) -> int:
        """Takes in what the files hold; returns how many messages they lack that should be there.

        `file_bytes` are those of what waits there, without the first `done`.

        The first `done` of theirs were acknowledged. By its id, not by a count: an acknowledgement of a
        message that is lost must not take another one along.
        """
        # `expected` is what the files should hold, acknowledged messages that they still have included.
        consumed = self.consumed or []
        expected, acknowledgements = self.stored + len(consumed), len(consumed)
        if file_lsn > self.flushed_lsn:
            # The crash was between the files and the index: they have changes that the log replayed into
            # memory too. Those up to `file_lsn` are theirs; which were acknowledged behind it they cannot
            # know.
            pending = self.pending or deque()
            known = sum(ack <= file_lsn for ack in consumed)
            late = sum(sent <= file_lsn < ack for sent, ack in self.popped or ())
            expected += sum(entry.lsn <= file_lsn for entry in pending) + late - known
            acknowledgements += late - known
            self.pending = deque(entry for entry in pending if entry.lsn > file_lsn)
            self.flushed_lsn = file_lsn
        while self.pending and self.pending[0].lsn <= self.acknowledged_lsn:
            # Acknowledged, and it was taken for one that the files should have had.
            self.pending.popleft()
            acknowledgements -= 1
        self.popped = None
        # As of now: which change each was is not known any more, and all of them are behind the files.
        self.consumed = [self.touched_lsn] * done
        self.stored = file_size - done
        self.cache = None
        self.weigh(file_bytes + self.pending_bytes)
        # What was acknowledged may be gone from the files already; that is no loss.
        return expected - file_size - max(0, acknowledgements - done)

    def copied(self) -> "Copied":
        """As it is now, to be flushed in another thread; from here on every pop is remembered."""
        copy = Queue(self.id, self.owner, self.created_s)
        copy.blocked = self.blocked
        copy.suspended = self.suspended
        copy.closed = self.closed
        copy.damaged = self.damaged
        copy.can_write = self.can_write
        copy.flushed_lsn = self.flushed_lsn
        copy.touched_lsn = self.touched_lsn
        copy.acknowledged_lsn = self.acknowledged_lsn
        copy.settled_lsn = self.settled_lsn
        copy.stored = self.stored
        copy.bytes = self.bytes
        copy.oldest_s = self.oldest_s
        copy.pending = deque(self.pending) if self.pending else None
        copy.consumed = list(self.consumed) if self.consumed else None
        copy.popped = list(self.popped) if self.popped is not None else None
        # Its first is all that a flush looks at, for the time of the oldest message.
        copy.cache = deque([self.cache[0]]) if self.cache else None
        found = Copied(
            copy, len(self.consumed or ()), len(self.popped or ()), self.popped is None, self.bytes
        )
        if self.popped is None:
            self.popped = []
        return found

    def take_over(self, copied: "Copied") -> list[Entry]:
        """The copy was flushed: what it says of the files counts, and what has changed since then on top.

        Returns the messages that have left `pending` for the files. Messages leave from the head, so those
        that were popped since then are the first of the files, by their count. Where the flush found some to
        be lost, the next use of the files counts again, by ids.
        """
        copy = copied.queue
        since = (self.consumed or [])[copied.consumed :]
        since += [lsn for _, lsn in (self.popped or [])[copied.popped :]]
        moved: list[Entry] = []
        while self.pending and self.pending[0].lsn <= copy.flushed_lsn:
            moved.append(self.pending.popleft())
        if not self.pending:
            self.pending = None
        # From the copy, not from us: the files know nothing of what came while they were written.
        self.flushed_lsn = copy.flushed_lsn
        self.settled_lsn = copy.settled_lsn
        self.oldest_s = copy.oldest_s
        self.damaged = self.damaged or copy.damaged
        self.consumed = since[: copy.stored] or None
        self.stored = copy.stored - len(self.consumed or ())
        self.popped = None
        # What the flush found otherwise than it was known is so here too.
        found_bytes = max(0, self.bytes + copy.bytes - copied.bytes)
        self.weigh(found_bytes if self.size or self.damaged else 0)
        if self.damaged:
            # All of it is aside, acknowledged or not.
            self.consumed, self.stored, self.cache = None, copy.stored, None
        return moved

    def drop_copy(self, copied: "Copied") -> None:
        """The copy was not flushed: it is as if it had not been made."""
        # One that was unresolved before the copy remembers on, for its own reason.
        if copied.is_resolved:
            self.popped = None

    def settle(self, lsn: int, stored: int) -> None:
        """The files and the row now account for everything up to `lsn`."""
        self.flushed_lsn = lsn
        self.settled_lsn = max(self.settled_lsn, self.acknowledged_lsn)
        self.stored = stored
        self.consumed = None
        self.popped = None
        if self.pending is not None and not self.pending:
            self.pending = None

    # --- what always holds ------------------------------------------------------------------------

    def check(self) -> None:
        """Asserts the invariants."""
        pending = self.pending or ()
        for before, after in pairwise(pending):
            assert before.lsn < after.lsn, f"K1: {after.lsn} waits behind {before.lsn}"
            assert before.kind != QUOTA_MARKER, f"K2: {after.lsn} waits behind a marker"
        if pending:
            assert pending[-1].lsn <= self.touched_lsn, f"K1: {pending[-1].lsn} was not sent"
            is_marked = pending[-1].kind == QUOTA_MARKER
            assert not (is_marked and self.can_write), "K2: a marker waits, and one may write"
        assert self.stored >= 0, f"K3: {self.stored} are stored"
        assert len(self.cache or ()) <= self.stored, f"K3: {len(self.cache or ())} are cached"
        newest = max(self.consumed or (), default=0)
        assert newest <= self.touched_lsn, f"K4: acknowledged by {newest}"
        oldest = pending[0].lsn if pending else self.settled_lsn + 1
        assert oldest > self.settled_lsn, f"K5: {oldest} waits, settled up to {self.settled_lsn}"
        assert self.bytes >= 0, f"K6: {self.bytes} bytes"
        assert self.size or self.damaged or not self.bytes, f"K6: {self.bytes} bytes of nothing"


class Copied(NamedTuple):
    """A queue as it was, and how much of what was remembered of it then was known already."""

    queue: Queue
    consumed: int
    popped: int
    is_resolved: bool
    bytes: int
