"""Scenarios C01 to C22: crashes at every step, and files that are not what they should be."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from tests.journal.test_scenarios_life import FILE_MESSAGES, QUOTA, SMALL, Lives

from moorline.core.queue import QUOTA_MARKER
from moorline.core.queue_journal import QueueState, parse_line
from moorline.ids import text_of
from moorline.journal import checkpoint
from moorline.journal.disk import FileDisk
from moorline.journal.files import StoreOptions
from moorline.journal.folder import superseded
from moorline.limits import STATE_LINES_MAX
from moorline.testing import Crashed, Lose, MemoryDisk

EVERY_LOSS: list[Lose] = ["all", "some", "none"]
DAY_MS = 86_400_000


class Damage(Lives):
    """Lives whose files somebody alters while the node is down."""

    def overwrite(self, path: str, data: bytes) -> None:
        file = self.disk.open(path, create=True)
        file.truncate(0)
        file.append(data)
        file.sync()
        file.close()
        self.disk.sync_all()

    def state_path(self, queue: bytes) -> str:
        return f"{self.folder(queue)}/queue.log"

    def state(self, queue: bytes) -> QueueState:
        state = parse_line(self.lines(queue)[-1])
        assert state is not None
        return state

    def message_path(self, queue: bytes, name: str) -> str:
        return f"{self.folder(queue)}/messages.{name}.log"

    def stored(self, *bodies: bytes) -> bytes:
        """A queue with these messages in its files, one state line each, and nothing in the log."""
        queue = self.create()
        for body in bodies:
            self.send_all(queue, body)
            self.checkpoint()
        return queue

    def two_files(self) -> bytes:
        """A queue with 1 in its read file and 2 and 3 in its write file."""
        queue = self.stored(b"a", b"b", b"c")
        for body in (b"1", b"2", b"3"):
            self.acknowledge_head(queue)
            self.send_all(queue, body)
        self.checkpoint()
        assert self.state(queue).has_two_files
        assert len(self.message_files(queue)) == 2
        assert self.bodies(queue) == [b"1", b"2", b"3"]
        return queue

    def is_at_work(self, queue: bytes) -> None:
        """The queue takes messages, keeps their order, and survives another restart."""
        before = self.bodies(queue)
        self.send_all(queue, b"later")
        self.checkpoint()
        self.restart("all")
        assert self.bodies(queue) == [*before, b"later"]
        for body in [*before, b"later"]:
            assert self.acknowledge_head(queue).body == body
        self.checkpoint()
        # Removals are not synced: a power cut may bring the files back, but not the messages.
        assert self.message_files(queue) == []
        self.restart("all")
        assert self.bodies(queue) == []


@pytest.fixture(params=["memory", "files"])
def damage(request: pytest.FixtureRequest, tmp_path: Path) -> Damage:
    return Damage(MemoryDisk() if request.param == "memory" else FileDisk(tmp_path / "queues"))


# --- state lines ----------------------------------------------------------------------------------


@pytest.mark.parametrize("cut", [1, 2, 30, 10_000], ids=["newline", "digit", "half", "all but one"])
def test_c01_the_last_state_line_is_torn(damage: Damage, cut: int) -> None:
    """C01: the line before it is used, a backup is kept; what that loses is counted."""
    queue = damage.stored(b"1", b"2")
    text = damage.read(damage.state_path(queue))
    start = text.index(b"\n") + 1
    damage.overwrite(damage.state_path(queue), text[: max(start + 1, len(text) - cut)])
    damage.restart()
    assert damage.bodies(queue) == [b"1"]
    assert damage.store.files.lost_messages == 1
    (backup,) = damage.backups(queue)
    assert damage.read(f"{damage.folder(queue)}/{backup}").startswith(text[:start])
    assert len(damage.lines(queue)) == 1
    damage.is_at_work(queue)


def test_c01_a_torn_acknowledgement_delivers_again_and_loses_nothing(damage: Damage) -> None:
    """C01: the line before has the message that was acknowledged."""
    queue = damage.stored(b"1", b"2")
    damage.acknowledge_head(queue)
    damage.checkpoint()
    damage.overwrite(damage.state_path(queue), damage.read(damage.state_path(queue))[:-5])
    damage.restart()
    assert damage.head(queue) is not None
    assert damage.bodies(queue) == [b"1", b"2"]
    assert damage.store.files.lost_messages == 0
    damage.is_at_work(queue)


@pytest.mark.parametrize("bad", [b"", b"read_file=", b"\x00" * 100, b"half a line\n"])
def test_c02_c03_the_only_state_line_is_torn_or_missing(damage: Damage, bad: bytes) -> None:
    """C02 the only state line torn, C03 the state file empty: the message files are read."""
    queue = damage.create()
    damage.send_all(queue, b"1", b"2", b"3")
    damage.checkpoint()
    assert len(damage.lines(queue)) == 1
    damage.overwrite(damage.state_path(queue), bad)
    damage.restart()
    assert damage.bodies(queue) == [b"1", b"2", b"3"]
    assert damage.store.files.lost_messages == 0
    (backup,) = damage.backups(queue)
    assert damage.read(f"{damage.folder(queue)}/{backup}") == bad
    damage.acknowledge_head(queue)
    damage.is_at_work(queue)


def test_c03_no_state_file_at_all_and_two_message_files(damage: Damage) -> None:
    """C03: the index says how many of them wait; the files say which."""
    queue = damage.two_files()
    damage.disk.remove(damage.state_path(queue))
    damage.restart()
    assert damage.bodies(queue) == [b"1", b"2", b"3"]
    damage.acknowledge_head(queue)
    damage.is_at_work(queue)


def test_c03_the_quota_is_remembered_without_a_state(damage: Damage) -> None:
    """C03: the index says that senders are held off."""
    queue = damage.create()
    damage.send_all(queue, b"1", b"2", b"3")
    damage.send(queue, b"refused")
    damage.checkpoint()
    damage.overwrite(damage.state_path(queue), b"")
    damage.restart()
    assert damage.entries(queue)[-1].kind == QUOTA_MARKER
    assert damage.send(queue, b"refused") == 0


def test_c03_no_state_and_an_old_file_that_was_read_to_its_end() -> None:
    """C03 with C19: the file that a crash kept from being removed is not read again."""
    damage = Damage()
    queue = damage.two_files()
    old = damage.message_path(queue, damage.state(queue).read_file)
    content = damage.read(old)
    for _ in range(2):
        damage.acknowledge_head(queue)
    damage.checkpoint()
    assert len(damage.message_files(queue)) == 1
    damage.overwrite(old, content)
    damage.overwrite(damage.state_path(queue), b"")
    damage.restart()
    assert damage.head(queue) is not None
    assert damage.bodies(queue) == [b"3"]
    damage.is_at_work(queue)


@pytest.mark.parametrize("bad", [b"", b"read_file="])
def test_c02_c03_without_an_index_the_message_files_are_read_from_their_start(bad: bytes) -> None:
    """C02, C03: two kinds of damage at once lose nothing that a file still has."""
    damage = Damage()
    queue = damage.create()
    damage.send_all(queue, b"1", b"2")
    damage.checkpoint()
    damage.overwrite(damage.state_path(queue), bad)
    damage.overwrite("index", b"no index")
    damage.restart()
    assert damage.bodies(queue) == [b"1", b"2"]


def test_c04_a_message_whose_state_line_was_lost_is_cut(damage: Damage) -> None:
    """C04: never acknowledged to its sender, so cut; the order of the rest holds."""
    queue = damage.stored(b"1", b"2")
    name = damage.message_path(queue, damage.state(queue).write_file)
    content = damage.read(name)
    one = len(content) // 2
    # A whole record whose state never came, and then half of another.
    damage.overwrite(name, content + content[one:] + content[: one // 2])
    damage.restart()
    assert damage.bodies(queue) == [b"1", b"2"]
    assert damage.read(name) == content
    damage.is_at_work(queue)
    assert damage.store.files.lost_messages == 0


@pytest.mark.parametrize("lose", EVERY_LOSS)
def test_c05_killed_at_each_step_of_state_compaction(lose: Lose) -> None:
    """C05: the complete state wins, before and after."""

    def life(disk: MemoryDisk) -> tuple[Damage, bytes]:
        damage = Damage(disk)
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


# --- message files --------------------------------------------------------------------------------


def test_c06_the_only_message_file_is_missing(damage: Damage) -> None:
    """C06: the queue goes on, empty; what was lost is reported by count."""
    queue = damage.stored(b"1", b"2")
    damage.disk.remove(damage.message_path(queue, damage.state(queue).read_file))
    damage.restart()
    assert damage.head(queue) is None
    assert (damage.bodies(queue), damage.store.files.lost_messages) == ([], 2)
    damage.is_at_work(queue)


def test_c07_the_read_file_is_missing_and_the_write_file_is_there(damage: Damage) -> None:
    """C07: goes on with the write file; one message is lost."""
    queue = damage.two_files()
    damage.disk.remove(damage.message_path(queue, damage.state(queue).read_file))
    damage.restart()
    assert damage.head(queue) is not None
    assert (damage.bodies(queue), damage.store.files.lost_messages) == ([b"2", b"3"], 1)
    damage.is_at_work(queue)


def test_c08_the_write_file_is_missing_and_the_read_file_is_there(damage: Damage) -> None:
    """C08: goes on with the read file; two messages are lost."""
    queue = damage.two_files()
    damage.disk.remove(damage.message_path(queue, damage.state(queue).write_file))
    damage.restart()
    assert damage.head(queue) is not None
    assert (damage.bodies(queue), damage.store.files.lost_messages) == ([b"1"], 2)
    damage.is_at_work(queue)


def test_c09_both_files_are_missing(damage: Damage) -> None:
    """C09: goes on empty; three messages are lost, once."""
    queue = damage.two_files()
    for name in damage.message_files(queue):
        damage.disk.remove(f"{damage.folder(queue)}/{name}")
    damage.restart()
    assert damage.head(queue) is None
    assert (damage.bodies(queue), damage.store.files.lost_messages) == ([], 3)
    damage.is_at_work(queue)
    assert damage.store.files.lost_messages == 0, "not counted again after a restart"


def test_c09_the_whole_folder_is_missing(damage: Damage) -> None:
    """C09: as if both files were."""
    queue = damage.two_files()
    damage.disk.remove_folder(damage.folder(queue))
    damage.restart()
    assert damage.head(queue) is None
    assert damage.store.files.lost_messages == 3
    damage.is_at_work(queue)


def test_c09_a_queue_that_was_over_quota_opens_when_its_files_are_missing(damage: Damage) -> None:
    """C09: with its marker gone nobody could ever acknowledge it."""
    queue = damage.create()
    damage.send_all(queue, b"1", b"2", b"3")
    damage.send(queue, b"refused")
    damage.checkpoint()
    damage.disk.remove_folder(damage.folder(queue))
    damage.restart()
    assert damage.head(queue) is None
    damage.is_at_work(queue)


def test_c06_a_message_file_that_goes_while_the_node_runs_harms_one_queue() -> None:
    """C06, C18: the checkpoint goes on with the others."""
    damage = Damage()
    queue, other = damage.stored(b"1", b"2"), damage.stored(b"other")
    assert damage.bodies(queue) == [b"1", b"2"]
    damage.acknowledge_head(queue)
    damage.send_all(other, b"more")
    # Other queues have taken its handle in the meantime.
    damage.store.files.handles.close()
    damage.disk.remove(damage.message_path(queue, damage.state(queue).read_file))
    damage.checkpoint()
    damage.restart()
    assert damage.bodies(other) == [b"other", b"more"]


def test_c15_a_message_file_longer_than_its_state_is_cut(damage: Damage) -> None:
    """C15: both files are cut to the state."""
    queue = damage.two_files()
    state = damage.state(queue)
    paths = [damage.message_path(queue, name) for name in (state.read_file, state.write_file)]
    contents = [damage.read(path) for path in paths]
    for path, content in zip(paths, contents, strict=True):
        damage.overwrite(path, content + b"torn")
    damage.restart()
    assert damage.bodies(queue) == [b"1", b"2", b"3"]
    assert [damage.read(path) for path in paths] == contents
    damage.acknowledge_head(queue)
    damage.is_at_work(queue)


def test_c19_orphan_message_files_are_collected(damage: Damage) -> None:
    """C19: files that no state names, and what a crash left half written."""
    queue = damage.stored(b"1")
    folder = damage.folder(queue)
    before = damage.names(queue)
    damage.overwrite(f"{folder}/messages.AAAAAAAAAAAAAAAA.log", b"orphan")
    damage.overwrite(f"{folder}/messages.BBBBBBBBBBBBBBBB.log", b"")
    damage.overwrite(f"{folder}/queue.log.new", b"half")
    damage.restart()
    assert damage.bodies(queue) == [b"1"]
    assert damage.names(queue) == before
    damage.is_at_work(queue)


# --- queues set aside -----------------------------------------------------------------------------


def two_bad_lines(damage: Damage, queue: bytes) -> None:
    damage.overwrite(damage.state_path(queue), b"".join([b"bad\n", b"worse\n"]))


def two_bad_lines_behind_good_ones(damage: Damage, queue: bytes) -> None:
    text = damage.read(damage.state_path(queue))
    damage.overwrite(damage.state_path(queue), text + b"bad\nworse")


def broken_invariants(damage: Damage, queue: bytes) -> None:
    state = msgspec.structs.replace(damage.state(queue), read_msg=9)
    assert parse_line(state.line()) == state, "the line itself is whole"
    damage.overwrite(damage.state_path(queue), state.line().encode())


def short_message_file(damage: Damage, queue: bytes) -> None:
    path = damage.message_path(queue, damage.state(queue).write_file)
    damage.overwrite(path, damage.read(path)[:-1])


def wrong_check(damage: Damage, queue: bytes) -> None:
    path = damage.message_path(queue, damage.state(queue).write_file)
    content = bytearray(damage.read(path))
    content[-1] ^= 1
    damage.overwrite(path, bytes(content))


def wrong_length(damage: Damage, queue: bytes) -> None:
    path = damage.message_path(queue, damage.state(queue).write_file)
    content = bytearray(damage.read(path))
    content[8] = 0xFF
    damage.overwrite(path, bytes(content))


HARMS = [
    two_bad_lines,
    two_bad_lines_behind_good_ones,
    broken_invariants,
    short_message_file,
    wrong_check,
    wrong_length,
]


@pytest.mark.parametrize("harm", HARMS)
def test_c12_c13_a_damaged_queue_is_set_aside_with_its_files(
    damage: Damage, harm: Callable[[Damage, bytes], None]
) -> None:
    """C12 two bad lines, C13 broken invariants: files kept, seen by an operator, others serve."""
    bad, good = damage.stored(b"1", b"2"), damage.stored(b"fine")
    harm(damage, bad)
    before = {name: damage.read(f"{damage.folder(bad)}/{name}") for name in damage.names(bad)}
    damage.restart()
    damage.send_all(bad, b"promised")
    assert damage.head(bad) is None
    assert damage.queue(bad).damaged
    assert damage.store.files.quarantined == 1
    aside = f"quarantine/{text_of(bad)}"
    for name, content in before.items():
        assert damage.read(f"{aside}/{name}") == content
    assert damage.read(f"{aside}/why.txt").strip(), "it says why"
    assert b"promised" in damage.read(f"{aside}/pending.log")
    assert not damage.disk.exists(damage.folder(bad))
    # Every other queue serves, and the damage is known after a restart.
    for _ in range(2):
        assert damage.bodies(good) == [b"fine"]
        damage.checkpoint()
        damage.restart("all")
        assert damage.queue(bad).damaged
        assert damage.head(bad) is None
    damage.is_at_work(good)


def test_c12_a_damaged_queue_can_be_deleted(damage: Damage) -> None:
    """C12: then nothing of it is left."""
    queue = damage.stored(b"1")
    two_bad_lines(damage, queue)
    damage.restart()
    damage.head(queue)
    damage.checkpoint()
    damage.store.delete(damage.queue(queue))
    damage.store.commit()
    damage.checkpoint()
    damage.restart()
    assert damage.store.find(queue) is None
    assert damage.disk.list_folder("quarantine") == []
    assert len(damage.store) == 0


def test_c12_damage_found_by_a_checkpoint_keeps_what_was_promised(damage: Damage) -> None:
    """C12: found when changes are to be flushed, not when somebody reads."""
    queue = damage.stored(b"1")
    two_bad_lines(damage, queue)
    damage.restart()
    damage.send_all(queue, b"promised")
    damage.checkpoint()
    assert damage.queue(queue).damaged
    assert b"promised" in damage.read(f"quarantine/{text_of(queue)}/pending.log")
    assert damage.store.log.size_bytes == 0


def test_c12_killed_after_a_queue_was_set_aside_keeps_what_is_promised_then() -> None:
    """C12: the index did not learn of the damage, so sends are taken once more."""
    damage = Damage()
    queue = damage.stored(b"1")
    two_bad_lines(damage, queue)
    damage.restart()
    damage.head(queue)
    damage.restart("none")
    assert damage.send(queue, b"promised"), "nothing is known of the damage yet"
    damage.checkpoint()
    assert damage.queue(queue).damaged
    assert isinstance(damage.disk, MemoryDisk)
    assert [path for path, data in damage.disk.files().items() if b"promised" in data]


def test_c12_a_power_cut_after_a_queue_was_set_aside_loses_no_file() -> None:
    """C12: its files are kept, here or there."""
    damage = Damage()
    queue = damage.stored(b"the only copy")
    two_bad_lines(damage, queue)
    damage.restart()
    damage.head(queue)
    damage.restart("all")
    assert isinstance(damage.disk, MemoryDisk)
    assert [path for path, data in damage.disk.files().items() if b"the only copy" in data]


@pytest.mark.parametrize("harm", HARMS)
def test_c18_one_bad_queue_never_stops_the_start(
    damage: Damage, harm: Callable[[Damage, bytes], None]
) -> None:
    """C18: with the index, and without it, when every folder is visited."""
    bad, good = damage.stored(b"1", b"2"), damage.stored(b"fine")
    harm(damage, bad)
    damage.restart()
    assert damage.bodies(good) == [b"fine"]
    damage.overwrite("index", b"no index")
    damage.restart()
    assert damage.bodies(good) == [b"fine"]
    damage.head(bad)
    assert damage.queue(bad).damaged
    damage.checkpoint()
    damage.is_at_work(good)


@pytest.mark.parametrize("index", [None, b"", b"garbage" * 100], ids=["none", "empty", "garbage"])
def test_c18_a_lost_index_is_rebuilt_from_the_folders_and_the_log(
    damage: Damage, index: bytes | None
) -> None:
    """C18: messages in files and in the log are all there."""
    stored, over_quota = damage.two_files(), damage.create()
    damage.send_all(over_quota, b"1", b"2", b"3")
    damage.send(over_quota, b"refused")
    damage.checkpoint()
    damage.acknowledge_head(stored)
    damage.send_all(stored, b"4")
    if index is None:
        damage.disk.remove("index")
    else:
        damage.overwrite("index", index)
    damage.restart()
    assert damage.bodies(stored) == [b"2", b"3", b"4"]
    assert damage.send(over_quota, b"refused") == 0
    assert [entry.kind for entry in damage.entries(over_quota)] == [0, 0, 0, QUOTA_MARKER]
    assert len(damage.store) == 2
    damage.acknowledge_head(stored)
    damage.is_at_work(stored)


# --- C17 ------------------------------------------------------------------------------------------


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
        work = checkpoint.steps(damage.store, damage.clock.wall_ms, lambda: 0)
        sync_all = next(work)
        assert sync_all is not None
        sync_all()
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


# --- bounds ---------------------------------------------------------------------------------------


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
    assert (SMALL.queue_messages_max, SMALL.file_messages_max) == (QUOTA, FILE_MESSAGES) == (3, 4)
