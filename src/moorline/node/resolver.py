"""Room: node. The role `resolver`: its directory, its upkeep, and its figures."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

from moorline.catalog import Catalog
from moorline.catalog.homes import Homes
from moorline.config.settings import Config
from moorline.metrics import Metrics
from moorline.node.access import NodeAccess
from moorline.resolver.commands import ResolverBroker


@contextlib.asynccontextmanager
async def open_resolver(
    config: Config,
    catalog: Catalog,
    access: NodeAccess,
    *,
    is_new: bool,
) -> AsyncIterator[ResolverBroker]:
    """`is_new`: the data folder is."""
    broker = ResolverBroker(
        config.resolver,
        catalog.nodes_seen,
        Homes(catalog).all,
        access.table,
        access.trail.refused,
        is_new=is_new,
        rules=config.access.certificates,
        kerberos_rules=config.access.kerberos,
    )
    tasks = [
        asyncio.create_task(broker.tick_forever()),
        asyncio.create_task(broker.purge_forever()),
        asyncio.create_task(broker.cluster.look_forever()),
    ]
    try:
        yield broker
    finally:
        for task in tasks:
            task.cancel()
        broker.close()


def watch(metrics: Metrics, broker: ResolverBroker) -> None:
    registry, finder = broker.registry, broker.finder
    figures: dict[str, tuple[str, Callable[[], float]]] = {
        "resolver_paths": ("Paths that are published.", lambda: len(registry.tree)),
        "resolver_publishers": ("Publishers that are known.", lambda: len(registry)),
        "resolver_watches": ("Globs that are watched.", lambda: len(broker.watches)),
        "resolver_resolved_total": ("Paths that were asked for.", lambda: finder.resolved),
        "resolver_purged_total": (
            "Publishers that went because nothing was heard of them.",
            lambda: registry.purged,
        ),
        "resolver_addresses_refused_total": (
            "Logins whose address was not proven.",
            lambda: broker.dials.failed,
        ),
    }
    for name, (help_text, read) in figures.items():
        metrics.watch(name, help_text, read)
