"""Scenarios J01 to J20 of a queue's normal life, on a store: memory disk, and real files where it matters."""

import random
from pathlib import Path

import pytest

from moorline.core.queue import QUOTA_MARKER, Entry, Queue
from moorline.core.queue_journal import parse_line
from moorline.ids import id_of
from moorline.journal import checkpoint
from moorline.journal.disk import Disk, FileDisk
from moorline.journal.files import StoreOptions
from moorline.journal.folder import path_of
from moorline.journal.index import Index
from moorline.journal.rebuild import rebuilt_index
from moorline.journal.store import Store
from moorline.testing import HandClock, Lose, MemoryDisk

QUOTA, FILE_MESSAGES = 3, 4
SMALL = StoreOptions(queue_messages_max=QUOTA, file_messages_max=FILE_MESSAGES)


class Lives:
    """A store through its restarts; every change is committed before the next."""

    def __init__(self, disk: Disk | None = None, options: StoreOptions = SMALL) -> None:
        self.disk = disk if disk is not None else MemoryDisk()
        self.options = options
        self.clock = HandClock()
        self.chance = random.Random(7)
        self.store = self._opened()

    def _opened(self) -> Store:
        store = Store(self.disk, self.options, self.clock.wall_ms, self.chance.randbytes)
        store.open(rebuilt_index)
        return store

    def restart(self, lose: Lose = "none") -> None:
        """The process is killed and started; on a memory disk the machine may be the one."""
        if isinstance(self.disk, MemoryDisk):
            self.disk.crash(self.chance, lose)
        else:
            self.store.close()
        self.store = self._opened()

    def checkpoint(self) -> None:
        self.clock.advance(1)
        checkpoint.run(self.store, self.clock.wall_ms)

    # --- a queue, by its id: objects do not outlive a restart -------------------------------------

    def create(self) -> bytes:
        queue_id = self.store.create(b"owner").id
        self.store.commit()
        return queue_id

    def queue(self, queue_id: bytes) -> Queue:
        queue = self.store.find(queue_id)
        assert queue is not None, "the queue is gone"
        return queue

    def send(self, queue_id: bytes, body: bytes, *, time_ms: int | None = None) -> int:
        now_ms = self.clock.wall_ms() if time_ms is None else time_ms
        message = self.store.send(self.queue(queue_id), body, now_ms)
        self.store.commit()
        return message

    def send_all(self, queue_id: bytes, *bodies: bytes) -> list[int]:
        messages = [self.send(queue_id, body) for body in bodies]
        assert all(messages), "a message was refused"
        return messages

    def acknowledge(self, queue_id: bytes, message: int) -> bool:
        done = self.store.acknowledge(self.queue(queue_id), message)
        self.store.commit()
        return done

    def acknowledge_head(self, queue_id: bytes) -> Entry:
        head = self.head(queue_id)
        assert head is not None, "the queue is empty"
        assert self.acknowledge(queue_id, head.lsn)
        return head

    def head(self, queue_id: bytes) -> Entry | None:
        return self.store.head(self.queue(queue_id))

    def entries(self, queue_id: bytes) -> list[Entry]:
        queue, found = self.queue(queue_id), list[Entry]()
        while (entry := self.store.peek(queue, len(found))) is not None:
            found.append(entry)
        assert len(found) == queue.size or queue.damaged
        return found

    def bodies(self, queue_id: bytes) -> list[bytes]:
        return [entry.body for entry in self.entries(queue_id)]

    # --- its files --------------------------------------------------------------------------------

    def folder(self, queue_id: bytes) -> str:
        return path_of(queue_id, self.options.levels)

    def names(self, queue_id: bytes) -> list[str]:
        folder = self.folder(queue_id)
        return self.disk.list_folder(folder) if self.disk.exists(folder) else []

    def message_files(self, queue_id: bytes) -> list[str]:
        return [name for name in self.names(queue_id) if name.startswith("messages.")]

    def backups(self, queue_id: bytes) -> list[str]:
        names = self.names(queue_id)
        return [name for name in names if name.startswith("queue.") and name != "queue.log"]

    def read(self, path: str) -> bytes:
        file = self.disk.open(path, create=False)
        try:
            return file.read_at(0, file.size())
        finally:
            file.close()

    def lines(self, queue_id: bytes, name: str = "queue.log") -> list[str]:
        return self.read(f"{self.folder(queue_id)}/{name}").decode().splitlines()


