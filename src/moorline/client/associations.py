"""Room: client. The client's own list of the queues that a service is associated with, in an SQLite file.

The queues are in parts, by the home that has each; a home is its number, and no number is the home of
queues of which nobody has said it yet. Count and hash of a part are changed in the same transaction as
the list: after any crash the digest is that of the list. Membership decides before XOR does: adding twice
changes nothing. Its tables are in `client/list_schema.py`; what a check found is a `client/list_check.py`.
"""

import contextlib
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from moorline.client.list_check import ListCheck, PartCheck
from moorline.client.list_schema import bring_up_to_date, transaction
from moorline.core.sets.digest import Digest
from moorline.core.sets.hashing import hash_ids, misfits
from moorline.core.sets.id_set import IdSet
from moorline.core.sets.sketch import Words
from moorline.errors import FolderUnusable
from moorline.ids import ID_BYTES

UNSAID = b""
"""The home of queues of which nobody has said it."""

ADD = "insert or ignore into association (queue, high, low, home) values (?, ?, ?, ?)"
REMOVE = "delete from association where queue = ? returning home"
SET_ASIDE = "insert into set_aside values (?, ?, ?, ?, cast(strftime('%s', 'now') as integer), 0)"
UNTOLD = """
select distinct queue from set_aside
where not is_told and why <> 'DAMAGED' and queue not in (select queue from association)
"""
PUT_DIGEST = "insert or replace into digest (home, count, high, low) values (?, ?, ?, ?)"

_BATCH = 10_000


