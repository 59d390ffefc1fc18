"""`moor journal check`: what is wrong is found and named, and a repair saves what can be read."""

import random
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from tests.journal.queues.stores import (
    NOW_MS,
    OPTIONS,
    Contents,
    acknowledge,
    contents,
    filled,
    flip,
    folder_of,
    killed_checkpoints,
    message_file,
    now,
    opened,
    tree,
    unseen,
)

from moorline.core.access.owner import owner_of
from moorline.core.queue.journal import parse_line
from moorline.core.queue.queue import QUOTA_MARKER, Entry
from moorline.errors import ConfigError, LogDamaged
from moorline.ids import text_of
from moorline.journal.disk import FileDisk
from moorline.journal.queues import checkpoint
from moorline.journal.queues.check import check, repair
from moorline.journal.queues.folder import path_of
from moorline.journal.queues.folder_scan import records_in
from moorline.journal.queues.manifest import write_manifest
from moorline.journal.queues.record import HEADER_BYTES, encode, seed_of
from moorline.journal.queues.report import Problem, Report
from moorline.testing import Crashed, MemoryDisk
from moorline.testing.memory_disk import Lose

RECORD_BYTES = HEADER_BYTES + 8 * 9
"""Of one message of `filled` that is in a file."""


class Case:
    """A store on a real disk, what it should hold, and the queue that is to suffer."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.disk = FileDisk(root)
        self.ids = filled(self.disk)
        self.victim = self.ids[1]
        self.before = contents(self.disk)
        self.folder = folder_of(root, self.victim)

    def check(self) -> Report:
        """A check that is proven to change nothing."""
        before = tree(self.root)
        report = check(self.disk, OPTIONS, now, unseen)
        assert tree(self.root) == before
        assert self.disk.open_handles == 0
        return report

    def repair(self) -> Contents:
        report = repair(self.disk, OPTIONS, now, unseen)
        assert self.disk.open_handles == 0
        assert report.problems
        assert self.check().problems == []
        return contents(self.disk)

    @property
    def others(self) -> Contents:
        return {key: value for key, value in self.before.items() if key != self.victim}

    def without(self, *places: int) -> Contents:
        """As before, but for those messages of the victim."""
        kept = [m for place, m in enumerate(self.before[self.victim]) if place not in places]
        return {**self.before, self.victim: kept}


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return Case(tmp_path / "queues")


def only(report: Report) -> Problem:
    assert len(report.problems) == 1, report.problems
    return report.problems[0]


def test_a_good_store_is_clean_and_counted(case: Case) -> None:
    report = case.check()
    assert report == Report(queues=4, messages=4 * 5)
    assert repair(case.disk, OPTIONS, now, unseen) == report
    assert contents(case.disk) == case.before


def test_an_empty_folder_is_clean(tmp_path: Path) -> None:
    assert check(FileDisk(tmp_path / "none"), OPTIONS, now, unseen) == Report()
    assert tree(tmp_path / "none") == {}


def test_progress_hears_of_every_queue(case: Case) -> None:
    heard: list[tuple[int, int]] = []
    check(case.disk, OPTIONS, now, lambda done, total: heard.append((done, total)))
    assert heard == [(1, 4), (2, 4), (3, 4), (4, 4)]


# --- states ---------------------------------------------------------------------------------------


def torn_state(case: Case) -> None:
    with (case.folder / "queue.log").open("ab") as file:
        file.write(b"read_file=abc read_m")


def longer_file(case: Case) -> None:
    with message_file(case.folder).open("ab") as file:
        file.write(b"half a rec")


def orphan_file(case: Case) -> None:
    (case.folder / "messages.forgotten.log").write_bytes(b"")


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (torn_state, "torn"),
        (longer_file, "10 bytes longer than its state"),
        (orphan_file, "collected the orphan messages.forgotten.log"),
    ],
)
def test_what_a_crash_leaves_is_found_and_costs_nothing(
    case: Case, damage: Callable[[Case], None], text: str
) -> None:
    damage(case)
    problem = only(case.check())
    assert problem.queue == text_of(case.victim)
    assert problem.kind == "state"
    assert text in problem.text
    assert problem.is_mended_by_a_start
    assert case.repair() == case.before


def test_a_missing_file_is_a_counted_loss(case: Case) -> None:
    message_file(case.folder).unlink()
    report = case.check()
    assert {problem.kind for problem in report.problems} == {"missing"}
    assert report.lost == 4
    assert case.repair() == case.without(0, 1, 2, 3)


def test_a_missing_folder_is_a_counted_loss(case: Case) -> None:
    for file in case.folder.iterdir():
        file.unlink()
    case.folder.rmdir()
    report = case.check()
    assert report.lost == 4
    assert case.repair() == case.without(0, 1, 2, 3)


# --- damage and quarantine ------------------------------------------------------------------------


def test_a_bad_record_costs_one_message(case: Case) -> None:
    """Records 0 and 1 are acknowledged; 3 is the second of those that wait."""
    flip(message_file(case.folder), 3 * RECORD_BYTES + HEADER_BYTES + 5)
    report = case.check()
    problem = only(report)
    assert (problem.kind, problem.lost, report.saved) == ("record", 1, 4)
    assert "the check is wrong" in problem.text
    assert case.repair() == case.without(1)
    kept = list((case.root / "quarantine").iterdir())
    assert [path.name for path in kept] == [f"{text_of(case.victim)}.repaired-{NOW_MS:014}"]
    assert message_file(kept[0]).stat().st_size == 6 * RECORD_BYTES


def test_a_bad_length_costs_one_message(case: Case) -> None:
    flip(message_file(case.folder), 3 * RECORD_BYTES + 9)
    assert case.repair() == case.without(1)


@pytest.mark.parametrize("text", [b"bad\nbad\n", b"bad"])
def test_bad_lines_cost_nothing(case: Case, text: bytes) -> None:
    """C01, C12: what was acknowledged before does not come back either."""
    with (case.folder / "queue.log").open("ab") as file:
        file.write(text)
    assert only(case.check()).lost == 0
    assert case.repair() == case.before


@pytest.mark.parametrize("text", [b"", b"read_file=abc read_m", b"bad\nbad\n", b"\0" * 150])
def test_the_only_line_torn_is_mended_for_good(case: Case, text: bytes) -> None:
    """C02, C03, C12: `repair` checks again, and nothing is left; the index counts what was acknowledged."""
    (case.folder / "queue.log").write_bytes(text)
    report = case.check()
    assert (report.lost, report.doubled) == (0, 0)
    assert {problem.kind for problem in report.problems} == {"state"}
    assert case.repair() == case.before


def test_a_state_that_cannot_be_costs_nothing(case: Case) -> None:
    """C13: the index counts what waits, and the records are whole."""
    state = parse_line(
        (case.folder / "queue.log").read_text().splitlines()[-1], seed_of(case.victim)
    )
    assert state is not None
    wrong = msgspec.structs.replace(state, read_msg=99)
    (case.folder / "queue.log").write_text(wrong.line(seed_of(case.victim)))
    assert "cannot be" in case.check().problems[0].text
    assert case.repair() == case.before


@pytest.mark.parametrize("has_state", [True, False])
def test_a_lost_message_is_counted_beside_one_that_was_pending(case: Case, has_state: bool) -> None:
    """The node set the queue aside while a send was in the log; that one is saved, and hides no loss."""
    flip(message_file(case.folder), 3 * RECORD_BYTES + HEADER_BYTES + 5)
    if not has_state:
        (case.folder / "queue.log").write_bytes(b"torn")
    store = opened(case.disk)
    queue = store.find(case.victim)
    assert queue is not None
    while not queue.damaged:
        store.peek(queue, 3)
    checkpoint.run(store, now)
    store.close()
    report = case.check()
    # Also without a state nothing acknowledged stands in for it: the row knows how far that went.
    assert (only(report).lost, report.lost, report.saved) == (1, 1, 4)
    assert case.repair()[case.victim] == case.without(1)[case.victim]


def test_a_queue_that_a_node_has_set_aside_is_repaired(case: Case) -> None:
    flip(message_file(case.folder), 2 * RECORD_BYTES + HEADER_BYTES)
    store = opened(case.disk)
    queue = store.find(case.victim)
    assert queue is not None
    assert store.head(queue) is None
    assert queue.damaged
    checkpoint.run(store, now)
    store.close()
    problem = only(case.check())
    assert problem.kind == "quarantine"
    assert "set aside: messages." in problem.text
    assert case.repair() == case.without(0)
    store = opened(case.disk)
    queue = store.find(case.victim)
    assert queue is not None
    assert store.send(queue, b"it takes messages again", NOW_MS) > max(
        lsn for messages in case.before.values() for lsn, _, _ in messages
    )
    store.close()


def test_a_quota_marker_is_saved_and_holds_senders_off(case: Case) -> None:
    store = opened(case.disk)
    queue = store.find(case.victim)
    assert queue is not None
    while store.send(queue, b"more", NOW_MS):
        pass
    checkpoint.run(store, now)
    store.close()
    with (case.folder / "queue.log").open("ab") as file:
        file.write(b"bad\nbad\n")
    assert case.repair()[case.victim][-1][1] == QUOTA_MARKER
    store = opened(case.disk)
    queue = store.find(case.victim)
    assert queue is not None
    assert store.send(queue, b"refused", NOW_MS) == 0
    store.close()


def test_records_are_found_between_rubbish() -> None:
    chance = random.Random(7)
    entries = [Entry(n, NOW_MS, 0, chance.randbytes(chance.randrange(200))) for n in range(1, 50)]
    data = b"".join(chance.randbytes(chance.randrange(99)) + encode(entry, 7) for entry in entries)
    assert [entry for _, entry in records_in(data, 7)] == entries
    assert list(records_in(chance.randbytes(10_000), 7)) == []


# --- the whole store ------------------------------------------------------------------------------


def test_an_orphan_folder_is_kept(case: Case) -> None:
    orphan = folder_of(case.root, bytes(24))
    orphan.mkdir(parents=True)
    (orphan / "messages.x.log").write_bytes(encode(Entry(3, NOW_MS, 0, b"of a deleted queue"), 0))
    problem = only(case.check())
    assert problem.kind == "orphan"
    assert "it holds 1 messages" in problem.text
    assert case.repair() == case.before
    assert not orphan.exists()
    assert [path.read_bytes() for path in (case.root / "quarantine").rglob("messages.x.log")]
    assert [path for path in case.check().kept if "kept-" in path]


def test_an_orphan_folder_without_a_message_is_removed(case: Case) -> None:
    orphan = folder_of(case.root, bytes(24))
    orphan.mkdir(parents=True)
    (orphan / "messages.x.log").write_bytes(b"torn")
    assert "it holds no message and is removed" in only(case.check()).text
    assert case.repair() == case.before
    assert not orphan.exists()
    assert case.check().kept == []


def test_strays_are_set_aside(case: Case) -> None:
    (case.root / "messages" / "notes.txt").write_text("mine")
    (case.root / "messages" / "zz" / "yy" / "short").mkdir(parents=True)
    assert [problem.kind for problem in case.check().problems] == ["stray", "stray"]
    assert case.repair() == case.before
    kept = list((case.root / "quarantine").rglob("*-notes.txt"))
    assert [path.read_text() for path in kept] == ["mine"]


@pytest.mark.parametrize("damage", ["flipped", "gone", "gone with the log"])
def test_a_lost_index_is_rebuilt(case: Case, damage: str) -> None:
    index = case.root / "index"
    if damage == "flipped":
        flip(index, 40)
    else:
        index.unlink()
    before = case.before
    if damage == "gone with the log":
        for segment in (case.root / "wal").iterdir():
            segment.unlink()
        before = {key: value[:4] for key, value in before.items()}
    assert only(case.check()).kind == "index"
    assert case.repair() == before


def last_segment(root: Path) -> Path:
    return max((root / "wal").iterdir())


def test_a_torn_end_of_the_log_is_cut(case: Case) -> None:
    size = last_segment(case.root).stat().st_size
    with last_segment(case.root).open("ab") as file:
        file.write(b"MWAL torn")
    problem = only(case.check())
    assert problem.is_mended_by_a_start
    assert f"at byte {size}: 9 bytes" in problem.text
    assert case.repair() == case.before


def test_a_damaged_log_loses_what_is_damaged_and_nothing_behind_it(case: Case) -> None:
    store = opened(case.disk)
    place = last_segment(case.root).stat().st_size
    for text in (b"lost", b"behind the damage"):
        queue = store.find(case.victim)
        assert queue is not None
        store.send(queue, text, NOW_MS)
        store.commit()
    store.close()
    segment = last_segment(case.root)
    flip(segment, place + 60)
    problem = only(case.check())
    assert problem.kind == "log"
    assert f"wal/{segment.name} is damaged at byte {place}" in problem.text
    damaged = segment.read_bytes()
    after = case.repair()
    assert after[case.victim][-1][2] == b"behind the damage"
    assert {**after, case.victim: after[case.victim][:-1]} == case.before
    assert [path.read_bytes() for path in (case.root / "quarantine").rglob("*.wal")] == [damaged]


def test_acknowledgements_behind_a_gap_take_no_other_message_along(tmp_path: Path) -> None:
    """Two segments, as a kill during a checkpoint leaves them; the first is damaged."""
    root = tmp_path / "queues"
    disk = FileDisk(root)
    store = opened(disk)
    queue = store.create(b"")
    store.send(queue, b"acknowledged", NOW_MS)
    store.commit()
    first = last_segment(root)
    size = first.stat().st_size
    lost = store.send(queue, b"lost", NOW_MS)
    store.commit()
    store.send(queue, b"whole, but behind the damage", NOW_MS)
    store.commit()
    store.log.begin_segment(store.next_lsn)
    acknowledge(store, queue, 1)
    last = store.send(queue, b"of the second segment", NOW_MS)
    acknowledge(store, queue, 1)
    store.commit()
    store.close()
    flip(first, size + 60)
    assert last_segment(root) != first
    report = repair(disk, OPTIONS, now, unseen)
    assert only(report).kind == "log"
    (after,) = contents(disk).values()
    bodies = [body for _, _, body in after]
    assert bodies == [b"whole, but behind the damage", b"of the second segment"]
    store = opened(disk)
    assert store.next_lsn > last > lost
    store.close()


def log_of(root: Path, *texts: bytes, is_closed: bool = False) -> tuple[FileDisk, bytes, list[int]]:
    """A queue of eve's, made and sent to in a batch each; and where the batches end."""
    disk = FileDisk(root)
    store = opened(disk)
    queue = store.create(owner_of("eve"))
    store.commit()
    ends = [last_segment(root).stat().st_size]
    if is_closed:
        store.close_to_strangers(queue, closed=True)
    for text in texts:
        store.send(queue, text, NOW_MS)
        store.commit()
        ends.append(last_segment(root).stat().st_size)
    store.close()
    return disk, queue.id, ends


