"""Room: access. The authenticators: what a peer shows in its hello becomes a principal, or does not.

    PrincipalProofs            of a node: the directory of users, the threads, the wrong guesses
    └── at_address()           what one address asks: begin(mechanism, peer) gives an exchange
        └── an exchange        of one link: check(proof) accepts, refuses, or asks for more

A refusal says the same for a name that is not there, one that is disabled, and a password that is wrong; and
it takes the same time.

What a certificate proves needs no mechanism: the handshake has shown it (`net/peer_certificate.py`). What
Kerberos proves is in `access/kerberos.py`.
"""

import asyncio
import logging
import secrets
from collections.abc import Callable
from typing import Final, Protocol, Self

import msgspec

from moorline import ids
from moorline.access.kerberos import KerberosProofs
from moorline.access.passwords import (
    COST,
    Cost,
    HashingThreads,
    StoredPassword,
    TooManyChecks,
    is_too_long,
    nobodys_password,
)
from moorline.access.tokens import left_ms, token_hash
from moorline.config.addresses import Address
from moorline.core.access import node_proof
from moorline.core.access.certificate import PeerCertificate
from moorline.core.access.node_proof import ClusterSecrets, NodeCall, NodeChallenge
from moorline.core.access.principal import (
    ANONYMOUS,
    CertificateRules,
    Proof,
    has_control_character,
    node_principal,
)
from moorline.core.access.throttle import Attempt, Outcome, Throttle, Wait
from moorline.core.proof import ProofAccepted, ProofContinues, ProofRefused
from moorline.errors import CertificateMisused
from moorline.limits import (
    CREDENTIAL_BYTES_MAX,
    HOMES_TOLD_MAX,
    NONCE_BYTES,
    PRINCIPAL_CHARACTERS_MAX,
)
from moorline.net.authentication import Exchange, Verdict
from moorline.net.clock import monotonic_ms, wall_ms

log = logging.getLogger("moorline.access")


class Peer(Protocol):
    """What is known of the other end before it has proven anything."""

    @property
    def address(self) -> str: ...

    @property
    def is_encrypted(self) -> bool: ...

    @property
    def certificate(self) -> PeerCertificate | None: ...


class UserRow(msgspec.Struct, frozen=True):
    name: str
    password: StoredPassword | None = None
    is_disabled: bool = False
    version: int = 0
    """In the catalog: it is another one behind every change of the user."""


class TokenRow(msgspec.Struct, frozen=True):
    name: str
    """The user's."""
    expires_ms: int | None = None
    is_disabled: bool = False
    """The token, or its user."""
    version: int = 0
    """Of the user, as above."""
    token_version: int = 0


class UserDirectory(Protocol):
    """What the catalog knows. Whatever it raises means that nobody can say."""

    async def find_user(self, name: str) -> UserRow | None: ...

    async def find_token(self, digest: bytes) -> TokenRow | None:
        """By the SHA-256 of its text."""
        ...

    async def cluster_secrets(self) -> ClusterSecrets: ...

    async def has_node(self, home: str) -> bool:
        """Whether a node of that home is in the cluster now."""
        ...


WRONG = ProofRefused("the name or the password is wrong")
WRONG_TOKEN = ProofRefused("the token is wrong, has ended or was taken back: ask for another one")
NOT_PRIVATE = ProofRefused(
    "passwords and tokens are taken over TLS or from this machine only: use a tls:// address"
)
NOT_NOW = ProofRefused("it cannot be checked now: the catalog does not answer; try again later")
BUSY = ProofRefused("too many passwords wait to be checked: try again in a few seconds")
NO_NODE = ProofRefused(
    "this is no node of this cluster, as far as we know: the secret, the homes, the row in the catalog and, "
    "where tls_node_ca is set, the certificate must be a node's"
)


