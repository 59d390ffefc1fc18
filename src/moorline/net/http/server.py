"""Room: net/http. The HTTP port of a node: one listening address, over TLS or not, and all that came by
it."""

import asyncio
import contextlib
import socket
import ssl

from moorline.config.addresses import Address
from moorline.core.descriptors import Descriptors, Use
from moorline.core.door import Door
from moorline.limits import GOODBYE_MS_MAX, HTTP_BACKLOG, HTTP_TIMEOUT_MS, KEEPALIVE_MS
from moorline.net.acceptor import Acceptor, Visit
from moorline.net.authentication import BY_CERTIFICATE
from moorline.net.http.connection import HttpConnection
from moorline.net.http.logins import Logins, WebAdmission
from moorline.net.http.peer import Peer
from moorline.net.http.routes import Routes
from moorline.net.http.strangers import Strangers
from moorline.net.http.turns import Turns
from moorline.net.listener import Describer, FixedTls, LoginRefused, ServerTls
from moorline.net.tls import why_refused_here


class HttpServer:
    """Serves the routes until it is closed."""

    def __init__(
        self,
        routes: Routes,
        admission: WebAdmission,
        descriptors: Descriptors,
        *,
        tls: ServerTls | ssl.SSLContext | None = None,
        long_stays: Door | None = None,
        keepalive_ms: int = KEEPALIVE_MS,
    ) -> None:
        """`long_stays` is the door of the node's connections, whose places WebSockets and long polls
        take; without one they have those of the port itself."""
        self._routes = routes
        self._admission = admission
        self._tls = FixedTls(tls) if isinstance(tls, ssl.SSLContext) else tls
        self._logins = Logins(admission, self._tls)
        self._long_stays = long_stays
        self._keepalive_ms = keepalive_ms
        self._connections: set[HttpConnection] = set()
        self._turns = Turns()
        self.door = Door(descriptors, Use.HTTP)
        self._acceptor = Acceptor(self.door, backlog=HTTP_BACKLOG)
        stays = self.door if long_stays is None else long_stays
        self._strangers = Strangers(
            lambda: stays.places, self._logins.is_proving, self._acceptor.note
        )

    @property
    def peers(self) -> set[Peer]:
        """Those that have entered, for whoever judges them again."""
        return self._logins.peers

    @property
    def websockets(self) -> int:
        """That are open now."""
        return sum(one.socket is not None for one in self._connections)

    async def open(self, address: Address) -> Address:
        return (await self._acceptor.open(address, self._serve))[0]

    async def close(self) -> None:
        """Takes no more requests, cuts those that are under way, and says goodbye to WebSockets."""
        self._acceptor.close()
        leaving = list(self._connections)
        for connection in leaving:
            connection.stop()
        if leaving:
            await asyncio.wait([one.gone for one in leaving], timeout=GOODBYE_MS_MAX / 1_000)
        await self._acceptor.cut_all()

    def judge_again(self, trust: Describer) -> None:
        """Other files of TLS are in use."""
        self._logins.judge_again(trust)

    async def _serve(self, accepted: socket.socket, visit: Visit) -> "asyncio.Future[None]":
        connection = HttpConnection(
            self._routes,
            self._logins,
            visit,
            self._turns,
            self._long_stays,
            self._keepalive_ms,
            self._strangers,
        )
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: connection,
                accepted,
                ssl=self._tls.context if self._tls else None,
                ssl_handshake_timeout=HTTP_TIMEOUT_MS / 1_000 if self._tls else None,
            )
        except ssl.SSLCertVerificationError as error:
            connection.abandon()
            self._admission.refused(
                LoginRefused(_address_of(accepted), BY_CERTIFICATE, "", why_refused_here(error))
            )
            raise
        except BaseException:
            # It may have been opened by then, and would never hear that its transport is gone.
            connection.abandon()
            raise
        visit.cut = connection.abort
        if not connection.gone.done():
            self._connections.add(connection)
            connection.gone.add_done_callback(lambda _: self._connections.discard(connection))
        return connection.gone


def _address_of(accepted: socket.socket) -> str:
    with contextlib.suppress(OSError):  # it may be gone already
        return str(accepted.getpeername()[0])
    return ""
