"""The files of one queue: which are there, and that every effect keeps the state true."""

import string

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.drawing import examples

from moorline.core.queue.journal import (
    Acknowledge,
    Add,
    AppendRecord,
    AppendState,
    Clean,
    CopyState,
    Files,
    MakeFolder,
    QueueJournal,
    QueueState,
    RemoveFile,
    RetireState,
    parse_line,
)
from moorline.errors import MachineError

FILE_MESSAGES = 4

SEED = 1_234
ONE = QueueState("a", 2, 20, "a", 5, 5, 50, 50, True, 9)
TWO = QueueState("a", 2, 20, "b", 3, 5, 50, 30, False, 9)


def journal(stored: QueueState | None = None) -> QueueJournal:
    return QueueJournal("q", stored, file_messages_max=FILE_MESSAGES)


def test_the_first_message_makes_the_folder_and_one_file() -> None:
    machine = journal()
    effects = machine.handle(Add(10, "a", 1), 0)
    state = QueueState("a", 0, 0, "a", 1, 1, 10, 10, True, 1)
    assert effects == [MakeFolder(), AppendRecord("a", 10), AppendState(state)]
    assert machine.state is Files.ONE_FILE


def test_j05_rotation_leaves_the_old_file_when_it_is_read_out() -> None:
    """J05: the state that no longer names the file comes before its removal."""
    machine = journal()
    for lsn in range(1, 5):
        machine.handle(Add(10, "a", lsn), 0)
    rotated = QueueState("a", 0, 0, "b", 1, 4, 40, 10, True, 5)
    effects = machine.handle(Add(10, "b", 5), 0)
    assert effects == [AppendRecord("b", 10), AppendState(rotated), CopyState()]
    states = [machine.state]
    for lsn in range(6, 9):
        assert len(machine.handle(Acknowledge(10, lsn), 0)) == 1
    switched = QueueState("b", 0, 0, "b", 1, 1, 10, 10, True, 9)
    assert machine.handle(Acknowledge(10, 9), 0) == [AppendState(switched), RemoveFile("a")]
    states.append(machine.state)
    assert states == [Files.TWO_FILES, Files.ONE_FILE]


def test_rotation_of_a_file_that_is_read_out_leaves_it_at_once() -> None:
    machine = journal(QueueState("a", 4, 40, "a", 4, 4, 40, 40, True, 8))
    state = QueueState("b", 0, 0, "b", 1, 1, 7, 7, True, 9)
    effects = machine.handle(Add(7, "b", 9), 0)
    assert effects == [AppendRecord("b", 7), AppendState(state), CopyState(), RemoveFile("a")]


def test_j06_never_a_third_file_however_much_is_written() -> None:
    """J06: while the read file is unread the second one grows beyond its bound."""
    machine = journal()
    for lsn in range(1, 50):
        machine.handle(Add(10, f"f{lsn}", lsn), 0)
    assert machine.stored is not None
    assert (machine.stored.read_file, machine.stored.write_file) == ("f1", "f5")
    assert (machine.stored.write_msg, machine.size) == (45, 49)


def test_cleaning_an_empty_queue_retires_its_state_and_then_its_file() -> None:
    machine = journal(QueueState("a", 1, 9, "a", 1, 1, 9, 9, True, 3))
    assert machine.handle(Clean(), 0) == [RetireState(), RemoveFile("a")]
    assert machine.state is Files.ABSENT
    assert machine.handle(Clean(), 0) == []


@pytest.mark.parametrize(
    "event", [Acknowledge(10, 9), Clean(), Add(10, "b", 8)], ids=["empty", "not empty", "backwards"]
)
def test_what_must_never_be_is_told_with_its_story(event: Acknowledge | Clean | Add) -> None:
    empty = QueueState("a", 1, 9, "a", 1, 1, 9, 9, True, 9)
    machine = journal(empty if isinstance(event, Acknowledge) else ONE)
    with pytest.raises(MachineError, match="story of q"):
        machine.handle(event, 0)


# --- the state line -------------------------------------------------------------------------------


def test_the_line_is_the_one_of_the_specification() -> None:
    assert ONE.line(SEED).startswith(
        "read_file=a read_msg=2 read_byte=20 write_file=a write_msg=5 "
    )
    assert ONE.line(SEED).endswith("\n")
    assert parse_line(ONE.line(SEED), SEED) == ONE
    assert parse_line(TWO.line(SEED), SEED) == TWO
    assert parse_line(TWO.line(SEED), SEED + 1) is None, "it is another queue's"


def test_c01_no_cut_of_a_line_is_taken_for_a_line() -> None:
    """C01: a line that ends inside a number would else be a state with another number."""
    line = TWO.line(SEED).rstrip("\n")
    assert [parse_line(line[:end], SEED) for end in range(len(line))] == [None] * len(line)


@given(place=st.integers(0, len(TWO.line(SEED)) - 2), other=st.sampled_from(string.printable))
def test_no_altered_line_is_taken_for_a_line(place: int, other: str) -> None:
    line = TWO.line(SEED)
    altered = line[:place] + other + line[place + 1 :]
    assert (parse_line(altered, SEED) is None) == (altered.rstrip("\n") != line.rstrip("\n"))


