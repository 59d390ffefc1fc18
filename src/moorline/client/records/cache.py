"""Room: client/records. The cache of a copy: an SQLite file that survives its program.

    about   one line: what was asked for, what the node told of the table, the cursor, and the check
    held    the rows: key, seq, and the row in msgpack

Rows, cursor and check change in one transaction: whatever dies, the file is a copy as it once was. The check
is count and XOR of the hashes of all rows with what is in them: the node's digest is of keys and seqs, and
would not see that a row was altered here. What somebody changed together with the check is seen by the
node's digest, if keys or seqs are others.

A file that fails its check, is damaged, or is of another table or filter is *set aside*: renamed, and named.
That of another program is refused as it is.
"""

import contextlib
import os
import sqlite3
from collections.abc import Iterable, Iterator
from importlib import resources
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from moorline.client.records.asked import Asked
from moorline.client.records.rows import Facts
from moorline.core.records.table import Key
from moorline.core.sets.digest import Digest
from moorline.errors import ConfigError, FolderInUse, FolderUnusable
from moorline.limits import RECORD_CACHES_ASIDE_MAX

APPLICATION: Final = 0x4D6F6F52
"""What SQLite keeps in the head of a file: whose it is."""
FORMAT: Final = 1
MODE: Final = 0o600
"""Rows are for whoever may read them at the node."""

Held = tuple[int, bytes]


class Contents(NamedTuple):
    facts: Facts
    salt: int
    cursor: str
    rows: dict[Key, Held]


class SetAside(NamedTuple):
    """A cache that was not taken: where it is now, and why."""

    path: Path
    why: str


class _Unfit(Exception):
    """Why this file cannot be the cache."""