@pytest.fixture(params=["memory", "files"])
def lives(request: pytest.FixtureRequest, tmp_path: Path) -> Lives:
    return Lives(MemoryDisk() if request.param == "memory" else FileDisk(tmp_path / "queues"))


@pytest.mark.parametrize("flushed", [False, True], ids=["in the log", "in the files"])
def test_j01_fifo(lives: Lives, flushed: bool) -> None:
    """J01: 1,2,3 in order; reading twice gives 1; acks of 2, and of 1 again, are refused."""
    queue = lives.create()
    was_empty, ids = [], []
    for body in (b"1", b"2", b"3"):
        was_empty.append(lives.queue(queue).size == 0)
        ids.append(lives.send(queue, body))
    assert was_empty == [True, False, False]
    assert ids == sorted(set(ids))
    if flushed:
        lives.checkpoint()
        lives.restart()
    for _ in range(2):
        head = lives.head(queue)
        assert head is not None
        assert (head.lsn, head.body) == (ids[0], b"1")
    assert not lives.acknowledge(queue, ids[1])
    assert lives.bodies(queue) == [b"1", b"2", b"3"]
    assert lives.acknowledge(queue, ids[0])
    assert not lives.acknowledge(queue, ids[0])
    assert lives.bodies(queue) == [b"2", b"3"]


@pytest.mark.parametrize("flushed", [False, True], ids=["in the log", "in the files"])
def test_j02_an_ack_leaves_the_next_at_the_head(lives: Lives, flushed: bool) -> None:
    """J02: the right id gives (deleted, next); the last one (deleted, nothing)."""
    queue = lives.create()
    first, second = lives.send_all(queue, b"1", b"2")
    if flushed:
        lives.checkpoint()
    assert lives.acknowledge(queue, first)
    head = lives.head(queue)
    assert head is not None
    assert head.lsn == second
    assert lives.acknowledge(queue, second)
    assert lives.head(queue) is None
    assert not lives.acknowledge(queue, second)


@pytest.mark.parametrize("flushed", [False, True], ids=["in the log", "in the files"])
def test_j03_quota(lives: Lives, flushed: bool) -> None:
    """J03: the 4th write leaves one marker; refused until the marker is acknowledged."""
    queue = lives.create()
    lives.send_all(queue, b"1", b"2", b"3")
    for _ in range(3):
        assert lives.send(queue, b"refused") == 0
    for expected in (b"1", b"2", b"3"):
        if flushed:
            lives.checkpoint()
            lives.restart()
        assert lives.acknowledge_head(queue).body == expected
        assert lives.send(queue, b"refused") == 0
    marker = lives.acknowledge_head(queue)
    assert (marker.kind, marker.body) == (QUOTA_MARKER, b"")
    assert lives.entries(queue) == []
    lives.send_all(queue, b"taken again")


def test_j05_rotation(lives: Lives) -> None:
    """J05: five rounds of write and ack with 4 messages a file: one file is left."""
    queue = lives.create()
    lives.send(queue, b"0")
    lives.checkpoint()
    (oldest,) = lives.message_files(queue)
    files_seen = {oldest}
    for n in range(1, 11):
        lives.send(queue, b"%d" % n)
        lives.checkpoint()
        assert lives.acknowledge_head(queue).body == b"%d" % (n - 1)
        lives.checkpoint()
        files_seen.update(lives.message_files(queue))
    assert len(files_seen) >= 3, "it rotated"
    assert len(lives.message_files(queue)) == 1
    assert oldest not in lives.names(queue)
    assert lives.bodies(queue) == [b"10"]


