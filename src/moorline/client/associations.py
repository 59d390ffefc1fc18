"""Room: client. The client's own list of the queues that a service is associated with, in an SQLite file.

Count and hash are changed in the same transaction as the list: after any crash the digest is that of the
list. Membership decides before XOR does: adding twice changes nothing.

    association   the queues, with the halves of their hashes
    digest        one row: count and hash of all of them
    home          one row, once it is known: the node whose queues they are
    doubt         one row while the list has failed its check and was not proven since
    set_aside     what left the list without being dissociated by its user: refused by the node, or damaged;
                  and whether a report has told so
"""

import contextlib
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec
import numpy as np

from moorline.core.sets.digest import Digest
from moorline.core.sets.hashing import hash_ids, misfits
from moorline.core.sets.id_set import IdSet
from moorline.core.sets.sketch import Words
from moorline.errors import FolderUnusable
from moorline.ids import ID_BYTES

SCHEMA = """
create table if not exists association (
    queue blob primary key, high integer not null, low integer not null
) without rowid;
create table if not exists digest (
    one integer primary key check (one = 1),
    count integer not null, high integer not null, low integer not null
);
insert or ignore into digest values (1, 0, 0, 0);
create table if not exists home (
    one integer primary key check (one = 1), node blob not null, name text not null
);
create table if not exists doubt (one integer primary key check (one = 1));
create table if not exists set_aside (
    queue blob not null, high integer not null, low integer not null,
    why text not null, time_s integer not null, is_told integer not null
);
"""

ADD = "insert or ignore into association values (?, ?, ?)"
REMOVE = "delete from association where queue = ?"
SET_ASIDE = "insert into set_aside values (?, ?, ?, ?, cast(strftime('%s', 'now') as integer), 0)"
UNTOLD = """
select distinct queue from set_aside
where not is_told and why <> 'DAMAGED' and queue not in (select queue from association)
"""

_BATCH = 10_000


