"""The behaviour of one queue: by hand, and against a plain list with a store that is opened again."""

import random
from collections import deque

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.drawing import examples

from moorline.core.queue.queue import (
    MESSAGE,
    QUOTA_MARKER,
    RECORD_HEAD_BYTES,
    Entry,
    Queue,
    SendVerdict,
)
from moorline.ids import ID_BYTES
from moorline.journal.queues import checkpoint
from moorline.journal.queues.files import StoreOptions
from moorline.journal.queues.store import Store
from moorline.testing import HandClock, MemoryDisk

QUOTA = 3


def empty() -> Queue:
    return Queue(bytes(ID_BYTES), 0, 0)


def filled(*entries: Entry) -> Queue:
    queue = empty()
    for entry in entries:
        queue.push(entry)
    return queue


def message(lsn: int, time_ms: int = 0) -> Entry:
    return Entry(lsn, time_ms, MESSAGE, b"%d" % lsn)


def marker(lsn: int, time_ms: int = 0) -> Entry:
    return Entry(lsn, time_ms, QUOTA_MARKER, b"")


def test_j01_fifo_the_head_stays_until_it_is_popped() -> None:
    """J01: reading twice gives the same message."""
    queue = filled(message(1), message(2), message(3))
    assert queue.peek(0) == queue.peek(0) == message(1)
    queue.pop(4, 1)
    assert queue.peek(0) == message(2)
    assert (queue.size, queue.touched_lsn) == (2, 4)


def test_j02_the_last_pop_leaves_nothing_and_one_more_is_our_mistake() -> None:
    """J02: the last one gives (deleted, nothing)."""
    queue = filled(message(1))
    queue.pop(2, 1)
    assert queue.size == 0
    with pytest.raises(AssertionError, match="no head"):
        queue.pop(3, 1)


def test_j03_quota_marks_once_refuses_and_opens_when_all_is_read() -> None:
    """J03: the 4th is refused and marked, then all are refused until the marker is gone too."""
    queue = empty()
    for lsn in (1, 2, 3):
        assert queue.admit(QUOTA) is SendVerdict.STORE
        queue.push(message(lsn))
    assert queue.admit(QUOTA) is SendVerdict.MARK
    queue.push(marker(4))
    for lsn in (5, 6, 7):
        assert queue.admit(QUOTA) is SendVerdict.REFUSE
        queue.pop(lsn, lsn - 4)
    assert queue.peek(0) == marker(4)
    assert queue.admit(QUOTA) is SendVerdict.REFUSE
    queue.pop(8, 4)
    assert queue.admit(QUOTA) is SendVerdict.STORE


def test_a_quota_below_what_waits_marks_too() -> None:
    """An operator may lower the quota under a queue that is fuller than that."""
    assert filled(message(1), message(2), message(3)).admit(1) is SendVerdict.MARK


def test_j16_a_quota_marker_never_expires() -> None:
    """J16: expiry takes what is before the marker and stops there."""
    queue = filled(message(1, 10), marker(2, 10), message(3, 10))
    assert queue.expired(before_ms=1_000) == 1
    queue.pop(4, 1)
    assert queue.expired(before_ms=1_000) == 0


def test_j17_expiry_stops_at_the_first_newer_message() -> None:
    """J17: an older one behind a newer one stays, and the time itself is not yet over."""
    queue = filled(message(1, 10), message(2, 50), message(3, 20))
    assert [queue.expired(before) for before in (10, 11, 50, 51)] == [0, 1, 1, 3]


def test_maybe_expired_never_misses_and_needs_no_file() -> None:
    queue = filled(message(1, 2_500))
    assert not queue.maybe_expired(2_500)
    assert queue.maybe_expired(2_501)
    queue.settle(1, 1)
    queue.pending, queue.oldest_s = None, 2
    assert not queue.maybe_expired(2_000)
    assert queue.maybe_expired(2_001)
    assert not empty().maybe_expired(10**15)


def test_resolve_takes_from_memory_what_the_files_hold_already() -> None:
    """Files flushed up to 3 in a checkpoint that the index did not live to see."""
    queue = filled(message(1), message(2), message(3), message(5))
    assert queue.resolve(file_lsn=3, file_size=3, file_bytes=90, done=0) == 0
    assert (queue.stored, queue.pending and list(queue.pending)) == (3, [message(5)])
    assert queue.bytes == 90 + RECORD_HEAD_BYTES + len(message(5).body)


