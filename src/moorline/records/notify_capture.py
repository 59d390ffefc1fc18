"""Room: records. The seed's NOTIFY-queue strategy as a capture: triggers send what changed with the
writer's commit.

Lines are in the memory of whoever listens, so nothing can be asked about the time before; `replays` says
no. Until a line is heard a look costs one statement and the position stays where it is. docs/records.md says
what it
costs writers.
"""

import asyncio
import itertools
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Self

from moorline.catalog.address import LOST_ERRORS
from moorline.core.records.snapshot import Snapshot
from moorline.core.records.table import After, Before, Change, Key, Table
from moorline.core.records.value import value_of
from moorline.errors import DatabaseUnreachable, TableRefused
from moorline.limits import RECORDS_CHUNK_BYTES_MAX, RECORDS_CHUNK_ROWS_MAX, RECORDS_MARKER_MS_MAX
from moorline.records.capture import Resync
from moorline.records.condition import Condition
from moorline.records.copying import copied, fields
from moorline.records.database import Database
from moorline.records.notified import First, NotifiedLines
from moorline.records.registered import Registered
from moorline.records.table_reader import TableReader, key_of, open_reader, scopes_of
from moorline.records.table_sql import TableSql

MARKER = "moorline marker "


class NotifyStep:
    def __init__(
        self,
        since: Snapshot,
        until: Snapshot,
        resync: Resync | None,
        table: Table,
        firsts: dict[Key, First],
        sql: TableSql,
        database: Database,
        connection: Any | None,
    ) -> None:
        self._database = database
        self.since = since
        self.until = until
        self.table = table
        self.resync = resync
        self.is_unchanged = resync is None and not firsts
        self._firsts = firsts
        self._sql = sql
        self._connection = connection

    async def export(self) -> str:
        assert self._connection is not None, "of a step with changes, or with is_exported"
        with self._database.told():
            found: str = await self._connection.fetchval("select pg_export_snapshot()")
        return found

    async def changes(self) -> AsyncIterator[list[Change]]:
        with self._database.told():
            async for changes in self._changes():
                yield changes

    async def _changes(self) -> AsyncIterator[list[Change]]:
        assert self.resync is None, "what changed is not known"
        keys = list(self._firsts)
        runs = [
            keys[at : at + RECORDS_CHUNK_ROWS_MAX]
            for at in range(0, len(keys), RECORDS_CHUNK_ROWS_MAX)
        ]
        there: set[Key] = set()
        for run in runs:
            found = {key async for key in self._there(run)}
            there |= found
            gone = [
                Change(key, self._before(key), None)
                for key in run
                if key not in found and self._firsts[key].was
            ]
            if gone:
                yield gone
        for run in runs:
            asked = [key for key in run if key in there]
            if asked:
                query = self._sql.rows_there(asked)
                async for lines in copied(
                    self._connection, query, RECORDS_CHUNK_ROWS_MAX, RECORDS_CHUNK_BYTES_MAX
                ):
                    yield [self._upsert(fields(line)) for line in lines]

    async def _there(self, keys: list[Key]) -> AsyncIterator[Key]:
        width = len(self._sql.table.key)
        query = self._sql.keys_there(keys)
        async for lines in copied(
            self._connection, query, RECORDS_CHUNK_ROWS_MAX, RECORDS_CHUNK_BYTES_MAX
        ):
            for line in lines:
                yield key_of(fields(line)[:width])

    def _before(self, key: Key) -> Before | None:
        first = self._firsts[key]
        if not first.was:
            return None
        columns = zip(self._sql.scopes, first.scopes, strict=True)
        return Before(first.seq, tuple(value_of(column, value) for column, value in columns))

    def _upsert(self, row: list[bytes | None]) -> Change:
        width, count = len(self._sql.table.key), len(self._sql.scopes)
        key, scopes = key_of(row[:width]), scopes_of(self._sql.scopes, row[width : width + count])
        seq, content, whole = row[width + count :]
        assert seq is not None
        assert content is not None
        return Change(key, self._before(key), After(int(seq), scopes, content, int(whole or 0)))


