"""Room: journal/queues. What can be read in a queue's folder, whatever happened to it: records and states.

Nothing here decides anything, and nothing is changed. A record counts if its check is right, a state if
its line's check is right and its numbers can be. Both checks are the queue's own: what is of another queue
is no record and no state here. `folder_recovery` draws the conclusions. Order helps: the
ids of a queue rise in its files, and it is read from the lowest on. So whoever knows one message that was
acknowledged, or the first one that was not, knows the same of all below it.
"""

import contextlib
import re
from collections.abc import Iterator
from typing import NamedTuple

from moorline.core.queue.journal import NODE_CHARACTERS, QueueState, node_of, parse_line
from moorline.core.queue.queue import QUOTA_MARKER, Entry
from moorline.journal.queues.folder import STATE_FILE, QueueFolder, message_file
from moorline.journal.queues.record import HEADER_BYTES, REST, DamagedRecord, decode

MESSAGES, LOG = "messages.", ".log"

# A record begins with eight bytes of check; its length is below 16 MiB and its kind is 0 or 1.
_MAYBE_RECORD = re.compile(rb"(?=.{8}\x00.{3}[\x00\x01])", re.DOTALL)


class Record(NamedTuple):
    """A whole record in a message file."""

    lsn: int
    file: str
    offset: int
    size: int
    kind: int

    @property
    def end(self) -> int:
        return self.offset + self.size


class StateLines(NamedTuple):
    """What `queue.log` says, line by line; None for a line that says nothing."""

    text: bytes
    states: list[QueueState | None]
    problems: list[str]
    is_ended: bool
    """The last line has its newline; another one may be appended to it."""
    nodes: frozenset[str] = frozenset()
    """How the ids of the nodes begin that wrote its whole lines, as far as they say so."""

    def foreign_to(self, node: str) -> str:
        """The node that wrote a line and is another than that; empty if there is none, or nobody knows."""
        others = self.nodes - {node[:NODE_CHARACTERS]}
        return min(others) if node and others else ""


