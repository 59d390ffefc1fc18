"""Room: node. The role `records`: its databases, the keys of its cursors, its upkeep, and its figures."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

from moorline.catalog import Catalog
from moorline.catalog.record_keys import RecordKeys
from moorline.config import Config
from moorline.metrics import Metrics
from moorline.node.access import NodeAccess
from moorline.records.addresses import addresses
from moorline.records.database import Database
from moorline.records.permits import Permits
from moorline.records.signing import Signing
from moorline.records.subscribing import Tables


@contextlib.asynccontextmanager
async def open_records(
    config: Config, catalog: Catalog, catalog_dsn: str, access: NodeAccess
) -> AsyncIterator[Tables]:
    """The catalog's own database first: a name that two have is that of the first."""
    settings = config.records
    async with contextlib.AsyncExitStack() as stack:
        databases = [
            await stack.enter_async_context(Database.open(dsn, settings.connections_max))
            for dsn in dict.fromkeys(addresses(config, catalog_dsn).values())
        ]
        signing = Signing(RecordKeys(catalog), settings.log_life_s)
        await signing.load()
        permits = Permits(access.table)
        stack.callback(permits.close)
        tables = Tables(settings, databases, signing, permits)
        stack.push_async_callback(tables.close)
        for work in (signing.keep_forever(), tables.prune_forever()):
            stack.callback(asyncio.create_task(work).cancel)
        yield tables


def away(tables: Tables) -> str:
    """What is wrong, in a sentence; empty if nothing is."""
    names = sorted(name for name, host in tables.hosts.items() if host.away)
    return f"the database of these tables does not answer: {', '.join(names)}" if names else ""


def watch(metrics: Metrics, tables: Tables) -> None:
    hosts = tables.hosts.values
    figures: dict[str, tuple[str, Callable[[], float]]] = {
        "records_tables": ("Tables that somebody subscribes to.", lambda: len(tables.hosts)),
        "records_subscriptions": (
            "Subscriptions to tables.",
            lambda: sum(len(host.receivers) for host in hosts()),
        ),
        "records_scans": (
            "Scans and replays that run.",
            lambda: sum(host.scans_running for host in hosts()),
        ),
        "records_subscribed_total": ("Subscriptions since the start.", lambda: tables.subscribed),
        "records_refused_total": ("Subscriptions that were refused.", lambda: tables.refused),
    }
    for name, (help_text, read) in figures.items():
        metrics.watch(name, help_text, read)