class ListCheck(msgspec.Struct, frozen=True):
    """A list against its own ids, hashed anew: the set of these, and what is stored that is not true."""

    own: IdSet
    wrong_hashes: int
    is_digest_right: bool
    is_doubtful: bool
    home: tuple[bytes, str]
    set_aside: int
    """Rows that are kept beside the list: refused by the node, or damaged."""

    @property
    def is_empty(self) -> bool:
        """Nothing is in it, and nothing says that something was."""
        return not len(self.own) and self.is_digest_right and not self.is_doubtful


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
                db.execute("pragma journal_mode = wal")
                db.execute("pragma synchronous = full")
                db.executescript(SCHEMA)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        with self._in_use:
            self._db.close()

    def digest(self) -> Digest:
        """As it is kept, without reading the list."""
        with self._using() as db:
            count, high, low = _kept(db)
        return Digest(count, _bytes(high) + _bytes(low))

    def recomputed(self) -> Digest:
        """What it should be."""
        return self.checked().own.digest()

    def checked(self) -> ListCheck:
        """Reads all of the list at one moment, whoever else may change it; changes nothing."""
        with self._using() as db, _transaction(db, "deferred"):
            hashes, wrong = self._read(db)
            own = IdSet(hashes[:, 0], hashes[:, 1])
            count, high, low = _kept(db)
            is_right = own.digest() == Digest(count, _bytes(high) + _bytes(low))
            is_doubtful = db.execute("select 1 from doubt").fetchone() is not None
            home = db.execute("select node, name from home").fetchone() or (b"", "")
            (aside,) = db.execute("select count(*) from set_aside").fetchone()
        return ListCheck(own, len(wrong), is_right, is_doubtful, home, aside)

    def mend(self) -> None:
        """Makes what is stored true to the ids, and puts the list in doubt: it may lack what it once had.

        A row whose hash is not that of its id is set aside as it was. Its id stays, if it can be one.
        """
        with self._using() as db, _transaction(db):
            hashes, wrong = self._read(db)
            for row in wrong:
                db.execute(SET_ASIDE, (*row, "DAMAGED"))
                db.execute(REMOVE, row[:1])
            ids = [row[0] for row in wrong if len(row[0]) == ID_BYTES]
            pairs = hash_ids(ids).view(np.int64).tolist()
            rows = [(one, *pair) for one, pair in zip(ids, pairs, strict=True)]
            db.executemany("insert into association values (?, ?, ?)", rows)
            hashes, _ = self._read(db)
            true = IdSet(hashes[:, 0], hashes[:, 1]).digest()
            halves = np.frombuffer(true.hash, ">i8").tolist()
            db.execute("update digest set count = ?, high = ?, low = ?", (true.count, *halves))
            db.execute("insert or ignore into doubt values (1)")

    def settle(self) -> list[bytes]:
        """It was proven against the node; returns what the node has refused and no report has told yet.

        Whoever dies between a refusal and the agreement has read no report.
        """
        with self._using() as db, _transaction(db):
            lost = [row[0] for row in db.execute(UNTOLD)]
            db.execute("update set_aside set is_told = 1 where not is_told")
            db.execute("delete from doubt")
        return lost

    def bind(self, node: bytes, name: str) -> None:
        """The queues are that node's."""
        with self._using() as db:
            db.execute("insert or replace into home values (1, ?, ?)", (node, name))

    def set_aside(self, refused: Sequence[tuple[bytes, str]]) -> None:
        """Removes what the node refused, and keeps it with the code why."""
        for start in range(0, len(refused), _BATCH):
            some = refused[start : start + _BATCH]
            queues = [queue for queue, _ in some]
            halves = hash_ids(queues).view(np.int64).tolist()
            with self._using() as db, _transaction(db):
                for (queue, code), pair in zip(some, halves, strict=True):
                    db.execute(SET_ASIDE, (queue, *pair, code))
                _change_batch(db, queues, REMOVE, with_hashes=False)

    def _read(self, db: sqlite3.Connection) -> tuple[Words, list[tuple[bytes, int, int]]]:
        """The hashes of all ids, and the rows that have another one."""
        parts: list[Words] = [np.empty((0, 2), np.uint64)]
        wrong: list[tuple[bytes, int, int]] = []
        cursor = db.execute("select queue, high, low from association")
        while rows := cursor.fetchmany(100_000):
            try:
                stored = np.array([row[1:] for row in rows], np.int64).view(np.uint64)
                hashes, places = misfits([row[0] for row in rows], stored)
            except (TypeError, ValueError, OverflowError) as error:
                raise FolderUnusable(
                    f"{self.path} has a row that is no association of a queue: {error}"
                ) from error
            parts.append(hashes)
            wrong += [rows[place] for place in places.tolist()]
        return np.concatenate(parts), wrong

    def add(self, queues: Sequence[bytes]) -> int:
        """Adds those that are not there; returns how many were not."""
        return self._change(queues, ADD, with_hashes=True)

    def remove(self, queues: Sequence[bytes]) -> int:
        """Removes those that are there; returns how many were."""
        return self._change(queues, REMOVE, with_hashes=False)

    def __contains__(self, queue: bytes) -> bool:
        with self._using() as db:
            found = db.execute("select 1 from association where queue = ?", (queue,))
            return found.fetchone() is not None

    def __len__(self) -> int:
        return self.digest().count

    def id_set(self) -> IdSet:
        """The hashes of all, for a reconciliation: 16 bytes a queue."""
        high: list[int] = []
        low: list[int] = []
        with self._using() as db:
            cursor = db.execute("select high, low from association")
            while rows := cursor.fetchmany(100_000):
                high += [row[0] for row in rows]
                low += [row[1] for row in rows]
        return IdSet(_unsigned(high), _unsigned(low))

    def queues_of(self, own: IdSet, highs: Words) -> Iterable[list[bytes]]:
        """The ids behind high halves of hashes of a set that `id_set` made, some thousands at a time.

        Nothing is held between two of them: whoever asks may stop, and the file may be closed.
        """
        if len(highs) == len(own):
            yield from self._all_queues()
            return
        with self._using() as db:
            db.execute("create index if not exists by_high on association (high)")
        select = "select queue from association where high = ?"
        for start in range(0, len(highs), _BATCH):
            chosen = highs[start : start + _BATCH].view(np.int64).tolist()
            with self._using() as db:
                found = [row[0] for one in chosen for row in db.execute(select, (one,))]
            yield found

    def _all_queues(self) -> Iterator[list[bytes]]:
        select = "select queue from association where queue > ? order by queue limit ?"
        found = [b""]
        while True:
            with self._using() as db:
                found = [row[0] for row in db.execute(select, (found[-1], _BATCH))]
            if not found:
                return
            yield found

    def _change(self, queues: Sequence[bytes], statement: str, *, with_hashes: bool) -> int:
        changed = 0
        for start in range(0, len(queues), _BATCH):
            some = queues[start : start + _BATCH]
            with self._using() as db, _transaction(db):
                changed += _change_batch(db, some, statement, with_hashes=with_hashes)
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


@contextlib.contextmanager
def _transaction(db: sqlite3.Connection, kind: str = "immediate") -> Iterator[None]:
    db.execute(f"begin {kind}")
    try:
        yield
        db.execute("commit")
    except BaseException:
        # A full disk has ended it already.
        if db.in_transaction:
            db.execute("rollback")
        raise


def _change_batch(
    db: sqlite3.Connection, queues: Sequence[bytes], statement: str, *, with_hashes: bool
) -> int:
    hashes = hash_ids(queues).view(np.int64).tolist()
    sign = 1 if with_hashes else -1
    count = high = low = 0
    for queue, (one_high, one_low) in zip(queues, hashes, strict=True):
        values = (queue, one_high, one_low) if with_hashes else (queue,)
        if db.execute(statement, values).rowcount:
            count += sign
            high ^= one_high
            low ^= one_low
    _, old_high, old_low = _kept(db)
    db.execute(
        "update digest set count = count + ?, high = ?, low = ?",
        (count, old_high ^ high, old_low ^ low),
    )
    return abs(count)


def _kept(db: sqlite3.Connection) -> tuple[int, int, int]:
    count, high, low = db.execute("select count, high, low from digest").fetchone()
    return count, high, low


def _bytes(signed: int) -> bytes:
    return signed.to_bytes(8, "big", signed=True)


def _unsigned(numbers: list[int]) -> Words:
    return np.array(numbers, np.int64).view(np.uint64)