class Scan:
    """What was found in the message files of a folder."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self.records: dict[str, list[Record]] = {}
        self.bad: dict[str, list[tuple[int, int]]] = {}
        """Stretches that are no record, by file: where they begin and end."""
        self.sizes: dict[str, int] = {}
        self.strange: dict[str, list[tuple[int, int]]] = {}
        """What is built as records and has other checks, by file: where it begins, and how many."""

    def take_in(self, name: str, data: bytes) -> None:
        """What a message file holds."""
        found = self.records[name] = []
        bad = self.bad[name] = []
        self.sizes[name] = len(data)
        end = 0
        for offset, entry in records_in(data, self._seed):
            if offset > end:
                bad.append((end, offset))
            end = offset + HEADER_BYTES + len(entry.body)
            found.append(Record(entry.lsn, name, offset, end - offset, entry.kind))
        if end < len(data):
            bad.append((end, len(data)))
        built = [(start, _built_as_records(data[start:end])) for start, end in bad]
        self.strange[name] = [(start, count) for start, count in built if count]

    def strange_records(self, name: str, start: int = 0) -> int:
        """How many in a file, from that byte on, may be records of another queue."""
        return sum(count for at, count in self.strange[name] if at >= start)

    def all_records(self) -> list[Record]:
        """Each message once, in order; of two copies any one."""
        by_id = {record.lsn: record for records in self.records.values() for record in records}
        return [by_id[lsn] for lsn in sorted(by_id)]

    def bears_out(self, state: QueueState) -> bool:
        """Whether the files hold every message that waits by this state, and each of them is whole."""
        if not state.size:
            return True
        unread = state.read_count - state.read_msg
        parts = [(state.read_file, state.read_byte, state.read_bytes, unread)]
        if state.has_two_files:
            parts.append((state.write_file, 0, state.write_byte, state.write_msg))
        return all(self._is_run(*part) for part in parts)

    def _is_run(self, name: str, start: int, end: int, count: int) -> bool:
        for record in self.records.get(name, ()):
            if start <= record.offset < end:
                if record.offset != start or not count:
                    return False
                start, count = record.end, count - 1
        return start == end and not count

    def acknowledged_by(self, state: QueueState) -> int:
        """The highest id of which this state shows that it was acknowledged; 0 if of none."""
        if not state.size:
            return state.lsn
        before = 0
        for record in self.records.get(state.read_file, ()):
            if record.offset == state.read_byte:
                return record.lsn - 1
            if record.offset > state.read_byte:
                break
            before = record.lsn
        return before

    def first_id(self, state: QueueState) -> int:
        """The id of the first record that waits by this state; 0 if it is not there."""
        records = self.records.get(state.read_file, ())
        return next((one.lsn for one in records if one.offset == state.read_byte), 0)

    def places_of_bad(self) -> list[float]:
        """Of every stretch that is no record a number between the ids before and behind it."""
        places = []
        for name, bad_parts in self.bad.items():
            for start, _ in bad_parts:
                before = [one.lsn for one in self.records[name] if one.offset < start]
                behind = [one.lsn for one in self.records[name] if one.offset > start]
                if before or behind:
                    places.append(before[-1] + 0.5 if before else behind[0] - 0.5)
        return places

    def is_bad_behind(self, first: Record | None, *, tails_too: bool) -> bool:
        """Whether something that is no record stands where a message behind `first` may have been.

        The end of a file is passed over unless `tails_too`: a write that a crash has cut short.
        """
        for name, bad_parts in self.bad.items():
            records = self.records[name]
            if first is not None and records and records[-1].lsn < first.lsn:
                continue  # a file that was left before the first of them was written
            for start, end in bad_parts:
                is_before = first is not None and name == first.file and start < first.offset
                is_tail = end == self.sizes[name]
                if not is_before and (tails_too or not is_tail):
                    return True
        return False


def message_names(names: list[str]) -> list[str]:
    """Of the names in a folder those of message files, without what all of them have."""
    return [
        name.removeprefix(MESSAGES).removesuffix(LOG)
        for name in names
        if name.startswith(MESSAGES) and name.endswith(LOG)
    ]


def scanned(folder: QueueFolder, names: list[str]) -> Scan:
    """All message files of a folder, read to their ends."""
    scan = Scan(folder.seed)
    for name in names:
        file = folder.file(message_file(name))
        scan.take_in(name, file.read_at(0, file.size()))
    return scan


def read_states(folder: QueueFolder, name: str = STATE_FILE) -> StateLines:
    """The lines of a state file, or of a copy of one."""
    file = folder.file(name)
    text = file.read_at(0, file.size())
    return parse_states(text, folder.seed)


def parse_states(text: bytes, seed: int) -> StateLines:
    lines = text.split(b"\n")
    is_ended = not lines[-1]
    if is_ended:
        lines.pop()
    states: list[QueueState | None] = []
    problems: list[str] = []
    nodes: set[str] = set()
    for line in lines:
        # A line whose check is right is whole, with a newline or without.
        text_line = line.decode("utf-8", "replace")
        state = parse_line(text_line, seed)
        if state is not None:
            nodes.add(node_of(text_line))
        problem = "" if state is None else state.problem()
        if problem:
            problems.append(problem)
        states.append(None if problem else state)
    return StateLines(text, states, problems, is_ended, frozenset(nodes - {""}))


def records_in(data: bytes, seed: int) -> Iterator[tuple[int, Entry]]:
    """Every record whose check is right, with its offset, whatever stands between them."""
    start = 0
    while start < len(data):
        entry = _record_at(data, start, seed)
        if entry is None:
            behind = _end_by_its_length(data, start, seed)
            found = _next_record(data, start + 1 if behind is None else behind, seed)
            if found is None:
                return
            start, entry = found
        yield start, entry
        start += HEADER_BYTES + len(entry.body)


def _record_at(data: bytes, start: int, seed: int) -> Entry | None:
    with contextlib.suppress(DamagedRecord):
        return decode(data, start, start, seed)
    return None


def _end_by_its_length(data: bytes, start: int, seed: int) -> int | None:
    """Where a bad record ends, if its length leads to a whole one: then nothing in it is looked at.

    A sender chooses the bytes of a body, and could put into it what looks like a record.
    """
    if len(data) - start < HEADER_BYTES:
        return None
    end: int = start + HEADER_BYTES + REST.unpack_from(data, start + 8)[0]
    return end if end == len(data) or _record_at(data, end, seed) is not None else None


def _built_as_records(data: bytes) -> int:
    """How many records these bytes may be, of whatever queue: their lengths lead from one to the next.

    What a crash leaves of a write is none: it ends too early, or is zeroes.
    """
    start = count = 0
    while len(data) - start >= HEADER_BYTES:
        length, kind, lsn, _ = REST.unpack_from(data, start + 8)
        end = start + HEADER_BYTES + length
        if kind > QUOTA_MARKER or not lsn or end > len(data):
            break
        start, count = end, count + 1
    return count


def _next_record(data: bytes, start: int, seed: int) -> tuple[int, Entry] | None:
    for match in _MAYBE_RECORD.finditer(data, start):
        entry = _record_at(data, match.start(), seed)
        if entry is not None:
            return match.start(), entry
    return None
