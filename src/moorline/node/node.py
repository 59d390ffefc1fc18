"""Room: node. One node: its folder, its catalog, its roles, its listeners; started and stopped whole.

Everything that is opened goes on one stack and is closed in the opposite order, whether the node ends
by a signal, by the loss of its catalog, or by an error in the middle of its start.
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable
from pathlib import Path

from moorline.access.demands import Demands
from moorline.access.guard import Declared, anybody
from moorline.catalog import Catalog, EmbeddedPostgres
from moorline.catalog.address import shown
from moorline.catalog.location import catalog_address
from moorline.catalog.pipeline_runs import RunRows
from moorline.catalog.service_audit import recompute_all
from moorline.cluster.links import Links, NodeRegister
from moorline.config.addresses import Address
from moorline.config.settings import Config
from moorline.console.http import Health
from moorline.core.access.right import LIST
from moorline.errors import CatalogUnreachable, MoorlineError
from moorline.limits import GUEST_CONNECTIONS_PART
from moorline.metrics import Metrics
from moorline.net.clock import monotonic_ms
from moorline.net.descriptors import in_use, of_process
from moorline.net.http.routes import Routes
from moorline.net.session import Session, each
from moorline.net.session_rights import SessionRights
from moorline.node.access import Entrant, NodeAccess, open_access
from moorline.node.access import watch as watch_access
from moorline.node.arriving import Arriving
from moorline.node.backup import Backups, remove_leftovers
from moorline.node.backup import Owner as BackupOwner
from moorline.node.catalog_watch import CatalogWatch
from moorline.node.clock import NodeClock, open_clock
from moorline.node.clock import watch as watch_clock
from moorline.node.cluster import open_cluster
from moorline.node.descriptors import watch as watch_descriptors
from moorline.node.doors import Behind, Doors
from moorline.node.draining import Draining
from moorline.node.folder import (
    HeldFolder,
    check_room,
    identity,
    is_new,
    leave_note,
    locked,
    note_format,
)
from moorline.node.guests import ASIDE
from moorline.node.health import PAGES, Problems, Severity
from moorline.node.health import watch as watch_problems
from moorline.node.home_calls import HomeCalls
from moorline.node.homes import HomeFinder
from moorline.node.identity import Identity, held_identity, lock_of
from moorline.node.logs import setup as setup_logs
from moorline.node.pipeline_runs import PipelineRuns
from moorline.node.queues import FOLDER as QUEUES_FOLDER
from moorline.node.reloading import Reloading
from moorline.node.stores import note_stores, tell_of_missing
from moorline.node.subjects import Ground, Subjects
from moorline.node.topics import FOLDER as STREAMS_FOLDER
from moorline.node.topics import home_of_streams
from moorline.node.views import NodeViews, open_views
from moorline.version import SOFTWARE
from moorline.wire.link import Welcome
from moorline.wire.message import Message
from moorline.wire.node import Describe, Described, Echo, Echoed

log = logging.getLogger("moorline.node")

ADMIN = "/admin"


class Node:
    """A node from its first file to its last."""

    _identity: Identity
    _access: NodeAccess
    subjects: Subjects
    _views: NodeViews
    _runs: PipelineRuns

    def __init__(
        self,
        config: Config,
        *,
        recompute_digests: bool = False,
        read_again: Callable[[], Config] | None = None,
        is_guest: bool = False,
        arrived: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`read_again` is asked for the configuration at SIGHUP; without it only files are read anew.

        A guest serves a home that moved to this process, whose own node takes such homes: `arrived` is told
        their names.
        """
        self.config = config
        self._is_guest = is_guest
        self._arrived = arrived
        self._recompute_digests = recompute_digests
        self.roles = list(config.active_roles())
        self.metrics = Metrics()
        self._started_ms = monotonic_ms()
        self._catalog: Catalog | None = None
        self._catalog_dsn = ""
        self._catalog_place = "embedded"
        self._catalog_version = 0
        self._declared: dict[type[Message], Declared] = {
            Echo: anybody(_echo),
            Describe: anybody(each(self._describe)),
        }
        self._descriptors = of_process(
            config.connections_max,
            config.streams.shards,
            parts=GUEST_CONNECTIONS_PART if is_guest else 1,
        )
        self._doors = Doors(config, self._descriptors, self._entered, lambda: self._access)
        self._problems = Problems()
        self._reloading = Reloading(config, read_again or (lambda: config), self._take)
        self._problems.watch(Severity.WANTS_CARE, self._reloading.problem)
        self._draining: Draining | None = None
        self._backups: Backups | None = None
        self._arriving: Arriving | None = None
        self._failed: asyncio.Future[MoorlineError] = asyncio.get_running_loop().create_future()

    @property
    def addresses(self) -> list[Address]:
        """Where native clients come in."""
        return self._doors.addresses

    @property
    def http(self) -> Address | None:
        return self._doors.http

    @property
    def identity(self) -> Identity:
        return self._identity

    @property
    def catalog(self) -> Catalog:
        assert self._catalog is not None, "the node is not open"
        return self._catalog

    @property
    def catalog_dsn(self) -> str:
        return self._catalog_dsn

    @property
    def ports(self) -> dict[str, int]:
        """What it got where its settings ask for any port, by the texts of these settings."""
        asked: list[tuple[str, Address]] = list(
            zip(self.config.listen, self.config.listen_addresses(), strict=True)
        )
        got = list(self.addresses)
        if self._doors.mqtt is not None:
            asked += zip(self.config.mqtt_listeners(), self.config.mqtt_addresses(), strict=True)
            got += self._doors.mqtt.addresses
        wanted = self.config.http_address()
        if wanted is not None and self.http is not None:
            asked.append((self.config.http, wanted))
            got.append(self.http)
        found: dict[str, int] = {}
        for text, address in asked:
            same = (one for one in got if one.scheme == address.scheme and one.host == address.host)
            if not address.port and (first := next(same, None)) is not None:
                got.remove(first)
                found[text] = first.port
        return found

    @property
    def routes(self) -> Routes:
        return self._doors.routes

    async def start(self, stack: contextlib.AsyncExitStack) -> None:
        """Opens everything; what was opened is on the stack, also when this raises."""
        found = stack.enter_context(locked(Path(self.config.data)))
        folder = found.path
        is_first = is_new(folder)
        # One that a home has left may be full for that reason: an empty node stays, with its guests.
        if is_first and not (folder / ASIDE).is_dir():
            check_room(folder)
        note_format(folder)
        await asyncio.to_thread(remove_leftovers, folder)
        clock = await stack.enter_async_context(open_clock(folder))
        await self._open_catalog(stack, folder)
        await self._take_identity(stack, found)
        await self._open_access(stack, folder)
        self._open_metrics()
        self.subjects = self._subjects(folder)
        self._watch_clock(clock)
        await self._open_cluster(stack)
        links: Links | None = None
        if "broker" in self.roles:
            for text in tell_of_missing(folder):
                self._problems.add(Severity.WANTS_CARE, text)
            links = await self._links(stack)
            queues = await self.subjects.open_queues(stack, clock.clock)
            topics = await self.subjects.open_topics(stack, links, clock.clock)
            note_stores(folder, (QUEUES_FOLDER, STREAMS_FOLDER))
            topics.staging.serve_queues(queues)
            self.subjects.publish_audit(stack, topics)
        if "resolver" in self.roles:
            await self.subjects.open_resolver(stack, is_new=is_first)
        if "records" in self.roles:
            await self.subjects.open_records(stack)
        if "broker" in self.roles:
            self._open_arriving(stack, folder)
        await stack.enter_async_context(
            open_views(self._views, self.subjects, self._runs, self.metrics, links)
        )
        await self._open_doors(stack)
        await self._register()
        await self._open_backups(stack, found)
        if self.subjects.resolver is not None:
            await self.subjects.resolver.cluster.look()
        if links is not None:
            keeping = asyncio.create_task(links.keep_forever())
            stack.callback(keeping.cancel)
            watching = asyncio.create_task(self._access.watch_nodes_forever(links))
            stack.callback(watching.cancel)
        reading = asyncio.create_task(self._reloading.read_forever())
        stack.callback(reading.cancel)
        leave_note(stack, folder, self.config.node, self._identity.home, self.addresses, self.http)
        log.info("ready", extra={"in_ms": monotonic_ms() - self._started_ms})

    async def failed(self) -> MoorlineError:
        """Waits for what a node cannot survive."""
        return await asyncio.shield(self._failed)

    @property
    def settings(self) -> Config:
        """Those in force: SIGHUP changes some."""
        return self._reloading.config

    def reload(self) -> None:
        """SIGHUP: the configuration is read again, and the files of TLS."""
        self._reloading.ask()
        self._doors.reload()

    def _take(self, config: Config) -> None:
        """What of it can change while we run (node/reloading.py)."""
        setup_logs(config.log_format, config.log_level)
        self._doors.take(config)
        self._access.take_quotas(config.access)
        self.subjects.take(config)

    def ready_line(self) -> str:
        """The one line that scripts wait for."""
        native = " ".join(str(address) for address in self.addresses)
        opened = self._doors.mqtt
        mqtt = "".join(f" {address}" for address in opened.addresses) if opened else ""
        http = f" {self.http}" if self.http else ""
        roles = ",".join(self.roles)
        return (
            f"moor: {self.config.node} ready: {native}{http}{mqtt} roles={roles} pid={os.getpid()}"
        )

    # --- the parts, in the order of their start ---------------------------------------------------

    async def _open_catalog(self, stack: contextlib.AsyncExitStack, folder: Path) -> None:
        if self.config.is_catalog_embedded:
            postgres = await stack.enter_async_context(EmbeddedPostgres(folder / "catalog"))
            dsn = postgres.dsn
            watch = asyncio.create_task(self._watch(postgres))
            stack.callback(watch.cancel)
        else:
            dsn = await asyncio.to_thread(catalog_address, self.config)
            self._catalog_place = shown(dsn)
        self._catalog_dsn = dsn
        self._catalog = await stack.enter_async_context(Catalog.open(dsn))
        self._catalog_version = await self._catalog.version()
        answering = CatalogWatch(self._catalog.version, monotonic_ms)
        looking = asyncio.create_task(answering.look_forever())
        stack.callback(looking.cancel)
        self._problems.watch(Severity.WANTS_CARE, answering.silent)
        if self._recompute_digests:
            await recompute_all(self._catalog)

    async def _take_identity(self, stack: contextlib.AsyncExitStack, found: HeldFolder) -> None:
        """Before anything else of the folder is opened: it may be a copy, of a node that runs."""
        assert self._catalog is not None
        self._identity = await stack.enter_async_context(
            held_identity(
                self._catalog,
                found,
                identity(found.path),
                name=self.config.node,
                home_wanted=await asyncio.to_thread(home_of_streams, found.path),
                lease_ms=self.config.identity_lease_ms,
                is_alone=self.config.is_catalog_embedded,
            )
        )
        self._identity.taken.add_done_callback(self._end_with)
        self._problems.watch(Severity.REFUSES, self._identity.lapsed)

    async def _open_access(self, stack: contextlib.AsyncExitStack, folder: Path) -> None:
        assert self._catalog is not None
        self._access = await stack.enter_async_context(
            open_access(
                self.config,
                folder,
                self._catalog,
                self._identity.home,
                self._doors.entrants,
            )
        )
        self._declared.update(self._access.declared())
        self._problems.watch(Severity.REFUSES, self._access.not_known)
        self._problems.watch(Severity.WANTS_CARE, self._access.audit.problem)

    def _entered(self, session: Entrant) -> SessionRights:
        identity = session.identity
        if identity.fingerprint and self.subjects.queues is not None:
            # What a certificate made before there were principals is its principal's from now on.
            self.subjects.queues.claim(identity.fingerprint, identity.principal)
        return self._access.entered(session)

    async def _watch(self, postgres: EmbeddedPostgres) -> None:
        text = await postgres.died()
        self._problems.add(Severity.ENDS, text)
        if not self._failed.done():
            self._failed.set_result(CatalogUnreachable(text))

    def _open_metrics(self) -> None:
        self.metrics.describe(node=self.config.node, version=SOFTWARE, roles=self.roles)
        self.metrics.watch(
            "connections", "Connections open now.", lambda: len(self._doors.listeners.sessions)
        )
        self.metrics.watch(
            "connections_accepted",
            "Connections since the start.",
            lambda: self._doors.listeners.accepted,
        )
        watch_problems(self.metrics, self._problems)
        watch_descriptors(self.metrics, self._descriptors, self._doors.listeners.door)
        watch_access(self.metrics, self._access)

    def _subjects(self, folder: Path) -> Subjects:
        return Subjects(
            Ground(
                self.config,
                folder,
                self.catalog,
                self._catalog_dsn,
                self._identity,
                self._access,
                self._descriptors,
                self._doors.routes,
                self.metrics,
                self._problems,
                self._declared,
                lambda: self._doors.mqtt,
                self._end_with,
            )
        )

    def _watch_clock(self, clock: NodeClock) -> None:
        watch_clock(self.metrics, clock)
        self._declared.update(clock.declared())
        self._problems.watch(Severity.WANTS_CARE, clock.warning)

    async def _open_cluster(self, stack: contextlib.AsyncExitStack) -> None:
        assert self._catalog is not None
        view = await stack.enter_async_context(open_cluster(self._catalog, self.metrics))
        self._declared.update(view.declared())
        self._views = NodeViews(
            self._identity.home,
            self.metrics,
            view,
            self._describe,
            self._access.table.rights,
            Demands(self._access.trail, self._access.trail),
        )
        self._declared.update(self._views.declared())
        stack.callback(self._access.table.on_change(self._views.views.judge_soon))
        self._runs = PipelineRuns(RunRows(self._catalog))
        stack.callback(self._runs.close)
        self._declared.update(self._runs.declared())
        homes = HomeFinder(self._catalog)
        stack.callback(homes.close)
        calls = HomeCalls(self._catalog, is_alone=self.config.is_catalog_embedded)
        stack.callback(calls.close)
        self._draining = Draining(self._identity.home, self._doors.listeners, homes)
        stack.callback(self._draining.close)
        self._backups = Backups(self._identity.home)
        for part in (homes, calls, self._draining, self._backups):
            self._declared.update(part.declared())
        self._problems.watch(Severity.REFUSES, self._draining.problem)

    def _open_arriving(self, stack: contextlib.AsyncExitStack, folder: Path) -> None:
        identity = self._identity
        arriving = Arriving(
            self.config,
            self.catalog,
            folder,
            identity.id,
            is_guest=self._is_guest,
        )
        arriving.arrived = self._arrived
        stack.callback(arriving.close)
        self._declared.update(arriving.declared())
        self._arriving = arriving

    async def settle_homes(self) -> None:
        """Homes that were given to this process before a crash get their places."""
        if self._arriving is not None:
            await self._arriving.settle_at_start()

    async def _links(self, stack: contextlib.AsyncExitStack) -> Links:
        """Before the subjects, which speak over them until they are closed."""
        assert self._catalog is not None
        register: NodeRegister = self._catalog
        home = self._identity.home
        if self.config.resolvers:
            # Not at the top: most nodes have no list of them.
            from moorline.node.found_nodes import nodes_by_resolvers

            register = await stack.enter_async_context(nodes_by_resolvers(self.config, home))
        links = Links(self.config, register, home, self._access.nodes.secrets)
        stack.push_async_callback(links.close)
        return links

    def _end_with(self, failed: asyncio.Future[MoorlineError]) -> None:
        if failed.cancelled():
            return
        self._problems.add(Severity.ENDS, str(failed.result()))
        if not self._failed.done():
            self._failed.set_result(failed.result())

    async def _open_doors(self, stack: contextlib.AsyncExitStack) -> None:
        """Behind everything that serves who comes in."""
        assert self._catalog is not None
        behind = Behind(
            self._identity.home,
            self._catalog,
            self._access,
            self.subjects.topics,
            self._access.guarded(self._declared, self.roles),
            self._welcome,
            self.metrics,
            self._problems,
            self._health,
        )
        await self._doors.open(stack, behind)
        assert self._draining is not None
        self._draining.queues = self.subjects.queues
        self._draining.leaders = (
            self.subjects.topics.leaders if self.subjects.topics is not None else None
        )
        self._draining.mqtt = self._doors.mqtt.listeners if self._doors.mqtt is not None else None

    async def _open_backups(self, stack: contextlib.AsyncExitStack, found: HeldFolder) -> None:
        """Last, and so closed first: a cut stops commits, which the stop of the others needs."""
        assert self._backups is not None
        stack.push_async_callback(self._backups.close)
        self._backups.queues, self._backups.topics = self.subjects.queues, self.subjects.topics
        self._backups.owner = BackupOwner(
            found.path,
            self.config.node,
            self._identity.home,
            self._identity.id,
            lock_of(found.descriptor),
            self.config.advertise or [str(address) for address in self.addresses],
            self._catalog_dsn,
            self.config.is_catalog_embedded,
        )

    async def _register(self) -> None:
        await self._identity.register(
            roles=self.roles,
            addresses=self.config.advertise or [str(address) for address in self.addresses],
            http=str(self.http) if self.http else None,
            version=SOFTWARE,
            shards=()
            if self.subjects.topics is None
            else self.subjects.topics.streams.store.shard_numbers,
            mqtt_reference=self.config.mqtt_reference if self._doors.mqtt is not None else "",
        )

    # --- what every node answers ------------------------------------------------------------------

    def _welcome(self, version_chosen: int, keepalive_ms: int) -> Welcome:
        return Welcome(
            version_chosen,
            self.config.node,
            SOFTWARE,
            tuple(self.roles),
            keepalive_ms,
            self._identity.home,
        )

    def _describe(self, session: Session, call: Describe) -> Described:
        # Where a node can be reached, and what is wrong with it, is for those who look after it.
        is_shown = bool(self._views.rights_of(session, call.originator).at(ADMIN) & LIST)
        return Described(
            call.call,
            node=self.config.node,
            software=SOFTWARE,
            roles=tuple(self.roles),
            addresses=tuple(map(str, self.addresses)) if is_shown else (),
            http=str(self.http or "") if is_shown else "",
            catalog=self._catalog_place if is_shown else "",
            catalog_version=self._catalog_version,
            uptime_ms=monotonic_ms() - self._started_ms,
            connections=len(self._doors.listeners.sessions),
            process=os.getpid(),
            warnings=tuple(self._problems.found()) if is_shown else (),
            home=self._identity.home,
            connections_max=self._doors.listeners.door.places,
            descriptors=in_use(),
            descriptors_max=self._descriptors.shares.limit,
        )

    def _health(self, page: str) -> Health:
        problems = self._problems.found(PAGES[page])
        return Health(
            ok=not problems,
            node=self.config.node,
            roles=self.roles,
            problems=problems,
        )


def _echo(session: Session, calls: list[Echo]) -> list[Echoed]:  # noqa: ARG001
    return [Echoed(call.call, call.body) for call in calls]
