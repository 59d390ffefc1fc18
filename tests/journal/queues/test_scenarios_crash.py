"""Scenarios of crashes at every step, C05 and C17: nothing promised is lost, undone or out of order."""

import pytest
from tests.journal.queues.queue_life import QUOTA, Damage

from moorline.journal.queues.files import StoreOptions
from moorline.limits import STATE_LINES_MAX
from moorline.testing import Crashed, Lose, MemoryDisk

EVERY_LOSS: list[Lose] = ["all", "some", "none"]


@pytest.mark.parametrize("lose", EVERY_LOSS)
def test_c05_killed_at_each_step_of_state_compaction(lose: Lose) -> None:
    """C05: the complete state wins, before and after."""

    def life(disk: MemoryDisk) -> tuple[Damage, bytes]:
        # One file, or its rotation would compact the states before there are so many.
        damage = Damage(disk, StoreOptions(queue_messages_max=QUOTA, file_messages_max=99))
        queue = damage.stored(b"1")
        for n in range(2, STATE_LINES_MAX // 2 + 2):
            damage.send_all(queue, b"%d" % n)
            damage.checkpoint()
            if len(damage.lines(queue)) == STATE_LINES_MAX:
                break
            damage.acknowledge_head(queue)
            damage.checkpoint()
        assert len(damage.lines(queue)) == STATE_LINES_MAX
        damage.acknowledge_head(queue)
        return damage, queue

    damage, queue = life(probe := MemoryDisk())
    expected = damage.bodies(queue)
    before = probe.steps
    damage.checkpoint()
    steps = probe.steps - before
    assert len(damage.lines(queue)) == 1, "it was compacted"
    assert len(damage.backups(queue)) == 1
    for step in range(steps):
        damage, queue = life(disk := MemoryDisk())
        disk.crash_at = before + step
        with pytest.raises(Crashed):
            damage.checkpoint()
        damage.restart(lose)
        assert damage.bodies(queue) == expected, step
        assert (damage.store.files.lost_messages, damage.store.files.quarantined) == (0, 0)
        damage.is_at_work(queue)


class Record:
    """What the store has promised: what waits, and what was on its way when the end came."""

    def __init__(self) -> None:
        self.waiting: list[bytes] = []
        self.trying = ""
        self.deleted = False

    def allowed(self) -> list[list[bytes]]:
        match self.trying.partition(" "):
            case "send", _, body:
                return [self.waiting, [*self.waiting, body.encode()]]
            case "ack", _, _:
                return [self.waiting, self.waiting[1:]]
        return [self.waiting]


def one_life(damage: Damage, queue: bytes, record: Record) -> None:
    """Writes, rotates, acknowledges, switches, compacts, cleans, and deletes at last."""

    def send(body: str) -> None:
        record.trying = f"send {body}"
        assert damage.send(queue, body.encode())
        record.waiting.append(body.encode())
        record.trying = ""

    def acknowledge() -> None:
        record.trying = "ack"
        assert damage.acknowledge_head(queue).body == record.waiting[0]
        record.waiting.pop(0)
        record.trying = ""

    for n in range(QUOTA):
        send(f"first {n}")
    damage.checkpoint()
    for n in range(STATE_LINES_MAX + 1):
        acknowledge()
        send(f"round {n}")
        damage.checkpoint()
    while record.waiting:
        acknowledge()
    damage.checkpoint()
    send("again")
    damage.checkpoint()
    record.trying = "delete"
    damage.store.delete(damage.queue(queue))
    damage.store.commit()
    record.deleted = True
    damage.checkpoint()


@pytest.mark.slow
@pytest.mark.parametrize("lose", EVERY_LOSS)
def test_c17_killed_at_every_step_of_a_whole_life(lose: Lose) -> None:
    """C17: no acknowledged write is lost, no acknowledged ack is undone, nothing out of order."""
    probe = Damage(MemoryDisk())
    probe_queue, first = probe.create(), 0
    assert isinstance(probe.disk, MemoryDisk)
    first = probe.disk.steps
    one_life(probe, probe_queue, Record())
    last = probe.disk.steps
    assert last - first > 300
    for step in range(first, last):
        damage, record = Damage(disk := MemoryDisk()), Record()
        queue = damage.create()
        disk.crash_at = step
        with pytest.raises(Crashed):
            one_life(damage, queue, record)
        damage.restart(lose)
        assert (damage.store.files.lost_messages, damage.store.files.quarantined) == (0, 0)
        if damage.store.find(queue) is None:
            assert record.trying == "delete", "only a deletion may take a queue"
            assert not damage.message_files(queue)
            continue
        assert not record.deleted
        found = damage.bodies(queue)
        assert (damage.store.files.lost_messages, damage.store.files.quarantined) == (0, 0), step
        assert found in record.allowed(), (step, record.trying)
        assert len(damage.message_files(queue)) <= 2
        if step % 7 == 0:
            damage.checkpoint()
            damage.restart(lose)
            assert damage.bodies(queue) == found
            assert damage.store.files.lost_messages == 0


@pytest.mark.parametrize("lose", EVERY_LOSS)
def test_c17_killed_again_at_every_step_of_the_recovery(lose: Lose) -> None:
    """C17: a recovery that is killed is begun again, and ends the same."""

    def dying(disk: MemoryDisk) -> tuple[Damage, bytes]:
        damage = Damage(disk)
        queue = damage.two_files()
        damage.acknowledge_head(queue)
        damage.send_all(queue, b"4")
        damage.upto_sync()
        # The files know everything, the index nothing, and an old file is still there.
        disk.crash(damage.chance, "all")
        return damage, queue

    def recover(damage: Damage, queue: bytes) -> None:
        # Not `restart`: it would forget the crash that is to come.
        damage.store = damage._opened()
        assert damage.bodies(queue) == [b"2", b"3", b"4"]
        damage.checkpoint()

    damage, queue = dying(probe := MemoryDisk())
    before = probe.steps
    recover(damage, queue)
    steps = probe.steps - before
    assert steps > 10
    for step in range(steps):
        damage, queue = dying(disk := MemoryDisk())
        disk.crash_at = disk.steps + step
        with pytest.raises(Crashed):
            recover(damage, queue)
        damage.restart(lose)
        assert damage.bodies(queue) == [b"2", b"3", b"4"], step
        assert (damage.store.files.lost_messages, damage.store.files.quarantined) == (0, 0)
        damage.acknowledge_head(queue)
        damage.is_at_work(queue)
