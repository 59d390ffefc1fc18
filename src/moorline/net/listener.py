"""Room: net. Listeners: sockets that accept sessions, within bounds, and let nobody in unproven."""

import asyncio
import socket
import ssl
from collections.abc import Callable
from functools import partial

import msgspec

from moorline.config.addresses import Address
from moorline.core.descriptors import Descriptors, Use
from moorline.core.door import Door
from moorline.limits import GOODBYE_MS_MAX
from moorline.net.acceptor import Acceptor, Visit
from moorline.net.descriptors import of_process
from moorline.net.session import Handlers, Session
from moorline.wire.link import Welcome


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
        descriptors: Descriptors | None = None,
    ) -> None:
        self.sessions: set[Session] = set()
        self._handlers = handlers
        self._welcome = welcome
        self._admission = admission
        self._made = 0
        account = descriptors or of_process(admission.connections_max, shards=0)
        self.door = Door(account, Use.CONNECTIONS)
        self._acceptor = Acceptor(self.door)

    @property
    def accepted(self) -> int:
        """Since the start."""
        return self._acceptor.accepted

    async def open(self, address: Address, tls: ssl.SSLContext | None) -> list[Address]:
        """Listens there; returns the addresses in force (port 0 has become a real one)."""
        return await self._acceptor.open(address, partial(self._enter, tls))

    async def close(self) -> None:
        """Stops accepting and ends every session with a goodbye."""
        self._acceptor.close()
        leaving = list(self.sessions)
        for session in leaving:
            session.close("STOPPING", "the node stops; connect again to another or later")
        if leaving:
            # What was answered is still on its way out; a peer that does not read is cut.
            await asyncio.wait(
                [session.gone for session in leaving], timeout=GOODBYE_MS_MAX / 1_000
            )
        await self._acceptor.cut_all()

    async def _enter(
        self, tls: ssl.SSLContext | None, accepted: socket.socket, visit: Visit
    ) -> "asyncio.Future[None]":
        """Returns when the session is made, a TLS handshake included; what it returns is done at its end."""
        session = self._session(visit)
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: session,
                accepted,
                ssl=tls,
                ssl_handshake_timeout=self._admission.hello_timeout_ms / 1_000 if tls else None,
            )
        except BaseException:
            # It may have been opened by then, and would never hear that its transport is gone.
            session.abandon()
            raise
        visit.cut = session.abort
        return session.gone

    def _session(self, visit: Visit) -> Session:
        self._made += 1
        return Session(
            f"session {self._made}",
            self._handlers,
            self._welcome,
            self._joined,
            partial(self._admit, visit),
            hello_timeout_ms=self._admission.hello_timeout_ms,
            keepalive_ms=self._admission.keepalive_ms,
        )

    def _joined(self, session: Session) -> None:
        self.sessions.add(session)
        session.at_end(lambda: self.sessions.discard(session))

    def _admit(self, visit: Visit, session: Session) -> None:
        visit.heard()
        if visit.is_refused:
            session.close(
                "BUSY",
                f"this node takes {self.door.places} connections at once: close some, or try again later",
            )
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
