"""The topics of a node behind the guard, over a real catalog. Whoever comes is whom the test says."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.access.world import World

from moorline.access.demands import Demands
from moorline.access.guard import Guard
from moorline.access.quotas import Allowance, Quotas, QuotaTable
from moorline.access.rights import Rights
from moorline.catalog import Catalog
from moorline.client.connecting import connect
from moorline.client.moor import Moor
from moorline.cluster.links import Links
from moorline.config.addresses import Address
from moorline.config.settings import Config, Groups, Streams
from moorline.core.access.principal import ANONYMOUS, LOOPBACK
from moorline.core.access.quota import Bounds
from moorline.core.access.right import bits_of
from moorline.core.access.row import Row
from moorline.net.listener import Admission, Listeners
from moorline.net.native import NativeProtocol
from moorline.net.session import Session
from moorline.net.trusted_clock import TrustedClock
from moorline.node.topics import Owner, Topics, open_topics
from moorline.wire.link import Welcome

NODE = "n1"
NODES = "$node"
"""As whom a test connects that speaks as another node of the cluster."""

SETTINGS = Config(
    streams=Streams(shards=2, sync="process"),
    groups=Groups(lease_ms=20_000, ping_ms=200, rebalance_ms=20, commit_ms=10),
)


def row(path: str, subject: str, grants: str = "", denies: str = "") -> Row:
    return Row(path, subject, bits_of(grants), bits_of(denies))


OPERATOR = row("/", LOOPBACK, "slwpdag")


class Heard:
    """What the audit is told."""

    def __init__(self) -> None:
        self.refusals: list[tuple[str, str, str, str]] = []
        self.acts: list[tuple[str, str, str]] = []
        self.writing: Callable[[], Awaitable[None]] | None = None
        """Runs while the line of an operator's act is written."""

    def refused(self, session: Any, /, act: str, path: str, code: str) -> None:
        self.refusals.append((session.rights.principal, act, path, code))

    async def operating(self, session: Any, /, act: str, path: str) -> None:
        if self.writing is not None:
            await self.writing()
        self.acts.append((session.rights.principal, act, path))

    async def looking(self, session: Any, /, act: str, path: str) -> None:
        await self.operating(session, act=act, path=path)


class TopicServer:
    def __init__(self, world: World, topics: Topics, catalog: Catalog, heard: Heard) -> None:
        self.world = world
        self.topics = topics
        self.catalog = catalog
        self.heard = heard
        self.quotas = Quotas(QuotaTable(), lambda _: ())
        self.refusals = heard.refusals
        self._handlers: Any = Guard(heard, heard).guarded(topics.declared())
        self._listeners = Listeners(
            Admission("loopback", 50, 5_000, 15_000), rights_of=self._rights_of
        )
        self._coming = ANONYMOUS
        self.address = ""

    async def open(self) -> None:
        protocol = NativeProtocol(
            self._handlers,
            lambda version, keepalive_ms: Welcome(version, NODE, keepalive_ms=keepalive_ms),
        )
        wanted = Address("tcp", "127.0.0.1", 0)
        (address,) = await self._listeners.open(wanted, None, protocol)
        self.address = str(address)

    async def close(self) -> None:
        await self._listeners.close()

    @asynccontextmanager
    async def connected(self, principal: str = ANONYMOUS) -> AsyncIterator[Moor]:
        self._coming = principal
        async with connect(self.address, reconnect=False) as moor:
            yield moor

    async def change(self, *rows: Row, removed: tuple[Row, ...] = ()) -> None:
        """Other rows from now on, and everything is judged again, as a node does behind a change."""
        for one in rows:
            self.world.source.put(one)
        for one in removed:
            self.world.source.remove(one)
        await self.world.table.refresh()
        self.topics.judge_soon()

    def bound(self, principal: str, bounds: Bounds) -> None:
        self.quotas.load(QuotaTable({principal: bounds}))

    def _rights_of(self, session: Session) -> Rights:
        if self._coming == NODES:
            return self.world.node()
        session.allowance = Allowance(self.quotas, self.quotas.held_by(self._coming))
        if self._coming == ANONYMOUS:
            return self.world.stranger()
        return self.world.user(self._coming)


@asynccontextmanager
async def topic_server(dsn: str, folder: Path, *rows: Row) -> AsyncIterator[TopicServer]:
    """With these rows, and one for whoever is anonymous here: the tests' operator."""
    world = await World.loaded(OPERATOR, *rows)
    async with Catalog.open(dsn) as catalog:
        links = Links(SETTINGS, catalog, NODE)
        owner = Owner(NODE, b"n" * 24)
        clock, heard = TrustedClock(), Heard()
        demands = Demands(heard, heard)
        async with open_topics(
            SETTINGS, folder, owner, catalog, links, world.table.rights, demands, clock
        ) as topics:
            server = TopicServer(world, topics, catalog, heard)
            await server.open()
            try:
                yield server
            finally:
                await server.close()
        await links.close()