class Associations:
    """The list. One process at a time; calls are short, bulk ones belong in a thread (client.list_thread)."""

    def __init__(self, path: Path | str) -> None:
        self.path = path
        # SQLite crashes if one thread closes what another reads: whoever comes second waits.
        self._in_use = threading.Lock()
        with self._named():
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        try:
            with self._using() as db:
                bring_up_to_date(db, path)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        with self._in_use:
            self._db.close()

    def digest(self) -> Digest:
        """As it is kept, without reading the list: the sum of all parts."""
        digest = Digest.empty()
        for part in self.digests().values():
            digest = digest.merge(part)
        return digest

    def digests(self) -> dict[bytes, Digest]:
        """As they are kept, by home."""
        with self._using() as db:
            rows = db.execute("select home, count, high, low from digest").fetchall()
        return {home: Digest(count, _bytes(high) + _bytes(low)) for home, count, high, low in rows}

    def recomputed(self) -> Digest:
        """What it should be."""
        return self.checked().own.digest()

    def checked(self) -> ListCheck:
        """Reads all of the list at one moment, whoever else may change it; changes nothing."""
        with self._using() as db, transaction(db, "deferred"):
            hashes, wrong = self._read(db)
            kept = {row[0]: row[1:] for row in db.execute("select * from digest")}
            doubts = {row[0] for row in db.execute("select home from doubt")}
            homes = {row[0]: row[1:] for row in db.execute("select number, node, name from home")}
            (aside,) = db.execute("select count(*) from set_aside").fetchone()
        parts = {}
        for home in {*hashes, *kept, *doubts, *homes}:
            own = hashes.get(home, IdSet.empty())
            count, high, low = kept.get(home, (0, 0, 0))
            is_right = own.digest() == Digest(count, _bytes(high) + _bytes(low))
            parts[home] = PartCheck(own, is_right, home in doubts, *homes.get(home, (b"", "")))
        return ListCheck(parts, len(wrong), aside)

    def mend(self) -> None:
        """Makes what is stored true to the ids, and puts parts in doubt: they may lack what they once had.

        A row whose hash is not that of its id is set aside as it was. Its id stays, if it can be one.
        """
        with self._using() as db, transaction(db):
            _, wrong = self._read(db)
            doubts = {row[3] for row in wrong}
            for row in wrong:
                db.execute(SET_ASIDE, (*row[:3], "DAMAGED"))
                db.execute("delete from association where queue = ?", row[:1])
            rows = [row for row in wrong if len(row[0]) == ID_BYTES]
            pairs = hash_ids([row[0] for row in rows]).view(np.int64).tolist()
            mended = [(row[0], *pair, row[3]) for row, pair in zip(rows, pairs, strict=True)]
            db.executemany(ADD, mended)
            hashes, _ = self._read(db)
            kept = dict(_kept_rows(db))
            for home in {*hashes, *kept}:
                true = hashes.get(home, IdSet.empty()).digest()
                halves = np.frombuffer(true.hash, ">i8").tolist()
                if kept.get(home) != (true.count, *halves):
                    db.execute(PUT_DIGEST, (home, true.count, *halves))
                    doubts.add(home)
            db.executemany("insert or ignore into doubt values (?)", [(home,) for home in doubts])

    def settle(self, *homes: bytes) -> list[bytes]:
        """These parts were proven against their node; returns what was refused and no report has told yet.

        Whoever dies between a refusal and the agreement has read no report.
        """
        with self._using() as db, transaction(db):
            lost = [row[0] for row in db.execute(UNTOLD)]
            db.execute("update set_aside set is_told = 1 where not is_told")
            db.executemany("delete from doubt where home = ?", [(home,) for home in homes])
        return lost

    def bind(self, home: bytes, node: bytes, name: str) -> None:
        """A home is called so, and that node has it."""
        with self._using() as db:
            db.execute("insert or replace into home values (?, ?, ?)", (home, node, name))

    def move(self, home: bytes, queues: Sequence[bytes]) -> None:
        """These queues are of that home, wherever they were taken to be before."""
        for start in range(0, len(queues), _BATCH):
            with self._using() as db, transaction(db):
                for queue in queues[start : start + _BATCH]:
                    row = db.execute(
                        "select home, high, low from association where queue = ?", (queue,)
                    ).fetchone()
                    if row is not None and row[0] != home:
                        db.execute("update association set home = ? where queue = ?", (home, queue))
                        _mix(db, row[0], -1, *row[1:])
                        _mix(db, home, 1, *row[1:])

    def merge(self, old: bytes, home: bytes) -> None:
        """All of one part is of that home, doubts included: its node has said so."""
        with self._using() as db, transaction(db):
            kept = dict(_kept_rows(db))
            one, two = kept.pop(old, (0, 0, 0)), kept.get(home, (0, 0, 0))
            db.execute("update association set home = ? where home = ?", (home, old))
            db.execute(PUT_DIGEST, (home, one[0] + two[0], one[1] ^ two[1], one[2] ^ two[2]))
            db.execute("delete from digest where home = ?", (old,))
            db.execute("update or replace doubt set home = ? where home = ?", (home, old))
            db.execute("delete from home where number = ?", (old,))

    def homes_of(self, queues: Sequence[bytes]) -> dict[bytes, bytes]:
        """The homes of those that are in the list."""
        select = "select home from association where queue = ?"
        with self._using() as db:
            found = {queue: db.execute(select, (queue,)).fetchone() for queue in queues}
        return {queue: row[0] for queue, row in found.items() if row is not None}

    def set_aside(self, refused: Sequence[tuple[bytes, str]]) -> None:
        """Removes what the node refused, and keeps it with the code why."""
        for start in range(0, len(refused), _BATCH):
            some = refused[start : start + _BATCH]
            queues = [queue for queue, _ in some]
            halves = hash_ids(queues).view(np.int64).tolist()
            with self._using() as db, transaction(db):
                for (queue, code), pair in zip(some, halves, strict=True):
                    db.execute(SET_ASIDE, (queue, *pair, code))
                _remove_batch(db, queues)

    def _read(
        self, db: sqlite3.Connection
    ) -> tuple[dict[bytes, IdSet], list[tuple[bytes, int, int, bytes]]]:
        """The hashes of all ids by home, and the rows that have another one."""
        parts: list[Words] = [np.empty((0, 2), np.uint64)]
        homes: list[bytes] = []
        wrong: list[tuple[bytes, int, int, bytes]] = []
        cursor = db.execute("select queue, high, low, home from association")
        while rows := cursor.fetchmany(100_000):
            try:
                stored = np.array([row[1:3] for row in rows], np.int64).view(np.uint64)
                homes += [bytes(row[3]) for row in rows]
                hashes, places = misfits([row[0] for row in rows], stored)
            except (TypeError, ValueError, OverflowError) as error:
                raise FolderUnusable(
                    f"{self.path} has a row that is no association of a queue: {error}"
                ) from error
            parts.append(hashes)
            wrong += [rows[place] for place in places.tolist()]
        return _by_home(np.concatenate(parts), homes), wrong

    def add(self, queues: Sequence[bytes], home: bytes = UNSAID) -> int:
        """Adds those that are not there, as queues of that home; returns how many were not."""
        return self._change(queues, lambda db, some: _add_batch(db, some, home))

    def remove(self, queues: Sequence[bytes]) -> int:
        """Removes those that are there; returns how many were."""
        return self._change(queues, _remove_batch)

    def __contains__(self, queue: bytes) -> bool:
        with self._using() as db:
            found = db.execute("select 1 from association where queue = ?", (queue,))
            return found.fetchone() is not None

    def __len__(self) -> int:
        return self.digest().count

    def id_set(self, *homes: bytes) -> IdSet:
        """The hashes of all in some parts, for a reconciliation: 16 bytes a queue; of none, of all."""
        high: list[int] = []
        low: list[int] = []
        with self._using() as db:
            for home in homes or _homes(db):
                cursor = db.execute("select high, low from association where home = ?", (home,))
                while rows := cursor.fetchmany(100_000):
                    high += [row[0] for row in rows]
                    low += [row[1] for row in rows]
        return IdSet(_unsigned(high), _unsigned(low))

    def queues_of(self, own: IdSet, highs: Words, *homes: bytes) -> Iterable[list[bytes]]:
        """The ids behind high halves of hashes of a set that `id_set` made, some thousands at a time.

        Nothing is held between two of them: whoever asks may stop, and the file may be closed.
        """
        if len(highs) == len(own):
            yield from self._all_queues(homes)
            return
        with self._using() as db:
            db.execute("create index if not exists by_high on association (high)")
        select = "select queue from association where high = ?"
        for start in range(0, len(highs), _BATCH):
            chosen = highs[start : start + _BATCH].view(np.int64).tolist()
            with self._using() as db:
                found = [row[0] for one in chosen for row in db.execute(select, (one,))]
            yield found

    def _all_queues(self, homes: Sequence[bytes]) -> Iterator[list[bytes]]:
        select = "select queue from association where queue > ? and home = ? order by queue limit ?"
        with self._using() as db:
            homes = homes or _homes(db)
        for home in homes:
            last = b""
            while True:
                with self._using() as db:
                    found = [row[0] for row in db.execute(select, (last, home, _BATCH))]
                if not found:
                    break
                yield found
                last = found[-1]

    def _change(
        self, queues: Sequence[bytes], change: Callable[[sqlite3.Connection, Sequence[bytes]], int]
    ) -> int:
        changed = 0
        for start in range(0, len(queues), _BATCH):
            some = queues[start : start + _BATCH]
            with self._using() as db, transaction(db):
                changed += change(db, some)
        return changed

    @contextlib.contextmanager
    def _using(self) -> Iterator[sqlite3.Connection]:
        """One at a time, and what SQLite says against it in words of ours."""
        with self._in_use, self._named():
            yield self._db

    @contextlib.contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise FolderUnusable(
                f"{self.path} cannot be used as the list of a service: {error}"
            ) from error


