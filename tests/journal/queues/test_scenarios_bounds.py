"""Scenarios of what must not grow, J14, J20, C21 and C22: open files, backups, the state file."""

import pytest
from tests.journal.queues.queue_life import FILE_MESSAGES, QUOTA, Damage, QueueLife

from moorline.journal.queues.files import StoreOptions
from moorline.journal.queues.folder import superseded
from moorline.testing import MemoryDisk

DAY_MS = 86_400_000


# --- open files -----------------------------------------------------------------------------------


def test_j14_idle_queues_are_closed(life: QueueLife) -> None:
    """J14: the files of the queue that was not used for longest are closed for another's."""
    life.options = StoreOptions(open_queues_max=2)
    life.restart()
    queues = [life.create() for _ in range(5)]
    for queue in queues:
        life.send(queue, b"1")
    life.checkpoint()
    life.restart()
    for _ in range(2):
        for queue in queues:
            assert life.bodies(queue) == [b"1"]
            assert sum(life.queue(one) in life.store.files._readers for one in queues) <= 2
            # A message file and a state file each, and the log.
            assert life.disk.open_handles <= 2 * 2 + 1


def test_j20_open_handles_are_bounded_and_counted_back_to_0(life: QueueLife) -> None:
    """J20: never above the bound while many queues are used; 0 after the close."""
    life.options = StoreOptions(
        queue_messages_max=QUOTA, file_messages_max=FILE_MESSAGES, open_files_max=5
    )
    life.restart()
    queues, opened = [life.create() for _ in range(12)], 0
    for _ in range(3):
        for queue in queues:
            life.send(queue, b"x")
        life.checkpoint()
        for queue in queues:
            life.acknowledge_head(queue)
            life.send(queue, b"y")
            assert len(life.store.files.handles) <= 5
            assert life.disk.open_handles <= 5 + 1
            opened = max(opened, life.disk.open_handles)
        life.checkpoint()
    assert opened > 1, "some are open, or this says nothing"
    life.store.close()
    assert life.disk.open_handles == 0


def test_j20_handles_are_returned_when_a_queue_is_deleted_or_set_aside(life: QueueLife) -> None:
    """J20: whatever way a queue leaves."""
    queues = [life.create() for _ in range(2)]
    for queue in queues:
        life.send(queue, b"x")
    life.checkpoint()
    for queue in queues:
        assert life.bodies(queue) == [b"x"]
    assert life.disk.open_handles == 1 + 2, "the message file of each, and the log"
    life.store.delete(life.queue(queues[0]))
    life.store.commit()
    life.store.files.quarantine(life.queue(queues[1]), "a test")
    assert life.disk.open_handles == 1


# --- files on the disk ----------------------------------------------------------------------------


def test_c21_state_backups_newer_than_14_days_or_the_newest_2_are_kept() -> None:
    """C21: by their names alone."""
    now = 1_700_000_000_000

    def named(*days: int, torn: str = "") -> list[str]:
        return [f"queue.{now - day * DAY_MS:014}{torn}.log" for day in days]

    stamp = f"{now:014}"
    assert superseded(named(1, 2, 3, 13, 14), stamp) == []
    assert superseded(named(20, 1, 16, 15, 14), stamp) == named(15, 16, 20)
    assert superseded(named(20, 30), stamp) == []
    assert superseded(named(40, 30, 20), stamp) == named(40)
    assert superseded(named(15, torn="-torn") + named(1, 2), stamp) == named(15, torn="-torn")
    assert superseded([], stamp) == []


def test_c21_backups_of_a_busy_queue_stay_few_over_the_months(damage: Damage) -> None:
    """C21: one round a day, each of which leaves a backup."""
    queue = damage.create()
    for _ in range(60):
        damage.clock.advance(DAY_MS)
        damage.send_all(queue, b"x")
        damage.checkpoint()
        damage.acknowledge_head(queue)
        damage.checkpoint()
        assert len(damage.backups(queue)) <= 14 + 2
    assert len(damage.backups(queue)) >= 14
    damage.clock.advance(100 * DAY_MS)
    damage.send_all(queue, b"x")
    damage.checkpoint()
    damage.acknowledge_head(queue)
    damage.checkpoint()
    assert len(damage.backups(queue)) == 2


@pytest.mark.slow
def test_c22_ten_thousand_writes_and_acks_keep_the_state_file_bounded() -> None:
    """C22: the queue is never empty; queue.log, its backups and the log stay small."""
    damage = Damage(options=StoreOptions(queue_messages_max=64, file_messages_max=65))
    queue = damage.create()
    for n in range(3):
        damage.send(queue, b"%d" % n)
    largest = 0
    for n in range(10_000):
        damage.clock.advance(3 * 3_600_000)
        store, object_ = damage.store, damage.queue(queue)
        assert store.send(object_, b"%d" % (n + 3), damage.clock.wall_ms())
        head = store.head(object_)
        assert head is not None
        assert head.body == b"%d" % n
        assert store.acknowledge(object_, head.lsn)
        if n % 5 == 0:
            damage.checkpoint()
            assert len(damage.message_files(queue)) <= 2
            largest = max(largest, len(damage.read(damage.state_path(queue))))
    damage.checkpoint()
    assert 1_024 < largest < 4_096, "up to 16 lines, one block"
    assert damage.store.log.size_bytes == 0
    # 14 days of backups, one for each 16 checkpoints of 15 hours.
    assert len(damage.backups(queue)) <= 4
    assert isinstance(damage.disk, MemoryDisk)
    assert damage.disk.used_bytes() < 64 * 1_024
    assert damage.bodies(queue) == [b"10000", b"10001", b"10002"]


def test_the_settings_are_small_enough_for_all_of_this() -> None:
    """What the scenarios write by hand: full after three messages, and a second file from the fifth on."""
    life = QueueLife()
    queue = life.create()
    life.send_all(queue, b"1", b"2", b"3")
    assert life.send(queue, b"refused") == 0
    other, files = life.create(), list[int]()
    for body in (b"1", b"2", b"3", b"4", b"5"):
        life.send_all(other, body)
        life.checkpoint()
        files.append(len(life.message_files(other)))
        if life.queue(other).size == QUOTA:
            life.acknowledge_head(other)
    assert files == [1, 1, 1, 1, 2]