class NotifyCapture(TableReader):
    """A `Capture`."""

    def __init__(self, database: Database, name: str, registered: Registered, shape: str) -> None:
        super().__init__(database, name, registered, shape)
        self._lines = NotifiedLines()
        self._listener: Any = None
        self._channel = ""
        self._markers: dict[str, asyncio.Event] = {}
        self._names = (f"{MARKER}{secrets.token_hex(8)} {number}" for number in itertools.count())

    @classmethod
    @asynccontextmanager
    async def open(cls, database: Database, name: str) -> AsyncIterator[Self]:
        reader = await open_reader(database, name)
        if reader.registered.registration.capture != "notify":
            raise TableRefused(
                f"{name} is registered with the capture {reader.registered.registration.capture}."
            )
        capture = cls(database, name, reader.registered, reader.shape)
        try:
            await capture._listen()
            yield capture
        finally:
            await capture._leave()

    async def position(self) -> Snapshot:
        async with self.database.connection() as connection:
            await self._listen()
            look, _ = await self.look(connection, None)
            # Taken while we listen: all that is behind it will be heard.
            return look.snapshot

    @asynccontextmanager
    async def step(
        self, since: Snapshot, *, is_exported: bool = False
    ) -> AsyncIterator[NotifyStep]:
        await self._listen()
        async with self.database.reading() as connection:
            look, resync = await self.look(connection, since)
            self.took(look)
            if resync is None and not self._lines.covers(since):
                resync = Resync("notify", "lines were missed, or are not kept")
            if resync is None and not len(self._lines) and not is_exported:
                # Without a marker nobody knows whether all is heard up to now: the position stays.
                yield NotifyStep(
                    since, since, None, self.table, {}, self.registered.sql, self.database, None
                )
                return
            if resync is None or resync.why == "rewritten":
                await self._heard_all()
                heard, firsts = self._firsts(since, look.snapshot)
                # A TRUNCATE says so itself.
                resync = heard or resync
            if resync is not None:
                firsts = {}
                self._lines.begin(look.snapshot)
            yield NotifyStep(
                since,
                look.snapshot,
                resync,
                self.table,
                firsts,
                self.registered.sql,
                self.database,
                connection,
            )

    def _firsts(self, since: Snapshot, until: Snapshot) -> tuple[Resync | None, dict[Key, First]]:
        if not self._lines.covers(since):
            return Resync("notify", "lines were lost while they were waited for"), {}
        self._lines.forget(since)
        firsts = self._lines.first_lines(since, until)
        if firsts is not None:
            return None, firsts
        if self._lines.is_truncated(since, until):
            return Resync("truncated", "the table was truncated"), {}
        return Resync("notify", "a line was too long to be sent"), {}

    async def replays(self, epoch: str, since: Snapshot) -> Resync | None:  # noqa: ARG002
        return Resync("notify", "this capture keeps no log")

    def changes_since(
        self,
        since: Snapshot,  # noqa: ARG002
        condition: Condition,  # noqa: ARG002
        snapshot_id: str,  # noqa: ARG002
    ) -> AsyncIterator[list[Change]]:
        raise AssertionError("replays() said no")

    async def _listen(self) -> None:
        """Connects, again where the connection was lost: what was sent in between is not known."""
        channel = f"moorline_records_{self.registered.registration.n}"
        if (
            self._listener is not None
            and not self._listener.is_closed()
            and channel == self._channel
        ):
            return
        await self._leave()
        self._lines.lose()
        self._channel = channel
        self._listener = await self.database.listening()
        await self._listener.add_listener(channel, self._hear)
        self._listener.add_termination_listener(lambda _: self._lines.lose())
        async with self.database.connection() as connection:
            look, _ = await self.look(connection, None)
            self._lines.begin(look.snapshot)

    def _hear(self, _connection: Any, _process: int, _channel: str, payload: Any) -> None:
        if payload.startswith(MARKER):
            if (event := self._markers.get(payload)) is not None:
                event.set()
            return
        self._lines.hear(payload)

    async def _heard_all(self) -> None:
        """Sends a marker and hears it: what was committed before it was sent is heard then."""
        name = next(self._names)
        event = self._markers[name] = asyncio.Event()
        try:
            async with self.database.connection() as connection:
                await connection.execute("select pg_notify($1, $2)", self._channel, name)
            async with asyncio.timeout(RECORDS_MARKER_MS_MAX / 1000):
                await event.wait()
        except TimeoutError:
            raise DatabaseUnreachable(
                "the database does not pass notifications on: look for a listener that is idle in a "
                "transaction."
            ) from None
        finally:
            del self._markers[name]

    async def _leave(self) -> None:
        if self._listener is not None:
            with suppress(*LOST_ERRORS):
                await self._listener.close(timeout=1)
