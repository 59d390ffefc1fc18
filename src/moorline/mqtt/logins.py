"""Room: mqtt. How a CONNECT becomes a principal: by the same proofs, bounds and audit as every other login.

user name and password     a password; one that begins with moor_ is a token, whatever the user name is
a client certificate       of the TLS handshake
GSSAPI                     by AUTH, step by step
none of them               anonymous, where that is let in
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from moorline.config.addresses import Address
from moorline.core.access.certificate import CertificateProblem
from moorline.core.access.principal import Proof
from moorline.core.mqtt.packets import Connect
from moorline.core.mqtt.reason import ReasonCode
from moorline.core.proof import ProofAccepted, ProofContinues
from moorline.errors import Tampered
from moorline.limits import MQTT_CONNECT_MS
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
from moorline.net.http.peer import Peer
from moorline.net.listener import LoginRefused, ServerTls
from moorline.net.session_rights import SessionRights
from moorline.net.tls import Identity

TOKEN_PREFIX: Final = b"moor_"
GSSAPI: Final = "GSSAPI"
"""The authentication method of AUTH, as other servers call it too."""


class Refused(Exception):
    """Why somebody does not come in."""

    def __init__(self, reason: ReasonCode, text: str, server_reference: str | None = None) -> None:
        super().__init__(text)
        self.reason = reason
        self.server_reference = server_reference


class Gssapi(msgspec.Struct):
    """What one connection proves by GSSAPI."""

    proofs: Proofs
    has_keys: bool = False
    """Both ends have proven themselves; what comes next is wrapped."""


class MqttAdmission(msgspec.Struct, frozen=True):
    """Who may enter by one address."""

    listener: str
    authentication: Authentication
    anonymous: str = "loopback"
    is_proxied: bool = False
    tls: ServerTls | None = None
    rules: PrincipalOf = OWN_NAME
    entered: Callable[[Peer], SessionRights] | None = None
    refused: Callable[[LoginRefused], None] = lambda _: None

    @property
    def methods(self) -> frozenset[str]:
        """Of enhanced authentication."""
        taken = self.authentication.proofs
        return frozenset({GSSAPI} if Proof.KERBEROS.value in taken else ())


class Logins:
    """Of all listeners of MQTT of a node."""

    def __init__(self) -> None:
        self._checks = Checks()

    def gssapi(self, admission: MqttAdmission) -> Gssapi:
        return Gssapi(self.proofs(admission))

    def proofs(self, admission: MqttAdmission) -> Proofs:
        return Proofs(admission.authentication, self._checks)

    def describe(self, admission: MqttAdmission, peer: Peer, shown: bytes) -> None:
        """What the transport says of whoever has come; a certificate that could be nobody's is refused."""
        is_loopback = Address("tcp", peer.peer_address, 0).is_loopback
        peer.is_local = is_loopback and not admission.is_proxied and not peer.is_forwarded
        if admission.tls is not None and shown:
            found = admission.tls.trust.describe(shown, wall_ms())
            if isinstance(found, CertificateProblem):
                self._tell(admission, peer, BY_CERTIFICATE, "", found.text)
                raise Refused(ReasonCode.NOT_AUTHORIZED, found.text)
            peer.certificate = found

    async def judge(self, admission: MqttAdmission, peer: Peer, connect: Connect) -> None:
        """By user name and password, or by the transport; it has entered when this returns."""
        if connect.password is not None or connect.user_name is not None:
            await self._by_password(admission, peer, connect)
        else:
            self._by_transport(admission, peer)
        self.enter(admission, peer)

    def enter(self, admission: MqttAdmission, peer: Peer) -> None:
        if admission.entered is not None:
            peer.rights = admission.entered(peer)
        if not peer.is_open:
            is_quota = peer.end_code == "OVER_QUOTA"
            reason = ReasonCode.QUOTA_EXCEEDED if is_quota else ReasonCode.NOT_AUTHORIZED
            raise Refused(reason, peer.end_text)
        peer.is_entered = True

    async def step(
        self, admission: MqttAdmission, peer: Peer, exchange: "Gssapi", data: bytes
    ) -> bytes | ProofAccepted:
        """One step of GSSAPI: what to say next, or who it is.

        client   its token, in CONNECT or in AUTH
        node     AUTH with its own, which proves the node; again, as long as the mechanism wants
        client   AUTH with an empty message, wrapped: so it is nobody who has recorded the others
        """
        mechanism, proofs = Proof.KERBEROS.value, exchange.proofs
        if not data and not exchange.has_keys:
            return b""  # CONNECT may name the method alone, and the token comes with AUTH
        if exchange.has_keys:
            try:
                data = proofs.wrapping().unwrap(data)
            except Tampered as error:
                self._tell(admission, peer, mechanism, proofs.claimed, str(error))
                raise Refused(ReasonCode.NOT_AUTHORIZED, str(error)) from error
        shown = Shown(peer.peer_address, peer.is_encrypted, peer.certificate)
        verdict = await self._checked(proofs.check(mechanism, data, shown))
        if isinstance(verdict, ProofContinues):
            exchange.has_keys |= verdict.wraps
            # The first byte says to native clients whether more follows: these hear it by their library.
            return verdict.challenge[1:]
        if not isinstance(verdict, ProofAccepted):
            text = getattr(verdict, "text", "the proof is not taken")
            self._tell(admission, peer, mechanism, proofs.claimed, text)
            raise Refused(ReasonCode.NOT_AUTHORIZED, text)
        return verdict

    # --- inside -----------------------------------------------------------------------------------

    async def _by_password(self, admission: MqttAdmission, peer: Peer, connect: Connect) -> None:
        password = connect.password or b""
        is_token = password.startswith(TOKEN_PREFIX)
        mechanism = (Proof.TOKEN if is_token else Proof.PASSWORD).value
        if mechanism not in admission.authentication.proofs:
            text = f"a {mechanism} is not taken here"
            self._tell(admission, peer, mechanism, "", text)
            raise Refused(ReasonCode.BAD_USER_NAME_OR_PASSWORD, text)
        proofs = self.proofs(admission)
        proof = password if is_token else f"{connect.user_name or ''}\0".encode() + password
        shown = Shown(peer.peer_address, peer.is_encrypted, peer.certificate)
        verdict = await self._checked(proofs.check(mechanism, proof, shown))
        if not isinstance(verdict, ProofAccepted):
            text = getattr(verdict, "text", "the proof is not taken")
            self._tell(admission, peer, mechanism, proofs.claimed, text)
            raise Refused(ReasonCode.BAD_USER_NAME_OR_PASSWORD, text)
        become(peer, verdict, Proof.TOKEN if is_token else Proof.PASSWORD)

    def _by_transport(self, admission: MqttAdmission, peer: Peer) -> None:
        certificate = peer.certificate
        by = BY_CERTIFICATE if certificate is not None else BY_NOTHING
        refused = admission.authentication.refusal_of(has_certificate=certificate is not None)
        text = refused.text if refused is not None else ""
        if not text and certificate is not None:
            found = identity_by(certificate, admission.rules)
            if isinstance(found, CertificateProblem):
                text = found.text
            else:
                peer.become(found)
        elif not text and not _anonymous_may_enter(admission, peer):
            text = (
                "anonymous clients are not taken from here: use a user name and a password, a token as the "
                "password, or a client certificate"
            )
        if text:
            self._tell(admission, peer, by, "", text)
            raise Refused(ReasonCode.NOT_AUTHORIZED, text)

    async def _checked(self, check: Awaitable[object]) -> object:
        try:
            async with asyncio.timeout(MQTT_CONNECT_MS / 1_000):
                return await check
        except TimeoutError:
            raise Refused(
                ReasonCode.SERVER_BUSY, "the proof cannot be checked now: try again later"
            ) from None

    def _tell(
        self, admission: MqttAdmission, peer: Peer, mechanism: str, claimed: str, text: str
    ) -> None:
        admission.refused(LoginRefused(peer.peer_address, mechanism, claimed, text))


def become(peer: Peer, verdict: ProofAccepted, proof: Proof) -> None:
    left_ms = verdict.expires_ms
    if left_ms is not None and left_ms <= 0:
        raise Refused(ReasonCode.NOT_AUTHORIZED, "the proof has ended")
    peer.become(
        Identity(
            verdict.principal,
            proof,
            None if left_ms is None else wall_ms() + left_ms,
            None,
            verdict.user_version,
            verdict.token,
            verdict.token_version,
            verdict.proven_name,
        )
    )


def _anonymous_may_enter(admission: MqttAdmission, peer: Peer) -> bool:
    if admission.anonymous == "loopback":
        return peer.is_local
    return admission.anonymous == "everywhere"