@pytest.mark.parametrize("is_closed", [False, True])
def test_a_queue_whose_making_is_lost_is_nobodys_and_is_named(
    tmp_path: Path, is_closed: bool
) -> None:
    disk, queue_id, _ = log_of(tmp_path, b"one", b"two", is_closed=is_closed)
    flip(last_segment(tmp_path), 70)
    found = repair(disk, OPTIONS, now, unseen)
    damage, owner = found.problems
    assert (damage.kind, damage.lost_changes) == ("log", 1)
    assert (owner.kind, owner.queue, owner.is_harmless) == ("owner", text_of(queue_id), False)
    assert f"moor grant add /queues/{text_of(queue_id)} NAME" in owner.text
    store = opened(disk)
    queue = store.find(queue_id)
    assert queue is not None
    assert store.owners[queue.owner] == b"", "nobody's"
    assert queue.closed == is_closed, "what is still in the log holds"
    assert queue.size == 2
    store.close()
    assert check(disk, OPTIONS, now, unseen).problems == []


def test_a_queue_whose_making_is_lost_and_that_was_deleted_is_not_named(tmp_path: Path) -> None:
    disk, queue_id, _ = log_of(tmp_path, b"one")
    store = opened(disk)
    queue = store.find(queue_id)
    assert queue is not None
    store.delete(queue)
    store.commit()
    store.close()
    flip(tmp_path / "wal" / f"{1:020}.wal", 70)
    assert only(check(disk, OPTIONS, now, unseen)).kind == "log"


