"""Room: catalog. The cluster as an operator sees it: its nodes, what each has, how they differ.

And what an operator does to it: a node leaves, and nodes get another secret.
"""

import secrets

import msgspec

from moorline.catalog.access import AccessCatalog
from moorline.catalog.catalog import Catalog
from moorline.catalog.identity import FENCE, LOCK
from moorline.catalog.statements import statement
from moorline.errors import NodeAlive, NotFound
from moorline.limits import CLUSTER_SECRET_BYTES, HOMES_SHOWN_MAX, NODE_GONE_MS

NODES = statement("cluster_nodes")
FIGURES = statement("cluster_figures")
LEAVING = statement("node_leaving")
REMOVE = statement("node_remove")
RENEW_SECRET = statement("access_secret_renew")


class ClusterNode(msgspec.Struct, frozen=True):
    """A node that started once, with what it has now. Ages are by the catalog's clock."""

    home: str
    name: str
    id: bytes
    roles: list[str]
    addresses: list[str]
    http: str
    version: str
    clock_ahead_ms: int | None
    """Of its wall clock before the catalog's, as it last found; None where it has not."""
    started_us: int
    silent_ms: int | None
    """Since its last sign of life; None where it never served."""
    is_alive: bool
    homes: list[str]
    """The names of the first homes that it has."""
    homes_count: int
    groups_led: int


class Figures(msgspec.Struct, frozen=True):
    nodes: int = 0
    alive: int = 0
    versions: int = 0
    """Different ones, of those that live."""
    clocks_apart_ms: int = 0
    """Between the clock that is furthest ahead and the one that is furthest behind."""


class Cluster:
    """The part of the catalog that knows all nodes at once."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._access = AccessCatalog(catalog)

    async def nodes(self, after: str, count: int) -> list[ClusterNode]:
        """A page of them, by their homes."""
        rows = await self._catalog.fetch(NODES, NODE_GONE_MS, after, count, HOMES_SHOWN_MAX)
        return [ClusterNode(**row) for row in rows]

    async def figures(self) -> Figures:
        return Figures(**await self._catalog.fetchrow(FIGURES, NODE_GONE_MS))

    async def remove(self, home: str, *, is_forced: bool) -> str:
        """The node of that home is not of the cluster any more; its name. One that lives goes only by force.

        What it leads and serves is fenced, so that nothing counts that its process does in the catalog. Its
        home, with what is in it, stays: the node has it again if it is started again.
        """
        async with self._access.change("the node was removed") as connection:
            await connection.execute(LOCK)
            row = await connection.fetchrow(LEAVING, home, NODE_GONE_MS)
            if row is None:
                raise NotFound(
                    f"there is no node of the home {home!r}: `moor node list` shows them"
                )
            if row["is_alive"] and not is_forced:
                raise NodeAlive(
                    f"the node {row['name']!r} gave a sign of life within {NODE_GONE_MS // 1_000} s: stop it "
                    "first, or remove it by force (--force), which ends its process"
                )
            await connection.execute(REMOVE, home)
            await connection.execute(FENCE, home)
        return str(row["name"])

    async def renew_secret(self, *, old_for_ms: int) -> None:
        """Nodes prove with another secret from now on; the one before is taken for that long beside it."""
        drawn = secrets.token_bytes(CLUSTER_SECRET_BYTES)
        async with self._access.change("the secret was renewed") as connection:
            await connection.execute(RENEW_SECRET, drawn, old_for_ms)
