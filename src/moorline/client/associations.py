"""Room: client. The client's own list of the queues that a service is associated with, in an SQLite file.

Count and hash are changed in the same transaction as the list: after any crash the digest is that of the
list. Membership decides before XOR does: adding twice changes nothing.
"""

import contextlib
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from moorline.core.digest import Digest
from moorline.core.hashing import hash_ids
from moorline.core.id_set import IdSet
from moorline.core.sketch import Words
from moorline.errors import FolderUnusable

SCHEMA = """
create table if not exists association (
    queue blob primary key, high integer not null, low integer not null
) without rowid;
create table if not exists digest (
    one integer primary key check (one = 1),
    count integer not null, high integer not null, low integer not null
);
insert or ignore into digest values (1, 0, 0, 0);
"""

_BATCH = 10_000


class Associations:
    """The list. One process at a time; calls are short, bulk ones belong in a thread (client.list_thread)."""

    def __init__(self, path: Path | str) -> None:
        self._path = path
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
        return self.id_set().digest()

    def add(self, queues: Sequence[bytes]) -> int:
        """Adds those that are not there; returns how many were not."""
        return self._change(
            queues, "insert or ignore into association values (?, ?, ?)", with_hashes=True
        )

    def remove(self, queues: Sequence[bytes]) -> int:
        """Removes those that are there; returns how many were."""
        return self._change(queues, "delete from association where queue = ?", with_hashes=False)

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

    def queues_of(self, hashes: IdSet, places: Words) -> Iterable[list[bytes]]:
        """The ids behind places in a set that `id_set` made, some thousands at a time.

        Nothing is held between two of them: whoever asks may stop, and the file may be closed.
        """
        if len(places) == len(hashes):
            yield from self._all_queues()
            return
        with self._using() as db:
            db.execute("create index if not exists by_high on association (high)")
        for start in range(0, len(places), _BATCH):
            chosen = places[start : start + _BATCH].astype(np.int64)
            highs = hashes.high[chosen].view(np.int64).tolist()
            lows = hashes.low[chosen].view(np.int64).tolist()
            select = "select queue from association where high = ? and low = ?"
            with self._using() as db:
                found = [
                    row[0]
                    for pair in zip(highs, lows, strict=True)
                    for row in db.execute(select, pair)
                ]
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
                changed += _change_batch(db, some, statement, with_hashes)
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
                f"{self._path} cannot be used as the list of a service: {error}"
            ) from error


@contextlib.contextmanager
def _transaction(db: sqlite3.Connection) -> Iterator[None]:
    db.execute("begin immediate")
    try:
        yield
        db.execute("commit")
    except BaseException:
        # A full disk has ended it already.
        if db.in_transaction:
            db.execute("rollback")
        raise


def _change_batch(
    db: sqlite3.Connection, queues: Sequence[bytes], statement: str, with_hashes: bool
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