def _add_batch(db: sqlite3.Connection, queues: Sequence[bytes], home: bytes) -> int:
    count = high = low = 0
    pairs = hash_ids(queues).view(np.int64).tolist()
    for queue, (one_high, one_low) in zip(queues, pairs, strict=True):
        if db.execute(ADD, (queue, one_high, one_low, home)).rowcount:
            count += 1
            high ^= one_high
            low ^= one_low
    if count:
        _mix(db, home, count, high, low)
    return count


def _remove_batch(db: sqlite3.Connection, queues: Sequence[bytes]) -> int:
    removed = 0
    changes: dict[bytes, list[int]] = {}
    pairs = hash_ids(queues).view(np.int64).tolist()
    for queue, (one_high, one_low) in zip(queues, pairs, strict=True):
        for (home,) in db.execute(REMOVE, (queue,)).fetchall():
            removed += 1
            change = changes.setdefault(home, [0, 0, 0])
            change[0] -= 1
            change[1] ^= one_high
            change[2] ^= one_low
    for home, change in changes.items():
        _mix(db, home, *change)
    return removed


def _mix(db: sqlite3.Connection, home: bytes, count: int, high: int, low: int) -> None:
    row = db.execute("select count, high, low from digest where home = ?", (home,)).fetchone()
    old_count, old_high, old_low = row or (0, 0, 0)
    db.execute(PUT_DIGEST, (home, old_count + count, old_high ^ high, old_low ^ low))


def _kept_rows(db: sqlite3.Connection) -> list[tuple[bytes, tuple[int, int, int]]]:
    rows = db.execute("select home, count, high, low from digest").fetchall()
    return [(home, (count, high, low)) for home, count, high, low in rows]


def _homes(db: sqlite3.Connection) -> list[bytes]:
    return [row[0] for row in db.execute("select distinct home from association")]


def _by_home(hashes: Words, homes: list[bytes]) -> dict[bytes, IdSet]:
    """Split by the homes of the rows, of which there are few."""
    names = sorted(set(homes))
    if len(names) <= 1:
        return {name: IdSet(hashes[:, 0], hashes[:, 1]) for name in names}
    places = np.array([names.index(home) for home in homes])
    return {
        name: IdSet(hashes[places == place, 0], hashes[places == place, 1])
        for place, name in enumerate(names)
    }


def _bytes(signed: int) -> bytes:
    return signed.to_bytes(8, "big", signed=True)


def _unsigned(numbers: list[int]) -> Words:
    return np.array(numbers, np.int64).view(np.uint64)
