"""Room: client. Who comes to a publisher: subscribers, and resolvers that look whether it is there.

Door            the proofs that are taken, by the rules of the cluster
Keys            the logins that are under way: a resolver that dials is answered, and nothing is opened
TokenCheck      whether a subscriber was granted what it claims: docs/design/resolver.md, "Tokens"
"""

import logging
from collections.abc import Generator, Sequence
from typing import Final

import msgspec

from moorline.core.access.kerberos_name import KerberosRules
from moorline.core.access.principal import Certificate, CertificateRules, Proof
from moorline.core.access.right import SUBSCRIBE
from moorline.core.directory.token import (
    AddressQuestion,
    Claim,
    TokenJudge,
    address_proof,
    login_of,
)
from moorline.core.proof import ProofContinues, ProofRefused
from moorline.net.authentication import Exchange, Peer
from moorline.net.clock import wall_ms
from moorline.net.kerberos import KerberosExchange, KerberosService
from moorline.net.tls import Identity
from moorline.wire.resolver import PublisherOpened
from moorline.wire.value import SubscribeValues

log = logging.getLogger("moorline.client")

BY_KERBEROS: Final = "gssapi"
BY_ADDRESS: Final = "address"
"""The mechanism of a resolver's dial. It proves nobody, and opens nothing."""


class SubscriberRules:
    """Which principal a certificate or a ticket proves: as the resolvers say that the nodes have it."""

    def __init__(self) -> None:
        self._certificates = CertificateRules()
        self._kerberos = KerberosRules()
        self._is_told = False

    def told(self, opened: PublisherOpened) -> None:
        try:
            certificates = CertificateRules.parsed(opened.rules)
            self._kerberos = KerberosRules.parsed(opened.kerberos_rules)
        except ValueError as error:
            log.error("a resolver has rules that this publisher cannot read: %s", error)
            return
        self._certificates = certificates
        self._is_told = True

    def principal_of(self, certificate: Certificate, /) -> str:
        self._check_told()
        return self._certificates.principal_of(certificate)

    def principal_of_name(self, name: str) -> str:
        self._check_told()
        return self._kerberos.principal_of(name)

    def _check_told(self) -> None:
        if not self._is_told:
            # Without them a name could be another one's.
            raise ValueError("this publisher has not reached a resolver yet: try again")


CLAIMS_PER_STEP = 50
"""Tokens that are compared between two looks at the clock."""


class Door:
    """Whoever comes is asked for one of the proofs that this publisher takes; weaker ones are refused."""

    def __init__(
        self, keys: "Keys", rules: SubscriberRules, kerberos: KerberosService | None
    ) -> None:
        self._keys = keys
        self._rules = rules
        self._kerberos = kerberos

    def begin(self, mechanism: str, peer: Peer, /) -> Exchange:
        if mechanism == BY_ADDRESS:
            return self._keys.begin(mechanism, peer)
        assert self._kerberos is not None, f"nobody proves itself by {mechanism} here"
        return KerberosExchange(self._kerberos, self._rules.principal_of_name)


class Keys:
    """Answers resolvers that dial, for the logins that are under way."""

    def __init__(self) -> None:
        self._keys: dict[bytes, bytes] = {}

    def expect(self, key: bytes) -> None:
        self._keys[login_of(key)] = key

    def forget(self, key: bytes) -> None:
        self._keys.pop(login_of(key), None)

    def begin(self, mechanism: str, peer: Peer, /) -> "AddressExchange":  # noqa: ARG002
        assert mechanism == BY_ADDRESS, f"nobody proves itself by {mechanism} here"
        return AddressExchange(self._keys)


class AddressExchange:
    """One dial."""

    claimed = ""

    def __init__(self, keys: dict[bytes, bytes]) -> None:
        self._keys = keys
        self._is_answered = False

    async def check(self, proof: bytes, /) -> ProofContinues | ProofRefused:
        question = AddressQuestion.parse(proof)
        key = self._keys.get(question.login) if question is not None else None
        if self._is_answered or question is None or key is None:
            # One question, one answer: whoever goes on does not want to know where we are.
            return ProofRefused("no login of this publisher is meant by that")
        self._is_answered = True
        return ProofContinues(address_proof(key, question))


class Login(msgspec.Struct, frozen=True):
    """What a resolver said at our last login there."""

    resolver: bytes
    secret: bytes
    life_ms: int
    changed_s: int = 0
    """When rights changed last there, by its clock: what it signed until then may give too much."""

    def __repr__(self) -> str:
        return "Login(…)"


class TokenCheck:
    """Knows the secrets of the last logins, one for each resolver."""

    def __init__(self, instance: bytes) -> None:
        self._instance = instance
        self._logins: dict[object, Login] = {}
        """By member."""

    def opened(self, member: object, opened: PublisherOpened) -> None:
        # A resolver with two addresses in the list is one resolver: it knows the secret of the last login.
        self._logins = {
            one: login for one, login in self._logins.items() if login.resolver != opened.resolver
        }
        self._logins[member] = Login(opened.resolver, opened.secret, opened.token_life_ms)

    def rights_changed(self, member: object, at_s: int) -> None:
        login = self._logins.get(member)
        if login is not None and at_s > login.changed_s:
            self._logins[member] = msgspec.structs.replace(login, changed_s=at_s)

    def is_doubtful(self, resolver: bytes, expires_s: int) -> bool:
        """Whether a token of that resolver was made before it told of a change of rights. Both times are of
        its clock; what is behind its last login has another secret, and is taken by nobody."""
        return any(
            expires_s - login.life_ms // 1_000 <= login.changed_s
            for login in self._logins.values()
            if login.resolver == resolver
        )

    def signer(self, resolver: bytes) -> object | None:
        """The member that is this resolver."""
        return next(
            (one for one, login in self._logins.items() if login.resolver == resolver), None
        )

    @property
    def life_ms(self) -> int:
        """How long what a resolver said counts: of several the shortest."""
        return min((login.life_ms for login in self._logins.values()), default=0)

    def judging(
        self, call: SubscribeValues, identity: Identity
    ) -> Generator[None, None, Sequence[str]]:
        """For each claim why it is not taken; empty if it is. In steps, at which it may be interrupted."""
        if (why := self._why_not_holder(call, identity)) is not None:
            return [why] * len(call.claims)
        login = next((one for one in self._logins.values() if one.resolver == call.resolver), None)
        secret = login.secret if login is not None else None
        life_s = (login.life_ms if login is not None else 0) // 1_000
        # What is signed for all of them is the same, but for path and permissions.
        claim = Claim(
            call.resolver,
            self._instance,
            call.holder.principal,
            call.holder.proof,
            call.holder.is_local,
            call.expires_s,
            "",
            0,
            call.holder.ends_s,
            call.holder.mark,
        )
        # One second more: a resolver's clock may be ahead by less than a tick.
        judge = TokenJudge(secret, claim, wall_ms() // 1_000, life_s + 1)
        whys: list[str] = []
        for place, (path, permissions, token) in enumerate(call.claims):
            if place and place % CLAIMS_PER_STEP == 0:
                yield
            whys.append(
                judge.why_not(path, permissions, token)
                or ("" if permissions & SUBSCRIBE else "the token does not grant to subscribe")
            )
        return whys

    def _why_not_holder(self, call: SubscribeValues, identity: Identity) -> str | None:
        """Who is there by proof must be the one that was judged. Who is nobody has what the token says:
        where anonymous subscribers are taken, it is a bearer token."""
        if identity.proof is Proof.NOTHING or identity.principal == call.holder.principal:
            return None
        return "the token was given to somebody else"
