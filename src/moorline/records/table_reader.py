"""Room: records. Scans of a registered table at a step: what both captures have in common.

A look (`look`) is one light statement; it also says what stands against going on from a snapshot. Of what
it found nothing is kept but the description of the table, which is read again when its columns, partitions
or epoch
change.
"""

import functools
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import msgspec

from moorline.core.records.log_reach import LogReach
from moorline.core.records.snapshot import Snapshot
from moorline.core.records.table import Column, Key, Scopes, ScopeValue, Table
from moorline.core.records.value import value_of
from moorline.errors import TableRefused, TableRestored
from moorline.limits import (
    RECORDS_CHUNK_BYTES_MAX,
    RECORDS_CHUNK_ROWS_MAX,
    RECORDS_KEYS_ASKED_CHARACTERS_MAX,
    RECORDS_KEYS_ASKED_MAX,
    RECORDS_KEYS_CHUNK_ROWS_MAX,
    RECORDS_VALUES_KEPT_MAX,
)
from moorline.records.capture import Resync, ScannedRow
from moorline.records.condition import Condition
from moorline.records.copying import copied, fields
from moorline.records.database import Database
from moorline.records.registered import Registered, epoch_of, read_registered
from moorline.records.registration import reach_of

_written = msgspec.json.Decoder(dict[str, str])


class Look(msgspec.Struct, frozen=True):
    """What one light statement found."""

    snapshot: Snapshot
    epoch: str
    shape: str
    files: str
    written: str
    attached: str
    reach: LogReach
    log_limit: int
    log_n: int | None
    has_truncation: bool
    has_changes: bool

    @property
    def is_log_whole(self) -> bool:
        """All lines that were numbered were written."""
        return self.log_n is None or self.log_n <= self.log_limit


class TableReader:
    def __init__(self, database: Database, name: str, registered: Registered, shape: str) -> None:
        self.database = database
        self.registered = registered
        self.shape = shape
        """Columns and partitions, as one text that differs when they do."""
        self._files = self._written = ""
        """The files that its rows were in at the last step, and who had written its columns."""
        self._attached: str | None = None
        """The partitions that had been attached then."""
        self._name = name

    @property
    def table(self) -> Table:
        return self.registered.table

    @property
    def number(self) -> int:
        return self.registered.registration.n

    async def look(self, connection: Any, since: Snapshot | None) -> tuple[Look, Resync | None]:
        """Where Postgres is, and what stands against going on from `since`. The description of the table
        is that of now behind it."""
        look = await take_look(connection, self._name, self.registered, since)
        before, shape = self.table, self.shape
        if since is None:
            self.took(look)
        if look.epoch == before.epoch and look.shape == shape:
            written = self._written_by(look)
            now = look.reach, written, look.attached
            if now != (before.reach, before.written, before.attached):
                self._describe(reach=look.reach, written=written, attached=look.attached)
            return look, self._objection(look, since) if since else None
        await self._read_again(connection, look)
        if look.epoch != before.epoch:
            return look, Resync(
                "epoch", "the table was registered anew, or Postgres is another one than before"
            )
        return look, Resync("schema", "the columns or partitions of the table have changed")

    def _objection(self, look: Look, since: Snapshot) -> Resync | None:
        if not look.is_log_whole:
            return Resync("log", "the log has passed its bound")
        if not look.reach.reaches(since, look.snapshot):
            return Resync("log", "the log does not reach back that far")
        if since.xmax > look.snapshot.xmax:
            # Numbers that Postgres has not given yet: not of this one, whatever its epoch says.
            return Resync("epoch", "the snapshot is from the future")
        if look.has_truncation:
            return Resync("truncated", "the table was truncated")
        if self._attached not in (None, look.attached):
            return Resync("schema", "a partition was attached")
        if self._files not in ("", look.files):
            # Whoever reads them at an older snapshot finds none: so Postgres says of what writes tables anew
            # ("not MVCC-safe"), and no trigger hears of it.
            return Resync("rewritten", "the rows are in other files")
        return None

    def took(self, look: Look) -> None:
        """A step was taken there."""
        if self._files not in ("", look.files) and look.written != self._written:
            # `alter column … using` writes the description of its column too. VACUUM FULL and the like do so
            # only for columns that were added with a default and were in no row yet, ours among them.
            before, now = _written.decode(self._written), _written.decode(look.written)
            names = {column.name for column in self.table.columns}
            others = [
                (name, by)
                for name, by in now.items()
                if name in names and before.get(name, by) != by
            ]
            self._describe(rewritten=self.table.rewritten.union(others))
        if self._attached not in (None, look.attached):
            # Its rows may have been written while it was apart, in any column.
            by = f"attached {look.attached}"
            others = [(column.name, by) for column in self.table.columns]
            self._describe(rewritten=self.table.rewritten.union(others))
        self._files, self._written, self._attached = look.files, look.written, look.attached

    def _written_by(self, look: Look) -> tuple[tuple[str, str], ...]:
        by = _written.decode(look.written)
        return tuple((column.name, by.get(column.name, "")) for column in self.table.columns)

    def _describe(self, **other: Any) -> None:
        table = msgspec.structs.replace(self.table, **other)
        self.registered = msgspec.structs.replace(self.registered, table=table)

    async def _read_again(self, connection: Any, look: Look) -> None:
        rewritten = self.table.rewritten
        self.registered = await read_registered(connection, self._name)
        self.shape = look.shape
        written = self._written_by(look)
        self._describe(rewritten=rewritten, written=written, attached=look.attached)

    async def scan_keys(
        self, condition: Condition, snapshot_id: str, *, since: Snapshot | None = None
    ) -> AsyncIterator[list[tuple[Key, int]]]:
        query, width = self.registered.sql.scan_keys(condition, since), len(self.table.key)
        async with self.database.scanning(snapshot_id) as connection:
            async for lines in copied(
                connection, query, RECORDS_KEYS_CHUNK_ROWS_MAX, RECORDS_CHUNK_BYTES_MAX
            ):
                yield _keys(lines, width)

    async def scan_rows(
        self,
        condition: Condition,
        snapshot_id: str,
        *,
        keys: Sequence[Key] | None = None,
        columns: Sequence[str] | None = None,
    ) -> AsyncIterator[list[ScannedRow]]:
        runs = [None] if keys is None else runs_of(keys)
        width = len(self.table.key)
        async with self.database.scanning(snapshot_id) as connection:
            for run in runs:
                query = self.registered.sql.scan_rows(condition, run, columns)
                async for lines in copied(
                    connection, query, RECORDS_CHUNK_ROWS_MAX, RECORDS_CHUNK_BYTES_MAX
                ):
                    yield [scanned_row(fields(line), width) for line in lines]