def test_changes_that_are_lost_in_the_middle_of_the_log_are_counted(tmp_path: Path) -> None:
    disk, _, ends = log_of(tmp_path, b"one", b"two", b"three", b"four")
    for end in ends[1:3]:
        flip(last_segment(tmp_path), end + 60)
    problem = only(check(disk, OPTIONS, now, unseen))
    assert (problem.lost, problem.lost_changes) == (0, 2)
    assert "up to 2 changes are lost" in problem.text


def test_changes_that_are_lost_at_the_end_of_the_log_are_counted_and_not_numbered_again(
    tmp_path: Path,
) -> None:
    disk, queue_id, ends = log_of(tmp_path, b"one", b"two")
    flip(last_segment(tmp_path), ends[1] + 60)
    with pytest.raises(LogDamaged):
        opened(disk)
    report = repair(disk, OPTIONS, now, unseen)
    assert (only(report).lost_changes, only(report).is_harmless) == (1, False)
    assert [body for _, _, body in contents(disk)[queue_id]] == [b"one"]
    store = opened(disk)
    assert store.next_lsn > 3, "somebody may have been told that number"
    store.close()
    assert check(disk, OPTIONS, now, unseen).problems == []


def test_several_bad_batches_at_the_end_are_bounded_by_their_bytes(tmp_path: Path) -> None:
    disk, _, ends = log_of(tmp_path, b"one", b"two", b"three")
    for end in ends[1:3]:
        flip(last_segment(tmp_path), end + 60)
    assert 2 <= only(check(disk, OPTIONS, now, unseen)).lost_changes <= 4