def test_j06_never_a_third_message_file(lives: Lives) -> None:
    """J06: however much is written while the read file is unread."""
    lives.options = StoreOptions(queue_messages_max=100, file_messages_max=FILE_MESSAGES)
    lives.restart()
    queue = lives.create()
    for n in range(30):
        lives.send(queue, b"%d" % n)
        lives.checkpoint()
        assert len(lives.message_files(queue)) == (1 if n < FILE_MESSAGES else 2)
    lives.restart()
    assert [lives.acknowledge_head(queue).body for _ in range(30)] == [b"%d" % n for n in range(30)]
    lives.checkpoint()
    assert lives.message_files(queue) == []


def test_j07_nothing_on_disk_before_the_first_write(lives: Lives) -> None:
    """J07: create and read leave no folder; nor does a message that came and went in the log."""
    queue = lives.create()
    assert lives.head(queue) is None
    lives.checkpoint()
    lives.restart()
    assert lives.head(queue) is None
    assert lives.store.expire(lives.queue(queue), lives.clock.wall_ms()) == 0
    lives.send(queue, b"briefly")
    lives.acknowledge_head(queue)
    lives.checkpoint()
    assert not lives.disk.exists("messages")
    lives.send(queue, b"for longer")
    assert not lives.disk.exists("messages"), "the log has it; a checkpoint makes the folder"
    lives.checkpoint()
    assert lives.disk.is_folder(lives.folder(queue))


def test_j08_an_empty_queue_cleans_up(lives: Lives) -> None:
    """J08: no message files, one state backup."""
    queue = lives.create()
    lives.send(queue, b"1")
    lives.checkpoint()
    lives.acknowledge_head(queue)
    lives.checkpoint()
    (backup,) = lives.names(queue)
    assert backup == f"queue.{lives.clock.wall_ms():014}.log"
    last = parse_line(lives.lines(queue, backup)[-1])
    assert last is not None
    assert last.size == 0


def emptied_but_not_removed(disk: MemoryDisk) -> tuple[Lives, bytes]:
    """Killed when the empty state was on disk, and its files were not removed yet."""
    lives = Lives(disk)
    queue = lives.create()
    lives.send(queue, b"read")
    lives.checkpoint()
    lives.acknowledge_head(queue)
    sync_all = next(iter(checkpoint.steps(lives.store, lives.clock.wall_ms, lambda: 0)))
    assert sync_all is not None
    sync_all()
    lives.restart("all")
    assert "queue.log" in lives.names(queue)
    assert len(lives.message_files(queue)) == 1
    lives.clock.advance(5)
    return lives, queue


def test_j08_an_empty_queue_that_is_opened_again_cleans_up() -> None:
    """J08: what a crash kept from being removed goes when the queue is used again."""
    lives, queue = emptied_but_not_removed(MemoryDisk())
    assert lives.head(queue) is None
    lives.checkpoint()
    assert lives.message_files(queue) == []
    assert "queue.log" not in lives.names(queue)
    assert len(lives.backups(queue)) >= 1


def test_j08_a_queue_that_is_cleaned_and_used_at_once_keeps_its_new_state() -> None:
    """J08: the clean-up of the old files must not take the state of the new ones."""
    lives, queue = emptied_but_not_removed(MemoryDisk())
    lives.send(queue, b"new")
    lives.checkpoint()
    assert "queue.log" in lives.names(queue)
    # Without an index that state is all there is.
    lives.disk.remove("index")
    lives.restart()
    assert lives.bodies(queue) == [b"new"]


def test_j09_a_queue_known_to_be_empty_is_not_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    """J09: its folder is there, with a backup in it, and nobody looks into it."""
    lives = Lives()
    queue = lives.create()
    lives.send(queue, b"1")
    lives.checkpoint()
    lives.acknowledge_head(queue)
    lives.checkpoint()
    lives.restart()

    def refuse(path: str, *, create: bool = False) -> None:
        raise AssertionError(f"{path} was opened, create={create}")

    with monkeypatch.context() as patch:
        patch.setattr(lives.disk, "list_folder", refuse)
        patch.setattr(lives.disk, "open", refuse)
        assert lives.head(queue) is None
        assert not lives.store.acknowledge(lives.queue(queue), 1)
        assert lives.store.expire(lives.queue(queue), lives.clock.wall_ms()) == 0
    assert lives.disk.open_handles == 1, "the log alone"


