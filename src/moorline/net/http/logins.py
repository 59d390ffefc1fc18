"""Room: net/http. How a request becomes a peer: whose page asks, what it proves, and whether it is let in.

    Host, Origin, …      core/access/web_origin.py
    Authorization        Bearer TOKEN, or Basic USER:PASSWORD
    Sec-WebSocket-Protocol: moorline.bearer.TOKEN
    a client certificate of the TLS handshake
    none of them         anonymous, where that is let in; from this machine `@loopback`, if no page and
    no proxy asks

Proofs are checked by the same authenticators as those of native sessions, within the same bounds, and
who comes in is counted and written down in the same way.
"""

import asyncio
import base64
import binascii
import hashlib
import secrets
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol

import msgspec

from moorline.config.addresses import Address
from moorline.core.access.certificate import CertificateProblem
from moorline.core.access.forwarded import Client, Family, client_of
from moorline.core.access.principal import Proof
from moorline.core.access.web_origin import Asking, Judged, Misjudged, WebNames, own_origin
from moorline.core.proof import ProofAccepted
from moorline.errors import NotAuthorized, OverQuota
from moorline.limits import HTTP_LOGIN_MS
from moorline.net.authentication import (
    BY_CERTIFICATE,
    BY_NOTHING,
    Authentication,
    Checks,
    Proofs,
)
from moorline.net.authentication import Peer as Shown
from moorline.net.certificate_login import OWN_NAME, PrincipalOf, identity_by
from moorline.net.clock import wall_ms
from moorline.net.http.messages import BadRequest, Headers, Response, refusal
from moorline.net.http.peer import Peer
from moorline.net.listener import Describer, LoginRefused, ServerTls
from moorline.net.proxy_head import Network, is_trusted
from moorline.net.session_rights import SessionRights
from moorline.net.tls import Identity

CHALLENGE: Final[Headers] = (("www-authenticate", 'Bearer realm="moorline"'),)
"""Not Basic, which is taken too: a browser would ask for a password, and send it along by itself from
then on."""

PASS: Final = "pass"  # noqa: S105  # a mechanism
"""What a node gives to somebody for a page of theirs (access/passes.py)."""

_BY_MECHANISM: Final = {"password": Proof.PASSWORD, "token": Proof.TOKEN}
_MARK: Final = secrets.token_bytes(32)


class Brought(msgspec.Struct, frozen=True):
    """A proof as it came; without a mechanism there is none."""

    mechanism: str = ""
    proof: bytes = b""

    def __repr__(self) -> str:
        return f"Brought({self.mechanism})"

    @classmethod
    def of(cls, *, token: str = "", user: str = "", password: str = "") -> "Brought":
        if bool(token) == bool(user):
            raise NotAuthorized("give a token, or a user and a password")
        if token:
            return cls("token", token.encode())
        return cls("password", f"{user}\0{password}".encode())

    @classmethod
    def by_headers(cls, headers: list[tuple[bytes, bytes]], token: str) -> "Brought":
        """`token` is what stood among the subprotocols."""
        found = [value for name, value in headers if name == b"authorization"]
        if len(found) + bool(token) > 1:
            raise BadRequest("bring one proof, and not two")
        if token:
            return cls("token", token.encode())
        if not found:
            return cls()
        scheme, _, rest = found[0].partition(b" ")
        rest = rest.strip()
        match scheme.lower():
            case b"bearer" if rest:
                return cls("token", rest)
            case b"basic":
                try:
                    user, colon, password = base64.b64decode(rest, validate=True).partition(b":")
                except (binascii.Error, ValueError):
                    raise BadRequest("Authorization: Basic is not base64") from None
                if colon:
                    return cls("password", user + b"\0" + password)
        raise BadRequest("Authorization: accepted: Bearer TOKEN or Basic USER:PASSWORD")

    def mark(self) -> bytes:
        """The same for the same proof, and of no use to whoever reads the memory of the node."""
        return hashlib.blake2b(self.mechanism.encode() + b"\0" + self.proof, key=_MARK).digest()


class Facts(msgspec.Struct, frozen=True):
    """What the transport of a connection shows."""

    address: str
    own_address: str
    is_encrypted: bool
    certificate: bytes = b""
    """As DER; empty if none was shown."""
    told_scheme: str = ""
    """By which the client reached a proxy that is trusted."""
    told_host: str = ""
    is_by_proxy: bool = False
    """Whether a proxy that is trusted stands between: address and scheme are then what it says."""

    @property
    def scheme(self) -> str:
        return self.told_scheme or ("https" if self.is_encrypted else "http")


