"""A broker of queues, without a process around it: what the tests of queues build and wait with."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import trustme
from tests.access.rows import Rowed

from moorline.client.connecting import Connecting, connect
from moorline.client.moor import Moor
from moorline.client.queue import Message
from moorline.client.queue import Queue as ClientQueue
from moorline.config.addresses import Address
from moorline.config.settings import Queues as Settings
from moorline.core.access.row import Row
from moorline.errors import CallFailed
from moorline.journal.disk import FileDisk
from moorline.journal.queues.rebuild import rebuilt_index
from moorline.journal.queues.store import Store
from moorline.net.clock import wall_ms
from moorline.net.listener import Admission, Listeners
from moorline.net.native import NativeProtocol
from moorline.net.tls import server_context
from moorline.node.queues import options
from moorline.queues.commands import QueueBroker
from moorline.queues.contents import QueueContents
from moorline.queues.mending import QueueMending
from moorline.wire.link import Welcome

SMALL = Settings(max_queue_messages=3, max_file_messages=4)
ROOMY = Settings(max_queue_messages=5_000, max_file_messages=5_001)
WITHIN_S = 15


class Certificates:
    """Certificates of a node, and of those who come to it by their names."""

    def __init__(self, folder: Path, *names: str) -> None:
        self.folder = folder
        authority = trustme.CA()
        self.ca = folder / "ca.pem"
        authority.cert_pem.write_to_path(str(self.ca))
        self._write("server", authority.issue_cert("127.0.0.1"))
        for name in names:
            self._write(name, authority.issue_cert(f"{name}@example.org", common_name=name))

    def _write(self, name: str, certificate: trustme.LeafCert) -> None:
        certificate.private_key_and_cert_chain_pem.write_to_path(str(self.path(name)))

    def path(self, name: str) -> Path:
        return self.folder / f"{name}.pem"

    def context(self) -> ssl.SSLContext:
        server = str(self.path("server"))
        return server_context(server, server, str(self.ca))

    def connect(self, address: str, name: str) -> Connecting:
        """With the certificate of that name, or without any."""
        certificate = self.path(name) if name else None
        return connect(
            address, ca=self.ca, certificate=certificate, key=certificate, reconnect=False
        )


class QueueServer:
    """A broker on files behind a listener: a node without its catalog."""

    def __init__(
        self, folder: Path, settings: Settings, tls: ssl.SSLContext | None, rows: Iterable[Row]
    ) -> None:
        self.settings = settings
        self.disk = FileDisk(folder)
        self.store = Store(self.disk, options(settings), wall_ms)
        self.store.open(rebuilt_index)
        self.broker = QueueBroker(self.store, settings)
        self.mending = QueueMending(self.broker)
        self.contents = QueueContents(self.broker)
        self.rights = Rowed(rows)
        self.broker.refusals.tell = self.rights.refused
        self.broker.owners.mapped = self.rights.world.table.mapped
        self.rights.world.table.on_change(self.broker.judge_soon)
        self.protocol = NativeProtocol(
            self.rights.guarded(
                self.broker.declared(), self.mending.declared(), self.contents.declared()
            ),
            lambda version, keepalive_ms: Welcome(version, "n", keepalive_ms=keepalive_ms),
        )
        self.listeners = Listeners(
            Admission(
                anonymous="never" if tls else "loopback",
                connections_max=200,
                hello_timeout_ms=5_000,
                keepalive_ms=15_000,
            ),
            rights_of=self.rights.rights_of,
        )
        self.address = Address("tls" if tls else "tcp", "127.0.0.1", 0)
        self.tls = tls

    @property
    def fingerprints(self) -> set[bytes]:
        """Of all certificates that came."""
        return self.rights.fingerprints

    def connect(self) -> Connecting:
        return connect(str(self.address), reconnect=False)

    async def open(self) -> None:
        await self.rights.open()
        (self.address,) = await self.listeners.open(self.address, self.tls, self.protocol)

    async def close(self) -> None:
        await self.listeners.close()
        await self.mending.close()
        await self.broker.close()
        self.store.close()
        assert self.disk.open_handles == 0


@contextlib.asynccontextmanager
async def queue_server(
    folder: Path,
    settings: Settings = SMALL,
    tls: ssl.SSLContext | None = None,
    rows: Iterable[Row] = (),
) -> AsyncIterator[QueueServer]:
    made = QueueServer(folder / "queues", settings, tls, rows)
    await made.open()
    try:
        yield made
    finally:
        await made.close()


async def take(messages: AsyncIterator[Message]) -> Message:
    async with asyncio.timeout(WITHIN_S):
        return await anext(messages)


async def refusal(call: "asyncio.Future[object] | asyncio.Task[object]") -> str:
    try:
        await call
    except CallFailed as error:
        return error.code
    return "OK"


async def tried(moor: Moor, queue: ClientQueue, body: bytes) -> str:
    """How a send ends: OK or the code of its refusal."""
    return await refusal(asyncio.ensure_future(moor.send(queue.id, body)))
