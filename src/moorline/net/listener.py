"""Room: net. Listeners: sockets that accept sessions, within bounds, and let nobody in unproven."""

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from typing import Final, Protocol

import msgspec

from moorline.config.addresses import Address
from moorline.core.descriptors import Descriptors, Use
from moorline.core.door import Door
from moorline.core.effects import Event
from moorline.core.proof import CheckProof, ProofAccepted, ProofRefused
from moorline.limits import GOODBYE_MS_MAX
from moorline.net.acceptor import Acceptor, Visit
from moorline.net.authentication import Authentication, Checks, Peer, Proofs
from moorline.net.descriptors import of_process
from moorline.net.protocol import LinkProtocol
from moorline.net.session import Handlers, Session, SessionRights

OPEN_TO_TRANSPORT: Final = Authentication()
"""Whoever has a certificate, and whoever has none as far as `anonymous` lets it."""


class Admission(msgspec.Struct, frozen=True):
    """Who may enter, and how many."""

    anonymous: str
    connections_max: int
    hello_timeout_ms: int
    keepalive_ms: int


class ServedProtocol(Protocol):
    """What is served at an address: what is spoken there, and who answers."""

    @property
    def handlers(self) -> Handlers: ...

    def accepting(
        self, name: str, *, hello_timeout_ms: int, keepalive_ms: int, mechanisms: Collection[str]
    ) -> LinkProtocol:
        """The node's end of one connection that has come; its hello may name one of the mechanisms."""


class Served(msgspec.Struct, frozen=True):
    """One address, as whoever comes there finds it."""

    protocol: ServedProtocol
    tls: ssl.SSLContext | None
    authentication: Authentication


class Listeners:
    """All listeners of a node for sessions, whatever they speak, and the sessions that came through them."""

    def __init__(
        self,
        admission: Admission,
        descriptors: Descriptors | None = None,
        rights_of: Callable[[Session], SessionRights] | None = None,
    ) -> None:
        """`rights_of` is asked for each session behind its proof, before anything of it is heard."""
        self._rights_of = rights_of
        self.sessions: set[Session] = set()
        self._admission = admission
        self._made = 0
        account = descriptors or of_process(admission.connections_max, shards=0)
        self.door = Door(account, Use.CONNECTIONS)
        self._acceptor = Acceptor(self.door)
        self._checks = Checks()

    @property
    def accepted(self) -> int:
        """Since the start."""
        return self._acceptor.accepted

    async def open(
        self,
        address: Address,
        tls: ssl.SSLContext | None,
        protocol: ServedProtocol,
        authentication: Authentication = OPEN_TO_TRANSPORT,
    ) -> list[Address]:
        """Listens there; returns the addresses in force (port 0 has become a real one)."""
        served = Served(protocol, tls, authentication)
        return await self._acceptor.open(address, partial(self._enter, served))

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
        self, served: Served, accepted: socket.socket, visit: Visit
    ) -> "asyncio.Future[None]":
        """Returns when the session is made, a TLS handshake included; what it returns is done at its end."""
        session = self._session(served, visit)
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: session,
                accepted,
                ssl=served.tls,
                ssl_handshake_timeout=(
                    self._admission.hello_timeout_ms / 1_000 if served.tls else None
                ),
            )
        except BaseException:
            # It may have been opened by then, and would never hear that its transport is gone.
            session.abandon()
            raise
        visit.cut = session.abort
        return session.gone

    def _session(self, served: Served, visit: Visit) -> Session:
        self._made += 1
        name = f"session {self._made}"
        spoken = served.protocol.accepting(
            name,
            hello_timeout_ms=self._admission.hello_timeout_ms,
            keepalive_ms=self._admission.keepalive_ms,
            mechanisms=served.authentication.proofs,
        )
        return Session(
            name,
            spoken,
            served.protocol.handlers,
            self._joined,
            partial(self._check_proof, served, visit, Proofs(served.authentication, self._checks)),
            partial(self._admit, visit),
        )

    def _joined(self, session: Session) -> None:
        self.sessions.add(session)
        session.at_end(lambda: self.sessions.discard(session))

    def _check_proof(
        self, served: Served, visit: Visit, proofs: Proofs, session: Session, check: CheckProof
    ) -> Event | Awaitable[Event] | None:
        """Judges whoever has said hello: by the proof that it names, or else by its transport."""
        visit.heard()
        if not check.mechanism:
            return self._judged_by_transport(served.authentication, session)
        if visit.is_refused:
            # It is not worth a check.
            self._tell_busy(session)
            return None
        peer = Peer(session.peer_address, session.identity, session.is_encrypted)
        return proofs.check(check.mechanism, check.proof, peer)

    def _judged_by_transport(self, authentication: Authentication, session: Session) -> Event:
        refused = authentication.refusal_of(session.identity)
        if refused is not None:
            return refused
        if session.identity.is_anonymous and not self._anonymous_may_enter(session):
            return ProofRefused(
                "anonymous clients are not taken from here: use a TLS client certificate, "
                "or let the operator set anonymous = everywhere"
            )
        return ProofAccepted()

    def _admit(self, visit: Visit, session: Session) -> None:
        if self._rights_of is not None:
            session.rights = self._rights_of(session)
        if visit.is_refused:
            self._tell_busy(session)

    def _tell_busy(self, session: Session) -> None:
        session.close(
            "BUSY",
            f"this node takes {self.door.places} connections at once: close some, or try again later",
        )

    def _anonymous_may_enter(self, session: Session) -> bool:
        if self._admission.anonymous == "loopback":
            return Address("tcp", session.peer_address, 0).is_loopback
        return self._admission.anonymous == "everywhere"
