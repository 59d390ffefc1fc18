"""Damage to any one file of a store at any byte: what is promised must survive a start and a repair.

    python -m tests.journal.queues.damage --seed 7
    python -m tests.journal.queues.damage --seed 7 --exhaustive

A seeded history (rotations, acknowledgements, quota markers, expiry, deletions, checkpoints, a log with
more in it, sometimes killed in the middle of a checkpoint) leaves a store. Then one file of it is damaged:
a byte changed, a stretch zeroed, the end cut off, the last byte removed, the file emptied or gone. A start
and a repair of the damaged store are compared with what was answered:

    lost           messages that are whole in some file and are not delivered       must be 0
    unreadable     messages that the damage took; each must be told
    doubled        messages delivered although they were acknowledged
    out of order   queues whose messages do not rise                                must be 0
"""

import argparse
import contextlib
import random
import sys
from collections.abc import Iterator, Sequence
from typing import ClassVar, NamedTuple

import msgspec
from tests.journal.queues.simulation import Model, Simulation

from moorline.core.queue.queue import Entry
from moorline.errors import ConfigError, FolderUnusable, LogDamaged
from moorline.ids import ID_BYTES, id_of, text_of
from moorline.journal.disk import parent
from moorline.journal.queues import checkpoint
from moorline.journal.queues.check import check, repair
from moorline.journal.queues.files import StoreOptions
from moorline.journal.queues.folder_scan import records_in
from moorline.journal.queues.layout import check_layout
from moorline.journal.queues.offline import every_queue
from moorline.journal.queues.rebuild import rebuilt_index
from moorline.journal.queues.record import seed_of
from moorline.journal.queues.report import Report
from moorline.journal.queues.store import Store
from moorline.journal.queues.wal import Kind, WriteAheadLog
from moorline.testing import Crashed, MemoryDisk

STEPS = 250
SAMPLES = 120
ZEROED_BYTES = 24


class Damage(NamedTuple):
    """One change to one file; `kind` says which."""

    path: str
    kind: str
    offset: int

    def done_to(self, data: bytes) -> bytes | None:
        """The file as it is afterwards; None if it is gone."""
        at = self.offset
        match self.kind:
            case "flip":
                return data[:at] + bytes([data[at] ^ (1 << at % 8)]) + data[at + 1 :]
            case "replace":
                return data[:at] + b"\n" + data[at + 1 :]
            case "zero":
                end = min(len(data), at + ZEROED_BYTES)
                return data[:at] + bytes(end - at) + data[end:]
            case "cut":
                return data[:at]
            case _:
                return None


class Outcome(msgspec.Struct):
    """What many damages did."""

    rounds: int = 0
    damages: int = 0
    lost: int = 0
    unreadable: int = 0
    doubled: int = 0
    out_of_order: int = 0
    untold: int = 0
    """Unreadable messages that no report counted or named."""
    others: int = 0
    """Queues that suffered from damage to another one's folder."""
    failures: list[str] = []

    def line(self) -> str:
        return (
            f"rounds {self.rounds}, damages {self.damages}, lost {self.lost}, unreadable {self.unreadable}, "
            f"untold {self.untold}, doubled {self.doubled}, out of order {self.out_of_order}, "
            f"others harmed {self.others}"
        )


class History(Simulation):
    """A store that lived for a while and was stopped, or killed at any moment of it."""

    # Small, so that every byte of it can be damaged in some minutes.
    body_bytes: ClassVar[Sequence[int]] = (0, 1, 9, 60)

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        check_layout(self.disk, self.options.levels)
        self.sent: dict[int, tuple[bytes, int, bytes]] = {}
        """By id: the queue, kind and body of every message that was ever taken."""
        for _ in range(STEPS):
            self._step()
            if len(self.model) > 6:
                self._delete()
        self._commit()
        self._end()
        self.expected: Model = self.model
        self.files = self.disk.files()

    def _delete(self) -> None:
        if self.chance.random() < 0.4 or len(self.model) > 6:
            super()._delete()

    def _send(self) -> None:
        """A step may send and acknowledge the same message, between two steps of a checkpoint."""
        super()._send()
        for queue_id, model in self.model.items():
            for lsn, kind, body in model.messages:
                self.sent[lsn] = (queue_id, kind, body)

    def _end(self) -> None:
        """Stopped with all in the files, killed with much in the log, or within a checkpoint."""
        end = self.chance.randrange(3)
        if end == 0:
            checkpoint.run(self.store, self.clock.wall_ms)
        if end == 1:
            self.disk.crash_at = self.disk.steps + self.chance.randrange(60)
            with contextlib.suppress(Crashed):
                checkpoint.run(self.store, self.clock.wall_ms)
            self.disk.crash_at = None
            self.disk.crash(self.chance, self.chance.choice(self.lose))
        else:
            self.store.close()


