"""Room: node. The role `records`: its databases, the keys of its cursors, its upkeep, and its figures."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence

from moorline.access.demands import Demands
from moorline.catalog import Catalog
from moorline.catalog.publications import Publications
from moorline.catalog.record_keys import RecordKeys
from moorline.config.settings import Config
from moorline.errors import NodeDiskFull
from moorline.metrics import Metrics
from moorline.node.access import NodeAccess
from moorline.records.addresses import addresses
from moorline.records.database import Database
from moorline.records.permits import Permits
from moorline.records.publication_message import PublishedMessage
from moorline.records.publications import PublicationBroker
from moorline.records.signing import Signing
from moorline.records.subscribing import Tables
from moorline.topics.paths import check_reserved
from moorline.topics.producer import producer_number
from moorline.topics.streams import LocalStreams

OWN_PRINCIPAL = ""
"""As whose the node numbers what it publishes of tables: nobody can prove to be that."""


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
        tables = Tables(settings, databases, signing, permits, access.trail.refused)
        stack.push_async_callback(tables.close)
        for work in (signing.keep_forever(), tables.prune_forever(), tables.pulse_forever()):
            stack.callback(asyncio.create_task(work).cancel)
        yield tables


class StreamSink:
    """The streams of this node, for what it publishes of tables: a `records.publication.Sink`."""

    def __init__(self, streams: LocalStreams, home: str, message_bytes_max: int) -> None:
        self.home = home
        self.message_bytes_max = message_bytes_max
        self._streams = streams

    @property
    def shards(self) -> int:
        return self._streams.store.shards_in_use

    def last(self, producer: str) -> int:
        return self._streams.store.producer_last(producer_number(OWN_PRINCIPAL, producer))

    def check(self, topic: str) -> None:
        check_reserved(topic)
        self._streams.store.check_topic(topic)

    async def publish(
        self, topic: str, producer: str, first: int, messages: Sequence[PublishedMessage]
    ) -> None:
        if self._streams.is_disk_full:
            raise NodeDiskFull("the node's disk is nearly full: no messages are taken")
        number, append = producer_number(OWN_PRINCIPAL, producer), self._streams.store.append
        for sequence, message in enumerate(messages, first):
            append(topic, message.body, message.key, message.headers, 0, 0, number, sequence)
        # Also for duplicates: they may be of a batch that is still on its way.
        await self._streams.commits.durable()


@contextlib.asynccontextmanager
async def open_publications(
    config: Config,
    catalog: Catalog,
    tables: Tables,
    streams: LocalStreams | None,
    home: str,
    access: NodeAccess,
) -> AsyncIterator[PublicationBroker]:
    """Behind the streams, and closed before them."""
    bytes_max = config.streams.message_bytes_max
    sink = None if streams is None else StreamSink(streams, home, bytes_max)
    broker = PublicationBroker(
        Publications(catalog),
        tables.capture,
        sink,
        config.records,
        Demands(access.trail, access.trail),
        lambda principal, proof, is_local: access.table.rights(principal, proof, is_local=is_local),
    )
    try:
        await broker.start()
        yield broker
    finally:
        await broker.close()


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
