"""Room: node. The subjects of a node, each opened on what it needs and made known to its rights and figures.

In the order of their start: queues with their services, topics over the links to other nodes, the resolver,
records. A node opens those of its roles only; the others stay None.
"""

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from moorline.access.demands import Demands
from moorline.access.guard import Declared
from moorline.catalog import Catalog
from moorline.catalog.mqtt_sessions import MqttSessions
from moorline.cluster.links import Links
from moorline.config.settings import Config
from moorline.core.access.owner import name_of
from moorline.core.access.principal import ANONYMOUS
from moorline.core.access.quota import Quota
from moorline.core.descriptors import Descriptors, Use
from moorline.errors import MoorlineError
from moorline.ids import text_of
from moorline.journal.disk_watch import FillsDisk
from moorline.metrics import Metrics
from moorline.mqtt.commands import MqttCommands
from moorline.net.group_commit import GroupCommit
from moorline.net.http.routes import Routes
from moorline.net.span_export import SpanExport
from moorline.net.trusted_clock import TrustedClock
from moorline.node.access import NodeAccess
from moorline.node.health import Problems, Severity, full_disk
from moorline.node.identity import Identity
from moorline.node.mqtt import Mqtt
from moorline.node.queues import open_homes, open_queues, watch_services
from moorline.node.queues import watch as watch_queues
from moorline.node.records import away, open_publications, open_records
from moorline.node.records import watch as watch_records
from moorline.node.resolver import open_resolver
from moorline.node.resolver import watch as watch_resolver
from moorline.node.topics import Owner, Topics, open_topics, published
from moorline.node.topics import watch as watch_topics
from moorline.node.traces import open_spans
from moorline.queues.commands import QueueBroker
from moorline.queues.contents import QueueContents
from moorline.queues.mending import QueueMending
from moorline.queues.traces import QueueTraces
from moorline.records.looking import RecordTables
from moorline.records.native import NativeRecords
from moorline.records.polling import register as register_polls
from moorline.records.sockets import register as register_records
from moorline.records.subscribing import Tables
from moorline.resolver.commands import ResolverBroker
from moorline.services.operator import OperatorBroker
from moorline.wire.message import Message


class Ground(NamedTuple):
    """What of a node every subject stands on."""

    config: Config
    folder: Path
    catalog: Catalog
    catalog_dsn: str
    identity: Identity
    access: NodeAccess
    descriptors: Descriptors
    routes: Routes
    metrics: Metrics
    problems: Problems
    declared: dict[type[Message], Declared]
    """Where the handlers of each are told, with the right that each needs."""
    mqtt: Callable[[], Mqtt | None]
    """The listeners of MQTT, which are opened behind the subjects."""
    ends_with: Callable[[asyncio.Future[MoorlineError]], None]
    """What a node cannot survive."""


