"""Room: catalog. What the nodes of a cluster must agree on, in Postgres.

    async with Catalog.open("postgresql://user:password@host/database") as catalog:
        await catalog.register_node(...)

Opening it brings its tables up to date. Whenever Postgres does not answer, the error is a
`CatalogUnreachable`.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import datetime
from typing import Any, Self

import asyncpg
import msgspec

from moorline.catalog.address import LOST_ERRORS, OPEN_ERRORS, check_address, unreachable
from moorline.catalog.migration import migrate
from moorline.catalog.statements import statement
from moorline.errors import ConfigError
from moorline.limits import (
    CATALOG_COMMAND_MS_MAX,
    CATALOG_CONNECT_MS_MAX,
    CATALOG_CONNECTIONS_MAX,
    CATALOG_KILL_MS_MAX,
    NODE_GONE_MS,
)

log = logging.getLogger("moorline.catalog")

MIGRATION_VERSION = statement("migration_version")
NODE_REGISTER = statement("node_register")
NODE_SEEN = statement("node_seen")
NODES = statement("nodes")
NODES_LIVE = statement("nodes_live")


class NodeRow(msgspec.Struct, frozen=True):
    """A node as the catalog knows it. The times are the catalog's clock."""

    name: str
    id: bytes
    roles: list[str]
    addresses: list[str]
    http: str | None
    version: str
    started_at: datetime
    seen_at: datetime


class Catalog:
    """The shared state of a cluster. Made by `Catalog.open`."""

    def __init__(self, dsn: str, pool: asyncpg.Pool) -> None:
        self._dsn = dsn
        self._pool = pool
        self._node_ids: dict[str, bytes] = {}

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
        with self._answering():
            return int(await self._pool.fetchval(MIGRATION_VERSION))

    async def register_node(
        self,
        name: str,
        node_id: bytes,
        *,
        roles: Sequence[str],
        addresses: Sequence[str],
        http: str | None,
        version: str,
    ) -> None:
        """Says that this node started now; its row of an earlier start is replaced.

        Refused while another node has the name: streams are named after their node.
        """
        with self._answering():
            id_before = await self._pool.fetchval(
                NODE_REGISTER,
                name,
                node_id,
                list(roles),
                list(addresses),
                http,
                version,
                NODE_GONE_MS,
            )
        if id_before is None:
            raise ConfigError(
                f"another node of this catalog is called {name!r} and alive: give this one a name of its "
                f"own with --node; if the other has just ended for good, try again in "
                f"{NODE_GONE_MS // 1_000} s"
            )
        if id_before != node_id:
            log.warning(
                "the name was another node's, whose data folder this is not: groups go on in our streams "
                "where they were in the other's; `moor group seek` moves them",
                extra={"node": name},
            )
        self._node_ids[name] = node_id

    async def node_seen(self, name: str) -> bool:
        """Says that the node lives; False if nobody registered it, or another node has its name by now."""
        with self._answering():
            return bool(await self._pool.fetchval(NODE_SEEN, name, self._node_ids.get(name)))

    async def nodes(self) -> list[NodeRow]:
        """All nodes that ever registered, by name."""
        with self._answering():
            return [NodeRow(**row) for row in await self._pool.fetch(NODES)]

    async def live_nodes(self, silent_ms: int) -> dict[str, list[str]]:
        """The brokers that gave a sign of life within that time, with their addresses."""
        with self._answering():
            rows = await self._pool.fetch(NODES_LIVE, silent_ms)
        return {row["name"]: list(row["addresses"]) for row in rows}

    # --- for the other modules of this room -------------------------------------------------------

    async def fetch(self, statement_text: str, *values: object) -> list[Any]:
        with self._answering():
            return list(await self._pool.fetch(statement_text, *values))

    async def fetchrow(self, statement_text: str, *values: object) -> Any:
        with self._answering():
            return await self._pool.fetchrow(statement_text, *values)

    async def fetchval(self, statement_text: str, *values: object) -> Any:
        with self._answering():
            return await self._pool.fetchval(statement_text, *values)

    async def execute(self, statement_text: str, *values: object) -> None:
        with self._answering():
            await self._pool.execute(statement_text, *values)

    async def execute_together(self, statements: Sequence[tuple[str, Sequence[object]]]) -> None:
        """One after the other, in one transaction."""
        with self._answering():
            async with self._pool.acquire() as connection, connection.transaction():
                for statement_text, values in statements:
                    await connection.execute(statement_text, *values)

    async def _migrate(self) -> None:
        try:
            async with self._pool.acquire() as connection:
                await migrate(connection)
        except OPEN_ERRORS as error:
            raise unreachable(self._dsn, error) from error

    @contextmanager
    def _answering(self) -> Iterator[None]:
        try:
            yield
        except LOST_ERRORS as error:
            raise unreachable(self._dsn, error) from error


async def _connect(dsn: str) -> asyncpg.Pool:
    try:
        # asyncpg's own timeout counts for each address of a host; this one for all of them.
        async with asyncio.timeout(CATALOG_CONNECT_MS_MAX / 1000):
            return await asyncpg.create_pool(
                dsn,
                min_size=1,
                max_size=CATALOG_CONNECTIONS_MAX,
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
