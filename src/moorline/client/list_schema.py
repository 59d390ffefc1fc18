"""Room: client. The file of a service's list: its tables, its version, and files from before it.

association   the queues, with the halves of their hashes and their homes
digest        count and hash of each part
home          what a home was called, and the id of the node that had it
doubt         the parts that have failed their check and were not proven since
set_aside     what left the list without being dissociated by its user: refused by its node, or damaged;
              and whether a report has told so
"""

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from moorline.errors import FormatTooNew

SCHEMA = """
create table if not exists association (
    queue blob primary key, high integer not null, low integer not null, home blob not null default x''
) without rowid;
create table if not exists digest (
    home blob primary key, count integer not null, high integer not null, low integer not null
);
create table if not exists home (number blob primary key, node blob not null, name text not null);
create table if not exists doubt (home blob primary key);
create table if not exists set_aside (
    queue blob not null, high integer not null, low integer not null,
    why text not null, time_s integer not null, is_told integer not null
);
"""

VERSION = 1
"""The file's `user_version`: docs/formats.md. Files from before it have 0, and are known by their columns."""

OF_BEFORE = """
alter table association add column home blob not null default x'';
alter table digest rename to digest_of_before;
create table digest (
    home blob primary key, count integer not null, high integer not null, low integer not null
);
insert into digest select x'', count, high, low from digest_of_before;
drop table digest_of_before;
alter table home rename to home_of_before;
create table home (number blob primary key, node blob not null, name text not null);
insert into home select x'', node, name from home_of_before;
drop table home_of_before;
alter table doubt rename to doubt_of_before;
create table doubt (home blob primary key);
insert into doubt select x'' from doubt_of_before;
drop table doubt_of_before;
"""
"""A list that was of one node becomes one part, of the home that its node will say."""


def bring_up_to_date(db: sqlite3.Connection, path: Path | str) -> None:
    """Makes the tables, of a new file or of one from before; a newer one is refused, and not changed."""
    known = _check_version(db, path)
    db.execute("pragma journal_mode = wal")
    db.execute("pragma synchronous = full")
    _upgrade(db)
    db.executescript(SCHEMA)
    if known != VERSION:
        db.execute(f"pragma user_version = {VERSION}")


@contextlib.contextmanager
def transaction(db: sqlite3.Connection, kind: str = "immediate") -> Iterator[None]:
    db.execute(f"begin {kind}")
    try:
        yield
        db.execute("commit")
    except BaseException:
        # A full disk has ended it already.
        if db.in_transaction:
            db.execute("rollback")
        raise


def _check_version(db: sqlite3.Connection, path: Path | str) -> int:
    (version,) = db.execute("pragma user_version").fetchone()
    if version > VERSION:
        raise FormatTooNew(
            f"{path} was written by a newer Moorline (format {version}, this one knows up to {VERSION}): use "
            "that one. Nothing was changed"
        )
    return int(version)


def _upgrade(db: sqlite3.Connection) -> None:
    columns = {row[1] for row in db.execute("pragma table_info(digest)")}
    if "one" not in columns:
        return
    # One transaction: whoever dies in it has the list of before.
    with transaction(db):
        for statement in filter(str.strip, OF_BEFORE.split(";")):
            db.execute(statement)