class PrincipalProofs:
    """All that the links of a node share: `async with PrincipalProofs(directory, home) as proofs`."""

    def __init__(
        self,
        directory: UserDirectory,
        home: str,
        *,
        node_rules: CertificateRules | None = None,
        kerberos: KerberosProofs | None = None,
        cost: Cost = COST,
        clock_ms: Callable[[], int] = monotonic_ms,
        now_ms: Callable[[], int] = wall_ms,
    ) -> None:
        self.directory = directory
        self.home = home
        self.node_rules = node_rules
        """How a certificate names the home of its node. None where nodes have no authority of their own
        (`tls_node_ca` is not set), and the secret alone proves one."""
        self.kerberos = kerberos
        self.now_ms = now_ms
        self._throttle = Throttle()
        self._threads = HashingThreads()
        self._clock_ms = clock_ms
        self._nobody = nobodys_password(cost)
        self._checks: dict[tuple[str, str, str], asyncio.Task[Verdict]] = {}
        """Passwords that are being checked. Whoever brings the same from the same address waits for the same
        answer: a program that opens a hundred links at once costs one check, and is one guess."""

    async def __aenter__(self) -> Self:
        await self._threads.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        checks = list(self._checks.values())
        for check in checks:
            check.cancel()
        await asyncio.gather(*checks, return_exceptions=True)
        await self._threads.__aexit__()

    def at_address(self, *, is_proxied: bool = False) -> "AddressAuthenticator":
        """For the links of one address. Behind a proxy everybody seems to be on this machine."""
        return AddressAuthenticator(self, is_proxied=is_proxied)

    async def check_password(self, name: str, password: str, address: str) -> Verdict:
        key = (name, address, password)
        check = self._checks.get(key)
        if check is None:
            attempt = self._throttle.ask(name, address, self._clock_ms())
            if isinstance(attempt, Wait):
                return _come_again(attempt)
            check = self._checks[key] = asyncio.create_task(self._checked(attempt, password))
            check.add_done_callback(lambda _: self._checks.pop(key))
        # One of those who wait may go away; the others want the answer still.
        return await asyncio.shield(check)

    async def _checked(self, attempt: Attempt, password: str) -> Verdict:
        outcome: Outcome = Outcome.UNKNOWN
        step: Verdict = NOT_NOW
        try:
            user = await self.directory.find_user(attempt.name)
            stored = user.password if user is not None else None
            # A name that is nobody's, and one without a password, take as long as any other.
            is_right = await self._threads.run(
                lambda: (stored or self._nobody).matches(password), is_known=attempt.is_known
            )
            if is_right and stored is not None and user is not None and not user.is_disabled:
                outcome = Outcome.RIGHT
                step = ProofAccepted(user.name, user_version=user.version)
            else:
                outcome, step = Outcome.WRONG, WRONG
        except TooManyChecks:
            step = BUSY
        except Exception as error:
            log.warning("a password cannot be checked", extra={"error": repr(error)})
        finally:
            self._throttle.settle(attempt, outcome, self._clock_ms())
        return step


class AddressAuthenticator:
    """Begins an exchange for each link that gives a proof."""

    def __init__(self, proofs: PrincipalProofs, *, is_proxied: bool) -> None:
        self._proofs = proofs
        self._is_proxied = is_proxied

    def begin(self, mechanism: str, peer: Peer, /) -> Exchange:
        """Asked only for mechanisms that the address takes: those of `EXCHANGES`, and Kerberos."""
        if mechanism == Proof.KERBEROS.value:
            return self._by_kerberos(peer)
        return EXCHANGES[mechanism](self._proofs, peer, self._is_private(peer))

    def _by_kerberos(self, peer: Peer) -> Exchange:
        proofs = self._proofs
        assert proofs.kerberos is not None, "a listener takes gssapi, and there is no keytab"
        return proofs.kerberos.begin(lambda: NodeExchange(proofs, peer, True))

    def _is_private(self, peer: Peer) -> bool:
        """Whether nobody between can read what it says."""
        if peer.is_encrypted:
            return True
        return not self._is_proxied and Address("tcp", peer.address, 0).is_loopback


class PasswordExchange:
    """A name, NUL, and a password."""

    def __init__(self, proofs: PrincipalProofs, peer: Peer, is_private: bool) -> None:
        self._proofs = proofs
        self._peer = peer
        self._is_private = is_private
        self.claimed = ""

    async def check(self, proof: bytes, /) -> Verdict:
        if not self._is_private:
            return NOT_PRIVATE
        if len(proof) > CREDENTIAL_BYTES_MAX:
            return WRONG
        try:
            name, _, password = proof.decode().partition("\0")
        except UnicodeDecodeError:
            return WRONG
        if not _may_be_a_user(name):
            return WRONG
        self.claimed = name
        # HMAC, which scrypt begins with, takes a zero at the end for nothing: none has one.
        if not password or "\0" in password or is_too_long(password):
            return WRONG
        return await self._proofs.check_password(name, password, self._peer.address)


class TokenExchange:
    """A token as text. Wrong ones are not slowed down: nobody guesses 256 bits."""

    def __init__(self, proofs: PrincipalProofs, _peer: Peer, is_private: bool) -> None:
        self._proofs = proofs
        self._is_private = is_private
        self.claimed = ""

    async def check(self, proof: bytes, /) -> Verdict:
        if not self._is_private:
            return NOT_PRIVATE
        digest = token_hash(proof[:CREDENTIAL_BYTES_MAX].decode("ascii", "replace"))
        if digest is None:
            return WRONG_TOKEN
        try:
            found = await self._proofs.directory.find_token(digest)
        except Exception as error:
            log.warning("a token cannot be checked", extra={"error": repr(error)})
            return NOT_NOW
        if found is None or found.is_disabled:
            return WRONG_TOKEN
        self.claimed = found.name
        good_ms = left_ms(found.expires_ms, self._proofs.now_ms())
        if good_ms == 0:
            return WRONG_TOKEN
        return ProofAccepted(found.name, good_ms, found.version, digest, found.token_version)


