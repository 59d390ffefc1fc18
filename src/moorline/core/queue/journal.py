"""Room: core/queue. The files of one queue: which are there, where the reader and the writer stand.

A machine without a disk: events say what is to be stored or forgotten, effects say what is to be done
to the files. `journal.queues.folder` performs them. The state line in `queue.log`:

    read_file=K3v… read_msg=2 read_byte=310 write_file=K3v… write_msg=5 read_count=5 read_bytes=775
    write_byte=775 can_write=T lsn=8812 check=9f2c41aa03be77d0

The first five fields are the reader's file and position and the writer's file and count. The others make
recovery exact: how much the read file holds in all, how many bytes of the write file count, whether
senders are held off, the last change that is accounted for, and a check over the line, so that a line
cut inside a number is never taken for a whole one, nor that of another queue for one of this.

The order of the effects is what makes a crash between any two of them harmless: records before the state that
counts them, the state that leaves a file before its removal, the copy of `queue.log` behind the state in it.

Invariants, asserted at the end of each step and by `check`:

    J1  a state is possible: `QueueState.problem` finds nothing
    J2  the machine's own state says how many files the stored one names
    J3  there are two files at most, and the first of two has something unread
"""

from collections.abc import Mapping
from enum import Enum
from typing import ClassVar

import msgspec
import xxhash

from moorline.core.effects import Effect, Event
from moorline.core.machine import Machine

NODE_CHARACTERS = 8
"""Of a node's id in a line: 48 bits that were drawn, and sixteen lines stay in one block of a disk."""

_NODE = " node="

LEFT_OVER = "it stands at the end of a file that should be left"
"""The problem of a state that breaks J3."""


class QueueState(msgspec.Struct, frozen=True):
    """What one line of `queue.log` says."""

    read_file: str
    read_msg: int
    read_byte: int
    write_file: str
    write_msg: int
    read_count: int
    read_bytes: int
    write_byte: int
    can_write: bool
    lsn: int

    @property
    def has_two_files(self) -> bool:
        return self.read_file != self.write_file

    @property
    def size(self) -> int:
        """Messages that are stored and not acknowledged."""
        unread = self.read_count - self.read_msg
        return unread + self.write_msg if self.has_two_files else unread

    @property
    def waiting_bytes(self) -> int:
        """Of their records."""
        unread = self.read_bytes - self.read_byte
        return unread + self.write_byte if self.has_two_files else unread

    def problem(self) -> str:
        """Why this state cannot be; empty if it can."""
        if not 0 <= self.read_msg <= self.read_count:
            return "it has read more messages than the read file holds"
        if not 0 <= self.read_byte <= self.read_bytes:
            return "it has read more bytes than the read file holds"
        if (self.read_msg == self.read_count) != (self.read_byte == self.read_bytes):
            return "messages and bytes of the read file do not end together"
        # J3: nobody would ever read on from there, and what is in the second file would wait for ever.
        if self.has_two_files and self.read_msg == self.read_count:
            return LEFT_OVER
        same = (self.read_count, self.read_bytes) == (self.write_msg, self.write_byte)
        if not self.has_two_files and not same:
            return "one file has two lengths"
        return ""

    def line(self, seed: int, node: str = "") -> str:
        """The state as a line of `queue.log`, newline included; the seed is the queue's own.

        `node` is the id of the node that writes it, of which the beginning is enough.
        """
        text = (
            f"read_file={self.read_file} read_msg={self.read_msg} read_byte={self.read_byte} "
            f"write_file={self.write_file} write_msg={self.write_msg} "
            f"read_count={self.read_count} read_bytes={self.read_bytes} "
            f"write_byte={self.write_byte} can_write={'T' if self.can_write else 'F'} lsn={self.lsn}"
            f"{_NODE + node[:NODE_CHARACTERS] if node else ''}"
        )
        return f"{text} check={_check(text, seed)}\n"


def node_of(line: str) -> str:
    """How the id of the node begins that wrote a whole line; empty if it does not say so."""
    return line.partition(_NODE)[2].partition(" ")[0]


