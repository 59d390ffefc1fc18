"""Room: net. Listeners: sockets that accept sessions, within bounds, and let nobody in unproven.

the handshake    by the newest TLS files; a certificate that OpenSSL refuses comes no further
the hello        the certificate is described (net/peer_certificate.py); then the proof that the hello
                 names is checked, or else what the transport has shown
the welcome      the session is somebody, and has rights
a reload         certificates that proved somebody are judged again
"""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from typing import Final, Protocol

import msgspec

from moorline.config.addresses import Address
from moorline.core.access.certificate import CertificateProblem, PeerCertificate
from moorline.core.access.principal import NODE_PREFIX, Proof
from moorline.core.descriptors import Descriptors, Use
from moorline.core.door import Door
from moorline.core.effects import Event
from moorline.core.proof import CheckProof, ProofAccepted, ProofRefused
from moorline.errors import (
    CertificateRefused,
    FrameTooLarge,
    Malformed,
    Tampered,
)
from moorline.limits import GOODBYE_MS_MAX
from moorline.net.acceptor import Acceptor, Visit
from moorline.net.authentication import (
    BY_CERTIFICATE,
    BY_NOTHING,
    Authentication,
    Checks,
    Peer,
    Proofs,
    Verdict,
)
from moorline.net.certificate_login import OWN_NAME, PrincipalOf, identity_by
from moorline.net.clock import wall_ms
from moorline.net.descriptors import of_process
from moorline.net.fair_turns import FairTurns
from moorline.net.protocol import LinkProtocol
from moorline.net.session import Handlers, Session
from moorline.net.session_rights import SessionRights
from moorline.net.tls import Identity, why_refused_here

OPEN_TO_TRANSPORT: Final = Authentication()
"""Whoever has a certificate, and whoever has none as far as `anonymous` lets it."""

LOGIN: Final = "Login"
"""The act of whoever comes; a message of that name there is none."""

CUT_BY: Final = {
    "BUSY": "Busy",
    Malformed.code: "Malformed",
    FrameTooLarge.code: "FrameTooLarge",
    Tampered.code: "Tampered",
    "HELLO_TIMEOUT": "HelloTimeout",
    "VERSION": "Version",
    "AUTH": LOGIN,
}
"""Codes by which we end a link that is not welcome, and the acts that they are: each cause is one, so that
floods of two kinds are two sums. A peer that leaves by itself, with whatever code, is not refused."""

HANDSHAKE: Final = "Handshake"
"""The act of whoever does not speak TLS as we do."""

PROOFS: Final = {proof.value: proof for proof in Proof}
"""By the mechanism that a hello names."""


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


class Describer(Protocol):
    """Knows whose certificates are taken: `net.peer_certificate.Trust`."""

    def describe(self, encoded: bytes, now_ms: int) -> PeerCertificate | CertificateProblem: ...

    def problem_of(self, certificate: PeerCertificate, now_ms: int) -> str: ...


class ServerTls(Protocol):
    """What handshakes are made with: `net.tls_files.TlsFiles`."""

    @property
    def context(self) -> ssl.SSLContext:
        """For the next one."""

    @property
    def trust(self) -> Describer: ...


class FixedTls(msgspec.Struct, frozen=True):
    """Files that are never read again: whom the handshake takes is taken."""

    context: ssl.SSLContext

    @property
    def trust(self) -> Describer:
        # Not at the top: who listens without TLS needs no package for certificates.
        from moorline.net.peer_certificate import Trust

        return Trust(None, None)


class Served(msgspec.Struct, frozen=True):
    """One address, as whoever comes there finds it."""

    protocol: ServedProtocol
    tls: ServerTls | None
    authentication: Authentication
    listener: str
    is_proxied: bool


class LoginRefused(msgspec.Struct, frozen=True):
    """Somebody did not come in."""

    address: str
    mechanism: str
    claimed: str
    """Whom it said to be; not proven, and perhaps nobody."""
    text: str
    code: str = "AUTH"
    act: str = LOGIN
    """What it was at: its login, or what went wrong before that."""