def test_j10_two_writes_and_two_acks_append_four_state_lines(lives: Lives) -> None:
    """J10: one line for each, no more; the last one empties the queue and is in its backup."""
    queue = lives.create()
    for n, body in enumerate((b"1", b"2"), start=1):
        lives.send(queue, body)
        lives.checkpoint()
        assert len(lives.lines(queue)) == n
    lives.acknowledge_head(queue)
    lives.checkpoint()
    assert len(lives.lines(queue)) == 3
    lives.acknowledge_head(queue)
    lives.checkpoint()
    (backup,) = lives.backups(queue)
    states = [parse_line(line) for line in lives.lines(queue, backup)]
    assert [state.size for state in states if state] == [1, 2, 1, 0]


@pytest.mark.parametrize("flushed", [False, True], ids=["in the log", "in the files"])
def test_j12_what_was_not_acknowledged_comes_again(lives: Lives, flushed: bool) -> None:
    """J12: delivered but not acknowledged is delivered again; a marker survives restarts."""
    queue = lives.create()
    ids = lives.send_all(queue, b"1", b"2", b"3")
    assert lives.send(queue, b"refused") == 0
    for _ in range(3):
        if flushed:
            lives.checkpoint()
        head = lives.head(queue)
        lives.restart("all")
        assert lives.head(queue) == head
    entries = lives.entries(queue)
    assert [entry.lsn for entry in entries[:3]] == ids
    assert entries[3].kind == QUOTA_MARKER
    assert lives.send(queue, b"refused") == 0
    assert lives.entries(queue) == entries, "still one marker"


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
    lives = Lives(FileDisk(tmp_path), StoreOptions(levels=levels))
    queue = lives.create()
    lives.send(queue, b"found again")
    lives.checkpoint()
    assert (tmp_path / path_of(queue, levels) / "queue.log").is_file()
    lives.restart()
    assert lives.bodies(queue) == [b"found again"]


def test_j14_idle_queues_are_closed(lives: Lives) -> None:
    """J14: the files of the queue that was not used for longest are closed for another's."""
    lives.options = StoreOptions(open_queues_max=2)
    lives.restart()
    queues = [lives.create() for _ in range(5)]
    for queue in queues:
        lives.send(queue, b"1")
    lives.checkpoint()
    lives.restart()
    for _ in range(2):
        for queue in queues:
            assert lives.bodies(queue) == [b"1"]
            assert sum(lives.queue(one).reader is not None for one in queues) <= 2
            # A message file and a state file each, and the log.
            assert lives.disk.open_handles <= 2 * 2 + 1


def test_j14_an_expired_and_drained_queue_leaves_no_files(lives: Lives) -> None:
    """J14: nothing but the backup of its state."""
    queue = lives.create()
    lives.send_all(queue, b"1", b"2")
    lives.checkpoint()
    lives.clock.advance(10)
    assert lives.store.expire(lives.queue(queue), lives.clock.wall_ms()) == 2
    lives.checkpoint()
    assert lives.names(queue) == lives.backups(queue)
    assert lives.store.index.expirable(1 << 31) == []


def test_j15_nothing_expires_before_its_time_and_the_order_is_kept(lives: Lives) -> None:
    """J15: in the files and in the log; the millisecond itself is not too old."""
    queue = lives.create()
    for n in range(3):
        lives.send(queue, b"%d" % n, time_ms=1_000 * (n + 1))
        if n < 2:
            lives.checkpoint()
    lives.restart()
    expected = [b"0", b"1", b"2"]
    for before_ms, gone in ((1_000, 0), (1_001, 1), (2_000, 0), (2_001, 1), (3_000, 0), (3_001, 1)):
        assert lives.store.expire(lives.queue(queue), before_ms) == gone
        lives.store.commit()
        del expected[:gone]
        assert lives.bodies(queue) == expected


