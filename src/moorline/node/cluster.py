"""Room: node. The cluster as one of its nodes shows it: to operators by calls, and on /metrics."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator

from moorline.access.guard import Declarations, heavy, needs
from moorline.catalog import Catalog
from moorline.catalog.cluster import Cluster, ClusterNode, Figures
from moorline.core.access.principal import level_of
from moorline.core.access.right import ADMINISTER, LIST
from moorline.errors import MoorlineError
from moorline.ids import text_of
from moorline.limits import CLUSTER_LOOK_MS, NODES_PER_PAGE_MAX
from moorline.metrics import Metrics
from moorline.net.session import Session
from moorline.net.turns import Turns
from moorline.wire.cluster import (
    ClusterSecretRenewed,
    NodeRemoved,
    RemoveNode,
    RenewClusterSecret,
)
from moorline.wire.node import ListNodes, NodeFacts, NodesListed

log = logging.getLogger("moorline.node")

CLUSTER = "/admin/cluster"


class ClusterView:
    """What the catalog knows of all nodes; the figures as of the last look, since no metric waits for it."""

    def __init__(self, catalog: Catalog) -> None:
        self._cluster = Cluster(catalog)
        self._turns = Turns()
        self.figures = Figures()

    def declared(self) -> Declarations:
        return {
            ListNodes: heavy(needs(LIST, lambda _: (CLUSTER,), self._turns.spawned(self.list))),
            RemoveNode: needs(
                ADMINISTER,
                lambda call: (f"{CLUSTER}/nodes/{level_of(call.home)}",),
                self._turns.later(self._remove),
            ),
            RenewClusterSecret: needs(
                ADMINISTER, lambda _: (f"{CLUSTER}/secret",), self._turns.later(self._renew_secret)
            ),
        }

    def close(self) -> None:
        self._turns.close()

    async def list(self, session: Session, call: ListNodes) -> NodesListed:  # noqa: ARG002
        found = await self._cluster.nodes(call.after, NODES_PER_PAGE_MAX)
        return NodesListed(
            call.call, tuple(map(_facts, found)), is_last=len(found) < NODES_PER_PAGE_MAX
        )

    async def _remove(self, session: Session, call: RemoveNode) -> NodeRemoved:
        name = await self._cluster.remove(call.home, is_forced=call.is_forced)
        log.warning(
            "a node was removed from the cluster",
            extra={"node": name, "home": call.home, "by": session.identity.principal},
        )
        return NodeRemoved(call.call, name)

    async def _renew_secret(
        self, session: Session, call: RenewClusterSecret
    ) -> ClusterSecretRenewed:
        await self._cluster.renew_secret(old_for_ms=call.old_for_ms)
        log.warning(
            "the cluster's secret was renewed",
            extra={"old_for_ms": call.old_for_ms, "by": session.identity.principal},
        )
        return ClusterSecretRenewed(call.call, call.old_for_ms)

    async def look_forever(self) -> None:
        while True:
            try:
                self.figures = await self._cluster.figures()
            except (MoorlineError, OSError, TimeoutError):
                pass  # that the catalog is away is told elsewhere, and the last look is shown
            except Exception:
                log.exception("the figures of the cluster were not read")
            await asyncio.sleep(CLUSTER_LOOK_MS / 1_000)


def _facts(node: ClusterNode) -> NodeFacts:
    return NodeFacts(
        home=node.home,
        name=node.name,
        id=text_of(node.id),
        roles=tuple(node.roles),
        addresses=tuple(node.addresses),
        http=node.http,
        version=node.version,
        is_alive=node.is_alive,
        started_us=node.started_us,
        silent_ms=node.silent_ms,
        clock_ahead_ms=node.clock_ahead_ms,
        homes=tuple(node.homes),
        homes_count=node.homes_count,
        groups_led=node.groups_led,
    )


@contextlib.asynccontextmanager
async def open_cluster(catalog: Catalog, metrics: Metrics) -> AsyncIterator[ClusterView]:
    view = ClusterView(catalog)
    looking = asyncio.create_task(view.look_forever())
    _watch(metrics, view)
    try:
        yield view
    finally:
        looking.cancel()
        view.close()


def _watch(metrics: Metrics, view: ClusterView) -> None:
    figures = {
        "cluster_nodes": ("Nodes that ever started.", lambda: view.figures.nodes),
        "cluster_nodes_alive": (
            "Those that gave a sign of life lately.",
            lambda: view.figures.alive,
        ),
        "cluster_versions": (
            "Different versions of nodes that live; 1 but for an upgrade.",
            lambda: view.figures.versions,
        ),
        "cluster_clocks_apart_seconds": (
            "Between the wall clocks of the nodes that live, at most.",
            lambda: view.figures.clocks_apart_ms / 1_000,
        ),
    }
    for name, (help_text, read) in figures.items():
        metrics.watch(name, help_text, read)
