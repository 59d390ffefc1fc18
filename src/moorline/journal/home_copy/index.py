"""Room: journal/home_copy. What is known of the files of a home: the hashes of their blocks.

    file    path, how it was when it was hashed (inode, size, times), the hashes of its blocks,
            and at the side that copies: what the other side is known to have of it

Both sides keep one, in SQLite beside the files: a home may have millions of them. A file is hashed again
unless its inode, size and times are those of then, and these were older by then than a file system's clock
may be coarse. No start trusts what the one before hashed: behind a power cut a file may be another with the
same times. What was sent stays known, so that a start reads everything and sends little.

The digest of a home is the count of its files and the XOR of the XXH3-128 of each: its path, its size, and
the hashes of its blocks.
"""

import os
import sqlite3
import stat
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Self

import xxhash

from moorline.errors import CannotMove
from moorline.limits import (
    HOME_MOVE_BLOCK_BYTES,
    HOME_MOVE_PATH_LENGTH_MAX,
    HOME_MOVE_STAMP_NS,
)

HASH_BYTES = 16

_TABLE = """
create table if not exists file (
    path text primary key,
    inode integer, size integer, mtime_ns integer, ctime_ns integer, hashed_ns integer, blocks blob,
    sent_size integer, sent_blocks blob
) without rowid
"""


class FileSet(NamedTuple):
    """A digest of files."""

    files: int
    size: int
    hash: bytes


class Blocks(NamedTuple):
    """What is in a file: its size, and the hashes of its blocks one behind the other."""

    size: int
    hashes: bytes


class HomeFiles(NamedTuple):
    """Which entries of a data folder are its home: files by their names, folders with all that is in them."""

    root: Path
    files: Sequence[str]
    folders: Sequence[str]

    def walk(self) -> Iterator[tuple[str, os.stat_result]]:
        """Each file with its path below the root. What goes meanwhile is passed over."""
        for name in self.files:
            try:
                yield name, os.stat(self.root / name)
            except FileNotFoundError:
                continue
        for name in self.folders:
            yield from self._walk(name)

    def _walk(self, folder: str) -> Iterator[tuple[str, os.stat_result]]:
        try:
            with os.scandir(self.root / folder) as found:
                entries = list(found)
        except FileNotFoundError:
            return
        for entry in entries:
            path = f"{folder}/{entry.name}"
            if entry.is_dir():
                yield from self._walk(path)
                continue
            try:
                status = entry.stat()
            except FileNotFoundError:
                continue
            _check_can_move(path, status)
            yield path, status

    def has(self, path: str) -> bool:
        """Whether that can be the path of a file of a home."""
        first, *others = path.split("/")
        if any(part in ("", ".", "..") or "\0" in part for part in others):
            return False
        return first in self.folders if others else first in self.files


def _check_can_move(path: str, status: os.stat_result) -> None:
    """All of ours can. What an operator has put there is named, and the home stays until it is gone."""
    name = path.encode("utf-8", "backslashreplace").decode()
    if not stat.S_ISREG(status.st_mode):
        # To open a pipe would wait for ever.
        raise CannotMove(
            f"{name} in the data folder is no file: move it away, and the move goes on"
        )
    if name != path or len(path) > HOME_MOVE_PATH_LENGTH_MAX:
        raise CannotMove(
            f"{name} in the data folder is no name of ours, and cannot be told to the other node: move it "
            "away, and the move goes on"
        )


def read_blocks(file: Path) -> Iterator[bytes]:
    with file.open("rb", buffering=0) as opened:
        while block := opened.read(HOME_MOVE_BLOCK_BYTES):
            # A short read in the middle would move the borders of all blocks behind it.
            while len(block) < HOME_MOVE_BLOCK_BYTES and (
                more := opened.read(HOME_MOVE_BLOCK_BYTES - len(block))
            ):
                block += more
            yield block


def hash_of(path: str, blocks: Blocks) -> int:
    text = path.encode("utf-8", "surrogateescape")
    return xxhash.xxh3_128_intdigest(text + b"\0" + blocks.size.to_bytes(8, "big") + blocks.hashes)