class Subjects:
    """None of them is there until it is opened."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self.queues: QueueBroker | None = None
        self.services: OperatorBroker | None = None
        self.topics: Topics | None = None
        self.resolver: ResolverBroker | None = None
        self.records: Tables | None = None
        self.record_tables: RecordTables | None = None
        self._spans: SpanExport | None = None

    def take(self, config: Config) -> None:
        """What of a new configuration they can take while they run."""
        if self.queues is not None:
            self.queues.bound_again()
        if self.topics is not None:
            streams = config.streams
            self.topics.streams.store.upkeep.keep(streams.retention_s, streams.retention_bytes)

    async def open_queues(
        self, stack: contextlib.AsyncExitStack, clock: TrustedClock
    ) -> QueueBroker:
        ground = self._ground
        settings = ground.config.trace
        spans = await open_spans(stack, settings, ground.identity.home, ground.metrics)
        self._spans = spans
        broker = await stack.enter_async_context(
            open_queues(
                ground.folder,
                ground.config.queues,
                clock,
                owner=text_of(ground.identity.id),
                files_max=ground.descriptors.shares.most[Use.QUEUE_FILES],
                home=ground.identity.home_number,
                traces=None if spans is None else QueueTraces(spans, settings.one_in),
            )
        )
        homes = await stack.enter_async_context(open_homes(ground.catalog, broker))
        services = OperatorBroker(ground.catalog, broker, ground.identity.id, homes)
        stack.callback(services.close)
        await services.start()
        for part in (broker, services, QueueContents(broker)):
            ground.declared.update(part.declared())
        mending = QueueMending(broker)
        stack.push_async_callback(mending.close)
        ground.declared.update(mending.declared())
        broker.refusals.tell = ground.access.trail.refused
        services.audited = ground.access.trail.operating
        broker.owners.mapped = ground.access.table.mapped
        ground.access.broker.old_owners = broker.owners.old
        broker.quotas.stored_bytes_max = ground.access.stored_bytes_max
        broker.bound_again()
        owned_by, counted = broker.store.owners.owned_by, ground.access.quota_commands.owned
        counted[Quota.QUEUES] = lambda owner: broker.quotas.queues_of(name_of(owner) or ANONYMOUS)
        counted[Quota.STORED_BYTES] = lambda owner: owned_by(owner).bytes
        # Behind the quotas themselves, which the table tells first.
        stack.callback(ground.access.table.on_change(broker.bound_again))
        stack.callback(ground.access.table.on_change(broker.judge_soon))
        stack.callback(ground.access.table.on_change(services.judge_soon))
        self.queues, self.services = broker, services
        watch_queues(ground.metrics, broker)
        watch_services(ground.metrics, services)
        self._watch_commits("queues", broker.commits, broker)
        return broker

    async def open_topics(
        self, stack: contextlib.AsyncExitStack, links: Links, clock: TrustedClock
    ) -> Topics:
        ground = self._ground
        topics = await stack.enter_async_context(
            open_topics(
                ground.config,
                ground.folder,
                Owner(ground.identity.home, ground.identity.id, ground.identity.is_older_copy),
                ground.catalog,
                links,
                ground.access.table.rights,
                Demands(ground.access.trail, ground.access.trail),
                clock,
                stage_files_max=ground.descriptors.shares.most[Use.STAGE_FILES],
                spans=self._spans,
            )
        )
        self.topics = topics
        stored = topics.streams.store.stored_bytes
        ground.access.quota_commands.owned[Quota.TOPIC_BYTES] = lambda owner: stored.of(
            name_of(owner) or ANONYMOUS
        )
        ground.declared.update(topics.declared())
        commands = MqttCommands(
            lambda: mqtt.broker if (mqtt := ground.mqtt()) is not None else None,
            MqttSessions(ground.catalog),
            ground.config.node,
            Demands(ground.access.trail, ground.access.trail),
        )
        stack.callback(commands.close)
        ground.declared.update(commands.declared())
        stack.callback(ground.access.table.on_change(topics.judge_soon))
        watch_topics(ground.metrics, topics)
        self._watch_commits("streams", topics.streams.commits, topics.streams)
        return topics

    async def open_resolver(self, stack: contextlib.AsyncExitStack, *, is_new: bool) -> None:
        ground = self._ground
        self.resolver = await stack.enter_async_context(
            open_resolver(
                ground.config,
                ground.catalog,
                ground.access,
                is_new=is_new,
            )
        )
        ground.declared.update(self.resolver.declared())
        stack.callback(ground.access.table.on_change(self.resolver.judge_soon))
        watch_resolver(ground.metrics, self.resolver)
        registry = self.resolver.registry
        ground.access.quota_commands.owned[Quota.PATHS] = lambda owner: (
            registry.entries_of_strangers(name_of(owner) or ANONYMOUS)
        )

    async def open_records(self, stack: contextlib.AsyncExitStack) -> None:
        ground = self._ground
        tables = await stack.enter_async_context(
            open_records(ground.config, ground.catalog, ground.catalog_dsn, ground.access)
        )
        self.records = tables
        register_records(ground.routes, tables)
        ground.declared.update(NativeRecords(tables).declared())
        self.record_tables = RecordTables(tables)
        stack.callback(self.record_tables.close)
        ground.declared.update(self.record_tables.declared())
        register_polls(ground.routes, tables)
        watch_records(ground.metrics, tables)
        ground.problems.watch(Severity.WANTS_CARE, lambda: away(tables))
        publications = await stack.enter_async_context(
            open_publications(
                ground.config,
                ground.catalog,
                tables,
                self.topics.streams if self.topics is not None else None,
                ground.identity.home,
                ground.access,
            )
        )
        ground.declared.update(publications.declared())

    def publish_audit(self, stack: contextlib.AsyncExitStack, topics: Topics) -> None:
        audit = self._ground.access.audit
        audit.publish = partial(published, topics.streams)

        def only_files() -> None:
            audit.publish = None  # before the streams are closed

        stack.callback(only_files)

    def _watch_commits(self, what: str, commits: GroupCommit[Any], filling: FillsDisk) -> None:
        """They are answered only as long as our identity is ours; the node ends with them."""
        ground = self._ground
        commits.failed.add_done_callback(ground.ends_with)
        commits.may_answer = ground.identity.may_answer
        ground.identity.going_on.append(commits.go_on)
        ground.problems.watch(Severity.REFUSES, lambda: full_disk(what, filling))
        ground.problems.watch(Severity.WANTS_CARE, lambda: filling.disk_problem)