class Trial:
    """One damaged store: started, repaired, and compared."""

    def __init__(self, history: History, damage: Damage, outcome: Outcome) -> None:
        self._history = history
        self._damage = damage
        self._outcome = outcome
        self._files = dict(history.files)
        after = damage.done_to(self._files.pop(damage.path))
        if after is not None:
            self._files[damage.path] = after
        self._readable = self._whole_messages()

    def run(self) -> None:
        outcome = self._outcome
        outcome.damages += 1
        disk = self._disk()
        told = self._check(disk)
        self._compare("repaired", self._repaired(disk), told)
        started = self._disk()
        try:
            store = self._opened(started)
        except (LogDamaged, FolderUnusable, ConfigError):
            return  # named, and nothing is changed: the repair above is what an operator does next
        self._read(store)
        lost = store.files.lost_messages
        checkpoint.run(store, self._history.clock.wall_ms)
        store.close()
        later = self._check(started)
        later.problems = [*told.problems, *later.problems]
        self._compare(
            "started", self._repaired(started), later, counted=later.lost - told.lost + lost
        )

    # --- a damaged disk and what becomes of it ----------------------------------------------------

    def _disk(self) -> MemoryDisk:
        disk = MemoryDisk()
        for path, data in self._files.items():
            disk.make_folders(parent(path))
            file = disk.open(path, create=True)
            file.append(data)
            file.close()
        disk.sync_all()
        return disk

    def _opened(self, disk: MemoryDisk) -> Store:
        history = self._history
        check_layout(disk, history.options.levels)
        store = Store(disk, history.options, history.clock.wall_ms, random.Random(1).randbytes)
        store.open(rebuilt_index)
        return store

    def _check(self, disk: MemoryDisk) -> Report:
        before = disk.files()
        report = check(disk, self._options, self._history.clock.wall_ms, lambda *_: None)
        assert disk.files() == before, "a check changes nothing"
        return report

    @property
    def _options(self) -> StoreOptions:
        return self._history.options

    def _repaired(self, disk: MemoryDisk) -> dict[bytes, list[tuple[int, int, bytes]]]:
        """What is delivered after a repair, which must leave nothing to be repaired."""
        repair(disk, self._options, self._history.clock.wall_ms, lambda *_: None)
        left = self._check(disk).problems
        if left:
            self._fail(f"left after a repair: {left[0].text}")
        store = self._opened(disk)
        found = self._read(store)
        if store.files.lost_messages or store.files.quarantined:
            self._fail("a start after a repair finds damage")
        store.close()
        return found

    def _read(self, store: Store) -> dict[bytes, list[tuple[int, int, bytes]]]:
        found = {}
        for queue in list(every_queue(store)):
            # As a reader does: the row is taken to work with.
            queue = store.find(queue.id) or queue
            entries: list[Entry] = []
            while (entry := store.peek(queue, len(entries))) is not None:
                entries.append(entry)
            found[queue.id] = [(one.lsn, one.kind, one.body) for one in entries]
        return found

    # --- the verdict ------------------------------------------------------------------------------

    def _compare(
        self,
        how: str,
        found: dict[bytes, list[tuple[int, int, bytes]]],
        told: Report,
        counted: int | None = None,
    ) -> None:
        outcome, unreadable = self._outcome, 0
        for queue_id, model in self._history.expected.items():
            got = found.get(queue_id, [])
            ids = [lsn for lsn, _, _ in got]
            if ids != sorted(set(ids)):
                outcome.out_of_order += 1
                self._fail(f"{how}: {ids} of {text_of(queue_id)} do not rise")
            for lsn, kind, body in got:
                if self._history.sent.get(lsn) != (queue_id, kind, body):
                    self._fail(f"{how}: message {lsn} was never sent to {text_of(queue_id)}")
            waiting = [lsn for lsn, _, _ in model.messages]
            missing = sorted(set(waiting) - set(ids))
            lost = [lsn for lsn in missing if lsn in self._readable]
            outcome.lost += len(lost)
            if lost:
                self._fail(f"{how}: {lost} of {text_of(queue_id)} are whole and lost")
            unreadable += len(missing) - len(lost)
            doubled = sorted(set(ids) - set(waiting))
            outcome.doubled += len(doubled)
            if doubled and not self._damage.path.startswith("wal/"):
                self._fail(f"{how}: {doubled} of {text_of(queue_id)} come again")
            if (missing or doubled) and self._is_of_another(queue_id):
                outcome.others += 1
                self._fail(f"{how}: {text_of(queue_id)} suffers from another's damage")
        outcome.unreadable += unreadable
        self._expect_told(how, unreadable, told, told.lost if counted is None else counted)

    def _expect_told(self, how: str, unreadable: int, told: Report, counted: int) -> None:
        """Of a log the bytes are told; of everything else the number of messages."""
        if self._damage.path.startswith("wal/"):
            is_told = not unreadable or any(one.kind == "log" for one in told.problems)
            # A log cut between two batches, or gone, has nothing in it that could tell.
            is_told = is_told or self._damage.kind in ("cut", "gone")
        else:
            is_told = counted == unreadable
        if not is_told:
            self._outcome.untold += 1
            self._fail(f"{how}: {unreadable} messages are unreadable, {counted} are told")

    def _is_of_another(self, queue_id: bytes) -> bool:
        path = self._damage.path
        name = path.removeprefix("messages/").rpartition("/")[0].replace("/", "")
        return path.startswith("messages/") and name != text_of(queue_id)

    def _whole_messages(self) -> set[int]:
        """Every message that can be read somewhere: in a queue's files, or in the log."""
        found: set[int] = set()
        for path, data in self._files.items():
            if path.startswith("messages/") and "/messages." in path:
                name = path.removeprefix("messages/").rpartition("/")[0].replace("/", "")
                found |= {entry.lsn for _, entry in records_in(data, seed_of(id_of(name)))}
        log = WriteAheadLog(self._disk(), "wal", sync=False)
        for change in log.replay(repair=True):
            if change.kind in (Kind.SEND, Kind.MARK):
                found.add(change.lsn)
        return found

    def _fail(self, why: str) -> None:
        damage, seed = self._damage, self._history.seed
        self._outcome.failures.append(
            f"seed {seed}, {damage.kind} {damage.path} at {damage.offset}: {why}"
        )


