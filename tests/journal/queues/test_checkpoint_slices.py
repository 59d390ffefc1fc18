"""The turns of the loop that a checkpoint takes: for how many queues it holds it, by a clock of our own."""

import random
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Set as AbstractSet
from typing import Self

import pytest
from tests.journal.queues.stores import (
    NOW_MS,
    OPTIONS,
    Contents,
    acknowledge,
    contents,
    now,
    opened,
)

from moorline.core.queue.queue import Copied, Entry, Queue
from moorline.journal.queues.checkpoint import Checkpoint, turn
from moorline.journal.queues.offline import every_queue, waiting
from moorline.journal.queues.store import Store
from moorline.limits import CHECKPOINT_GROUP_QUEUES, CHECKPOINT_SLICE_MS
from moorline.testing import MemoryDisk

QUEUES = 3 * CHECKPOINT_GROUP_QUEUES


class Clock:
    """A millisecond for each look: as if every queue took one."""

    def __init__(self) -> None:
        self.now_ms = 0

    def __call__(self) -> int:
        self.now_ms += 1
        return self.now_ms


class Held:
    """Queues that were copied, or landed, since the loop was given back last."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.queues = 0
        self.turns: list[int] = []
        copied, take_over = Queue.copied, Queue.take_over

        def counted_copy(queue: Queue) -> Copied:
            self.queues += 1
            return copied(queue)

        def counted_landing(queue: Queue, copy: Copied) -> list[Entry]:
            self.queues += 1
            return take_over(queue, copy)

        monkeypatch.setattr(Queue, "copied", counted_copy)
        monkeypatch.setattr(Queue, "take_over", counted_landing)

    def give_back(self) -> None:
        self.turns.append(self.queues)
        self.queues = 0


def dirty(disk: MemoryDisk) -> Store:
    store = opened(disk)
    for _ in range(QUEUES):
        assert store.send(store.create(b"owner"), b"1", NOW_MS)
    store.commit()
    return store


def steps(store: Store, given_back: Callable[[], None]) -> Iterator[bool]:
    """A whole checkpoint; whether each turn was one between two slices of a group."""
    for disk_work in Checkpoint(store, now, Clock()).steps():
        given_back()
        yield disk_work is turn
        store.commit()
        if disk_work is not None:
            disk_work()


def expected(store: Store) -> Contents:
    return {
        queue.id: [(entry.lsn, entry.kind, entry.body) for entry in waiting(store, queue)]
        for queue in every_queue(store)
    }


def test_no_turn_is_longer_than_a_slice_however_many_queues_have_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = MemoryDisk()
    store, held = dirty(disk), Held(monkeypatch)
    for _ in steps(store, held.give_back):
        pass
    store.close()
    assert sum(held.turns) == 2 * QUEUES, "each was copied, and has landed"
    assert max(held.turns) <= CHECKPOINT_SLICE_MS
    assert {len(found) for found in contents(disk).values()} == {1}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_between_two_slices_of_a_group_anything_may_happen_to_its_queues(seed: int) -> None:
    """They are sent to, read, closed, and deleted: copied, written, and all others."""
    chance = random.Random(seed)
    disk = MemoryDisk()
    store = dirty(disk)
    queues = list(store.live.values())
    between = 0
    for is_between in steps(store, lambda: None):
        between += is_between
        for queue in chance.sample(queues, 4):
            match chance.randrange(4):
                case 0:
                    store.send(queue, b"2", NOW_MS + 1)
                case 1 if queue.size:
                    acknowledge(store, queue, 1)
                case 2:
                    store.files.close_queue(queue)
                case 3 if len(queues) > QUEUES // 2:
                    queues.remove(queue)
                    store.delete(queue)
            queue.check()
    assert between > QUEUES // CHECKPOINT_SLICE_MS
    store.commit()
    wanted = expected(store)
    assert store.files.lost_messages == store.files.quarantined == 0
    store.close()
    assert set(wanted) == {queue.id for queue in queues}
    assert contents(disk, OPTIONS) == wanted


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_whoever_ends_between_two_slices_leaves_everything_to_the_log(share: float) -> None:
    disk = MemoryDisk()
    counted = sum(steps(dirty(MemoryDisk()), lambda: None))
    store = dirty(disk)
    wanted, between = expected(store), 0
    for is_between in steps(store, lambda: None):
        between += is_between
        if between > counted * share:
            break
    store.close()
    assert 0 < between < counted
    assert contents(disk) == wanted


class Counted(set[bytes]):
    """New queues of a store, and how many of them went in one turn of the loop, at most."""

    now = most = 0

    def difference_update(self, *others: Iterable[object]) -> None:
        for other in map(list, others):
            self.now += len(other)
            super().difference_update(other)

    def __isub__(self, other: AbstractSet[object]) -> Self:
        self.difference_update(other)
        return self

    def give_back(self) -> None:
        self.most, self.now = max(self.most, self.now), 0


def test_no_turn_takes_more_new_queues_for_indexed_than_a_group_has() -> None:
    """Of 100,000 it was one turn of 11 ms, at the end."""
    store = dirty(MemoryDisk())
    fresh = store.unindexed = Counted(store.unindexed)
    assert len(fresh) == QUEUES
    for _ in steps(store, fresh.give_back):
        pass
    fresh.give_back()
    assert 0 < fresh.most <= CHECKPOINT_GROUP_QUEUES
    assert (len(store.unindexed), len(store.indexing)) == (0, 0)
    assert len(store) == len(store.index) == QUEUES
    store.close()


def test_new_queues_are_counted_once_and_listed_once_at_every_step_of_a_checkpoint() -> None:
    store = dirty(MemoryDisk())
    ids = sorted(store.fresh())
    for place, _ in enumerate(steps(store, lambda: None)):
        assert len(store) == len(ids)
        assert store.unindexed.isdisjoint(store.indexing)
        if place % 7 == 0:
            store.delete(store.live[ids.pop()])
            store.commit()
        assert sorted(set(store.fresh()) | known(store)) == ids
    store.close()


def known(store: Store) -> set[bytes]:
    """In the index, and not deleted since."""
    ids = {row.tobytes() for row in store.index.rows["id"]}
    return {queue_id for queue_id in ids if not store.is_deleted(queue_id)}


def test_queues_whose_files_need_nothing_of_the_log_leave_nothing_to_be_forgotten() -> None:
    """An empty list for each was let go in one turn, at the end."""
    store = dirty(MemoryDisk())
    for _ in steps(store, lambda: None):
        assert not store.files.spare
    store.close()


class OneByOne:
    """How many of what a store keeps were let go one by one, and how many in one turn at most."""

    def __init__(self) -> None:
        self.all = self.now = self.most = 0

    def count(self) -> None:
        self.all += 1
        self.now += 1

    def give_back(self) -> None:
        self.most, self.now = max(self.most, self.now), 0


class Ids(set[bytes]):
    def __init__(self, ids: Iterable[bytes], counter: OneByOne) -> None:
        super().__init__(ids)
        self._counter = counter

    def pop(self) -> bytes:
        self._counter.count()
        return super().pop()


class Changed(dict[bytes, Queue]):
    def __init__(self, queues: dict[bytes, Queue], counter: OneByOne) -> None:
        super().__init__(queues)
        self._counter = counter

    def popitem(self) -> tuple[bytes, Queue]:
        self._counter.count()
        return super().popitem()


def test_what_was_deleted_is_forgotten_in_slices_and_is_no_more_at_any_step() -> None:
    """A set of a million was copied four times and let go, in one turn of 150 ms."""
    disk = MemoryDisk()
    store = dirty(disk)
    for _ in steps(store, lambda: None):
        pass
    ids = sorted(known(store))
    gone, kept = ids[: QUEUES // 2], ids[QUEUES // 2 :]
    for queue_id in gone:
        queue = store.find(queue_id)
        assert queue is not None
        store.delete(queue)
    store.commit()
    counter = OneByOne()
    store.deleted = Ids(store.deleted, counter)
    for _ in steps(store, counter.give_back):
        assert len(store) == len(kept)
        assert known(store) == set(kept)
        assert not any(map(store.find, gone))
    counter.give_back()
    assert counter.all == len(gone)
    assert counter.most <= CHECKPOINT_SLICE_MS
    assert not store.deleted
    assert not store.deleting
    assert len(store.index) == len(kept)
    store.close()
    assert set(contents(disk)) == set(kept)


def test_what_is_deleted_while_the_index_is_written_stays_deleted() -> None:
    disk = MemoryDisk()
    store = dirty(disk)
    for _ in steps(store, lambda: None):
        pass
    ids = sorted(known(store))
    first = store.find(ids.pop())
    assert first is not None
    store.delete(first)
    store.commit()
    for _ in steps(store, lambda: None):
        if store.deleting and len(ids) == QUEUES - 1:
            second = store.find(ids.pop())
            assert second is not None
            store.delete(second)
            store.commit()
        assert known(store) == set(ids)
    assert len(ids) == QUEUES - 2, "one was deleted while the index was written"
    assert len(store) == len(ids)
    store.close()
    assert set(contents(disk)) == set(ids)


def test_what_has_changed_is_taken_over_as_it_is_and_one_queue_after_the_other() -> None:
    """A list of 262,144 and the end of what they were in took one turn of 8 ms."""
    store, counter = dirty(MemoryDisk()), OneByOne()
    store.dirty = Changed(store.dirty, counter)
    for _ in steps(store, counter.give_back):
        pass
    assert counter.all == QUEUES
    assert counter.most <= CHECKPOINT_SLICE_MS
    store.close()