def runs_of(keys: Sequence[Key]) -> Iterator[list[Key]]:
    """As many as one statement names."""
    run: list[Key] = []
    characters = 0
    for key in keys:
        length = sum(map(len, key))
        is_full = len(run) >= RECORDS_KEYS_ASKED_MAX
        if is_full or (run and characters + length > RECORDS_KEYS_ASKED_CHARACTERS_MAX):
            yield run
            run, characters = [], 0
        run.append(key)
        characters += length
    if run:
        yield run


async def take_look(
    connection: Any, name: str, registered: Registered, since: Snapshot | None
) -> Look:
    """TableRefused if the table is not there any more, or not the one that was registered."""
    registration = registered.registration
    row = await connection.fetchrow(registered.sql.state(since))
    if row is None:
        raise TableRefused(f"{name} is not registered any more.")
    if row["cluster"] != row["cluster_now"]:
        raise TableRestored(
            f"{name} was registered in another cluster: `moor records renew {name}`."
        )
    if row["shape"] is None:
        raise TableRefused(f"the table of {name}, {registration.table}, is dropped.")
    now = msgspec.structs.replace(
        registration, epoch=row["epoch"], cluster=row["cluster"], relation=row["relation"]
    )
    return Look(
        snapshot=Snapshot.parse(row["snapshot"]),
        epoch=epoch_of(now, row["timeline"]),
        shape=row["shape"],
        files=row["files"],
        written=row["written"],
        attached=row["attached"],
        reach=reach_of(row),
        log_limit=row["log_limit"],
        log_n=row["log_n"],
        has_truncation=row["has_truncation"],
        has_changes=row["has_changes"],
    )


async def open_reader(database: Database, name: str) -> TableReader:
    """TableRefused says why a table is not served."""
    async with database.reading() as connection:
        registered = await read_registered(connection, name)
        reader = TableReader(database, name, registered, "")
        look, _ = await reader.look(connection, None)
        await check_xids(connection, registered, look.snapshot)
        return reader


async def check_xids(connection: Any, registered: Registered, now: Snapshot) -> None:
    """A row, or a line, of a transaction that Postgres has not begun is from another cluster: it would be
    seen by nobody until that number comes, and then as new."""
    if await connection.fetchval(registered.sql.future(now)):
        name = registered.registration.name
        raise TableRestored(
            f"{name} has rows of transactions that are still to come, as a restored dump has: `moor "
            f"records renew {name}`."
        )


def scopes_of(columns: Sequence[Column], values: Sequence[bytes | None]) -> Scopes:
    """Their one form, of texts of Postgres."""
    return tuple(map(_scope_value, columns, values))


@functools.lru_cache(maxsize=RECORDS_VALUES_KEPT_MAX)
def _scope_value(column: Column, value: bytes | None) -> ScopeValue:
    # Owners and states are few, and to read one of them takes longer than to find it.
    return None if value is None else value_of(column, value.decode())


def key_of(values: Sequence[bytes | None]) -> Key:
    return tuple(value.decode() for value in values if value is not None)


def _keys(lines: list[bytes], width: int) -> list[tuple[Key, int]]:
    text = b"\n".join(lines)
    if b"\\" in text:
        return [(key_of(row[:width]), int(row[width] or 0)) for row in map(fields, lines)]
    if width == 1:
        return [
            ((key,), int(seq))
            for key, _, seq in (line.partition("\t") for line in text.decode().split("\n"))
        ]
    rows = (line.split("\t") for line in text.decode().split("\n"))
    return [(tuple(row[:width]), int(row[width])) for row in rows]


def scanned_row(row: list[bytes | None], width: int) -> ScannedRow:
    seq, content, whole = row[width : width + 3]
    assert seq is not None
    assert content is not None
    return ScannedRow(key_of(row[:width]), int(seq), content, int(whole or 0))