def test_resolve_skips_in_the_files_what_was_acknowledged_after_they_were_written() -> None:
    queue = empty()
    queue.popped = []
    queue.push(message(1))
    queue.push(message(2))
    queue.pop(3, 1)
    # The files were written between the sends and the acknowledgement.
    assert queue.resolve(file_lsn=2, file_size=2, file_bytes=30, done=1) == 0
    assert (queue.stored, queue.consumed) == (1, [3])


def test_what_changes_while_a_copy_is_flushed_comes_on_top() -> None:
    """1 was stored, 2 and 3 waited; then 4 came, and 1 and 2 were acknowledged."""
    queue = filled(message(2), message(3))
    queue.flushed_lsn, queue.stored = 1, 1
    copied = queue.copied()
    queue.push(message(4))
    queue.pop(5, 1)
    queue.pop(6, 2)
    copied.queue.settle(3, 3)
    copied.queue.pending = None
    assert queue.take_over(copied) == [message(3)]
    assert (queue.stored, queue.consumed) == (1, [5, 6])
    assert (queue.flushed_lsn, queue.is_dirty, queue.size) == (3, True, 2)
    assert queue.pending is not None
    assert list(queue.pending) == [message(4)]
    assert queue.popped is None


def test_all_that_was_copied_and_more_may_be_gone_when_the_copy_is_flushed() -> None:
    queue = filled(message(1))
    copied = queue.copied()
    queue.push(message(2))
    queue.pop(3, 1)
    queue.pop(4, 2)
    copied.queue.settle(1, 1)
    assert queue.take_over(copied) == []
    assert (queue.stored, queue.consumed, queue.size) == (0, [3], 0)


def test_a_copy_that_is_not_flushed_leaves_nothing() -> None:
    queue = filled(message(1))
    queue.drop_copy(queue.copied())
    queue.pop(2, 1)
    assert (queue.size, queue.popped) == (0, None)


def test_resolve_counts_what_the_files_lack() -> None:
    queue = empty()
    queue.flushed_lsn, queue.stored = 9, 3
    assert queue.resolve(file_lsn=9, file_size=1, file_bytes=30, done=0) == 2
    assert queue.stored == 1


def test_an_acknowledgement_of_a_lost_message_takes_no_other_one_along() -> None:
    """1 to 3 were stored and 1 was acknowledged; of the files 2 and 3 are left."""
    queue = empty()
    queue.flushed_lsn, queue.stored = 9, 3
    queue.pop(10, 1)
    assert queue.resolve(file_lsn=9, file_size=2, file_bytes=60, done=0) == 0
    assert (queue.stored, queue.consumed) == (2, [])


def test_what_was_acknowledged_in_the_log_is_not_left_waiting_by_files_that_lack_something() -> (
    None
):
    """The row counts one message that is in no file; the acknowledgement was of 12, behind it."""
    queue = empty()
    queue.flushed_lsn, queue.stored = 9, 1
    queue.push(message(12))
    queue.push(message(13))
    queue.pop(14, 12)
    assert queue.resolve(file_lsn=9, file_size=0, file_bytes=0, done=0) == 1
    assert (queue.size, queue.pending and queue.pending[0]) == (1, message(13))


