"""A broker with services, without a process around it: what the tests of services build and wait with."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from tests.access.rows import Rowed, operator
from tests.queues.queue_server import WITHIN_S, Certificates
from tests.waiting import until

from moorline.catalog import Catalog
from moorline.client.associations import Associations
from moorline.client.connecting import Connecting
from moorline.client.moor import Moor
from moorline.client.queue import Message as QueueMessage
from moorline.config.addresses import Address
from moorline.config.settings import Queues as Settings
from moorline.core.sets.digest import Digest
from moorline.ids import NO_HOME
from moorline.journal.disk import FileDisk
from moorline.journal.queues.rebuild import rebuilt_index
from moorline.journal.queues.store import Store
from moorline.net.clock import wall_ms
from moorline.net.listener import Admission, Listeners
from moorline.net.native import NativeProtocol
from moorline.net.session import Session
from moorline.node.queues import options
from moorline.queues.commands import QueueBroker
from moorline.queues.homes import QueueHomes
from moorline.services.operator import OperatorBroker
from moorline.wire.link import Welcome
from moorline.wire.queue import Done, Subscribe, Subscribed, Unsubscribe

QUICK = Settings(sync="process", max_queue_messages=100, max_file_messages=101)

NODE_ID = b"n" * 24

Result = TypeVar("Result")


class ServiceServer:
    """A broker with services behind a TLS listener: a node without its process."""

    def __init__(
        self,
        folder: Path,
        catalog: Catalog,
        certificates: Certificates,
        settings: Settings,
        node_id: bytes = NODE_ID,
        *,
        home: bytes = NO_HOME,
        home_name: str = "",
        homes: QueueHomes | None = None,
    ) -> None:
        self.homes = homes
        self.folder = folder
        self.catalog = catalog
        self.certificates = certificates
        self.disk = FileDisk(folder / "queues")
        self.store = Store(self.disk, options(settings, home=home), wall_ms)
        self.store.open(rebuilt_index)
        self.queues = QueueBroker(self.store, settings)
        self.services = OperatorBroker(catalog, self.queues, node_id, homes)
        if homes is not None:
            self.queues.refusals.absence = homes.absence
            self.queues.descriptions.whereabouts = homes.whereabouts
        self.rights = Rowed([operator("operator")])
        self.queues.refusals.tell = self.rights.refused
        self.queues.owners.mapped = self.rights.world.table.mapped
        self.rights.world.table.on_change(self.queues.judge_soon)
        self.rights.world.table.on_change(self.services.judge_soon)
        self.protocol = NativeProtocol(
            self.rights.guarded(self.queues.declared(), self.services.declared()),
            lambda version, keepalive_ms: Welcome(
                version, home_name or "n", keepalive_ms=keepalive_ms, home=home_name
            ),
        )
        self.listeners = Listeners(
            Admission(
                anonymous="loopback",
                connections_max=50,
                hello_timeout_ms=5_000,
                keepalive_ms=15_000,
            ),
            rights_of=self.rights.rights_of,
        )
        self.address = ""

    async def open(self) -> None:
        await self.rights.open()
        await self.services.start()
        wanted = Address("tls", "127.0.0.1", 0)
        (address,) = await self.listeners.open(wanted, self.certificates.context(), self.protocol)
        self.address = str(address)

    async def close(self) -> None:
        await self.listeners.close()
        if self.services.turns._tasks:
            await asyncio.wait(self.services.turns._tasks, timeout=WITHIN_S)
        self.services.close()
        await self.queues.close()
        self.store.close()

    def connect(self, name: str = "service") -> Connecting:
        return self.certificates.connect(self.address, name)

    def list_of(self, name: str = "service") -> Path:
        """The file of a client's list."""
        return self.folder / f"{name}.sqlite"

    @contextlib.contextmanager
    def listed(self, name: str = "service") -> Iterator[Associations]:
        """The client's list while no client uses it."""
        listed = Associations(self.list_of(name))
        yield listed
        listed.close()

    async def number(self, name: str = "service") -> int:
        sql = "select number from moorline.service where name = $1"
        return int(await self.catalog.fetchval(sql, name))

    async def digest(self, name: str = "service") -> Digest:
        return await self.services.services.sum(await self.number(name))

    async def associated(self, name: str = "service") -> set[bytes]:
        number = await self.number(name)
        rows = await self.catalog.fetch("select queue from association where service = $1", number)
        return {row["queue"] for row in rows}

    async def lose(self, queues: Sequence[bytes]) -> None:
        """What a restored backup does: associations and their part of the digest are gone."""
        await self.catalog.fetch("select * from moorline.dissociate($1)", list(queues))

    async def check_digests(self) -> None:
        """Invariant 1: what is kept is what a recompute gives."""
        for row in await self.services.services.all():
            found = await self.services._rows.checked_all(row.number, self.services.home)
            assert found.is_right, row.name
            assert row.digest == found.true, row.name

    def session_of(self, moor: Moor) -> Session:
        """The node's end of a connection."""
        assert moor._caller._transport is not None
        wanted = moor._caller._transport.get_extra_info("sockname")
        (found,) = [
            session
            for session in self.listeners.sessions
            if session._transport is not None
            and session._transport.get_extra_info("peername") == wanted
        ]
        return found


@contextlib.asynccontextmanager
async def service_server(
    folder: Path,
    catalog: Catalog,
    certificates: Certificates,
    settings: Settings = QUICK,
    node_id: bytes = NODE_ID,
) -> AsyncIterator[ServiceServer]:
    made = ServiceServer(folder, catalog, certificates, settings, node_id)
    await made.open()
    try:
        yield made
    finally:
        await made.close()


async def within(work: Awaitable[Result]) -> Result:
    async with asyncio.timeout(WITHIN_S):
        return await work


async def take(messages: AsyncIterator[QueueMessage], count: int) -> list[QueueMessage]:
    """So many messages, each acknowledged."""
    taken: list[QueueMessage] = []
    async with asyncio.timeout(WITHIN_S):
        while len(taken) < count:
            message = await anext(messages)
            await message.ack()
            taken.append(message)
    return taken


async def make_queues(moor: Moor, count: int) -> list[bytes]:
    return [queue.id for queue in await moor.create_queues(count)]


async def associated(node: ServiceServer, count: int) -> list[bytes]:
    """So many queues, associated by the service, which then left."""
    async with node.connect() as moor:
        queues = await make_queues(moor, count)
        async with moor.service(node.list_of()) as service:
            assert await service.associate(queues) == []
    await until(lambda: not node.listeners.sessions)
    return queues


async def subscribe(moor: Moor, queue: bytes) -> None:
    """A plain SUB, if the session acts for no service."""
    await moor._caller.call(lambda call: Subscribe(call, queue), Subscribed)


async def unsubscribe(moor: Moor, queue: bytes) -> None:
    await moor._caller.call(lambda call: Unsubscribe(call, queue), Done)