def test_j15_the_index_finds_all_that_may_have_expired(lives: Lives) -> None:
    """J15: by rows alone; whole seconds, so at most one second late and never early."""
    old, young, empty = lives.create(), lives.create(), lives.create()
    lives.send(old, b"old", time_ms=10_500)
    lives.send(young, b"young", time_ms=20_500)
    lives.checkpoint()
    assert lives.store.index.expirable(10) == []
    assert lives.store.index.expirable(11) == [old]
    assert set(lives.store.index.expirable(21)) == {old, young}
    assert empty in lives.store.index
    # A head that has gone leaves a bound behind; a look makes it exact again.
    lives.send(old, b"newer", time_ms=30_500)
    lives.acknowledge_head(old)
    lives.checkpoint()
    lives.restart()
    assert lives.store.expire(lives.queue(old), 30_500) == 0
    lives.checkpoint()
    assert lives.store.index.expirable(30) == [young]
    assert lives.bodies(old) == [b"newer"]


@pytest.mark.parametrize("flushed", [False, True], ids=["in the log", "in the files"])
def test_j16_a_quota_marker_never_expires(lives: Lives, flushed: bool) -> None:
    """J16: a dormant full queue ends as one marker, and keeps refusing."""
    queue = lives.create()
    lives.send_all(queue, b"1", b"2", b"3")
    lives.send(queue, b"refused")
    lives.clock.advance(10**9)
    if flushed:
        lives.checkpoint()
        lives.restart()
    assert lives.store.expire(lives.queue(queue), lives.clock.wall_ms()) == 3
    lives.checkpoint()
    lives.restart()
    assert lives.store.expire(lives.queue(queue), lives.clock.wall_ms()) == 0
    (marker,) = lives.entries(queue)
    assert marker.kind == QUOTA_MARKER
    assert lives.send(queue, b"refused") == 0


@pytest.mark.parametrize("flushed", [False, True], ids=["in the log", "in the files"])
def test_j17_expiry_stops_at_the_first_newer_message(lives: Lives, flushed: bool) -> None:
    """J17: the wall clock may have been set back: an older one behind a newer one stays."""
    queue = lives.create()
    for body, time_ms in ((b"old", 1_000), (b"new", 9_000), (b"old too", 1_000)):
        lives.send(queue, body, time_ms=time_ms)
    if flushed:
        lives.checkpoint()
        lives.restart()
    assert lives.store.expire(lives.queue(queue), 5_000) == 1
    assert lives.bodies(queue) == [b"new", b"old too"]


def test_j18_deleting_a_queue_leaves_no_orphans(lives: Lives) -> None:
    """J18: nor does one that is deleted in the middle of a checkpoint."""
    queues = [lives.create() for _ in range(4)]
    for queue in queues:
        lives.send_all(queue, b"1", b"2")
    lives.checkpoint()
    lives.store.delete(lives.queue(queues[0]))
    lives.store.commit()
    assert lives.store.find(queues[0]) is None
    assert not lives.disk.exists(lives.folder(queues[0]))
    for queue in queues[1:]:
        lives.acknowledge_head(queue)
        lives.send(queue, b"3")
    # Time passes with every look, so that a checkpoint stops after every queue.
    ticks = iter(range(0, 1_000_000, 1_000))
    steps = checkpoint.steps(lives.store, lives.clock.wall_ms, lambda: next(ticks))
    doomed = [queues[1], queues[2]]
    for work in steps:
        if doomed:
            lives.store.delete(lives.queue(doomed.pop()))
            lives.store.commit()
        if work is not None:
            work()
    for _ in range(2):
        assert [lives.store.find(queue) is None for queue in queues] == [True] * 3 + [False]
        assert len(lives.store) == 1
        assert lives.store.page(b"", 10) == [queues[3]]
        assert [lives.disk.exists(lives.folder(queue)) for queue in queues] == [False] * 3 + [True]
        assert lives.bodies(queues[3]) == [b"2", b"3"]
        lives.restart()


