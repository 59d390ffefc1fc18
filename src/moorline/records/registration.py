"""Room: records. Tables of users: how they become tables that are served, and are none again.

    wanted = Wanted(table="experiments", key=("id",), owner="workspace_id", filters=("workspace_id", "state"))
    added = await add(connection, wanted)
    await remove(connection, "experiments")

All of it is one transaction, but for the index, which is built beside the writers. A lock that is not had
in time is tried for again, a few times; then nothing is changed. docs/records.md says what a table gets.
"""

import asyncio
import secrets
import uuid
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal, TypeVar

import asyncpg
import msgspec

from moorline.catalog.address import LOST_ERRORS
from moorline.core.records.log_reach import LogReach
from moorline.core.records.snapshot import Snapshot
from moorline.errors import DatabaseUnreachable, TableBusy, TableRefused
from moorline.limits import (
    RECORDS_INDEX_MS_MAX,
    RECORDS_LOCK_MS,
    RECORDS_LOCK_PAUSE_MS,
    RECORDS_LOCK_TRIES,
    RECORDS_LOG_ROWS_MAX,
)
from moorline.records.definition import Parent, Wanted, definition
from moorline.records.naming import filled, full_name, quoted, sql
from moorline.records.table_facts import TableFacts, foreign_key, read_facts

IDENTITY = sql("identity")
SCHEMA = sql("schema")
REGISTRATIONS = sql("registrations")
REGISTRATION_THERE = sql("registration_there")
REGISTRATION_NUMBER = sql("registration_number")
REGISTRATION_LOCK = sql("registration_lock")
INDEX = sql("index")
INDEX_PARENT = sql("index_parent")
REMOVE = sql("remove")
REMOVE_COLUMNS = sql("remove_columns")
REMOVE_SCHEMA = sql("remove_schema")

REACH_COLUMNS = ("cleared_below", "pruned_below", "pruned_at")

T = TypeVar("T")


class Registration(msgspec.Struct, frozen=True):
    """A row of `moorline_records.registration`, and where its table is now."""

    n: int
    name: str
    relation: int
    schema_name: str
    table_name: str
    key: tuple[str, ...]
    owner: str | None
    owner_from: str | None
    parent: int | None
    filters: tuple[str, ...]
    capture: Literal["log", "notify"]
    salt: bytes
    epoch: str
    cluster: str
    reach: LogReach
    log_rows_max: int
    log_limit: int
    schema_now: str | None
    table_now: str | None

    @property
    def is_dropped(self) -> bool:
        return self.table_now is None

    @property
    def scopes(self) -> tuple[str, ...]:
        """The owner first, then the other columns that may be filtered by."""
        first = (self.owner,) if self.owner is not None else ()
        return (*first, *(name for name in self.filters if name != self.owner))

    @property
    def table(self) -> str:
        """The quoted name, that of now if it was renamed."""
        return full_name(self.schema_now or self.schema_name, self.table_now or self.table_name)


class Added(msgspec.Struct, frozen=True):
    name: str
    statements: tuple[str, ...]
    """What was done, or with `dry_run` what would be."""
    warnings: tuple[str, ...] = ()


async def add(
    connection: Any, wanted: Wanted, *, lock_ms: int = RECORDS_LOCK_MS, dry_run: bool = False
) -> Added:
    """Registers a table. TableRefused says why it cannot be, TableBusy that its lock was not had."""
    if dry_run:
        facts, statements = await _planned(connection, wanted, is_there=await _is_there(connection))
        return Added(
            wanted.name or facts.table_name,
            (SCHEMA, *statements, *_indexes(facts, wanted, "N")),
            _warnings(wanted),
        )

    # Before anything is locked, and while the reason is the table's own.
    (await read_facts(connection, wanted.table)).check_table()

    async def work() -> tuple[TableFacts, list[str], int]:
        await connection.execute(SCHEMA)
        await connection.execute(REGISTRATION_LOCK)
        number = await connection.fetchval(REGISTRATION_NUMBER)
        facts, statements = await _planned(connection, wanted, is_there=True)
        for text in statements:
            await connection.execute(text)
        return facts, statements, number

    facts, statements, number = await locked(connection, work, lock_ms)
    indexes = _indexes(facts, wanted, str(number))
    await _build(connection, wanted.name or facts.table_name, facts, indexes, lock_ms)
    return Added(
        wanted.name or facts.table_name, (SCHEMA, *statements, *indexes), _warnings(wanted)
    )


