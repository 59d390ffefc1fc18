"""What an owner has: kept in step by its queues."""

from moorline.core.queue.owned import NOT_COUNTED, Owned
from moorline.core.queue.queue import MESSAGE, RECORD_HEAD_BYTES, Entry, Queue
from moorline.ids import ID_BYTES


def queue_of(owned: Owned) -> Queue:
    queue = Queue(bytes(ID_BYTES), 0, 0)
    queue.owned = owned
    return queue


def message(lsn: int, body: bytes) -> Entry:
    return Entry(lsn, 0, MESSAGE, body)


def test_what_comes_and_goes_in_any_queue_of_an_owner_is_counted() -> None:
    owned = Owned()
    one, two = queue_of(owned), queue_of(owned)
    one.push(message(1, b"x" * 10))
    two.push(message(2, b"x" * 20))
    two.push(message(3, b""))
    assert owned.bytes == 30 + 3 * RECORD_HEAD_BYTES
    one.pop(4, 1)
    two.pop(5, 2)
    assert (owned.bytes, one.bytes, two.bytes) == (RECORD_HEAD_BYTES, 0, RECORD_HEAD_BYTES)


def test_what_a_flush_finds_otherwise_is_so_for_the_owner_too() -> None:
    owned = Owned()
    queue = queue_of(owned)
    queue.push(message(1, b"x"))
    copied = queue.copied()
    assert copied.queue.owned is NOT_COUNTED
    queue.push(message(2, b"y"))
    copied.queue.settle(1, 1)
    copied.queue.pending = None
    copied.queue.weigh(100)
    queue.take_over(copied)
    assert owned.bytes == queue.bytes == 100 + 1 + RECORD_HEAD_BYTES


def test_what_was_one_owners_is_anothers() -> None:
    before, now = Owned(), Owned()
    before.queues, before.bytes, now.queues, now.bytes = 2, 20, 1, 5
    now.take_in(before)
    assert (now.queues, now.bytes, before.queues, before.bytes) == (3, 25, 0, 0)
