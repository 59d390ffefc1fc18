"""A node's answers about rights over real sockets and a real catalog, for connections of any principal."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from moorline.access.commands import AccessBroker
from moorline.access.guard import Guard
from moorline.access.rights_table import RightsTable
from moorline.catalog import Catalog
from moorline.catalog.users import Users
from moorline.client.connecting import Connecting, connect
from moorline.config.addresses import Address
from moorline.core.access.audit import Detail
from moorline.core.access.principal import Proof
from moorline.net.listener import Admission, Listeners
from moorline.net.native import NativeProtocol
from moorline.net.session import Session
from moorline.wire.link import Welcome


class KnownListeners(Listeners):
    """Whoever comes is the principal that the test said last."""

    table: RightsTable
    principal = "anonymous"

    def _joined(self, session: Session) -> None:
        proof = Proof.NOTHING if self.principal == "anonymous" else Proof.PASSWORD
        rights = self.table.rights(self.principal, proof, is_local=True)
        session.rights = rights
        super()._joined(session)


class Server:
    def __init__(self, dsn: str, catalog: Catalog) -> None:
        self.dsn = dsn
        self.users = Users(catalog)
        self.table = RightsTable(
            self.users, revocation_ms=2_000, stale_ms=60_000, is_embedded=False
        )
        self.lines: list[tuple[str, str, str, str]] = []
        self._broker = AccessBroker(self.users, self.table, self, lambda _: 7)
        handlers: Any = Guard(self).guarded(self._broker.declared())
        admission = Admission("loopback", 10, 5_000, 15_000)
        self._protocol = NativeProtocol(handlers, _welcome)
        self._listeners = KnownListeners(admission)
        self._listeners.table = self.table
        self.address = ""

    @classmethod
    @asynccontextmanager
    async def open(cls, dsn: str) -> AsyncIterator["Server"]:
        async with Catalog.open(dsn) as catalog:
            server = cls(dsn, catalog)
            await server.table.refresh()
            (address,) = await server._listeners.open(
                Address("tcp", "127.0.0.1", 0), None, server._protocol
            )
            server.address = str(address)
            try:
                yield server
            finally:
                await server._listeners.close()
                server._broker.close()

    def connect(self, principal: str = "anonymous") -> Connecting:
        self.become(principal)
        return connect(self.address)

    def become(self, principal: str) -> None:
        self._listeners.principal = principal

    # The audit.

    def refused(self, session: Any, /, act: str, path: str, code: str) -> None:
        self.lines.append((session.rights.principal, act, path, code))

    async def changing(self, session: Any, /, act: str, path: str, detail: Detail) -> None:
        said = f"{detail.subject} {detail.letters}"
        self.lines.append((session.rights.principal, act, path, said))


def _welcome(version: int, keepalive_ms: int) -> Welcome:
    return Welcome(version, "node-1", "test", (), keepalive_ms, "node-1")