async def remove(
    connection: Any, name: str, *, lock_ms: int = RECORDS_LOCK_MS, dry_run: bool = False
) -> list[str]:
    """Takes every trace of a registration away, also if its table is gone. The statements."""

    async def work() -> list[str]:
        if not dry_run:
            await connection.execute(REGISTRATION_LOCK)
        found = await registrations(connection)
        gone = next((one for one in found if one.name == name), None)
        if gone is None:
            raise TableRefused(
                f"no table is registered as {name}; there are: {', '.join(one.name for one in found)}."
            )
        statements = [filled(REMOVE, n=gone.n)]
        if not gone.is_dropped:
            statements.append(filled(REMOVE_COLUMNS, table=gone.table))
        if len(found) == 1:
            statements.append(REMOVE_SCHEMA)
        if not dry_run:
            for text in statements:
                await connection.execute(text)
        return statements

    if not await _is_there(connection):
        raise TableRefused(f"no table is registered as {name}: there are none in this database.")
    return await work() if dry_run else await locked(connection, work, lock_ms)


async def registrations(connection: Any, name: str | None = None) -> list[Registration]:
    """All of this database, by name, or the one that is named."""
    if not await _is_there(connection):
        return []
    rows = await connection.fetch(REGISTRATIONS, name)
    return [_registration(row) for row in rows]


async def _planned(
    connection: Any, wanted: Wanted, *, is_there: bool
) -> tuple[TableFacts, list[str]]:
    facts = await read_facts(connection, wanted.table)
    facts.check_table()
    found = await registrations(connection) if is_there else []
    name = wanted.name or facts.table_name
    for one in found:
        if one.relation == facts.oid:
            raise TableRefused(
                f"{facts.name} is registered already, as {one.name}: remove it first."
            )
        if one.name == name:
            raise TableRefused(
                f"another table is registered as {name}, {one.table}: give this one another --name."
            )
    facts.check_free()
    facts.check_key(wanted.key)
    if wanted.owner is not None and wanted.owner_from is not None:
        raise TableRefused("rows have one owner: give --owner or --owner-from.")
    parent = await _parent(connection, wanted, facts) if wanted.owner_from is not None else None
    facts.check_scopes(
        tuple(dict.fromkeys((*((wanted.owner,) if wanted.owner else ()), *wanted.filters)))
    )
    cluster = (await connection.fetchrow(IDENTITY))["cluster"]
    number = max((one.n for one in found), default=0) + 1
    return facts, definition(
        wanted,
        facts,
        parent,
        number,
        salt=secrets.token_bytes(8),
        epoch=str(uuid.uuid4()),
        cluster=cluster,
    )


async def _parent(connection: Any, wanted: Wanted, facts: TableFacts) -> Parent:
    table, _, column = (wanted.owner_from or "").rpartition(".")
    if not table or not column:
        raise TableRefused("--owner-from takes PARENT.COLUMN, as in experiments.workspace_id.")
    above = await read_facts(connection, table)
    above.check_table()
    above.check_scopes([column])
    child_columns, own_columns = await foreign_key(connection, facts, above)
    return Parent(above, column, tuple(child_columns), tuple(own_columns))


def _indexes(facts: TableFacts, wanted: Wanted, number: str) -> list[str]:
    """None with `notify`, which finds rows by their keys."""
    if wanted.capture == "notify":
        return []
    made = [
        filled(INDEX, index=quoted(_index_name(number, leaf)), table=table)
        for leaf, _, table in facts.leaves
    ]
    if facts.is_partitioned:
        made.append(filled(INDEX_PARENT, index=quoted(f"moorline_xid_{number}"), table=facts.name))
    return made


