"""Room: resolver. What the cluster publishes of itself, out of the catalog: its nodes, homes and shards.

    /nodes/NAME                 a node that lives, with its addresses and roles
    /homes/NUMBER               the node that has that home now: the ids of its queues end with the number
    /shards/HOME/NUMBER         the node that has that shard of the topics

There is one entry for all queues of a node, and never one a queue. Whoever is let in may look for them,
unless a row says otherwise: they are what a client needs to find anything else. The row of a node has the
numbers of its shards, so that a resolver which has no topics knows them as well as any.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from moorline.catalog.catalog import NodeRow
from moorline.catalog.homes import HomeRow
from moorline.core.directory.path import is_path
from moorline.core.directory.registry import Changed, Registry
from moorline.errors import MoorlineError
from moorline.limits import CLUSTER_ENTRIES_LOOK_MS, NODE_GONE_MS
from moorline.wire.resolver import PublisherFacts

log = logging.getLogger("moorline.resolver")

SHARDS = "/shards"
OPEN_SUBTREES = ("/nodes", "/homes", SHARDS)
"""What is not secret for those who are let in."""


class ClusterEntries:
    """Kept up to date by asking the catalog; while it is away, what was known goes on."""

    def __init__(
        self,
        registry: Registry,
        nodes: Callable[[int], Awaitable[list[NodeRow]]],
        homes: Callable[[], Awaitable[dict[bytes, HomeRow]]],
        changed: Callable[[Changed], None],
    ) -> None:
        self._registry = registry
        self._nodes, self._homes = nodes, homes
        self._changed = changed
        self._facts: dict[str, tuple[PublisherFacts, ...]] = {}

    def facts(self, path: str) -> tuple[PublisherFacts, ...]:
        """The nodes of a path, one for each of their addresses; none where it is not the cluster's."""
        return self._facts.get(path, ())

    async def look_forever(self) -> None:
        while True:
            await asyncio.sleep(CLUSTER_ENTRIES_LOOK_MS / 1_000)
            try:
                await self.look()
            except (MoorlineError, OSError, TimeoutError) as error:
                log.debug("the nodes of the catalog are not known", extra={"why": str(error)})
            except Exception:
                log.exception("the nodes of the catalog are not known")

    async def look(self) -> None:
        alive = await self._nodes(NODE_GONE_MS)
        homes = await self._homes()
        by_home = {row.home: facts_of(row) for row in alive}
        by_id = {bytes(row.id): by_home[row.home] for row in alive}
        found = {f"/nodes/{row.name}": by_home[row.home] for row in alive}
        for number, home in homes.items():
            if home.is_alive and (facts := by_id.get(bytes(home.node_id))):
                found[f"/homes/{number.hex()}"] = facts
        for row in alive:
            for shard in row.shards:
                found[f"{SHARDS}/{row.home}/{shard}"] = by_home[row.home]
        self._facts = {path: facts for path, facts in found.items() if is_path(path)}
        self._changed(self._registry.put_cluster(self._facts.keys()))


def facts_of(row: NodeRow) -> tuple[PublisherFacts, ...]:
    instance = bytes(row.id)[:16].ljust(16, b"\0")
    return tuple(
        PublisherFacts(instance, address, f"$node/{row.home}", roles=tuple(row.roles))
        for address in row.addresses
    )
