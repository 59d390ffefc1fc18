"""Scenarios of a queue's files in its normal life, J05 to J13: which there are, and what is in them."""

from pathlib import Path

import pytest
from tests.journal.queues.queue_life import FILE_MESSAGES, QueueLife

from moorline.core.queue.journal import parse_line
from moorline.ids import id_of
from moorline.journal.disk import FileDisk
from moorline.journal.queues.files import StoreOptions
from moorline.journal.queues.folder import path_of
from moorline.journal.queues.index import Index
from moorline.journal.queues.record import seed_of
from moorline.testing import Crashed, Lose, MemoryDisk


def test_j05_rotation(life: QueueLife) -> None:
    """J05: five rounds of write and ack with 4 messages a file: one file is left."""
    queue = life.create()
    life.send(queue, b"0")
    life.checkpoint()
    (oldest,) = life.message_files(queue)
    files_seen = {oldest}
    for n in range(1, 11):
        life.send(queue, b"%d" % n)
        life.checkpoint()
        assert life.acknowledge_head(queue).body == b"%d" % (n - 1)
        life.checkpoint()
        files_seen.update(life.message_files(queue))
    assert len(files_seen) >= 3, "it rotated"
    assert len(life.message_files(queue)) == 1
    assert oldest not in life.names(queue)
    assert life.bodies(queue) == [b"10"]


def test_j05_rotation_keeps_a_copy_of_the_states_and_leaves_one_line(life: QueueLife) -> None:
    """J05: the state is appended, queue.log copied, and compacted to that one line."""
    life.options = StoreOptions(queue_messages_max=100, file_messages_max=FILE_MESSAGES)
    life.restart()
    queue = life.create()
    for n in range(FILE_MESSAGES):
        life.send(queue, b"%d" % n)
        life.checkpoint()
    assert (len(life.lines(queue)), life.backups(queue)) == (FILE_MESSAGES, [])
    before = life.lines(queue)
    life.send(queue, b"in another file")
    life.checkpoint()
    assert life.backups(queue) == [f"queue.{life.clock.wall_ms():014}.log"]
    copied = life.lines(queue, life.backups(queue)[0])
    assert copied[:-1] == before
    assert life.lines(queue) == copied[-1:]
    state = parse_line(copied[-1], seed_of(queue))
    assert state is not None
    assert (state.has_two_files, state.write_msg, state.size) == (True, 1, FILE_MESSAGES + 1)
    life.send(queue, b"no other rotation")
    life.checkpoint()
    assert (len(life.lines(queue)), len(life.backups(queue))) == (2, 1)


@pytest.mark.parametrize("lose", ["all", "some", "none"])
def test_j05_killed_at_each_step_of_a_rotation(lose: Lose) -> None:
    """J05 with C17: records, state, copy, old copies, compaction; nothing is lost, undone or out of order."""

    def filled(disk: MemoryDisk) -> tuple[QueueLife, bytes]:
        life = QueueLife(disk)
        queue = life.create()
        for n in range(FILE_MESSAGES):
            life.clock.advance(20 * 86_400_000)
            life.send(queue, b"%d" % n)
            life.checkpoint()
            if n in (1, 2):
                life.acknowledge_head(queue)
                life.checkpoint()
        for day in (1, 2, 3):
            copy = life.disk.open(f"{life.folder(queue)}/queue.{day:014}.log", create=True)
            copy.append(b"an old copy")
            copy.close()
        life.disk.sync_all()
        life.send(queue, b"4")
        return life, queue

    life, queue = filled(probe := MemoryDisk())
    before = probe.steps
    life.checkpoint()
    steps = probe.steps - before
    assert len(life.message_files(queue)) == 2, "it rotated"
    assert len(life.backups(queue)) == 2, "and dropped the older copies"
    for step in range(steps):
        life, queue = filled(disk := MemoryDisk())
        disk.crash_at = disk.steps + step
        with pytest.raises(Crashed):
            life.checkpoint()
        life.restart(lose)
        assert life.bodies(queue) == [b"2", b"3", b"4"], step
        assert (life.store.files.lost_messages, life.store.files.quarantined) == (0, 0), step
        life.checkpoint()
        life.restart(lose)
        assert life.bodies(queue) == [b"2", b"3", b"4"], step
        assert len(life.message_files(queue)) <= 2


def test_j06_never_a_third_message_file(life: QueueLife) -> None:
    """J06: however much is written while the read file is unread."""
    life.options = StoreOptions(queue_messages_max=100, file_messages_max=FILE_MESSAGES)
    life.restart()
    queue = life.create()
    for n in range(30):
        life.send(queue, b"%d" % n)
        life.checkpoint()
        assert len(life.message_files(queue)) == (1 if n < FILE_MESSAGES else 2)
    life.restart()
    assert [life.acknowledge_head(queue).body for _ in range(30)] == [b"%d" % n for n in range(30)]
    life.checkpoint()
    assert life.message_files(queue) == []


def test_j07_nothing_on_disk_before_the_first_write(life: QueueLife) -> None:
    """J07: create and read leave no folder; nor does a message that came and went in the log."""
    queue = life.create()
    assert life.head(queue) is None
    life.checkpoint()
    life.restart()
    assert life.head(queue) is None
    assert life.store.expire(life.queue(queue), life.clock.wall_ms()) == 0
    life.send(queue, b"briefly")
    life.acknowledge_head(queue)
    life.checkpoint()
    assert not life.disk.exists("messages")
    life.send(queue, b"for longer")
    assert not life.disk.exists("messages"), "the log has it; a checkpoint makes the folder"
    life.checkpoint()
    assert life.disk.is_folder(life.folder(queue))


