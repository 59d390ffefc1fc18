"""The index: rows in, rows out, whole or not at all."""

import random

import pytest

from moorline.core.queue.queue import Queue
from moorline.ids import ID_BYTES
from moorline.journal.queues.index import Index, IndexDamaged
from moorline.testing import Crashed, Lose, MemoryDisk

OWNERS = [b"", b"o" * 32]


def queue_of(number: int, *, stored: int = 0, oldest_s: int = 0) -> Queue:
    """Ids differ in their first bytes, as drawn ones do."""
    queue = Queue(number.to_bytes(4, "big") + bytes(ID_BYTES - 4), 1, 1_700_000_000 + number)
    queue.stored, queue.oldest_s = stored, oldest_s
    queue.flushed_lsn = queue.touched_lsn = number
    return queue


def index_of(queues: list[Queue], lsn: int = 9) -> Index:
    return Index.empty().folded(queues, [], OWNERS, lsn)


def saved(index: Index) -> MemoryDisk:
    disk = MemoryDisk()
    index.save(disk, "index")
    return disk


def ids(index: Index) -> list[bytes]:
    return index.page(b"", 1_000)


def test_a_row_says_all_that_the_queue_knows() -> None:
    queue = queue_of(5, stored=3, oldest_s=77)
    queue.consumed = [8]
    queue.blocked = queue.suspended = queue.damaged = queue.closed = True
    queue.can_write = False
    loaded = Index.load(saved(index_of([queue], lsn=42)), "index")
    found = loaded.find(queue.id)
    assert found is not None
    assert (loaded.lsn, loaded.owners, len(loaded)) == (42, OWNERS, 1)
    assert (found.owner, found.created_s, found.oldest_s) == (1, 1_700_000_005, 77)
    assert (found.blocked, found.suspended, found.damaged, found.closed) == (True,) * 4
    assert not found.can_write
    # The files still hold what was acknowledged since the flush.
    assert (found.stored, found.flushed_lsn, found.touched_lsn) == (4, 5, 5)


FLAGS = ("blocked", "suspended", "damaged", "closed")


@pytest.mark.parametrize("flag", FLAGS)
def test_flags_do_not_mix(flag: str) -> None:
    queue = queue_of(1)
    setattr(queue, flag, True)
    found = index_of([queue]).find(queue.id)
    assert found is not None
    for name in FLAGS:
        assert getattr(found, name) == (name == flag)
    assert found.can_write


def test_folding_replaces_adds_and_deletes() -> None:
    index = index_of([queue_of(n, stored=n) for n in range(1, 6)])
    folded = index.folded(
        [queue_of(2, stored=20), queue_of(9, stored=9)],
        [queue_of(3).id, queue_of(77).id],
        OWNERS,
        10,
    )
    assert ids(folded) == [queue_of(n).id for n in (1, 2, 4, 5, 9)]
    found = folded.find(queue_of(2).id)
    assert found is not None
    assert found.stored == 20
    assert folded.find(queue_of(3).id) is None
    assert (len(index), queue_of(3).id in index) == (5, True), "the old one is not changed"


def test_many_rows_are_found_whatever_their_order() -> None:
    chance = random.Random(1)
    queues = [Queue(chance.randbytes(ID_BYTES), 0, 0) for _ in range(500)]
    index = index_of(queues[:300]).folded(queues[300:], [], OWNERS, 1)
    loaded = Index.load(saved(index), "index")
    assert all(queue.id in loaded for queue in queues)
    assert chance.randbytes(ID_BYTES) not in loaded
    assert ids(loaded) == sorted(queue.id for queue in queues)


def test_pages_are_all_ids_once_in_order() -> None:
    index = index_of([queue_of(n) for n in range(1, 26)])
    found: list[bytes] = []
    while page := index.page(found[-1] if found else b"", 4):
        assert len(page) <= 4
        found += page
    assert found == [queue_of(n).id for n in range(1, 26)]


def alike() -> tuple[Queue, Queue]:
    """Two ids that begin alike, as no two drawn ones will but a hostile test may."""
    first = Queue(b"\1" * 8 + b"\1" * 16, 0, 0)
    second = Queue(b"\1" * 8 + b"\2" * 16, 0, 0)
    first.stored, second.stored = 1, 2
    return first, second


def test_ids_that_begin_alike_are_told_apart() -> None:
    first, second = alike()
    index = index_of([second, first])
    for queue in (first, second):
        found = index.find(queue.id)
        assert found is not None
        assert found.stored == queue.stored
    assert ids(index.folded([], [second.id], OWNERS, 1)) == [first.id]
    first.stored = 5
    changed = index.folded([first], [], OWNERS, 1).find(first.id)
    assert changed is not None
    assert changed.stored == 5


def test_ids_that_begin_alike_are_on_the_pages_too() -> None:
    first, second = alike()
    index = index_of([second, first])
    (page,) = index.page(b"", 1)
    assert [page, *index.page(page, 1)] == [first.id, second.id]


def test_expirable_are_those_with_something_older_and_no_damage() -> None:
    damaged = queue_of(4, stored=1, oldest_s=5)
    damaged.damaged = True
    rows = [queue_of(1, stored=1, oldest_s=10), queue_of(2, stored=1, oldest_s=11), damaged]
    index = index_of([*rows, queue_of(3, stored=0, oldest_s=5)])
    assert index.expirable(11) == [queue_of(1).id]
    assert index.expirable(10) == []


# --- the file -------------------------------------------------------------------------------------


def test_an_empty_index_is_a_file_too() -> None:
    loaded = Index.load(saved(Index.empty()), "index")
    assert (len(loaded), loaded.lsn, loaded.owners) == (0, 1, [b""])


def test_no_index_is_not_a_damaged_one() -> None:
    with pytest.raises(FileNotFoundError):
        Index.load(MemoryDisk(), "index")


def test_a_cut_or_changed_file_is_never_taken() -> None:
    disk = saved(index_of([queue_of(n) for n in range(3)]))
    data = disk.files()["index"]
    cut = [data[:end] for end in range(len(data))]
    changed = [
        data[:place] + bytes([data[place] ^ 0x40]) + data[place + 1 :] for place in range(len(data))
    ]
    for bad in cut + changed:
        file = disk.open("index", create=False)
        file.truncate(0)
        file.append(bad)
        with pytest.raises(IndexDamaged, match="index"):
            Index.load(disk, "index")


@pytest.mark.parametrize("lose", ["all", "some", "none"])
def test_a_crash_while_saving_leaves_the_old_or_the_new(lose: Lose) -> None:
    old, new = index_of([queue_of(1)]), index_of([queue_of(1), queue_of(2)])
    probe = saved(old)
    before = probe.steps
    new.save(probe, "index")
    steps = probe.steps - before
    assert steps >= 5, "made, appended, synced, renamed, synced"
    found = []
    for step in range(steps):
        disk = saved(old)
        disk.crash_at = disk.steps + step
        with pytest.raises(Crashed):
            new.save(disk, "index")
        disk.crash(random.Random(step), lose)
        found.append(len(Index.load(disk, "index")))
        # What the crash left half written is in nobody's way.
        new.save(disk, "index")
        assert len(Index.load(disk, "index")) == 2
    assert set(found) <= {1, 2}
    assert found[0] == 1
    assert found == sorted(found) or lose == "some"