def test_damage_to_what_a_checkpoint_has_saved_loses_nothing(tmp_path: Path) -> None:
    """The log outlives the index that has its changes, if a kill comes before it is dropped."""
    disk, _, _ = log_of(tmp_path, b"one", b"two")
    segment = last_segment(tmp_path)
    data = segment.read_bytes()
    store = opened(disk)
    checkpoint.run(store, now)
    store.close()
    segment.write_bytes(data)
    flip(segment, 70)
    assert only(check(disk, OPTIONS, now, unseen)).lost_changes == 0


def test_a_file_of_the_log_that_is_gone_between_others_is_told(tmp_path: Path) -> None:
    """A start refuses that: a check may not say that nothing is wrong."""
    disk, queue_id, _ = log_of(tmp_path, b"one")
    for text in (b"two", b"three"):
        store = opened(disk)
        queue = store.find(queue_id)
        assert queue is not None
        store.send(queue, text, NOW_MS)
        store.commit()
        store.close()
    (tmp_path / "wal" / f"{3:020}.wal").unlink()
    with pytest.raises(LogDamaged):
        opened(disk)
    problem = only(repair(disk, OPTIONS, now, unseen))
    assert (problem.kind, problem.lost_changes) == ("log", 1)
    assert [body for _, _, body in contents(disk)[queue_id]] == [b"one", b"three"]