def test_j08_an_empty_queue_cleans_up(life: QueueLife) -> None:
    """J08: no message files, one state backup."""
    queue = life.create()
    life.send(queue, b"1")
    life.checkpoint()
    life.acknowledge_head(queue)
    life.checkpoint()
    (backup,) = life.names(queue)
    assert backup == f"queue.{life.clock.wall_ms():014}.log"
    last = parse_line(life.lines(queue, backup)[-1], seed_of(queue))
    assert last is not None
    assert last.size == 0


def emptied_but_not_removed(disk: MemoryDisk) -> tuple[QueueLife, bytes]:
    """Killed when the empty state was on disk, and its files were not removed yet."""
    life = QueueLife(disk)
    queue = life.create()
    life.send(queue, b"read")
    life.checkpoint()
    life.acknowledge_head(queue)
    life.upto_sync()
    life.restart("all")
    assert "queue.log" in life.names(queue)
    assert len(life.message_files(queue)) == 1
    life.clock.advance(5)
    return life, queue


def test_j08_an_empty_queue_that_is_opened_again_cleans_up() -> None:
    """J08: what a crash kept from being removed goes when the queue is used again."""
    life, queue = emptied_but_not_removed(MemoryDisk())
    assert life.head(queue) is None
    life.checkpoint()
    assert life.message_files(queue) == []
    assert "queue.log" not in life.names(queue)
    assert len(life.backups(queue)) >= 1


def test_j08_a_queue_that_is_cleaned_and_used_at_once_keeps_its_new_state() -> None:
    """J08: the clean-up of the old files must not take the state of the new ones."""
    life, queue = emptied_but_not_removed(MemoryDisk())
    life.send(queue, b"new")
    life.checkpoint()
    assert "queue.log" in life.names(queue)
    # Without an index that state is all there is.
    life.disk.remove("index")
    life.restart()
    assert life.bodies(queue) == [b"new"]


def test_j09_a_queue_known_to_be_empty_is_not_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    """J09: its folder is there, with a backup in it, and nobody looks into it."""
    life = QueueLife()
    queue = life.create()
    life.send(queue, b"1")
    life.checkpoint()
    life.acknowledge_head(queue)
    life.checkpoint()
    life.restart()

    def refuse(path: str, *, create: bool = False) -> None:
        raise AssertionError(f"{path} was opened, create={create}")

    with monkeypatch.context() as patch:
        patch.setattr(life.disk, "list_folder", refuse)
        patch.setattr(life.disk, "open", refuse)
        assert life.head(queue) is None
        assert not life.store.acknowledge(life.queue(queue), 1)
        assert life.store.expire(life.queue(queue), life.clock.wall_ms()) == 0
    assert life.disk.open_handles == 1, "the log alone"


def test_j10_two_writes_and_two_acks_append_four_state_lines(life: QueueLife) -> None:
    """J10: one line for each, no more; the last one empties the queue and is in its backup."""
    queue = life.create()
    for n, body in enumerate((b"1", b"2"), start=1):
        life.send(queue, body)
        life.checkpoint()
        assert len(life.lines(queue)) == n
    life.acknowledge_head(queue)
    life.checkpoint()
    assert len(life.lines(queue)) == 3
    life.acknowledge_head(queue)
    life.checkpoint()
    (backup,) = life.backups(queue)
    states = [parse_line(line, seed_of(queue)) for line in life.lines(queue, backup)]
    assert [state.size for state in states if state] == [1, 2, 1, 0]


@pytest.mark.parametrize("levels", [0, 1, 4, 8])
def test_j13_the_path_of_an_id(levels: int, tmp_path: Path) -> None:
    """J13: a 32-character id becomes 2/2/2/2/24; the number of levels is a setting."""
    queue_id = id_of("abcdefghijklmnopqrstuvwxyz012345")
    expected = {
        0: "messages/abcdefghijklmnopqrstuvwxyz012345",
        1: "messages/ab/cdefghijklmnopqrstuvwxyz012345",
        4: "messages/ab/cd/ef/gh/ijklmnopqrstuvwxyz012345",
        8: "messages/ab/cd/ef/gh/ij/kl/mn/op/qrstuvwxyz012345",
    }
    assert path_of(queue_id, levels) == expected[levels]
    life = QueueLife(FileDisk(tmp_path), StoreOptions(levels=levels))
    queue = life.create()
    life.send(queue, b"found again")
    life.checkpoint()
    assert (tmp_path / path_of(queue, levels) / "queue.log").is_file()
    life.restart()
    assert life.bodies(queue) == [b"found again"]


def test_a_store_starts_from_its_index_and_its_log_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Invariant 7: no folder is looked into at the start, however many there are."""
    life = QueueLife()
    queues = [life.create() for _ in range(5)]
    for queue in queues:
        life.send(queue, b"x")
    life.checkpoint()
    life.send(queues[0], b"y")
    listed: list[str] = []
    list_folder = life.disk.list_folder

    def noted(path: str) -> list[str]:
        listed.append(path)
        return list_folder(path)

    monkeypatch.setattr(life.disk, "list_folder", noted)
    life.restart()
    assert set(listed) == {"wal"}
    assert (len(life.store), life.store.replay.count) == (5, 1)
    assert len(Index.load(life.disk, "index")) == 5
