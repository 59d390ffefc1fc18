"""Room: catalog. What the nodes of a cluster must agree on, in Postgres.

    async with Catalog.open("postgresql://user:password@host/database") as catalog:
        print(await catalog.nodes())

Opening it brings its tables up to date. Whenever Postgres does not answer, the error is a
`CatalogUnreachable`. No statement is tried again here: what is known of a change then is said in
catalog/outcome.py.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from typing import Any, Self

import asyncpg
import msgspec

from moorline.catalog.address import LOST_ERRORS, OPEN_ERRORS, check_address, unreachable
from moorline.catalog.migration import migrate
from moorline.catalog.outcome import note_sent
from moorline.catalog.statements import statement
from moorline.errors import IdentityTaken
from moorline.limits import (
    CATALOG_COMMAND_MS_MAX,
    CATALOG_CONNECT_MS_MAX,
    CATALOG_CONNECTIONS_MAX,
    CATALOG_KILL_MS_MAX,
)

MIGRATION_VERSION = statement("migration_version")
NODE_IS_OURS = statement("node_is_ours")
NODES = statement("nodes")
NODES_LIVE = statement("nodes_live")
NODES_SEEN = statement("nodes_seen")

NOBODY = (None, None)
"""Acts for no node: tools and tests."""


class NodeRow(msgspec.Struct, frozen=True):
    """A node as the catalog knows it. The times are the catalog's clock."""

    home: str
    """What its streams, places and leases are known by: the name that it had first."""
    name: str
    """A label, which may change."""
    id: bytes
    """Of its data folder: who it is."""
    roles: list[str]
    addresses: list[str]
    http: str | None
    version: str
    started_at: datetime
    seen_at: datetime
    shards: list[int] = msgspec.field(default_factory=list)
    """The numbers of those that it serves."""


class Catalog:
    """The shared state of a cluster. Made by `Catalog.open`."""

    def __init__(self, dsn: str, pool: asyncpg.Pool) -> None:
        self._dsn = dsn
        self._pool = pool
        self.acting_as: tuple[bytes | None, bytes | None] = NOBODY
        """The id and incarnation of the process that this is; set when it takes an identity."""

    @classmethod
    @asynccontextmanager
    async def open(cls, dsn: str) -> AsyncIterator[Self]:
        """Connects, migrates, and closes all connections at the end."""
        check_address(dsn)
        catalog = cls(dsn, await _connect(dsn))
        try:
            await catalog._migrate()
            yield catalog
        finally:
            await _close(catalog._pool)

    async def version(self) -> int:
        """The number of the newest migration that is applied."""
        return int(await self.fetchval(MIGRATION_VERSION))

    async def is_ours(self) -> bool:
        """Whether the identity that this process took is still its own."""
        if self.acting_as == NOBODY:
            return True
        return bool(await self.fetchval(NODE_IS_OURS, *self.acting_as))

    def identity_taken(self) -> IdentityTaken:
        return IdentityTaken(
            "another process runs under the identity of this node, or an operator has removed it from the "
            "cluster (`moor node remove`): this one ends. If another one was started on a copy of the data "
            "folder, keep one of the two folders"
        )

    async def nodes(self) -> list[NodeRow]:
        """All nodes that ever started, by their homes."""
        return [NodeRow(**row) for row in await self.fetch(NODES)]

    async def nodes_seen(self, silent_ms: int) -> list[NodeRow]:
        """Those that gave a sign of life within that time, whatever their roles."""
        return [NodeRow(**row) for row in await self.fetch(NODES_SEEN, silent_ms)]

    async def live_nodes(self, silent_ms: int) -> dict[str, list[str]]:
        """The homes of the brokers that gave a sign of life within that time, with their addresses."""
        rows = await self.fetch(NODES_LIVE, silent_ms)
        return {row["home"]: list(row["addresses"]) for row in rows}

    # --- for the other modules of this room -------------------------------------------------------

    async def fetch(self, statement_text: str, *values: object) -> list[Any]:
        async with self._connection() as connection:
            return list(await connection.fetch(statement_text, *values))

    async def fetchrow(self, statement_text: str, *values: object) -> Any:
        async with self._connection() as connection:
            return await connection.fetchrow(statement_text, *values)

    async def fetchval(self, statement_text: str, *values: object) -> Any:
        async with self._connection() as connection:
            return await connection.fetchval(statement_text, *values)

    async def execute(self, statement_text: str, *values: object) -> None:
        async with self._connection() as connection:
            await connection.execute(statement_text, *values)

    async def execute_together(self, statements: Sequence[tuple[str, Sequence[object]]]) -> None:
        """One after the other, in one transaction."""
        async with self.transaction() as connection:
            for statement_text, values in statements:
                await connection.execute(statement_text, *values)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[asyncpg.pool.PoolConnectionProxy]:
        """A connection on which all that follows is done together, or not at all."""
        async with self._connection() as connection, connection.transaction():
            yield connection

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[asyncpg.pool.PoolConnectionProxy]:
        """For one statement or transaction. Where none can be had, nothing was asked."""
        try:
            async with self._pool.acquire() as connection:
                note_sent()
                yield connection
        except LOST_ERRORS as error:
            raise unreachable(self._dsn, error) from error

    async def _migrate(self) -> None:
        try:
            async with self._pool.acquire() as connection:
                await migrate(connection)
        except OPEN_ERRORS as error:
            raise unreachable(self._dsn, error) from error


class _Connection(asyncpg.Connection):  # type: ignore[misc]  # asyncpg has no types
    """One that is given back as it is: what a statement of the catalog sets or locks, it sets and locks for
    its transaction. A reset is a round trip behind each of them, and places of readers are stored often.
    """

    def get_reset_query(self) -> str:
        return ""


async def _connect(dsn: str) -> asyncpg.Pool:
    try:
        # asyncpg's own timeout counts for each address of a host; this one for all of them.
        async with asyncio.timeout(CATALOG_CONNECT_MS_MAX / 1000):
            return await asyncpg.create_pool(
                dsn,
                min_size=1,
                max_size=CATALOG_CONNECTIONS_MAX,
                connection_class=_Connection,
                timeout=CATALOG_CONNECT_MS_MAX / 1000,
                command_timeout=CATALOG_COMMAND_MS_MAX / 1000,
                server_settings={
                    "search_path": "moorline",
                    "application_name": "moorline",
                    # What locks which row is thought out for this level, whatever the server's is.
                    "default_transaction_isolation": "read committed",
                },
            )
    except OPEN_ERRORS as error:
        # No cause: asyncpg's texts on a malformed address quote it, password and all.
        raise unreachable(dsn, error) from None


async def _close(pool: asyncpg.Pool) -> None:
    """Closes politely, and hard if Postgres is gone or a statement hangs."""
    try:
        async with asyncio.timeout(CATALOG_KILL_MS_MAX / 1000):
            await pool.close()
    except LOST_ERRORS:
        with suppress(*LOST_ERRORS):
            pool.terminate()
