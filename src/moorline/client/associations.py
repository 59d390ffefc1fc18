"""Room: client. The client's own list of the queues that a service is associated with, in an SQLite file.

Count and hash are changed in the same transaction as the list: after any crash the digest is that of the
list. Membership decides before XOR does: adding twice changes nothing.
"""

import sqlite3
from collections.abc import Iterable, Sequence
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
    """The list. One process at a time; calls are short, bulk ones belong in a thread."""

    def __init__(self, path: Path | str) -> None:
        try:
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            self._db.execute("pragma journal_mode = wal")
            self._db.execute("pragma synchronous = full")
            self._db.executescript(SCHEMA)
        except sqlite3.Error as error:
            raise FolderUnusable(
                f"{path} cannot be used as the list of a service: {error}"
            ) from error

    def close(self) -> None:
        self._db.close()

    def digest(self) -> Digest:
        """As it is kept, without reading the list."""
        count, high, low = self._db.execute("select count, high, low from digest").fetchone()
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
        found = self._db.execute("select 1 from association where queue = ?", (queue,))
        return found.fetchone() is not None

    def __len__(self) -> int:
        return self.digest().count

    def id_set(self) -> IdSet:
        """The hashes of all, for a reconciliation: 16 bytes a queue."""
        high: list[int] = []
        low: list[int] = []
        cursor = self._db.execute("select high, low from association")
        while rows := cursor.fetchmany(100_000):
            high += [row[0] for row in rows]
            low += [row[1] for row in rows]
        return IdSet(_unsigned(high), _unsigned(low))

    def queues_of(self, hashes: IdSet, places: Words) -> Iterable[list[bytes]]:
        """The ids behind places in a set that `id_set` made, some thousands at a time."""
        if len(places) == len(hashes):
            cursor = self._db.execute("select queue from association")
            while rows := cursor.fetchmany(_BATCH):
                yield [row[0] for row in rows]
            return
        self._db.execute("create index if not exists by_high on association (high)")
        for start in range(0, len(places), _BATCH):
            chosen = places[start : start + _BATCH].astype(np.int64)
            highs = hashes.high[chosen].view(np.int64).tolist()
            lows = hashes.low[chosen].view(np.int64).tolist()
            yield [
                row[0]
                for pair in zip(highs, lows, strict=True)
                for row in self._db.execute(
                    "select queue from association where high = ? and low = ?", pair
                )
            ]

    def _change(self, queues: Sequence[bytes], statement: str, *, with_hashes: bool) -> int:
        changed = 0
        for start in range(0, len(queues), _BATCH):
            changed += self._change_batch(queues[start : start + _BATCH], statement, with_hashes)
        return changed

    def _change_batch(self, queues: Sequence[bytes], statement: str, with_hashes: bool) -> int:
        hashes = hash_ids(queues).view(np.int64).tolist()
        sign = 1 if with_hashes else -1
        count = high = low = 0
        self._db.execute("begin immediate")
        try:
            for queue, (one_high, one_low) in zip(queues, hashes, strict=True):
                values = (queue, one_high, one_low) if with_hashes else (queue,)
                if self._db.execute(statement, values).rowcount:
                    count += sign
                    high ^= one_high
                    low ^= one_low
            self._db.execute(
                "update digest set count = count + ?, high = ?, low = ?",
                self._mixed(count, high, low),
            )
            self._db.execute("commit")
        except BaseException:
            self._db.execute("rollback")
            raise
        return abs(count)

    def _mixed(self, count: int, high: int, low: int) -> tuple[int, int, int]:
        _, old_high, old_low = self._db.execute("select count, high, low from digest").fetchone()
        return count, old_high ^ high, old_low ^ low


def _bytes(signed: int) -> bytes:
    return signed.to_bytes(8, "big", signed=True)


def _unsigned(numbers: list[int]) -> Words:
    return np.array(numbers, np.int64).view(np.uint64)