def test_a_store_that_is_being_moved_is_left_alone(case: Case) -> None:
    (case.root / "layout.json").write_text('{"levels":2,"moving_to":3}')
    with pytest.raises(ConfigError, match="migrate --levels 3"):
        case.check()


@pytest.mark.parametrize(
    "text", ["", '{"levels":2,"moving_to":nu', '{"levels":6,"moving_to":null}']
)
def test_a_damaged_layout_is_written_anew(case: Case, text: str) -> None:
    """The folders themselves show how deep they lie, whatever the settings say."""
    (case.root / "layout.json").write_text(text)
    assert only(case.check()).kind == "layout"
    assert case.repair() == case.before
    assert (case.root / "layout.json").read_text() == '{"levels":2,"moving_to":null}'


def test_a_lost_layout_is_no_leave_to_look_elsewhere(case: Case) -> None:
    (case.root / "layout.json").unlink()
    other = msgspec.structs.replace(OPTIONS, levels=4)
    with pytest.raises(ConfigError, match="the store has 2"):
        opened(case.disk, other)
    assert only(check(case.disk, other, now, unseen)).kind == "layout"
    repair(case.disk, other, now, unseen)
    assert contents(case.disk) == case.before


# --- killed while it repairs ----------------------------------------------------------------------


def test_a_repair_that_is_killed_is_done_again() -> None:
    """At every step: afterwards every message is there that one bad record did not take."""
    step = 0
    while True:
        disk = MemoryDisk()
        victim = filled(disk, queues=2)[0]
        before = contents(disk)
        _damage(disk, victim)
        disk.crash_at = disk.steps + step
        try:
            repair(disk, OPTIONS, now, unseen)
            break
        except Crashed:
            disk.crash(random.Random(step), "all" if step % 2 else "some")
        repair(disk, OPTIONS, now, unseen)
        assert check(disk, OPTIONS, now, unseen).problems == []
        after = contents(disk)
        assert {**after, victim: before[victim]} == before, step
        assert after[victim] == before[victim][1:], step
        step += 1
    assert step > 20