class NodeExchange:
    """Two rounds: both nodes prove that they know the cluster's secret (`core/access/node_proof.py`)."""

    def __init__(self, proofs: PrincipalProofs, peer: Peer, _is_private: bool) -> None:
        self._proofs = proofs
        self._peer = peer
        self._is_begun = False
        self.claimed = ""
        self._expected: tuple[NodeCall, dict[bytes, bytes]] | None = None
        """Of a node that has been challenged: who it says it is, and what it may answer, with the mark of the
        secret that this shows."""

    async def check(self, proof: bytes, /) -> Verdict:
        if not self._is_begun:
            self._is_begun = True
            return await self._challenge(proof)
        # There is one challenge, and it may be answered once.
        expected, self._expected = self._expected, None
        if expected is None:
            return NO_NODE
        call, wanted = expected
        for answer, mark in wanted.items():
            if node_proof.is_same(proof, answer):
                return ProofAccepted(node_principal(call.caller), token=mark)
        return NO_NODE

    async def _challenge(self, proof: bytes) -> Verdict:
        proofs = self._proofs
        call = node_proof.decode_call(proof)
        if call is not None and ids.NODE_NAME.fullmatch(call.caller) is not None:
            self.claimed = node_principal(call.caller)
        if proofs.node_rules is not None:
            refused = self._refused_by_certificate(proofs.node_rules, call)
            if refused is not None:
                return refused
        # Nobody calls itself: that would be our own words, sent back.
        if call is None or call.acceptor != proofs.home or call.caller == proofs.home:
            return NO_NODE
        try:
            is_ours = await proofs.directory.has_node(call.caller)
            known = (await proofs.directory.cluster_secrets()).taken()
        except Exception as error:
            log.warning("a node cannot be checked", extra={"error": repr(error)})
            return NOT_NOW
        if not all(known):
            return NO_NODE
        nonce = secrets.token_bytes(NONCE_BYTES)
        wanted = {
            node_proof.caller_proof(secret, call, nonce): node_proof.mark_of(secret)
            for secret in known
        }
        # A home that is none of ours is challenged too, and nothing answers that: nobody can try out homes.
        self._expected = call, wanted if is_ours else {}
        own = node_proof.acceptor_proof(known[0], call, nonce)
        return ProofContinues(node_proof.encoded(NodeChallenge(nonce, own)))

    def _refused_by_certificate(
        self, rules: CertificateRules, call: NodeCall | None
    ) -> ProofRefused | None:
        """A certificate makes its owner the one node that it names, whatever else that one knows."""
        certificate = self._peer.certificate
        if certificate is None or not certificate.is_of_node_authority:
            return NO_NODE
        try:
            homes = rules.homes_of(certificate.named)
        except ValueError as error:
            return ProofRefused(f"your certificate names no node: {error}", CertificateMisused.code)
        if call is None or call.caller in homes:
            return None
        # Both names are its own words: it learns nothing by them, and whoever set it up learns what to mend.
        log.warning(
            "a node shows the certificate of another one",
            extra={
                "claims": call.caller[:PRINCIPAL_CHARACTERS_MAX],
                "certificate": sorted(homes)[:HOMES_TOLD_MAX],
            },
        )
        named = ", ".join(map(repr, sorted(homes)[:HOMES_TOLD_MAX]))
        text = (
            f"your certificate is of the node {named}, and you say that you are another one: show a "
            "certificate that names your home, or map its names by access.node_certificates"
        )
        return ProofRefused(text, CertificateMisused.code)


EXCHANGES: Final[dict[str, Callable[[PrincipalProofs, Peer, bool], Exchange]]] = {
    "password": PasswordExchange,
    "token": TokenExchange,
    "node": NodeExchange,
}
"""By the mechanism that a hello names."""


def _may_be_a_user(name: str) -> bool:
    return (
        0 < len(name) <= PRINCIPAL_CHARACTERS_MAX
        and not has_control_character(name)
        and name[0] not in "@$%"
        and name.strip().casefold() != ANONYMOUS
    )


def _come_again(wait: Wait) -> ProofRefused:
    return ProofRefused(f"too many wrong tries: try again in {-(-wait.wait_ms // 1_000)} s")
