"""A registered table in a real Postgres, and a copy that follows its steps."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

from moorline.core.records.snapshot import Snapshot
from moorline.core.records.table import Change, Key
from moorline.records.capture import Capture, Resync
from moorline.records.database import Database
from moorline.records.notify_capture import NotifyCapture
from moorline.records.opening import open_capture
from moorline.records.registration import Wanted, add

HIDDEN = "array['moor_seq', 'moor_xid', 'moor_made']"
"""Columns of ours, which no client sees."""

THINGS = """
create table things (
    id bigint primary key,
    workspace_id integer,
    state text,
    note text
);
"""


class Copy:
    """What a reader holds: seq and row of each key. It checks that every step begins where it is."""

    def __init__(self, capture: Capture, since: Snapshot) -> None:
        self.capture = capture
        self.since = since
        self.rows: dict[Key, tuple[int, dict[str, Any]]] = {}
        self.resyncs: list[Resync] = []
        self.changes: list[Change] = []
        """Of the last step."""

    async def step(self) -> list[Change]:
        # A notification is heard some time behind the commit, but before the snapshot of a step that is
        # exported.
        is_exported = isinstance(self.capture, NotifyCapture)
        async with self.capture.step(self.since, is_exported=is_exported) as step:
            self.changes = []
            if step.resync is not None:
                self.resyncs.append(step.resync)
            else:
                has_records = False
                async for part in step.changes():
                    for change in part:
                        assert not (has_records and change.after is None), "deletions come first"
                        has_records |= change.after is not None
                        self.apply(change)
                    self.changes += part
                assert not (step.is_unchanged and self.changes)
            self.since = step.until
        return self.changes

    def apply(self, change: Change) -> None:
        held = self.rows.get(change.key)
        before = change.before
        assert (held is None) == (before is None), f"{change} over {held}"
        if held is not None and before is not None:
            assert held[0] == before.seq, f"{change} over {held}"
        if change.after is None:
            del self.rows[change.key]
        else:
            self.rows[change.key] = (change.after.seq, json.loads(change.after.row))

    async def scan(self) -> None:
        """Everything anew, at a step: steps go on from there."""
        async with self.capture.step(self.since, is_exported=True) as step:
            snapshot_id = await step.export()
            self.rows = {
                row.key: (row.seq, json.loads(row.row))
                async for rows in self.capture.scan_rows((), snapshot_id)
                for row in rows
            }
            self.since = step.until


class Bed:
    def __init__(
        self, dsn: str, connection: asyncpg.Connection, database: Database, capture: str
    ) -> None:
        self.dsn = dsn
        self.connection = connection
        self.database = database
        self.kind = capture

    async def execute(self, *statements: str) -> None:
        """Each in a transaction of its own."""
        for statement in statements:
            await self.connection.execute(statement)

    async def add(self, table: str = "things", **wanted: Any) -> None:
        wanted = {
            "key": ("id",),
            "filters": ("workspace_id", "state"),
            "capture": self.kind,
        } | wanted
        await add(self.connection, Wanted(table, **wanted))

    async def things(self) -> None:
        await self.execute(THINGS)
        await self.add()

    @asynccontextmanager
    async def copy(self, name: str = "things") -> AsyncIterator[Copy]:
        async with open_capture(self.database, name) as capture:
            copy = Copy(capture, await capture.position())
            await copy.scan()
            yield copy

    @asynccontextmanager
    async def another(self) -> AsyncIterator[asyncpg.Connection]:
        connection = await asyncpg.connect(self.dsn)
        try:
            yield connection
        finally:
            await connection.close()

    async def check(self, copy: Copy, table: str = "things") -> None:
        """The copy is the table, row for row; the control is another query than those of captures."""
        key = copy.capture.table.key
        rows = await self.connection.fetch(
            f"select moor_seq, (to_jsonb(t) - {HIDDEN})::text as row from {table} t"
        )
        found = {}
        for row in rows:
            content = json.loads(row["row"])
            found[tuple(str(content[name]) for name in key)] = (row["moor_seq"], content)
        assert copy.rows == found

    async def check_resynced(self, copy: Copy, why: str) -> None:
        """The next step says that it does not know; behind a scan the copy is the table again."""
        copy.resyncs.clear()
        await copy.step()
        assert [resync.why for resync in copy.resyncs] == [why]
        await copy.scan()
        await self.check(copy)