def _damage(disk: MemoryDisk, queue_id: bytes) -> None:
    """A bad byte in the first record that waits."""
    folder = path_of(queue_id, OPTIONS.levels)
    (path,) = (path for path in disk.files() if path.startswith(f"{folder}/messages."))
    data = bytearray(disk.files()[path])
    data[2 * RECORD_BYTES + HEADER_BYTES] ^= 1
    disk.write_whole(path, bytes(data))


# --- what is missing altogether -------------------------------------------------------------------


def test_changes_that_only_the_manifest_knows_of_are_told_once(case: Case) -> None:
    """The log is gone: a check that says that nothing is wrong would be a lie."""
    store = opened(case.disk)
    behind = store.next_lsn
    store.close()
    write_manifest(case.disk, "the node", behind)
    for path in (case.root / "wal").iterdir():
        path.unlink()
    problem = only(case.check())
    assert (problem.kind, problem.is_mended_by_a_start) == ("log", False)
    assert f"to {behind - 1} are in no file" in problem.text
    case.repair()
    store = opened(case.disk)
    assert store.next_lsn >= behind, "no number is given twice"
    store.close()


def test_a_log_that_is_gone_together_with_the_index_is_told(case: Case) -> None:
    write_manifest(case.disk, "the node", 1)
    for path in (*(case.root / "wal").iterdir(), case.root / "index"):
        path.unlink()
    assert [problem.kind for problem in case.check().problems if not problem.queue] == [
        "index",
        "log",
    ]
    case.repair()


def test_a_file_that_is_gone_together_with_the_index_is_counted(case: Case) -> None:
    """The last state still counts its messages."""
    store = opened(case.disk)
    checkpoint.run(store, now)
    store.close()
    message_file(case.folder).unlink()
    (case.root / "index").unlink()
    report = case.check()
    assert [(one.kind, one.lost) for one in report.problems if one.queue] == [
        ("missing", 0),
        ("missing", 5),
    ]
    assert report.lost == 5
    assert case.repair() == {**case.before, case.victim: []}


def test_a_record_that_is_bad_together_with_the_index_is_counted(case: Case) -> None:
    store = opened(case.disk)
    checkpoint.run(store, now)
    store.close()
    flip(message_file(case.folder), 3 * RECORD_BYTES + HEADER_BYTES)
    (case.root / "index").unlink()
    report = case.check()
    assert (report.lost, report.saved) == (1, 4)
    assert case.repair() == case.without(1)


def test_what_cannot_be_known_is_not_told_as_nothing(case: Case) -> None:
    """Neither a row nor a state counts the messages."""
    store = opened(case.disk)
    checkpoint.run(store, now)
    store.close()
    flip(message_file(case.folder), 3 * RECORD_BYTES + HEADER_BYTES)
    (case.folder / "queue.log").write_bytes(b"torn")
    (case.root / "index").unlink()
    (problem,) = (one for one in case.check().problems if one.queue)
    assert "how many are lost is not known" in problem.text


@pytest.mark.parametrize("lose", ["none", "some", "all"])
def test_a_crash_at_any_step_of_a_checkpoint_leaves_nothing_that_is_called_damage(
    lose: Lose,
) -> None:
    checked = 0
    for disk, count in killed_checkpoints(lose):
        report = check(disk, OPTIONS, now, unseen)
        assert [one for one in report.problems if not one.is_harmless] == []
        assert (report.messages, report.lost, report.doubled) == (count, 0, 0)
        checked += 1
    assert checked > 20, "steps of a checkpoint"


def test_what_may_have_cost_something_is_not_harmless() -> None:
    assert Problem("state", "longer", is_mended_by_a_start=True).is_harmless
    assert Problem("log", "torn", is_mended_by_a_start=True).is_harmless
    for kind in ("index", "manifest", "doubled"):
        assert not Problem(kind, "", is_mended_by_a_start=True).is_harmless
    assert not Problem("log", "damaged").is_harmless
    assert not Problem("state", "", lost=1, is_mended_by_a_start=True).is_harmless