class Proxies(msgspec.Struct, frozen=True):
    """Who may say for whom it asks, and in which headers."""

    networks: tuple[Network, ...] = ()
    family: Family = "x-forwarded"

    def facts_of(self, facts: Facts, headers: list[tuple[bytes, bytes]]) -> Facts:
        """Those of the client, if a proxy that is trusted asks; ValueError if it cannot be understood."""
        if not facts.address or not self.is_trusted(facts.address):
            return facts
        client = client_of(headers, self.family, self.is_trusted)
        # Between it and us nobody may listen either: on this machine, or over our own TLS.
        is_near = facts.is_encrypted or Address("tcp", facts.address, 0).is_loopback
        if client is None:
            client = Client(facts.address)
        return Facts(
            client.address,
            facts.own_address,
            is_near and client.scheme == "https",
            b"",  # what the proxy proves is not what its clients have proven
            client.scheme or facts.scheme,
            client.host,
            is_by_proxy=True,
        )

    def is_trusted(self, address: str) -> bool:
        return is_trusted(address.partition("%")[0], self.networks)


class Passed(Protocol):
    """Whom a pass is of: `access.passes.Pass`."""

    @property
    def identity(self) -> Identity: ...
    @property
    def is_local(self) -> bool: ...
    def hold(self, holder: Peer) -> None:
        """It ends with the pass."""


class ByIssuer(Protocol):
    """Logins by an issuer of OpenID Connect: `access.oidc.OidcLogins`. `NotAuthorized` says why not."""

    async def begin(self, origin: str) -> bytes:
        """What a page of that origin must know to go there."""

    async def finish(self, said: bytes, origin: str, address: str) -> Identity:
        """Whom it proves, what a page brings from there."""


class WebAdmission(msgspec.Struct, frozen=True):
    """Who may enter by the port."""

    names: WebNames
    anonymous: str = "loopback"
    authentication: Authentication | None = None
    """None where nothing is taken that the port knows."""
    behind_proxy: Authentication | None = None
    """The same for what a proxy passes on: its address is not a private one."""
    listener: str = ""
    is_proxied: bool = False
    rules: PrincipalOf = OWN_NAME
    entered: Callable[[Peer], SessionRights] | None = None
    """Gives the rights to whoever comes in, or closes it."""
    refused: Callable[[LoginRefused], None] = lambda _: None
    find_pass: Callable[[bytes], Passed | None] = lambda _: None
    proxies: Proxies = Proxies()
    by_issuer: ByIssuer | None = None