@pytest.mark.parametrize("lose", ["none", "all"])
def test_j18_a_deletion_touches_no_file_before_it_is_committed(lose: Lose) -> None:
    """J18: killed before its commit, a deletion has either happened or not, and took no messages."""
    lives = Lives()
    queue, other = lives.create(), lives.create()
    lives.send(queue, b"kept")
    lives.checkpoint()
    lives.store.send(lives.queue(other), b"before", 1)
    batch = lives.store.take_batch()
    assert batch is not None
    lives.store.delete(lives.queue(queue))
    lives.store.write(batch)
    lives.store.committed(batch)
    assert lives.message_files(queue), "the deletion is not committed"
    lives.restart(lose)
    assert lives.bodies(queue) == [b"kept"]


def test_j19_large_records_are_whole(lives: Lives) -> None:
    """J19: over 1, 4 and 21 KiB, and larger than what is read at once, beside empty ones."""
    lives.options = StoreOptions(queue_messages_max=100, file_messages_max=101)
    lives.restart()
    queue = lives.create()
    sizes = [1_025, 0, 4_097, 21 * 1_024 + 1, 65_507, 65_508, 200_000, 1, 512 * 1_024]
    bodies = [lives.chance.randbytes(size) for size in sizes]
    for place, body in enumerate(bodies):
        lives.send(queue, body)
        if place % 3 == 2:
            lives.checkpoint()
    lives.restart()
    assert lives.bodies(queue) == bodies
    lives.checkpoint()
    lives.restart()
    assert [lives.acknowledge_head(queue).body for _ in bodies] == bodies


def test_j20_open_handles_are_bounded_and_counted_back_to_0(lives: Lives) -> None:
    """J20: never above the bound while many queues are used; 0 after the close."""
    lives.options = StoreOptions(
        queue_messages_max=QUOTA, file_messages_max=FILE_MESSAGES, open_files_max=5
    )
    lives.restart()
    queues = [lives.create() for _ in range(12)]
    for _ in range(3):
        for queue in queues:
            lives.send(queue, b"x")
        lives.checkpoint()
        for queue in queues:
            lives.acknowledge_head(queue)
            lives.send(queue, b"y")
            assert len(lives.store.files.handles) <= 5
            assert lives.disk.open_handles <= 5 + 1
        lives.checkpoint()
    assert lives.disk.open_handles > 1, "some are open, or this says nothing"
    lives.store.close()
    assert lives.disk.open_handles == 0


def test_j20_handles_are_returned_when_a_queue_is_deleted_or_set_aside(lives: Lives) -> None:
    """J20: whatever way a queue leaves."""
    queues = [lives.create() for _ in range(2)]
    for queue in queues:
        lives.send(queue, b"x")
    lives.checkpoint()
    before = lives.disk.open_handles
    assert before == 1 + 2 * 2
    lives.store.delete(lives.queue(queues[0]))
    lives.store.commit()
    lives.store.files.quarantine(lives.queue(queues[1]), "a test")
    assert lives.disk.open_handles == 1


def test_a_store_starts_from_its_index_and_its_log_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Invariant 7: no folder is looked into at the start, however many there are."""
    lives = Lives()
    queues = [lives.create() for _ in range(5)]
    for queue in queues:
        lives.send(queue, b"x")
    lives.checkpoint()
    lives.send(queues[0], b"y")
    listed: list[str] = []
    list_folder = lives.disk.list_folder

    def noted(path: str) -> list[str]:
        listed.append(path)
        return list_folder(path)

    monkeypatch.setattr(lives.disk, "list_folder", noted)
    lives.restart()
    assert set(listed) == {"wal"}
    assert (len(lives.store), lives.store.replayed) == (5, 1)
    assert len(Index.load(lives.disk, "index")) == 5