def _check(text: str, seed: int) -> str:
    return xxhash.xxh3_64_hexdigest(text.encode(), seed)


def parse_line(line: str, seed: int) -> QueueState | None:
    """The state of a line, or None where the line is torn, altered, or of another queue."""
    text, found, check = line.rstrip("\n").rpartition(" check=")
    # Before the fields are looked at: a line that was cut inside a number parses too.
    if not found or check != _check(text, seed):
        return None
    try:
        fields = dict(part.split("=", 1) for part in text.split(" "))
        return QueueState(
            read_file=fields["read_file"],
            read_msg=int(fields["read_msg"]),
            read_byte=int(fields["read_byte"]),
            write_file=fields["write_file"],
            write_msg=int(fields["write_msg"]),
            read_count=int(fields["read_count"]),
            read_bytes=int(fields["read_bytes"]),
            write_byte=int(fields["write_byte"]),
            can_write=fields["can_write"] == "T",
            lsn=int(fields["lsn"]),
        )
    except (ValueError, KeyError):
        return None


NO_BOUND = 1 << 62
"""Room of a file that is never left for another."""


class Files(Enum):
    ABSENT = "nothing on disk"
    ONE_FILE = "reading and writing one file"
    TWO_FILES = "reading one file, writing another"


class Add(Event, frozen=True):
    """Store records, that many bytes together; `fresh_file` is the name if a file must be begun."""

    record_bytes: int
    fresh_file: str
    lsn: int
    can_write: bool = True
    count: int = 1


class Acknowledge(Event, frozen=True):
    """Forget the first record, which has that many bytes."""

    record_bytes: int
    lsn: int


class Clean(Event, frozen=True):
    """Leave nothing of an empty queue but a backup of its state."""


class MakeFolder(Effect, frozen=True):
    pass


class AppendRecord(Effect, frozen=True):
    """Add the next records, so many bytes, to the message file of that name, made if it is missing."""

    file: str
    record_bytes: int


class AppendState(Effect, frozen=True):
    state: QueueState


class RemoveFile(Effect, frozen=True):
    """Remove a message file, once the state before it is durable."""

    file: str


class CopyState(Effect, frozen=True):
    """Keep a copy of `queue.log`, the state before it included, and leave that one line in it."""


class RetireState(Effect, frozen=True):
    """Turn `queue.log` into a backup."""