class QueueAndStore(RuleBasedStateMachine):
    """One queue in a store on a disk, against a list; every change is committed before the next."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = HandClock()
        self.chance = random.Random(7)
        self.disk = MemoryDisk()
        self.options = StoreOptions(
            queue_messages_max=QUOTA, file_messages_max=4, open_files_max=1, open_queues_max=1
        )
        self.store = self.opened()
        self.queue_id = self.store.create(b"owner").id
        # The second queue takes the only open place from the first whenever it is read.
        self.other_id = self.store.create(b"owner").id
        self.store.send(self.found(self.other_id), b"other", self.clock.wall_ms())
        checkpoint.run(self.store, self.clock.wall_ms)
        self.model: list[tuple[int, int, int, bytes]] = []
        self.closed = False

    def opened(self) -> Store:
        store = Store(self.disk, self.options, self.clock.wall_ms, self.chance.randbytes)
        store.open()
        return store

    def found(self, queue_id: bytes) -> Queue:
        queue = self.store.find(queue_id)
        assert queue is not None
        return queue

    @rule(body=st.binary(max_size=40), later_ms=st.integers(0, 5_000))
    def send(self, body: bytes, later_ms: int) -> None:
        self.clock.advance(later_ms)
        now_ms = self.clock.wall_ms()
        self.closed = self.closed and bool(self.model)
        lsn = self.store.send(self.found(self.queue_id), body, now_ms)
        self.store.commit()
        if self.closed:
            assert lsn == 0
        elif len(self.model) >= QUOTA:
            assert lsn == 0
            self.model.append((self.store.committed_lsn, now_ms, QUOTA_MARKER, b""))
            self.closed = True
        else:
            assert lsn == self.store.committed_lsn
            self.model.append((lsn, now_ms, MESSAGE, body))

    @precondition(lambda self: self.model)
    @rule()
    def acknowledge(self) -> None:
        assert self.store.acknowledge(self.found(self.queue_id), self.model.pop(0)[0])
        self.store.commit()

    @rule(message=st.integers(0, 60))
    def acknowledge_any(self, message: int) -> None:
        is_head = bool(self.model) and self.model[0][0] == message
        assert self.store.acknowledge(self.found(self.queue_id), message) == is_head
        self.store.commit()
        if is_head:
            self.model.pop(0)

    @rule(age_ms=st.integers(0, 6_000))
    def expire(self, age_ms: int) -> None:
        before_ms = self.clock.wall_ms() - age_ms
        gone = 0
        while gone < len(self.model):
            _, time_ms, kind, _ = self.model[gone]
            if kind == QUOTA_MARKER or time_ms >= before_ms:
                break
            gone += 1
        assert self.store.expire(self.found(self.queue_id), before_ms) == gone
        self.store.commit()
        del self.model[:gone]

    @rule()
    def checkpoint(self) -> None:
        checkpoint.run(self.store, self.clock.wall_ms)

    @rule()
    def reopen(self) -> None:
        self.disk.crash(self.chance, "all")
        self.store = self.opened()

    @rule()
    def read_the_other(self) -> None:
        head = self.store.head(self.found(self.other_id))
        assert head is not None
        assert head.body == b"other"

    @invariant()
    def holds_what_the_model_holds(self) -> None:
        queue = self.found(self.queue_id)
        entries = [self.store.peek(queue, place) for place in range(queue.size)]
        held = [(e.lsn, e.time_ms, e.kind, e.body) for e in entries if e is not None]
        assert held == self.model
        assert (self.store.files.lost_messages, self.store.files.quarantined) == (0, 0)
        if self.model:
            assert queue.can_write != self.closed

    @invariant()
    def bounds_hold(self) -> None:
        self.found(self.queue_id).check()
        assert len(self.store.files.handles) <= self.options.open_files_max
        messages = [path for path in self.disk.files() if "/messages." in path]
        assert len(messages) <= 3, "two of the queue, one of the other"


TestQueueAndStore = QueueAndStore.TestCase
TestQueueAndStore.settings = settings(
    max_examples=examples(50), stateful_step_count=40, deadline=None
)


@pytest.mark.parametrize("broken", ["K1", "K2", "K3", "K4", "K5", "K6"])
def test_a_broken_state_is_found(broken: str) -> None:
    queue = filled(message(1), message(2))
    queue.check()
    match broken:
        case "K1":
            queue.touched_lsn = 1
        case "K2":
            queue.push(marker(3))
            queue.can_write = True
        case "K3":
            queue.cache = deque([message(1)])
        case "K4":
            queue.consumed = [9]
        case "K5":
            queue.settled_lsn = 1
        case _:
            queue.bytes = -1
    with pytest.raises(AssertionError, match=broken):
        queue.check()


def test_k6_a_queue_in_which_nothing_waits_has_no_bytes() -> None:
    queue = filled()
    queue.check()
    queue.bytes = 29
    with pytest.raises(AssertionError, match="K6"):
        queue.check()
