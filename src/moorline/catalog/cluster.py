"""Room: catalog. The cluster as an operator sees it: its nodes, what each has, how they differ."""

import msgspec

from moorline.catalog.catalog import Catalog
from moorline.catalog.statements import statement
from moorline.limits import HOMES_SHOWN_MAX, NODE_GONE_MS

NODES = statement("cluster_nodes")
FIGURES = statement("cluster_figures")


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

    async def nodes(self, after: str, count: int) -> list[ClusterNode]:
        """A page of them, by their homes."""
        rows = await self._catalog.fetch(NODES, NODE_GONE_MS, after, count, HOMES_SHOWN_MAX)
        return [ClusterNode(**row) for row in rows]

    async def figures(self) -> Figures:
        return Figures(**await self._catalog.fetchrow(FIGURES, NODE_GONE_MS))
