"""Room: access. Passes: what lets a page act as whoever asked for it, for some hours.

A program on this machine, or one with a ticket or a certificate, is somebody; a page in a browser is nobody,
even on the same machine. So whoever is somebody asks for a pass and gives it to its browser: 32 random bytes,
of which the node keeps the hash, in memory alone. A restart ends all of them. A pass never outlives the proof
by which it was asked for, and what is changed of its user or token in the catalog ends its logins as it ends
all others. Whoever logs out ends a pass, or all of its own, and every page that is there by one.
"""

import hashlib
import secrets
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

import msgspec

from moorline.access.quotas import account_of
from moorline.core.access.principal import Proof
from moorline.errors import Denied
from moorline.limits import PASS_LIFE_S, PASSES_MAX, PASSES_PER_PRINCIPAL_MAX, TOKEN_BYTES
from moorline.net.clock import wall_ms
from moorline.net.listener import Describer
from moorline.net.session import Session
from moorline.net.tls import Identity
from moorline.wire.access import EndPasses, MakePass, PassesEnded, PassMade

LOGGED_OUT: Final = "you have logged out in another window"


class Holder(Protocol):
    """What ends with a pass: a page that came in by it, or has asked for it."""

    def close(self, code: str, text: str) -> None: ...

    def at_end(self, hook: Callable[[], None]) -> object: ...


class Pass(msgspec.Struct, frozen=True):
    identity: Identity
    is_local: bool
    holders: set[Holder] = msgspec.field(default_factory=set)

    def hold(self, holder: Holder) -> None:
        """It ends with the pass, if somebody ends that."""
        self.holders.add(holder)
        holder.at_end(lambda: self.holders.discard(holder))

    @property
    def account(self) -> str:
        """Whose it is: a stranger without a proof is not whoever is on this machine without one."""
        return account_of(self.identity.principal, self.is_local)

    @property
    def expires_ms(self) -> int:
        assert self.identity.expires_ms is not None
        return self.identity.expires_ms


class MadePass(NamedTuple):
    """With the text that shows it, which the node does not keep."""

    text: str
    passed: Pass


class Passes:
    """Of one node."""

    def __init__(self) -> None:
        self._by_hash: dict[bytes, Pass] = {}

    def make(self, session: Session, call: MakePass) -> PassMade:
        identity = session.identity
        if identity.proof is Proof.NODE:
            raise Denied("a node is no page: nodes get no passes")
        text, made = self.give(identity, is_local=session.is_local, life_s=call.life_s)
        if session.page is not None:
            made.hold(session.page)
        return PassMade(call.call, text, made.expires_ms * 1_000)

    def give(self, identity: Identity, *, is_local: bool = False, life_s: int = 0) -> MadePass:
        """To somebody who has proven that."""
        expires_ms = wall_ms() + (life_s or PASS_LIFE_S) * 1_000
        if identity.expires_ms is not None:
            expires_ms = min(expires_ms, identity.expires_ms)
        self._make_room(identity.principal, is_local=is_local)
        text = secrets.token_urlsafe(TOKEN_BYTES)
        lasting = msgspec.structs.replace(identity, expires_ms=expires_ms)
        made = self._by_hash[_hash(text)] = Pass(lasting, is_local)
        return MadePass(text, made)

    def find(self, text: bytes) -> Pass | None:
        """Whose it is; a pass may be shown again, by other windows of the same browser, until its end."""
        found = self._by_hash.get(hashlib.sha256(text).digest())
        return found if found is not None and found.expires_ms > wall_ms() else None

    def end(self, session: Session, call: EndPasses) -> PassesEnded:
        """Those of whoever asks; of another's it is not said whether there is one."""
        whose = account_of(session.identity.principal, session.is_local)
        keys = [_hash(call.text)] if call.text else list(self._by_hash)
        ended = [
            self._by_hash.pop(key)
            for key in keys
            if key in self._by_hash and self._by_hash[key].account == whose
        ]
        for one in ended:
            for holder in list(one.holders):
                # Whoever asks hears the answer, and goes by itself.
                if holder is not session.page:
                    holder.close("EXPIRED", LOGGED_OUT)
        return PassesEnded(call.call, len(ended))

    def judge_again(self, trust: Describer) -> None:
        """Other files of TLS are in use: passes that were asked for by what is not taken any more end."""
        now_ms = wall_ms()
        for key, one in list(self._by_hash.items()):
            certificate = one.identity.certificate
            if certificate is not None and trust.problem_of(certificate, now_ms):
                del self._by_hash[key]

    def _make_room(self, principal: str, *, is_local: bool) -> None:
        """Whoever asks for very many takes them from its own, and only then from others. A stranger without
        a proof is not whoever is on this machine without one."""
        now_ms = wall_ms()
        ended = [key for key, one in self._by_hash.items() if one.expires_ms <= now_ms]
        whose = account_of(principal, is_local)
        own = [key for key, one in self._by_hash.items() if one.account == whose]
        oldest = (
            own[: len(own) - PASSES_PER_PRINCIPAL_MAX + 1]
            if len(own) >= PASSES_PER_PRINCIPAL_MAX
            else []
        )
        for key in {*ended, *oldest}:
            del self._by_hash[key]
        while len(self._by_hash) >= PASSES_MAX:
            del self._by_hash[next(iter(self._by_hash))]


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