class Listeners:
    """All listeners of a node for sessions, whatever they speak, and the sessions that came through them."""

    def __init__(
        self,
        admission: Admission,
        descriptors: Descriptors | None = None,
        rights_of: Callable[[Session], SessionRights] | None = None,
        *,
        rules: PrincipalOf = OWN_NAME,
        refused: Callable[[LoginRefused], None] = lambda _: None,
    ) -> None:
        """`rights_of` is asked for each session behind its proof, before anything of it is heard; `refused`
        hears of those that have none."""
        self._rights_of = rights_of
        self._rules = rules
        self._refused = refused
        self.sessions: set[Session] = set()
        self._admission = admission
        self._made = 0
        account = descriptors or of_process(admission.connections_max, shards=0)
        self.door = Door(account, Use.CONNECTIONS)
        self.sends_on = ""
        """Why whoever can be at another node is sent there; empty where nobody is."""
        self._acceptor = Acceptor(self.door, dropped=self._dropped)
        self._checks = Checks()
        self.turns = FairTurns()
        """Among principals, whatever listener they came by."""

    @property
    def acceptor(self) -> Acceptor:
        """Of whoever comes by the door of this node's connections, whatever is spoken."""
        return self._acceptor

    @property
    def accepted(self) -> int:
        """Since the start."""
        return self._acceptor.accepted

    async def open(
        self,
        address: Address,
        tls: ServerTls | ssl.SSLContext | None,
        protocol: ServedProtocol,
        authentication: Authentication = OPEN_TO_TRANSPORT,
        *,
        listener: str = "",
        is_proxied: bool = False,
    ) -> list[Address]:
        """Listens there; returns the addresses in force (port 0 has become a real one).

        `listener` is what the settings call it. Behind a proxy nobody is known to be on this machine.
        """
        used = FixedTls(tls) if isinstance(tls, ssl.SSLContext) else tls
        served = Served(protocol, used, authentication, listener, is_proxied)
        return await self._acceptor.open(address, partial(self._enter, served))

    def judge_again(self, trust: Describer) -> None:
        """Other files are in use: whose certificate is not taken any more goes."""
        now_ms = wall_ms()
        for session in list(self.sessions):
            certificate = session.identity.certificate
            if certificate is not None and (problem := trust.problem_of(certificate, now_ms)):
                session.close("EXPIRED", f"{problem}: connect again with another one")

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
                ssl=served.tls.context if served.tls else None,
                ssl_handshake_timeout=(
                    self._admission.hello_timeout_ms / 1_000 if served.tls else None
                ),
            )
        except ssl.SSLCertVerificationError as error:
            session.abandon()
            why = why_refused_here(error)
            code = CertificateRefused.code
            self._refused(LoginRefused(_address_of(accepted), BY_CERTIFICATE, "", why, code))
            raise
        except ssl.SSLError as error:
            # Garbage, or no version or cipher that both take.
            session.abandon()
            address, why = _address_of(accepted), str(error)
            self._refused(LoginRefused(address, BY_NOTHING, "", why, "TLS", HANDSHAKE))
            raise
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
        proofs = Proofs(served.authentication, self._checks)
        return Session(
            name,
            spoken,
            served.protocol.handlers,
            self._joined,
            partial(self._check_proof, served, visit, proofs),
            partial(self._admit, visit),
            proofs.wrapping,
        )

    def _joined(self, session: Session) -> None:
        self.sessions.add(session)
        session.at_end(lambda: self._left(session))

    def _left(self, session: Session) -> None:
        self.sessions.discard(session)
        act = CUT_BY.get(session.end_code)
        if not session.is_judged and act is not None and session.is_ended_here:
            self._told(session, BY_NOTHING, "", ProofRefused("", session.end_code), act)

    def _dropped(self, accepted: socket.socket) -> None:
        address = _address_of(accepted)
        self._refused(LoginRefused(address, BY_NOTHING, "", "", "BUSY", CUT_BY["BUSY"]))

    # --- who is there -----------------------------------------------------------------------------

    def _check_proof(
        self, served: Served, visit: Visit, proofs: Proofs, session: Session, check: CheckProof
    ) -> Event | Awaitable[Event] | None:
        """Judges whoever has said hello: by the proof that it names, or else by its transport."""
        visit.heard()
        session.listener = served.listener
        is_loopback = Address("tcp", session.peer_address, 0).is_loopback
        session.is_local = is_loopback and not served.is_proxied
        refused = self._described(served, session)
        if refused is not None:
            return refused
        if not check.mechanism:
            return self._judged_by_transport(served.authentication, session)
        if visit.is_refused:
            # It is not worth a check.
            self._tell_busy(session)
            return None
        peer = Peer(session.peer_address, session.is_encrypted, session.certificate)
        checking = proofs.check(check.mechanism, check.proof, peer)
        return self._judged_by_proof(session, check.mechanism, proofs, checking)

    def _described(self, served: Served, session: Session) -> ProofRefused | None:
        """A certificate that could be nobody's ends the link, also where another proof stands beside it."""
        if served.tls is None or session.certificate is not None:
            return None
        encoded = session.shown_certificate()
        if not encoded:
            return None
        found = served.tls.trust.describe(encoded, wall_ms())
        if isinstance(found, CertificateProblem):
            return self._certificate_refused(session, found)
        session.certificate = found
        return None

    def _judged_by_transport(self, authentication: Authentication, session: Session) -> Event:
        certificate = session.certificate
        refused = authentication.refusal_of(has_certificate=certificate is not None)
        if refused is not None:
            by = BY_CERTIFICATE if certificate is not None else BY_NOTHING
            return self._told(session, by, "", refused)
        if certificate is not None:
            return self._judged_by_certificate(session, certificate)
        if not self._anonymous_may_enter(session):
            refused = ProofRefused(
                "anonymous clients are not taken from here: use a TLS client certificate, a password or a "
                "token, or let the operator set anonymous = everywhere"
            )
            return self._told(session, BY_NOTHING, "", refused)
        return ProofAccepted()

    def _judged_by_certificate(self, session: Session, certificate: PeerCertificate) -> Event:
        found = identity_by(certificate, self._rules)
        if isinstance(found, CertificateProblem):
            return self._certificate_refused(session, found)
        session.identity = found
        return ProofAccepted(expires_ms=certificate.not_after_ms - wall_ms())

    async def _judged_by_proof(
        self, session: Session, mechanism: str, proofs: Proofs, checking: Awaitable[Verdict]
    ) -> Event:
        verdict = await checking
        if isinstance(verdict, ProofRefused):
            return self._told(session, mechanism, proofs.claimed, verdict)
        if not isinstance(verdict, ProofAccepted):
            return verdict
        is_node = verdict.principal.startswith(NODE_PREFIX)  # which no other proof may give
        proof = Proof.NODE if is_node else PROOFS[mechanism]
        left_ms, certificate = verdict.expires_ms, None
        shown = session.certificate
        if proof is Proof.NODE and shown is not None and shown.is_of_node_authority:
            # Where nodes have an authority of their own, the certificate is a part of the proof.
            of_certificate_ms = shown.not_after_ms - wall_ms()
            certificate, left_ms = shown, min(left_ms or of_certificate_ms, of_certificate_ms)
        session.identity = Identity(
            verdict.principal,
            proof,
            None if left_ms is None else wall_ms() + left_ms,
            certificate,
            verdict.user_version,
            verdict.token,
            verdict.token_version,
            verdict.proven_name,
        )
        return ProofAccepted(verdict.principal, left_ms)

    def _certificate_refused(self, session: Session, problem: CertificateProblem) -> ProofRefused:
        self._acceptor.note(f"a client's certificate is refused: {problem.text}")
        names = session.certificate.common_names if session.certificate is not None else ()
        text = f"the node refused your certificate: {problem.text}"
        refused = ProofRefused(text, problem.code)
        return self._told(session, BY_CERTIFICATE, names[0] if names else "", refused)

    def _told(
        self,
        session: Session,
        mechanism: str,
        claimed: str,
        refused: ProofRefused,
        act: str = LOGIN,
    ) -> ProofRefused:
        session.is_judged = True
        self._refused(
            LoginRefused(session.peer_address, mechanism, claimed, refused.text, refused.code, act)
        )
        return refused

    def _admit(self, visit: Visit, session: Session) -> None:
        session.is_judged = True
        if self._rights_of is not None:
            session.rights = self._rights_of(session)
        if visit.is_refused:
            self._tell_busy(session)
        elif self.sends_on and session.can_leave:
            session.close("BUSY", self.sends_on)
        if session.is_open and session.identity.proof is not Proof.NODE:
            # Nodes are never held: what they pass on is of many principals.
            session.stand_in_line(self.turns)

    def _tell_busy(self, session: Session) -> None:
        text = f"this node takes {self.door.places} connections at once: close some, or try again later"
        refused = ProofRefused(text, "BUSY")
        self._told(session, session.identity.proof.value, "", refused, CUT_BY["BUSY"])
        session.close("BUSY", text)

    def _anonymous_may_enter(self, session: Session) -> bool:
        if self._admission.anonymous == "loopback":
            return session.is_local
        return self._admission.anonymous == "everywhere"


def _address_of(accepted: socket.socket) -> str:
    with contextlib.suppress(OSError):  # it may be gone already
        return str(accepted.getpeername()[0])
    return ""