def _index_name(number: str, leaf: int) -> str:
    return f"moorline_xid_{number}_{leaf}"


async def _build(
    connection: Any, name: str, facts: TableFacts, indexes: Sequence[str], lock_ms: int
) -> None:
    """The indexes, outside of any transaction. If one fails, the registration is taken back as a whole."""
    try:
        await connection.execute(f"set statement_timeout = {RECORDS_INDEX_MS_MAX}")
        # It waits for old transactions, and nobody waits for it: that is no lock to give up on.
        await connection.execute("set lock_timeout = 0")
        for text in indexes:
            await connection.execute(text, timeout=RECORDS_INDEX_MS_MAX / 1000)
    except (asyncpg.PostgresError, OSError, asyncpg.InterfaceError) as error:
        left = await _taken_back(connection, name, lock_ms)
        raise TableRefused(
            f"the index of {facts.name} could not be built ({_words(error)}): {left}"
        ) from error
    finally:
        if not connection.is_closed():
            await connection.execute("reset statement_timeout; reset lock_timeout")


async def _taken_back(connection: Any, name: str, lock_ms: int) -> str:
    try:
        # A half-made index goes with its column.
        await remove(connection, name, lock_ms=lock_ms)
    except (asyncpg.PostgresError, OSError, asyncpg.InterfaceError, TableRefused) as error:
        return f"and what was done could not be taken back ({_words(error)}): `moor records remove {name}`."
    return "everything was taken back; try again."


async def locked(connection: Any, work: Callable[[], Awaitable[T]], lock_ms: int) -> T:
    """One transaction, whose locks are waited for only so long: who comes behind would wait with us."""
    for attempt in range(RECORDS_LOCK_TRIES):
        if attempt:
            await asyncio.sleep(RECORDS_LOCK_PAUSE_MS / 1000)
        try:
            async with connection.transaction(isolation="read_committed"):
                await connection.execute(f"set local lock_timeout = {int(lock_ms)}")
                return await work()
        except (asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError):
            continue
        except asyncpg.InsufficientPrivilegeError as error:
            raise TableRefused(
                f"this role may not do that ({_words(error)}): it must own the table, and may "
                f"create a schema in the "
                "database (`grant create on database`), or own moorline_records."
            ) from error
        except LOST_ERRORS as error:
            raise DatabaseUnreachable(
                f"the database is gone ({_words(error)}): nothing was changed, or all of it."
            ) from error
        except asyncpg.PostgresError as error:
            raise TableRefused(
                f"Postgres refuses it ({_words(error)}): nothing was changed."
            ) from error
    raise TableBusy(
        f"the lock of the table was not had {RECORDS_LOCK_TRIES} times within {lock_ms} ms: others "
        f"work on it. "
        "Nothing was changed; try again, or wait longer with --lock-ms."
    )


def _warnings(wanted: Wanted) -> tuple[str, ...]:
    if wanted.capture == "log":
        return ()
    return (
        "with notify each commit of a writer takes its turn with all others, PREPARE TRANSACTION "
        "fails, and commits fail "
        "if a listener of this Postgres hangs until its queue is full; log has none of that",
    )


async def _is_there(connection: Any) -> bool:
    return bool(await connection.fetchval(REGISTRATION_THERE))


def _registration(row: Any) -> Registration:
    values = dict(row) | {
        "key": tuple(row["key"]),
        "filters": tuple(row["filters"]),
        "reach": reach_of(row),
    }
    for column in REACH_COLUMNS:
        del values[column]
    return Registration(**values)


def reach_of(row: Any) -> LogReach:
    pruned_at = row["pruned_at"]
    return LogReach(
        int(row["cleared_below"]),
        int(row["pruned_below"]),
        None if pruned_at is None else Snapshot.parse(pruned_at),
    )


def _words(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__


__all__ = [
    "RECORDS_LOG_ROWS_MAX",
    "Added",
    "Registration",
    "Wanted",
    "add",
    "registrations",
    "remove",
]