class QueueJournal(Machine[Files]):
    """The files of one queue."""

    moves: ClassVar[Mapping[Enum, frozenset[Enum]]] = {
        Files.ABSENT: frozenset({Files.ONE_FILE}),
        Files.ONE_FILE: frozenset({Files.TWO_FILES, Files.ABSENT}),
        Files.TWO_FILES: frozenset({Files.ONE_FILE}),
    }

    def __init__(self, name: str, stored: QueueState | None, *, file_messages_max: int) -> None:
        super().__init__(name, _files(stored))
        self.stored = stored
        self._file_messages_max = file_messages_max

    @property
    def size(self) -> int:
        return 0 if self.stored is None else self.stored.size

    @property
    def room(self) -> int:
        """How many records the write file takes before the next one begins another."""
        stored = self.stored
        if stored is None:
            return self._file_messages_max
        # Asked before a batch is written, so that records which go into two files are never one append.
        left = self._file_messages_max - stored.write_msg
        # A second file takes everything; a full one makes way for a new one, which has all the room.
        return NO_BOUND if stored.has_two_files else left if left > 0 else self._file_messages_max

    def step(self, event: Event, now_ms: int) -> list[Effect]:  # noqa: ARG002
        match event:
            case Add():
                assert self.stored is None or event.lsn >= self.stored.lsn, "changes come in order"
                effects = self._add(event)
            case Acknowledge(record_bytes, lsn):
                effects = self._acknowledge(record_bytes, lsn)
            case Clean():
                effects = self._clean()
            case _:
                raise AssertionError(f"a journal knows no {event}")
        self.move(_files(self.stored))
        # Here, and not only in `check`: what is returned is written to disk, and outlives the mistake.
        self.invariants()
        return effects

    def invariants(self) -> None:
        stored = self.stored
        problem = "" if stored is None else stored.problem()
        is_left = problem == LEFT_OVER
        assert not is_left, f"J3: {problem}"
        assert not problem, f"J1: {problem}"
        assert self.state is _files(self.stored), f"J2: {self.state.name} of {self.stored}"

    def _add(self, event: Add) -> list[Effect]:
        effects: list[Effect] = []
        rotated: list[Effect] = []
        old = self.stored
        if old is None:
            old = empty_state(event.fresh_file)
            effects.append(MakeFolder())
        elif not old.has_two_files and old.write_msg >= self._file_messages_max:
            # Rotation. While a second file is there it grows, whatever its length: never a third.
            # Performed behind the state: the copy keeps the log with this very change in it.
            rotated.append(CopyState())
            # Two files only while the first has something unread (J3).
            if old.size:
                old = msgspec.structs.replace(
                    old, write_file=event.fresh_file, write_msg=0, write_byte=0
                )
            else:
                # All of the old file has been read: it is left at once.
                rotated.append(RemoveFile(old.read_file))
                old = empty_state(event.fresh_file, old.lsn)
        written, bytes_written = old.write_msg + event.count, old.write_byte + event.record_bytes
        new = msgspec.structs.replace(
            old,
            write_msg=written,
            write_byte=bytes_written,
            can_write=event.can_write,
            lsn=event.lsn,
        )
        # With one file both ends are of the same: what is written can be read. With two the read file is
        # full.
        if not new.has_two_files:
            new = msgspec.structs.replace(new, read_count=written, read_bytes=bytes_written)
        self.stored = new
        effects += [AppendRecord(new.write_file, event.record_bytes), AppendState(new)]
        return effects + rotated

    def _acknowledge(self, record_bytes: int, lsn: int) -> list[Effect]:
        old = self.stored
        assert old is not None, "nothing is stored"
        # As the specification has it: an acknowledgement of nothing is an error of ours, never a message
        # that is skipped.
        assert old.read_msg < old.read_count, "nothing was delivered"
        new = msgspec.structs.replace(
            old,
            read_msg=old.read_msg + 1,
            read_byte=old.read_byte + record_bytes,
            lsn=lsn,
        )
        if new.read_msg < new.read_count or not new.has_two_files:
            self.stored = new
            return [AppendState(new)]
        # The read file is exhausted and there is another: read that one from its start. In one state with the
        # acknowledgement, so that none is ever written that stands at the end of the first (J3).
        self.stored = new = msgspec.structs.replace(
            new,
            read_file=new.write_file,
            read_msg=0,
            read_byte=0,
            read_count=new.write_msg,
            read_bytes=new.write_byte,
        )
        # The state first: a crash between the two leaves a file too many, which costs room and nothing else.
        # The other way round the state would name a file that is gone.
        return [AppendState(new), RemoveFile(old.read_file)]

    def _clean(self) -> list[Effect]:
        old = self.stored
        if old is None:
            return []
        assert old.size == 0, "only an empty queue is cleaned"
        # With two files an empty queue has read the first one to its end, and switched.
        assert not old.has_two_files, "an empty queue has one file"
        self.stored = None
        # The state first: one that names a file which is gone would be damage.
        return [RetireState(), RemoveFile(old.read_file)]


def empty_state(file: str, lsn: int = 0) -> QueueState:
    """Nothing waits; all up to that lsn is done with."""
    return QueueState(
        read_file=file,
        read_msg=0,
        read_byte=0,
        write_file=file,
        write_msg=0,
        read_count=0,
        read_bytes=0,
        write_byte=0,
        can_write=True,
        lsn=lsn,
    )


def _files(state: QueueState | None) -> Files:
    if state is None:
        return Files.ABSENT
    return Files.TWO_FILES if state.has_two_files else Files.ONE_FILE