def every_damage(files: dict[str, bytes]) -> Iterator[Damage]:
    """All that can be done to one of the files."""
    for path, data in sorted(files.items()):
        yield Damage(path, "gone", 0)
        for offset in range(len(data)):
            for kind in ("flip", "replace", "cut", "zero"):
                yield Damage(path, kind, offset)


def sampled_damage(files: dict[str, bytes], chance: random.Random, count: int) -> list[Damage]:
    """Some of it: each file as often as any other, its last byte and its loss always."""
    paths = sorted(files)
    damages = [Damage(path, "gone", 0) for path in paths]
    damages += [Damage(path, "cut", len(files[path]) - 1) for path in paths if files[path]]
    kinds = ["flip", "replace", "cut", "zero"]
    while len(damages) < count:
        path = chance.choice(paths)
        if files[path]:
            damages.append(Damage(path, chance.choice(kinds), chance.randrange(len(files[path]))))
    return damages


def run(seed: int, *, exhaustive: bool = False, samples: int = SAMPLES) -> Outcome:
    """One history, damaged in many ways."""
    history, outcome = History(seed), Outcome(rounds=1)
    if exhaustive:
        damages = list(every_damage(history.files))
    else:
        damages = sampled_damage(history.files, random.Random(seed), samples)
    for damage in damages:
        Trial(history, damage, outcome).run()
    return outcome


def main() -> int:
    parser = argparse.ArgumentParser(description="Damage any one file of a store at any byte.")
    parser.add_argument("--seed", type=int, default=11, help="11 has much in its log")
    parser.add_argument("--exhaustive", action="store_true", help="every byte of every file")
    parser.add_argument("--samples", type=int, default=SAMPLES)
    chosen = parser.parse_args()
    assert ID_BYTES == 24, "the paths of queues are read from their names"
    outcome = run(chosen.seed, exhaustive=chosen.exhaustive, samples=chosen.samples)
    for failure in outcome.failures[:20]:
        sys.stderr.write(failure + "\n")
    sys.stdout.write(outcome.line() + "\n")
    return 1 if outcome.failures else 0


if __name__ == "__main__":
    import logging

    logging.disable(logging.CRITICAL)
    sys.exit(main())
