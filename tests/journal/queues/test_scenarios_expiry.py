"""Scenarios of expiry, J14 to J17: never early, in order, and leaving no files behind."""

import pytest
from tests.journal.queues.queue_life import QueueLife

from moorline.core.queue.queue import QUOTA_MARKER


def test_j14_an_expired_and_drained_queue_leaves_no_files(life: QueueLife) -> None:
    """J14: nothing but the backup of its state."""
    queue = life.create()
    life.send_all(queue, b"1", b"2")
    life.checkpoint()
    life.clock.advance(10)
    assert life.store.expire(life.queue(queue), life.clock.wall_ms()) == 2
    life.checkpoint()
    assert life.names(queue) == life.backups(queue)
    assert life.store.index.expirable(1 << 31) == []


def test_j15_nothing_expires_before_its_time_and_the_order_is_kept(life: QueueLife) -> None:
    """J15: in the files and in the log; the millisecond itself is not too old."""
    queue = life.create()
    for n in range(3):
        life.send(queue, b"%d" % n, time_ms=1_000 * (n + 1))
        if n < 2:
            life.checkpoint()
    life.restart()
    expected = [b"0", b"1", b"2"]
    for before_ms, gone in ((1_000, 0), (1_001, 1), (2_000, 0), (2_001, 1), (3_000, 0), (3_001, 1)):
        assert life.store.expire(life.queue(queue), before_ms) == gone
        life.store.commit()
        del expected[:gone]
        assert life.bodies(queue) == expected


def test_j15_the_index_finds_all_that_may_have_expired(life: QueueLife) -> None:
    """J15: by rows alone; whole seconds, so at most one second late and never early."""
    old, young, empty = life.create(), life.create(), life.create()
    life.send(old, b"old", time_ms=10_500)
    life.send(young, b"young", time_ms=20_500)
    life.checkpoint()
    assert life.store.index.expirable(10) == []
    assert life.store.index.expirable(11) == [old]
    assert set(life.store.index.expirable(21)) == {old, young}
    assert empty in life.store.index
    # A head that has gone leaves a bound behind; a look makes it exact again.
    life.send(old, b"newer", time_ms=30_500)
    life.acknowledge_head(old)
    life.checkpoint()
    life.restart()
    assert life.store.expire(life.queue(old), 30_500) == 0
    life.checkpoint()
    assert life.store.index.expirable(30) == [young]
    assert life.bodies(old) == [b"newer"]


@pytest.mark.parametrize("flushed", [False, True], ids=["in the log", "in the files"])
def test_j16_a_quota_marker_never_expires(life: QueueLife, flushed: bool) -> None:
    """J16: a dormant full queue ends as one marker, and keeps refusing."""
    queue = life.create()
    life.send_all(queue, b"1", b"2", b"3")
    life.send(queue, b"refused")
    life.clock.advance(10**9)
    if flushed:
        life.checkpoint()
        life.restart()
    assert life.store.expire(life.queue(queue), life.clock.wall_ms()) == 3
    life.checkpoint()
    life.restart()
    assert life.store.expire(life.queue(queue), life.clock.wall_ms()) == 0
    (marker,) = life.entries(queue)
    assert marker.kind == QUOTA_MARKER
    assert life.send(queue, b"refused") == 0


@pytest.mark.parametrize("flushed", [False, True], ids=["in the log", "in the files"])
def test_j17_expiry_stops_at_the_first_newer_message(life: QueueLife, flushed: bool) -> None:
    """J17: the wall clock may have been set back: an older one behind a newer one stays."""
    queue = life.create()
    for body, time_ms in ((b"old", 1_000), (b"new", 9_000), (b"old too", 1_000)):
        life.send(queue, body, time_ms=time_ms)
    if flushed:
        life.checkpoint()
        life.restart()
    assert life.store.expire(life.queue(queue), 5_000) == 1
    assert life.bodies(queue) == [b"new", b"old too"]