class Logins:
    """Of one port."""

    def __init__(self, admission: WebAdmission, tls: ServerTls | None) -> None:
        self.peers: set[Peer] = set()
        """Those that have entered."""
        self._admission = admission
        self._tls = tls
        self._checks = Checks()
        self._proving: set[Peer] = set()

    def judge_again(self, trust: Describer) -> None:
        """Other files of TLS are in use: whose certificate is not taken any more goes."""
        now_ms = wall_ms()
        for peer in list(self.peers):
            certificate = peer.identity.certificate
            if certificate is not None and (problem := trust.problem_of(certificate, now_ms)):
                peer.close("EXPIRED", f"{problem}: connect again with another one")

    def nobody(self, facts: Facts) -> Peer:
        """Of a route that is open to all."""
        peer = Peer(facts.address, self._admission.listener, self.prove)
        peer.is_encrypted = facts.is_encrypted
        return peer

    def judge(
        self, facts: Facts, method: str, headers: list[tuple[bytes, bytes]]
    ) -> tuple[Judged, Asking, Facts] | Response:
        """Whether what asks may ask at all, and whoever it is behind a proxy that is trusted."""
        try:
            asking = Asking.of(method, headers)
            facts = self._admission.proxies.facts_of(facts, headers)
        except ValueError as error:
            return refusal(400, "BAD_REQUEST", str(error))
        if facts.told_host:
            asking = msgspec.structs.replace(asking, host=facts.told_host)
        verdict = self._admission.names.judge(
            asking, scheme=facts.scheme, own_address=facts.own_address
        )
        if isinstance(verdict, Misjudged):
            return refusal(verdict.status, verdict.code, verdict.text)
        return verdict, asking, facts

    def asker(self, facts: Facts, judged: Judged, asking: Asking) -> Peer:
        """Of a route that takes a proof itself: where it comes from is known, and who it is is not."""
        peer = self.nobody(facts)
        is_loopback = Address("tcp", facts.address, 0).is_loopback
        peer.is_forwarded = asking.is_forwarded or self._admission.is_proxied or facts.is_by_proxy
        peer.is_local = is_loopback and not peer.is_forwarded and not judged.is_page
        peer.origin = own_origin(asking, facts.scheme)
        return peer

    def login(
        self, facts: Facts, judged: Judged, asking: Asking, brought: Brought, *, is_later: bool
    ) -> Peer | Response | Coroutine[Any, Any, Peer | Response]:
        """Who it is; a proof takes a moment. With `is_later` somebody that is not let in may stay,
        unentered."""
        peer = self.asker(facts, judged, asking)
        if self._tls is not None and facts.certificate:
            shown = self._tls.trust.describe(facts.certificate, wall_ms())
            if isinstance(shown, CertificateProblem):
                return self._certificate_refused(peer, shown)
            peer.certificate = shown
        if brought.mechanism:
            return self._by_proof(peer, brought)
        return self._by_transport(peer, is_later=is_later)

    async def prove(self, peer: Peer, brought: Brought, /) -> bytes:
        """A proof that comes later: the peer has entered by it, or must answer first, or this raises."""
        if peer.has_proven:
            raise NotAuthorized("this connection has proven who it is: open another one")
        if peer in self._proving:
            raise NotAuthorized("a proof is being checked already")
        self._proving.add(peer)
        try:
            if brought.mechanism == Proof.OIDC.value and not brought.proof:
                return await self._begun_by_issuer(peer)
            found = await self._checked(peer, brought)
        finally:
            self._proving.discard(peer)
        if not isinstance(found, Identity):
            raise NotAuthorized(found)
        if not peer.is_open:
            raise NotAuthorized("the connection ended before its proof was checked")
        peer.become(found)
        if brought.mechanism == PASS and (passed := self._admission.find_pass(brought.proof)):
            passed.hold(peer)
        self._enter(peer)
        if not peer.is_open:
            over = OverQuota if peer.end_code == OverQuota.code else NotAuthorized
            raise over(peer.end_text)
        return b""

    def is_proving(self, peer: Peer) -> bool:
        """Whether a proof of it is being looked at."""
        return peer in self._proving

    # --- inside -----------------------------------------------------------------------------------

    async def _by_proof(self, peer: Peer, brought: Brought) -> Peer | Response:
        found = await self._checked(peer, brought)
        if not isinstance(found, Identity):
            return refusal(401, NotAuthorized.code, found, CHALLENGE)
        peer.become(found)
        return self._entered(peer)

    def _by_transport(self, peer: Peer, *, is_later: bool) -> Peer | Response:
        taken = self._taken(peer)
        certificate = peer.certificate
        by = BY_CERTIFICATE if certificate is not None else BY_NOTHING
        text = _TAKES_NOTHING
        if taken is not None:
            refused = taken.refusal_of(has_certificate=certificate is not None)
            text = refused.text if refused is not None else ""
        if not text and certificate is not None:
            found = identity_by(certificate, self._admission.rules)
            if isinstance(found, CertificateProblem):
                return self._certificate_refused(peer, found)
            peer.become(found)
        elif not text and not self._anonymous_may_enter(peer):
            text = (
                "anonymous clients, and pages, are not taken from here: bring a token or a password"
            )
        if not text:
            return self._entered(peer)
        if is_later:
            return peer
        self._tell(peer, by, "", text)
        return refusal(401, NotAuthorized.code, text, CHALLENGE)

    async def _checked(self, peer: Peer, brought: Brought) -> Identity | str:
        """Whom it proves, or why nobody."""
        if brought.mechanism == PASS:
            return self._passed(peer, brought)
        if brought.mechanism == Proof.OIDC.value:
            return await self._by_issuer(peer, brought.proof)
        taken = self._taken(peer)
        if taken is None or brought.mechanism not in taken.proofs:
            names = ", ".join(taken.mechanisms) if taken is not None else "nothing"
            text = f"a {brought.mechanism} is not taken here: this address takes {names}"
            self._tell(peer, brought.mechanism, "", text)
            return text
        proofs = Proofs(taken, self._checks)
        shown = Shown(peer.peer_address, peer.is_encrypted, peer.certificate)
        try:
            async with asyncio.timeout(HTTP_LOGIN_MS / 1_000):
                verdict = await proofs.check(brought.mechanism, brought.proof, shown)
        except TimeoutError:
            return "the proof cannot be checked now: try again later"
        is_over = isinstance(verdict, ProofAccepted) and (
            verdict.expires_ms is not None and verdict.expires_ms <= 0
        )
        if not isinstance(verdict, ProofAccepted) or is_over:
            text = getattr(verdict, "text", "the proof is not taken")
            self._tell(peer, brought.mechanism, proofs.claimed, text)
            return text
        left_ms = verdict.expires_ms
        return Identity(
            verdict.principal,
            _BY_MECHANISM[brought.mechanism],
            None if left_ms is None else wall_ms() + left_ms,
            None,
            verdict.user_version,
            verdict.token,
            verdict.token_version,
            verdict.proven_name,
        )

    async def _begun_by_issuer(self, peer: Peer) -> bytes:
        issuer = self._issuer_for(peer)
        async with asyncio.timeout(HTTP_LOGIN_MS / 1_000):
            return await issuer.begin(peer.origin)

    async def _by_issuer(self, peer: Peer, said: bytes) -> Identity | str:
        try:
            issuer = self._issuer_for(peer)
            async with asyncio.timeout(HTTP_LOGIN_MS / 1_000):
                return await issuer.finish(said, peer.origin, peer.peer_address)
        except TimeoutError:
            text = "the proof cannot be checked now: try again later"
        except NotAuthorized as error:
            text = str(error)
        self._tell(peer, Proof.OIDC.value, "", text)
        return text

    def _issuer_for(self, peer: Peer) -> ByIssuer:
        if self._admission.by_issuer is None:
            raise NotAuthorized("no issuer is named here: oidc.issuer")
        if not is_private(peer):
            raise NotAuthorized(
                "a login is not taken over a connection that others can read: use https"
            )
        return self._admission.by_issuer

    def _passed(self, peer: Peer, brought: Brought) -> Identity | str:
        is_safe = is_private(peer)
        found = self._admission.find_pass(brought.proof) if is_safe else None
        if found is None:
            text = "this pass is not known here, or has ended: ask for another one"
            if not is_safe:
                text = "a pass is not taken over a connection that others can read: use https"
            self._tell(peer, BY_NOTHING, "", text)
            return text
        proof = found.identity.proof
        mechanism = BY_NOTHING if proof is Proof.NOTHING else proof.value
        taken = self._taken(peer)
        # What a ticket proves HTTP has no other way for, and an issuer is named for this port alone; all else
        # the address names, or does not take.
        is_named = proof in (Proof.KERBEROS, Proof.OIDC)
        if not is_named and (taken is None or mechanism not in taken.mechanisms):
            text = (
                f"this pass was asked for by a proof that is not taken here ({mechanism}): ask for one as "
                "somebody else"
            )
            self._tell(peer, mechanism, "", text)
            return text
        peer.is_local = found.is_local
        return found.identity

    def _entered(self, peer: Peer) -> Peer | Response:
        self._enter(peer)
        if peer.is_open:
            return peer
        is_over_quota = peer.end_code == OverQuota.code
        return refusal(
            429 if is_over_quota else 401,
            peer.end_code,
            peer.end_text,
            () if is_over_quota else CHALLENGE,
        )

    def _enter(self, peer: Peer) -> None:
        self.peers.add(peer)
        peer.at_end(lambda: self.peers.discard(peer))
        if self._admission.entered is not None:
            peer.rights = self._admission.entered(peer)
        peer.is_entered = peer.is_open

    def _taken(self, peer: Peer) -> Authentication | None:
        admission = self._admission
        return admission.behind_proxy if peer.is_forwarded else admission.authentication

    def _anonymous_may_enter(self, peer: Peer) -> bool:
        if self._admission.anonymous == "loopback":
            return peer.is_local
        return self._admission.anonymous == "everywhere"

    def _certificate_refused(self, peer: Peer, problem: CertificateProblem) -> Response:
        names = peer.certificate.common_names if peer.certificate is not None else ()
        text = f"the node refused your certificate: {problem.text}"
        self._tell(peer, BY_CERTIFICATE, names[0] if names else "", text)
        return refusal(401, problem.code, text, CHALLENGE)

    def _tell(self, peer: Peer, mechanism: str, claimed: str, text: str) -> None:
        self._admission.refused(LoginRefused(peer.peer_address, mechanism, claimed, text))


def is_private(peer: Peer) -> bool:
    """Whether nobody between can read what it says."""
    is_near = not peer.is_forwarded and Address("tcp", peer.peer_address, 0).is_loopback
    return peer.is_encrypted or is_near


_TAKES_NOTHING: Final = "this address takes no proof that HTTP knows: access.mechanisms says which"