class FileIndex:
    """Of one thread at a time."""

    def __init__(self, file: Path) -> None:
        try:
            self._connection = _opened(file)
        except sqlite3.DatabaseError as error:
            if error.sqlite_errorcode not in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
                raise
            # It only knows what can be read again, and sent again.
            for one in (file, *(file.with_name(file.name + end) for end in ("-wal", "-shm"))):
                one.unlink(missing_ok=True)
            self._connection = _opened(file)
        self.is_stopped = False
        """Set from another thread: what is under way ends at its next file."""

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Self:
        self._connection.execute("begin")
        return self

    def __exit__(self, *raised: object) -> None:
        try:
            if raised[0] is None:
                self._connection.execute("commit")
        finally:
            # Also where it could not be committed; and on a full disk SQLite may have gone back by itself.
            if self._connection.in_transaction:
                self._connection.execute("rollback")

    def current(self, path: str, status: os.stat_result) -> Blocks | None:
        """What is in the file, if it is as it was when it was hashed."""
        row = self._connection.execute(
            "select inode, size, mtime_ns, ctime_ns, hashed_ns, blocks from file where path = ?",
            (path,),
        ).fetchone()
        if row is None or row[0] is None:
            return None
        inode, size, mtime_ns, ctime_ns, hashed_ns, hashes = row
        seen = (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        is_old = max(mtime_ns, ctime_ns) + HOME_MOVE_STAMP_NS < hashed_ns
        return (
            Blocks(size, hashes) if is_old and seen == (inode, size, mtime_ns, ctime_ns) else None
        )

    def note(self, path: str, status: os.stat_result, hashed_ns: int, blocks: Blocks) -> None:
        """What was read of a file that was as `status` says before it was read, at that time."""
        if blocks.size != status.st_size:
            return self.forget(path)
        self._connection.execute(
            "insert into file (path, inode, size, mtime_ns, ctime_ns, hashed_ns, blocks)"
            " values (?, ?, ?, ?, ?, ?, ?) on conflict (path) do update set inode = excluded.inode,"
            " size = excluded.size, mtime_ns = excluded.mtime_ns, ctime_ns = excluded.ctime_ns,"
            " hashed_ns = excluded.hashed_ns, blocks = excluded.blocks",
            (
                path,
                status.st_ino,
                blocks.size,
                status.st_mtime_ns,
                status.st_ctime_ns,
                hashed_ns,
                blocks.hashes,
            ),
        )
        return None

    def forget(self, path: str) -> None:
        """It has changed, or will."""
        self._connection.execute("update file set inode = null where path = ?", (path,))

    def clear(self) -> None:
        self._connection.execute("delete from file")

    def look(self, files: HomeFiles) -> FileSet:
        """The digest of all files as they are on the disk; those that changed are read."""
        count = size = mixed = 0
        for path, status in files.walk():
            self.check_going_on()
            blocks = self.current(path, status)
            if blocks is None:
                hashed_ns = time.time_ns()
                try:
                    blocks = hashed(files.root / path)
                except FileNotFoundError:
                    continue
                self.note(path, status, hashed_ns, blocks)
            count, size, mixed = count + 1, size + blocks.size, mixed ^ hash_of(path, blocks)
        return FileSet(count, size, mixed.to_bytes(HASH_BYTES, "big"))

    def check_going_on(self) -> None:
        if self.is_stopped:
            raise CannotMove("the process stops")

    # --- at the side that copies ------------------------------------------------------------------

    def sent(self, path: str) -> Blocks | None:
        row = self._connection.execute(
            "select sent_size, sent_blocks from file where path = ? and sent_size is not null",
            (path,),
        ).fetchone()
        return None if row is None else Blocks(*row)

    def note_sent(self, path: str, blocks: Blocks | None) -> None:
        """The other side has that of the file; None if nobody can tell."""
        given = (None, None) if blocks is None else blocks
        self._connection.execute(
            "insert into file (path, sent_size, sent_blocks) values (?, ?, ?)"
            " on conflict (path) do update set sent_size = excluded.sent_size,"
            " sent_blocks = excluded.sent_blocks",
            (path, *given),
        )

    def remove(self, path: str) -> None:
        self._connection.execute("delete from file where path = ?", (path,))

    def forget_sent(self) -> None:
        self._connection.execute("update file set sent_size = null, sent_blocks = null")

    def paths(self) -> Iterator[str]:
        last = ""
        while page := self._connection.execute(
            "select path from file where path > ? order by path limit 1000", (last,)
        ).fetchall():
            yield from (path for (path,) in page)
            last = page[-1][0]

    def all_sent(self) -> FileSet:
        """The digest of what the other side is known to have."""
        count = size = mixed = 0
        rows = self._connection.execute(
            "select path, sent_size, sent_blocks from file where sent_size is not null"
        )
        for path, *blocks in rows:
            found = Blocks(*blocks)
            count, size, mixed = count + 1, size + found.size, mixed ^ hash_of(path, found)
        return FileSet(count, size, mixed.to_bytes(HASH_BYTES, "big"))


def _opened(file: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(file, check_same_thread=False, isolation_level=None)
    try:
        connection.execute("pragma journal_mode = wal")
        connection.execute("pragma synchronous = normal")
        connection.execute(_TABLE)
        connection.execute("update file set inode = null, blocks = null")
    except BaseException:
        connection.close()
        raise
    return connection


def hashed(file: Path) -> Blocks:
    size, hashes = 0, []
    for block in read_blocks(file):
        size += len(block)
        hashes.append(xxhash.xxh3_128_digest(block))
    return Blocks(size, b"".join(hashes))
