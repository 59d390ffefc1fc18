"""Real nodes with the role records over a real Postgres with a table, and what clients should hold of it."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import msgspec
from tests.catalog.databases import new_database
from tests.records.bed import HIDDEN
from tests.records.clients import PATIENCE_S, Held

from moorline.catalog import Catalog, EmbeddedPostgres
from moorline.config.settings import Config
from moorline.node.node import Node
from moorline.records.registration import Wanted, add

THINGS = """
create table things (id bigint primary key, workspace_id integer, state text, note text);
create table others (id bigint primary key, workspace_id integer, state text, note text);
"""


class Site:
    """One database, which is the catalog too; and nodes that serve it."""

    def __init__(self, dsn: str, folder: Path, connection: asyncpg.Connection) -> None:
        self.dsn = dsn
        self.connection = connection
        self._folder = folder
        self._stacks: dict[str, contextlib.AsyncExitStack] = {}

    async def execute(self, *statements: str) -> None:
        for statement in statements:
            await self.connection.execute(statement)

    async def register(self, table: str = "things", **wanted: Any) -> None:
        wanted = {
            "key": ("id",),
            "owner": "workspace_id",
            "filters": ("workspace_id", "state"),
        } | wanted
        await add(self.connection, Wanted(table, **wanted))

    async def node(self, name: str = "node-1", **settings: Any) -> Node:
        config: dict[str, Any] = {
            "data": str(self._folder / name),
            "node": name,
            "roles": ["records"],
            "catalog": self.dsn,
            "listen": ["tcp://127.0.0.1:0"],
            "http": "127.0.0.1:0",
        }
        node = Node(msgspec.convert(config | settings, Config))
        stack = self._stacks[name] = contextlib.AsyncExitStack()
        await node.start(stack)
        return node

    async def stop(self, name: str = "node-1") -> None:
        await self._stacks.pop(name).aclose()

    async def close(self) -> None:
        for name in list(self._stacks):
            await self.stop(name)

    async def table(
        self, where: str = "true", table: str = "things"
    ) -> dict[tuple[str, ...], tuple[int, dict[str, Any]]]:
        """What a client should hold, by another query than the node's."""
        rows = await self.connection.fetch(
            f"select moor_seq, (to_jsonb(t) - {HIDDEN})::text as row from {table} t where {where}"
        )
        found: dict[tuple[str, ...], tuple[int, dict[str, Any]]] = {}
        for row in rows:
            content = json.loads(row["row"])
            found[(str(content["id"]),)] = (row["moor_seq"], content)
        return found

    async def equal(self, held: Held, where: str = "true", table: str = "things") -> None:
        """State equal: waits until the client holds the filtered table, with its sync ended."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                while (
                    held.is_syncing or not held.ends or held.rows != await self.table(where, table)
                ):
                    await asyncio.sleep(0.01)
        except TimeoutError:
            wanted = await self.table(where, table)
            differing = {
                key for key in {*wanted, *held.rows} if wanted.get(key) != held.rows.get(key)
            }
            raise AssertionError(
                f"{len(differing)} rows differ, such as {sorted(differing)[:5]}; {held.hows[-5:]}, "
                f"{held.ends} ends, {held.refused}"
            ) from None


def url_of(node: Node) -> str:
    return f"ws://127.0.0.1:{node.http.port}/records"  # type: ignore[union-attr]


@contextlib.asynccontextmanager
async def opened_site(postgres: EmbeddedPostgres, folder: Path) -> AsyncIterator[Site]:
    dsn = await new_database(postgres)
    async with Catalog.open(dsn):
        pass
    connection = await asyncpg.connect(dsn)
    site = Site(dsn, folder, connection)
    try:
        await connection.execute(THINGS)
        await site.register()
        yield site
    finally:
        await site.close()
        await connection.close()
