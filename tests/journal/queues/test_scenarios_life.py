"""Scenarios of a queue's normal life, J01 to J19: order, quota, redelivery, deletion, large records."""

import pytest
from tests.journal.queues.queue_life import QueueLife

from moorline.core.queue.queue import QUOTA_MARKER
from moorline.journal.queues import checkpoint
from moorline.journal.queues.files import StoreOptions
from moorline.testing import Lose


@pytest.mark.parametrize("flushed", [False, True], ids=["in the log", "in the files"])
def test_j01_fifo(life: QueueLife, flushed: bool) -> None:
    """J01: 1,2,3 in order; reading twice gives 1; acks of 2, and of 1 again, are refused."""
    queue = life.create()
    was_empty, ids = [], []
    for body in (b"1", b"2", b"3"):
        was_empty.append(life.queue(queue).size == 0)
        ids.append(life.send(queue, body))
    assert was_empty == [True, False, False]
    assert ids == sorted(set(ids))
    if flushed:
        life.checkpoint()
        life.restart()
    for _ in range(2):
        head = life.head(queue)
        assert head is not None
        assert (head.lsn, head.body) == (ids[0], b"1")
    assert not life.acknowledge(queue, ids[1])
    assert life.bodies(queue) == [b"1", b"2", b"3"]
    assert life.acknowledge(queue, ids[0])
    assert not life.acknowledge(queue, ids[0])
    assert life.bodies(queue) == [b"2", b"3"]


@pytest.mark.parametrize("flushed", [False, True], ids=["in the log", "in the files"])
def test_j02_an_ack_leaves_the_next_at_the_head(life: QueueLife, flushed: bool) -> None:
    """J02: the right id gives (deleted, next); the last one (deleted, nothing)."""
    queue = life.create()
    first, second = life.send_all(queue, b"1", b"2")
    if flushed:
        life.checkpoint()
    assert life.acknowledge(queue, first)
    head = life.head(queue)
    assert head is not None
    assert head.lsn == second
    assert life.acknowledge(queue, second)
    assert life.head(queue) is None
    assert not life.acknowledge(queue, second)


@pytest.mark.parametrize("flushed", [False, True], ids=["in the log", "in the files"])
def test_j03_quota(life: QueueLife, flushed: bool) -> None:
    """J03: the 4th write leaves one marker; refused until the marker is acknowledged."""
    queue = life.create()
    life.send_all(queue, b"1", b"2", b"3")
    for _ in range(3):
        assert life.send(queue, b"refused") == 0
    for expected in (b"1", b"2", b"3"):
        if flushed:
            life.checkpoint()
            life.restart()
        assert life.acknowledge_head(queue).body == expected
        assert life.send(queue, b"refused") == 0
    marker = life.acknowledge_head(queue)
    assert (marker.kind, marker.body) == (QUOTA_MARKER, b"")
    assert life.entries(queue) == []
    life.send_all(queue, b"taken again")


@pytest.mark.parametrize("flushed", [False, True], ids=["in the log", "in the files"])
def test_j12_what_was_not_acknowledged_comes_again(life: QueueLife, flushed: bool) -> None:
    """J12: delivered but not acknowledged is delivered again; a marker survives restarts."""
    queue = life.create()
    ids = life.send_all(queue, b"1", b"2", b"3")
    assert life.send(queue, b"refused") == 0
    for _ in range(3):
        if flushed:
            life.checkpoint()
        head = life.head(queue)
        life.restart("all")
        assert life.head(queue) == head
    entries = life.entries(queue)
    assert [entry.lsn for entry in entries[:3]] == ids
    assert entries[3].kind == QUOTA_MARKER
    assert life.send(queue, b"refused") == 0
    assert life.entries(queue) == entries, "still one marker"


def test_j18_deleting_a_queue_leaves_no_orphans(life: QueueLife) -> None:
    """J18: nor does one that is deleted in the middle of a checkpoint."""
    queues = [life.create() for _ in range(4)]
    for queue in queues:
        life.send_all(queue, b"1", b"2")
    life.checkpoint()
    life.store.delete(life.queue(queues[0]))
    life.store.commit()
    assert life.store.find(queues[0]) is None
    assert not life.disk.exists(life.folder(queues[0]))
    for queue in queues[1:]:
        life.acknowledge_head(queue)
        life.send(queue, b"3")
    # Time passes with every look, so that a checkpoint stops after every queue.
    ticks = iter(range(0, 1_000_000, 1_000))
    steps = checkpoint.steps(life.store, life.clock.wall_ms, lambda: next(ticks))
    doomed = [queues[1], queues[2]]
    for work in steps:
        if doomed:
            life.store.delete(life.queue(doomed.pop()))
            life.store.commit()
        if work is not None:
            work()
    for _ in range(2):
        assert [life.store.find(queue) is None for queue in queues] == [True] * 3 + [False]
        assert len(life.store) == 1
        assert life.store.page(b"", 10) == [queues[3]]
        assert [life.disk.exists(life.folder(queue)) for queue in queues] == [False] * 3 + [True]
        assert life.bodies(queues[3]) == [b"2", b"3"]
        life.restart()


@pytest.mark.parametrize("lose", ["none", "all"])
def test_j18_a_deletion_touches_no_file_before_it_is_committed(lose: Lose) -> None:
    """J18: killed before its commit, a deletion has either happened or not, and took no messages."""
    life = QueueLife()
    queue, other = life.create(), life.create()
    life.send(queue, b"kept")
    life.checkpoint()
    life.store.send(life.queue(other), b"before", 1)
    batch = life.store.take_batch()
    assert batch is not None
    life.store.delete(life.queue(queue))
    life.store.write(batch)
    life.store.committed(batch)
    assert life.message_files(queue), "the deletion is not committed"
    life.restart(lose)
    assert life.bodies(queue) == [b"kept"]


def test_j19_large_records_are_whole(life: QueueLife) -> None:
    """J19: over 1, 4 and 21 KiB, and larger than what is read at once, beside empty ones."""
    life.options = StoreOptions(queue_messages_max=100, file_messages_max=101)
    life.restart()
    queue = life.create()
    sizes = [1_025, 0, 4_097, 21 * 1_024 + 1, 65_507, 65_508, 200_000, 1, 512 * 1_024]
    bodies = [life.chance.randbytes(size) for size in sizes]
    for place, body in enumerate(bodies):
        life.send(queue, body)
        if place % 3 == 2:
            life.checkpoint()
    life.restart()
    assert life.bodies(queue) == bodies
    life.checkpoint()
    life.restart()
    assert [life.acknowledge_head(queue).body for _ in bodies] == bodies