@pytest.mark.parametrize("text", ["", "\n", "check=", "read_file=a check=00", "\x00" * 200])
def test_what_is_not_ours_is_no_state(text: str) -> None:
    assert parse_line(text, SEED) is None


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"read_msg": 6, "read_byte": 50}, "more messages"),
        ({"read_msg": -1}, "more messages"),
        ({"read_byte": 51}, "more bytes"),
        ({"read_byte": 50}, "end together"),
        ({"read_msg": 5}, "end together"),
        ({"write_msg": 6}, "two lengths"),
        ({"write_byte": 51}, "two lengths"),
        ({"write_file": "b", "read_msg": 5, "read_byte": 50}, "should be left"),
    ],
)
def test_c13_a_state_that_breaks_its_invariants_says_which(
    change: dict[str, int], says: str
) -> None:
    """C13: a state that breaks its invariants."""
    assert ONE.problem() == TWO.problem() == ""
    assert says in msgspec.structs.replace(ONE, **change).problem()


# --- against plain lists --------------------------------------------------------------------------


class JournalOfLists(RuleBasedStateMachine):
    """Files are a dict of lists; the queue is one list. Effects are done as they are said."""

    def __init__(self) -> None:
        super().__init__()
        self.files: dict[str, list[int]] = {}
        self.last_line: str | None = None
        self.lines = 0
        self.waiting: list[int] = []
        self.lsn = 0
        self.can_write = True
        self.machine = journal()

    @rule(size=st.integers(1, 500), can_write=st.booleans())
    def add(self, size: int, can_write: bool) -> None:
        self.lsn += 1
        self.waiting.append(size)
        self.can_write = can_write
        self.perform(Add(size, f"file{self.lsn}", self.lsn, can_write))

    @precondition(lambda self: self.waiting)
    @rule()
    def acknowledge(self) -> None:
        self.lsn += 1
        self.perform(Acknowledge(self.waiting.pop(0), self.lsn))

    @precondition(lambda self: not self.waiting)
    @rule()
    def clean(self) -> None:
        self.perform(Clean())
        assert self.files == {}

    @rule()
    def reload(self) -> None:
        """All that a restart has is the last line."""
        stored = parse_line(self.last_line, SEED) if self.last_line else None
        assert (stored is None) == (self.last_line is None)
        self.machine = journal(stored)

    def perform(self, event: Add | Acknowledge | Clean) -> None:
        appended = 0
        effects = self.machine.handle(event, 0)
        self.machine.check()
        for effect in effects:
            match effect:
                case MakeFolder():
                    assert self.files == {}
                case AppendRecord(file, size):
                    self.files.setdefault(file, []).append(size)
                case AppendState(state):
                    self.last_line = state.line(SEED)
                    appended += 1
                case CopyState():
                    assert self.last_line is not None, "the state that is kept is there"
                case RetireState():
                    self.last_line = None
                case RemoveFile(file):
                    # The last line, which is there before the removal, needs it no more.
                    state_now = parse_line(self.last_line, SEED) if self.last_line else None
                    if state_now is not None:
                        assert file not in {state_now.read_file, state_now.write_file}
                    del self.files[file]
                case _:
                    raise AssertionError(f"no effect of a journal: {effect}")
        assert appended == (0 if isinstance(event, Clean) else 1)

    @invariant()
    def never_a_third_file_and_never_one_too_many(self) -> None:
        state = self.machine.stored
        needed = {state.read_file, state.write_file} if state else set()
        assert set(self.files) == needed
        assert len(self.files) <= 2

    @invariant()
    def size_and_line_say_what_the_model_says(self) -> None:
        state = self.machine.stored
        assert self.machine.size == len(self.waiting)
        assert (state.line(SEED) if state else None) == self.last_line
        if state is not None and self.last_line is not None:
            assert parse_line(self.last_line, SEED) == state
            assert state.problem() == ""
            assert state.can_write == self.can_write

    @invariant()
    def what_waits_is_found_where_the_state_says(self) -> None:
        state = self.machine.stored
        if state is None:
            return
        read = self.files[state.read_file]
        assert (len(read), sum(read)) == (state.read_count, state.read_bytes)
        assert sum(read[: state.read_msg]) == state.read_byte
        found = read[state.read_msg :]
        if state.has_two_files:
            assert sum(self.files[state.write_file]) == state.write_byte
            found = found + self.files[state.write_file]
        assert found == self.waiting


TestJournalOfLists = JournalOfLists.TestCase
TestJournalOfLists.settings = settings(
    max_examples=examples(60), stateful_step_count=60, deadline=None
)


@pytest.mark.parametrize("broken", ["J1", "J2", "J3"])
def test_a_broken_state_is_found(broken: str) -> None:
    machine = journal(ONE)
    machine.check()
    at_end = {"read_msg": TWO.read_count, "read_byte": TWO.read_bytes}
    machine.stored = {
        "J1": msgspec.structs.replace(ONE, read_msg=9),
        "J2": TWO,
        "J3": msgspec.structs.replace(TWO, **at_end),
    }[broken]
    with pytest.raises(AssertionError, match=broken):
        machine.check()
