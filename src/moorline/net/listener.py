"""Room: net. Listeners: sockets that accept sessions, within bounds, and let nobody in unproven."""

import asyncio
import errno
import logging
import resource
import socket
import ssl
from collections.abc import Callable

import msgspec

from moorline.config.addresses import Address
from moorline.errors import AddressTaken, ConfigError, StartError
from moorline.limits import FILES_KEPT_FOR_OTHER_USES, GOODBYE_MS_MAX, LISTEN_BACKLOG
from moorline.net.session import Handlers, Session
from moorline.wire.link import Welcome

log = logging.getLogger("moorline.net")


class Admission(msgspec.Struct, frozen=True):
    """Who may enter, and how many."""

    anonymous: str
    connections_max: int
    hello_timeout_ms: int
    keepalive_ms: int


class Listeners:
    """All native listeners of a node and the sessions that came through them."""

    def __init__(
        self,
        handlers: Handlers,
        welcome: Callable[[int, int], Welcome],
        admission: Admission,
    ) -> None:
        self.sessions: set[Session] = set()
        self.accepted = 0
        self._handlers = handlers
        self._welcome = welcome
        self._admission = admission
        self._servers: list[asyncio.Server] = []
        self._connections_max = min(admission.connections_max, _sockets_allowed())
        if self._connections_max < admission.connections_max:
            log.warning(
                "the open-files limit lowers the number of connections",
                extra={"asked": admission.connections_max, "allowed": self._connections_max},
            )

    async def open(self, address: Address, tls: ssl.SSLContext | None) -> list[Address]:
        """Listens there; returns the addresses in force (port 0 has become a real one)."""
        loop = asyncio.get_running_loop()
        try:
            server = await loop.create_server(
                self._session,
                address.host,
                address.port,
                backlog=LISTEN_BACKLOG,
                ssl=tls,
                ssl_handshake_timeout=self._admission.hello_timeout_ms / 1_000 if tls else None,
            )
        except OSError as error:
            raise cannot_listen(address, error) from error
        self._servers.append(server)
        bound = [found.getsockname() for found in server.sockets]
        return [Address(address.scheme, name[0], name[1]) for name in bound]

    async def close(self) -> None:
        """Stops accepting and ends every session with a goodbye."""
        for server in self._servers:
            server.close()
        leaving = list(self.sessions)
        for session in leaving:
            session.close("STOPPING", "the node stops; connect again to another or later")
        if leaving:
            # What was answered is still on its way out; a peer that does not read is cut.
            await asyncio.wait(
                [session.gone for session in leaving], timeout=GOODBYE_MS_MAX / 1_000
            )

    def _session(self) -> Session:
        self.accepted += 1
        return Session(
            f"session {self.accepted}",
            self._handlers,
            self._welcome,
            self._joined,
            self._admit,
            hello_timeout_ms=self._admission.hello_timeout_ms,
            keepalive_ms=self._admission.keepalive_ms,
        )

    def _joined(self, session: Session) -> None:
        self.sessions.add(session)
        session.on_end.append(lambda: self.sessions.discard(session))

    def _admit(self, session: Session) -> None:
        if len(self.sessions) > self._connections_max:
            session.close("BUSY", f"this node takes {self._connections_max} connections at once")
        elif session.identity.is_anonymous and not self._anonymous_may_enter(session):
            session.close(
                "AUTH",
                "anonymous clients are not taken from here: use a TLS client certificate, "
                "or let the operator set anonymous = everywhere",
            )

    def _anonymous_may_enter(self, session: Session) -> bool:
        if self._admission.anonymous == "loopback":
            return Address("tcp", session.peer_address, 0).is_loopback
        return self._admission.anonymous == "everywhere"


def cannot_listen(address: Address, error: OSError) -> Exception:
    """The error of ours for an address that the system refuses."""
    if error.errno == errno.EADDRINUSE:
        free = str(Address(address.scheme, address.host, 0))
        flag = f"--listen {free}"
        if address.scheme == "http":
            flag = f"--http off, or --http {free.removeprefix('http://')}"
        return AddressTaken(
            f"{address} is taken by another program: stop it, or give {flag} for any free port"
        )
    if error.errno == errno.EACCES:
        return StartError(f"{address}: not permitted: choose a port above 1023")
    if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
        return ConfigError(f"{address} is not an address of this machine: {error.strerror}")
    return StartError(f"{address}: cannot listen: {error}")


def _sockets_allowed() -> int:
    """Raises the soft limit of open files to the hard one; returns what is left for sockets."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return max(16, hard - FILES_KEPT_FOR_OTHER_USES)
