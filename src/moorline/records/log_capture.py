"""Room: records. The default capture: the table and its small log, read at snapshots of Postgres.

Nothing is kept between two steps, neither here nor in Postgres: whoever has a snapshot can ask what is
behind it. Writers hear nothing of it. docs/design/records.md, "Positions", says why what comes out is exact.
"""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Self

from moorline.core.records.snapshot import Snapshot
from moorline.core.records.table import After, Before, Change, Key, Table
from moorline.errors import TableRefused
from moorline.limits import RECORDS_CHUNK_BYTES_MAX, RECORDS_CHUNK_ROWS_MAX
from moorline.records.capture import Resync
from moorline.records.condition import Condition
from moorline.records.copying import copied, fields
from moorline.records.database import Database
from moorline.records.table_reader import Look, TableReader, key_of, open_reader, scopes_of
from moorline.records.table_sql import TableSql


class LogStep:
    def __init__(
        self,
        since: Snapshot,
        look: Look,
        resync: Resync | None,
        table: Table,
        sql: TableSql,
        database: Database,
        connection: Any | None,
    ) -> None:
        self._database = database
        self.since = since
        self.until = look.snapshot
        self.table = table
        self.resync = resync
        self.is_unchanged = resync is None and not look.has_changes
        self._sql = sql
        self._connection = connection

    async def export(self) -> str:
        assert self._connection is not None, "of a step with changes, or with is_exported"
        with self._database.told():
            found: str = await self._connection.fetchval("select pg_export_snapshot()")
        return found

    async def changes(self) -> AsyncIterator[list[Change]]:
        assert self.resync is None, "what changed is not known"
        if not self.is_unchanged:
            with self._database.told():
                async for changes in read_changes(self._connection, self._sql, self.since, ()):
                    yield changes


class LogCapture(TableReader):
    """A `Capture`."""

    @classmethod
    async def open(cls, database: Database, name: str) -> Self:
        reader = await open_reader(database, name)
        if reader.registered.registration.capture != "log":
            raise TableRefused(
                f"{name} is registered with the capture {reader.registered.registration.capture}."
            )
        return cls(database, name, reader.registered, reader.shape)

    async def position(self) -> Snapshot:
        async with self.database.connection() as connection:
            look, _ = await self.look(connection, None)
            return look.snapshot

    @asynccontextmanager
    async def step(self, since: Snapshot, *, is_exported: bool = False) -> AsyncIterator[LogStep]:
        if not is_exported:
            # Alone, a statement has a snapshot of its own, and needs no transaction around it.
            async with self.database.connection() as connection:
                look, resync = await self.look(connection, since)
            self.took(look)
            if resync is None and not look.has_changes:
                yield LogStep(
                    since, look, None, self.table, self.registered.sql, self.database, None
                )
                return
            if resync is not None:
                yield LogStep(
                    since, look, resync, self.table, self.registered.sql, self.database, None
                )
                return
        async with self.database.reading() as connection:
            look, resync = await self.look(connection, since)
            self.took(look)
            yield LogStep(
                since, look, resync, self.table, self.registered.sql, self.database, connection
            )

    async def replays(self, epoch: str, since: Snapshot) -> Resync | None:
        if epoch != self.table.epoch:
            return Resync("epoch", "the cursor is of another registration, cluster or timeline")
        async with self.database.connection() as connection:
            _, resync = await self.look(connection, since)
            return resync

    async def changes_since(
        self, since: Snapshot, condition: Condition, snapshot_id: str
    ) -> AsyncIterator[list[Change]]:
        async with self.database.reading(snapshot_id) as connection:
            async for changes in read_changes(connection, self.registered.sql, since, condition):
                yield changes


async def read_changes(
    connection: Any, sql: TableSql, since: Snapshot, condition: Condition, upto: Key = ()
) -> AsyncGenerator[list[Change]]:
    """Of all keys, or of those up to one."""
    bounds = RECORDS_CHUNK_ROWS_MAX, RECORDS_CHUNK_BYTES_MAX
    async for lines in copied(connection, sql.deletions(since, condition, upto), *bounds):
        yield [_deletion(fields(line), sql) for line in lines]
    async for lines in copied(connection, sql.upserts(since, condition, upto), *bounds):
        yield [_upsert(fields(line), sql) for line in lines]


def _deletion(row: list[bytes | None], sql: TableSql) -> Change:
    width = len(sql.table.key)
    *scopes, seq = row[width:]
    return Change(key_of(row[:width]), Before(int(seq or 0), scopes_of(sql.scopes, scopes)), None)


def _upsert(row: list[bytes | None], sql: TableSql) -> Change:
    """Key, scopes, seq, whether it is and was meant, the seq and scopes before, the row itself, and, where
    that is cut, how long it is."""
    width, count = len(sql.table.key), len(sql.scopes)
    scopes = row[width : width + count]
    seq, is_meant, was_meant, prev_seq, *prev_scopes, content, whole = row[width + count :]
    assert seq is not None
    assert content is not None
    after = After(int(seq), scopes_of(sql.scopes, scopes), content, int(whole or 0))
    return Change(
        key_of(row[:width]),
        Before(int(prev_seq or 0), scopes_of(sql.scopes, prev_scopes))
        if was_meant == b"t"
        else None,
        after if is_meant == b"t" else None,
    )