class RowCache:
    """One program at a time. All of it is for a thread."""

    def __init__(self, path: Path, asked: Asked) -> None:
        self.path = path
        self.set_aside: SetAside | None = None
        self._asked = bytes(asked)
        self._check = Digest.empty()
        self._db: sqlite3.Connection | None = None

    def open(self) -> Contents | None:
        """What it has; None if that is nothing. `set_aside` tells of a file that was not taken."""
        try:
            return self._opened()
        except _Unfit as unfit:
            self.close()
            self.set_aside = SetAside(self._put_aside(), str(unfit))
            return self._opened()
        except BaseException:
            self.close()
            raise

    def write(
        self, rows: Iterable[tuple[Key, Held | None]], facts: Facts, salt: int, cursor: str
    ) -> None:
        """Rows as they are now, None for those that are gone; and the cursor that all rows then are of."""
        assert self._db is not None, "not open"
        with self._named(), _transaction(self._db) as db:
            check = self._check
            for key, held in rows:
                check = self._write_row(db, check, key, held)
            about = (
                self._asked,
                msgspec.msgpack.encode(facts),
                salt.to_bytes(8, "big"),
                cursor,
                check.count,
                check.hash,
            )
            db.execute("insert or replace into about values (1, ?, ?, ?, ?, ?, ?)", about)
        # Behind the commit: a transaction that failed has changed nothing.
        self._check = check

    def close(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None

    # --- opening ----------------------------------------------------------------------------------

    def _opened(self) -> Contents | None:
        try:
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, MODE))
        except OSError as error:
            raise FolderUnusable(f"{self.path} cannot be a cache: {error.strerror}") from error
        self._db = sqlite3.connect(
            self.path, isolation_level=None, check_same_thread=False, timeout=0
        )
        try:
            return self._read(self._db)
        except sqlite3.DatabaseError as error:
            if _is_code(error, sqlite3.SQLITE_BUSY):
                raise FolderInUse(
                    f"{self.path} is the cache of another copy, which is open: give each its own"
                ) from error
            # The last one where a table of ours is missing, or has other columns.
            if _is_code(error, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_ERROR):
                raise _Unfit(f"it is damaged: {error}") from error
            raise FolderUnusable(f"{self.path} cannot be a cache: {error}") from error

    def _read(self, db: sqlite3.Connection) -> Contents | None:
        # Held until it is closed: two copies would take turns in changing one file.
        db.execute("pragma locking_mode = exclusive")
        (application,) = db.execute("pragma application_id").fetchone()
        (format_,) = db.execute("pragma user_version").fetchone()
        (tables,) = db.execute("select count(*) from sqlite_schema").fetchone()
        if application != APPLICATION and tables:
            raise ConfigError(f"{self.path} is a database of another program: name another file")
        db.execute("pragma journal_mode = wal")
        # A cache that has lost its last moments in a power cut is an older one, and as good.
        db.execute("pragma synchronous = normal")
        if not tables:
            with _transaction(db):
                db.execute(f"pragma application_id = {APPLICATION}")
                db.execute(f"pragma user_version = {FORMAT}")
                for statement in _schema().split(";"):
                    db.execute(statement)
            return None
        if format_ != FORMAT:
            raise _Unfit(f"its format is {format_}, and ours is {FORMAT}")
        with _transaction(db):
            return self._contents(db)

    def _contents(self, db: sqlite3.Connection) -> Contents | None:
        about = db.execute("select * from about").fetchone()
        if about is None:
            if db.execute("select 1 from held").fetchone() is not None:
                raise _Unfit("it has rows, and nothing says of what")
            return None
        _, asked, facts, salt, cursor, check_count, check_hash = about
        if asked != self._asked:
            raise _Unfit("it is of another table, filter or columns")
        check = Digest.empty()
        rows: dict[Key, Held] = {}
        try:
            for key, seq, row in db.execute("select key, seq, row from held"):
                check = check.add(_checked(key, seq, row))
                rows[tuple(msgspec.msgpack.decode(key, type=list[str]))] = (seq, row)
            told = msgspec.msgpack.decode(facts, type=Facts)
            found = Contents(told, int.from_bytes(salt, "big"), str(cursor), rows)
        except (msgspec.MsgspecError, TypeError, ValueError, OverflowError) as error:
            raise _Unfit(f"a line of it is none of ours: {error}") from error
        if (check.count, check.hash) != (check_count, check_hash):
            raise _Unfit("its rows are not those that were written")
        self._check = check
        return found

    def _put_aside(self) -> Path:
        for number in range(1, RECORD_CACHES_ASIDE_MAX + 1):
            aside = self.path.with_name(f"{self.path.name}.aside-{number}")
            if aside.exists():
                continue
            # The log of SQLite goes along, or it would be taken for that of the next file.
            for ending in ("-wal", "-shm", ""):
                with contextlib.suppress(FileNotFoundError):
                    Path(f"{self.path}{ending}").rename(f"{aside}{ending}")
            return aside
        raise FolderUnusable(
            f"{self.path} is unfit, and {RECORD_CACHES_ASIDE_MAX} files were set aside beside it before: "
            "look at them, and remove them"
        )

    # --- writing ----------------------------------------------------------------------------------

    def _write_row(
        self, db: sqlite3.Connection, check: Digest, key: Key, held: Held | None
    ) -> Digest:
        packed = msgspec.msgpack.encode(key)
        before = db.execute("select seq, row from held where key = ?", (packed,)).fetchone()
        if before is not None:
            check = check.remove(_checked(packed, *before))
        if held is None:
            db.execute("delete from held where key = ?", (packed,))
            return check
        db.execute("insert or replace into held values (?, ?, ?)", (packed, *held))
        return check.add(_checked(packed, *held))

    @contextlib.contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise FolderUnusable(f"{self.path} cannot be written: {error}") from error


def _schema() -> str:
    return resources.files(__package__).joinpath("cache.sql").read_text().rstrip().rstrip(";")


def _checked(key: bytes, seq: int, row: bytes) -> bytes:
    # With lengths between them, or a byte could move from one to the other.
    return msgspec.msgpack.encode((key, seq, row))


def _is_code(error: sqlite3.Error, *codes: int) -> bool:
    # The lower byte: extended codes say more in the others.
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in codes


@contextlib.contextmanager
def _transaction(db: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    db.execute("begin immediate")
    try:
        yield db
        db.execute("commit")
    except BaseException:
        # A full disk has ended it already.
        if db.in_transaction:
            db.execute("rollback")
        raise
