"""Room: records. Connections to one Postgres with tables of users.

    async with Database.open(dsn) as database:
        async with database.reading() as connection:                       one snapshot, for reading
            snapshot_id = await connection.fetchval("select pg_export_snapshot()")
            async with database.reading(snapshot_id) as other: ...         another connection at the same one

Sessions write texts in one way, whatever the server, the database or the role has set: a key has one text.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, Self

import asyncpg

from moorline.catalog.address import LOST_ERRORS, OPEN_ERRORS, check_address, unreachable
from moorline.errors import CatalogUnreachable, DatabaseUnreachable, TableRefused
from moorline.limits import (
    CATALOG_KILL_MS_MAX,
    RECORDS_CONNECT_MS_MAX,
    RECORDS_CONNECTIONS_MAX,
    RECORDS_READ_LOCK_MS,
    RECORDS_STATEMENT_MS_MAX,
)
from moorline.records.naming import literal
from moorline.records.registration import Registration, registrations

SESSION = {
    "application_name": "moorline",
    "client_encoding": "UTF8",
    "search_path": "pg_catalog",
    "datestyle": "ISO, YMD",
    "timezone": "UTC",
    "extra_float_digits": "1",
    "bytea_output": "hex",
    "standard_conforming_strings": "on",
    # A policy that hides rows from us is an error, and no smaller table.
    "row_security": "off",
    "default_transaction_isolation": "read committed",
    "statement_timeout": str(RECORDS_STATEMENT_MS_MAX),
    "lock_timeout": str(RECORDS_READ_LOCK_MS),
    "idle_in_transaction_session_timeout": str(RECORDS_STATEMENT_MS_MAX),
    "jit": "off",
    # A few changes among many rows are found by their index, whatever statistics say that are old.
    "enable_seqscan": "off",
}

GONE_ERRORS = (
    asyncpg.UndefinedTableError,
    asyncpg.UndefinedColumnError,
    asyncpg.InvalidSchemaNameError,
)
"""What a query says of a table that was dropped, or is registered no more, between two looks."""

UNREADABLE_ERRORS = (
    asyncpg.LockNotAvailableError,
    asyncpg.UndefinedObjectError,
    asyncpg.DataError,
    asyncpg.ProgramLimitExceededError,
    asyncpg.InternalServerError,
)
"""What it says of a table that others have locked, of a row that cannot be told as text (beyond 1 GB, of no
character, damaged), of a snapshot whose owner is gone, or of a table that is dropped in that moment."""


class Database:
    """One Postgres, and a bounded number of connections to it. Made by `Database.open`."""

    def __init__(self, dsn: str, pool: asyncpg.Pool) -> None:
        self.dsn = dsn
        self._pool = pool

    @classmethod
    @asynccontextmanager
    async def open(
        cls, dsn: str, connections_max: int = RECORDS_CONNECTIONS_MAX
    ) -> AsyncIterator[Self]:
        try:
            check_address(dsn)
            async with asyncio.timeout(RECORDS_CONNECT_MS_MAX / 1000):
                pool = await asyncpg.create_pool(
                    dsn,
                    min_size=0,
                    max_size=connections_max,
                    timeout=RECORDS_CONNECT_MS_MAX / 1000,
                    server_settings=SESSION,
                )
        except CatalogUnreachable as error:
            raise DatabaseUnreachable(_of_database(str(error))) from None
        except OPEN_ERRORS as error:
            raise database_unreachable(dsn, error) from None
        try:
            yield cls(dsn, pool)
        finally:
            await _close(pool)

    @contextmanager
    def told(self) -> Iterator[None]:
        """What a statement fails with is an error of ours; also where its connection is held elsewhere."""
        try:
            yield
        except GONE_ERRORS as error:
            raise TableRefused(
                f"the table is dropped, or not registered any more ({error})."
            ) from error
        except (*LOST_ERRORS, *UNREADABLE_ERRORS, asyncpg.InsufficientPrivilegeError) as error:
            raise database_unreachable(self.dsn, error) from error

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Any]:
        with self.told():
            async with self._pool.acquire(timeout=RECORDS_CONNECT_MS_MAX / 1000) as connection:
                yield connection

    @asynccontextmanager
    async def reading(self, snapshot_id: str | None = None) -> AsyncIterator[Any]:
        """A connection whose statements all see one snapshot: a new one, or one that another transaction
        exports."""
        async with self.connection() as connection:
            transaction = connection.transaction(isolation="repeatable_read", readonly=True)
            await transaction.start()
            try:
                if snapshot_id is not None:
                    await connection.execute(f"set transaction snapshot {literal(snapshot_id)}")
                yield connection
            except (asyncio.CancelledError, GeneratorExit):
                # Perhaps in the middle of a COPY: with the connection go the statement, the snapshot, and the
                # lock of the table, for which somebody may wait.
                connection.terminate()
                raise
            finally:
                # Nothing was written: it ends in one way. A reader that left early has closed the connection,
                # and who lost it has heard so already.
                with suppress(*LOST_ERRORS):
                    await transaction.rollback()

    @asynccontextmanager
    async def scanning(self, snapshot_id: str) -> AsyncIterator[Any]:
        """The same for reading whole tables."""
        async with self.reading(snapshot_id) as connection:
            await connection.execute("set local enable_seqscan = on")
            yield connection

    async def listening(self) -> Any:
        """A connection of its own, to be closed by whoever asked for it."""
        try:
            return await asyncpg.connect(
                self.dsn, timeout=RECORDS_CONNECT_MS_MAX / 1000, server_settings=SESSION
            )
        except OPEN_ERRORS as error:
            raise database_unreachable(self.dsn, error) from error

    async def registrations(self, name: str | None = None) -> list[Registration]:
        async with self.connection() as connection:
            return await registrations(connection, name)


@asynccontextmanager
async def connected(dsn: str) -> AsyncIterator[Any]:
    """One connection for an operator's work: names are found by the role's own search path."""
    try:
        check_address(dsn)
        async with asyncio.timeout(RECORDS_CONNECT_MS_MAX / 1000):
            connection = await asyncpg.connect(
                dsn, server_settings={"application_name": "moor records"}
            )
    except CatalogUnreachable as error:
        raise DatabaseUnreachable(_of_database(str(error))) from None
    except OPEN_ERRORS as error:
        raise database_unreachable(dsn, error) from None
    try:
        yield connection
    except (*LOST_ERRORS, asyncpg.InsufficientPrivilegeError) as error:
        raise database_unreachable(dsn, error) from error
    finally:
        with suppress(*LOST_ERRORS):
            await connection.close(timeout=CATALOG_KILL_MS_MAX / 1000)


def is_locked(error: DatabaseUnreachable) -> bool:
    """Whether somebody has locked the table, or waits to do so."""
    return isinstance(error.__cause__, asyncpg.LockNotAvailableError)


def database_unreachable(dsn: str, error: BaseException) -> DatabaseUnreachable:
    return DatabaseUnreachable(_of_database(str(unreachable(dsn, error))))


def _of_database(text: str) -> str:
    return (
        text.replace("the catalog's address", "the database's address")
        .replace("the catalog", "the database")
        .replace(
            "all the rest in a file (catalog_file)", "all the rest in a file (--database-file)"
        )
    )


async def _close(pool: asyncpg.Pool) -> None:
    try:
        async with asyncio.timeout(CATALOG_KILL_MS_MAX / 1000):
            await pool.close()
    except LOST_ERRORS:
        with suppress(*LOST_ERRORS):
            pool.terminate()
