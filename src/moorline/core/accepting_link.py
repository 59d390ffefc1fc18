"""Room: core. The end of a link that waits for a hello: a node, which asks who is there before it lets
anybody in.

    AWAITING_HELLO ──hello──► AUTHENTICATING ──accepted──► OPEN
                                 └── a challenge, and another response, as often as the mechanism wants ──┘

Invariants, looked at by `check`, with Y3 and Y4 of core/link.py:

    Y1  at most one proof is checked at a time, and only in a handshake: a late verdict finds a closed link
    Y2  a link is open only behind an acceptance, in a version and by a mechanism that this end has named
"""

from collections.abc import Collection

from moorline.core.effects import Effect, Event, SetTimer, TimerFired
from moorline.core.link import (
    VERSION_MAX,
    VERSION_MIN,
    HelloHeard,
    Link,
    LinkState,
    SayWelcome,
)
from moorline.core.proof import (
    CheckProof,
    HearOn,
    ProofAccepted,
    ProofContinues,
    ProofRefused,
    ResponseHeard,
    SayChallenge,
)
from moorline.limits import PROOF_ROUNDS_MAX, PROOF_TIMER_MS_MAX


class AcceptingLink(Link):
    """The end that waits for a hello: a node. It takes proofs by the mechanisms it names, and no other."""

    def __init__(
        self,
        name: str,
        *,
        hello_timeout_ms: int,
        keepalive_ms: int,
        mechanisms: Collection[str] = (),
    ) -> None:
        super().__init__(
            name,
            LinkState.AWAITING_HELLO,
            hello_timeout_ms=hello_timeout_ms,
            keepalive_ms=keepalive_ms,
        )
        self.mechanisms = mechanisms
        self._version = 0
        """That of the welcome; none before a hello."""
        self._is_checking = False
        self._is_accepted = False
        self._rounds = 0
        self._expires_at_ms = 0

    def greet(self) -> list[Effect]:
        # It listens first: to a port scan or a wrong protocol it says nothing of what it is.
        return []

    def greeted(self, event: Event, now_ms: int) -> list[Effect]:
        match event:
            case HelloHeard() if self.state is LinkState.AWAITING_HELLO:
                # A second one is misplaced: it would change who somebody is behind what was checked.
                return self._hello(event)
            case ResponseHeard(proof) if self._is_awaiting_response:
                return self._check(proof)
            case ProofAccepted() | ProofContinues() | ProofRefused():
                # Nothing else ends a check, and it is asked for only when none is under way.
                assert self._is_checking, f"nobody asked for {event}"
                self._is_checking = False
                return self._verdict(event, now_ms)
            case TimerFired("expiry"):
                return self._expire(now_ms)
            case _:
                return self.misplaced(event)

    def what_is_late(self) -> str:
        if self.state is LinkState.AUTHENTICATING:
            return "no whole proof in time"
        return super().what_is_late()

    @property
    def _is_awaiting_response(self) -> bool:
        return self.state is LinkState.AUTHENTICATING and not self._is_checking

    def _hello(self, hello: HelloHeard) -> list[Effect]:
        # The version before the mechanism: whoever speaks another one may name mechanisms that mean something
        # else there, and must hear what to do about it, which is not to change its password.
        version = min(hello.version_max, VERSION_MAX)
        if version < max(hello.version_min, VERSION_MIN):
            text = f"this node speaks versions {VERSION_MIN} to {VERSION_MAX}"
            return self.end("VERSION", text, say=True)
        # Before the proof is looked at: what this address does not take costs nobody a password hash.
        if hello.mechanism and hello.mechanism not in self.mechanisms:
            taken = ", ".join(sorted(self.mechanisms)) or "no proofs"
            text = f"{hello.mechanism!r} is not taken at this address: it takes {taken}"
            return self.end("AUTH", text, say=True)
        self.move(LinkState.AUTHENTICATING)
        self._version, self.mechanism = version, hello.mechanism
        return self._check(hello.proof)

    def _check(self, proof: bytes) -> list[Effect]:
        assert not self._is_checking, "one check at a time"
        self._is_checking = True
        return [CheckProof(self.mechanism, proof)]

    def _verdict(
        self, verdict: ProofAccepted | ProofContinues | ProofRefused, now_ms: int
    ) -> list[Effect]:
        match verdict:
            case ProofRefused(text, code):
                return self.end(code, text, say=True)
            case ProofContinues(challenge, wraps):
                # Counted here and not by the authenticator: each round costs a check, and a mechanism that
                # never comes to an end must not be a way to get them for nothing.
                self._rounds += 1
                if self._rounds > PROOF_ROUNDS_MAX:
                    return self.end("AUTH", "the proof has too many rounds", say=True)
                if wraps:
                    return [SayChallenge(challenge), self.wrap(), HearOn()]
                return [SayChallenge(challenge), HearOn()]
            case ProofAccepted(principal, expires_ms):
                return self._accepted(principal, expires_ms, now_ms)

    def _accepted(self, principal: str, expires_ms: int | None, now_ms: int) -> list[Effect]:
        if expires_ms is not None and expires_ms <= 0:
            # It was good when it was checked, and the check took too long: nothing may pass under it.
            return self.end("AUTH", "the proof has expired", say=True)
        self._is_accepted = True
        # The welcome before `Established`: that lets handlers speak, and the peer takes nothing that comes
        # before its welcome. `HearOn` is the last: what was said meanwhile is handled by a link that is open,
        # and whose end is set.
        effects: list[Effect] = [SayWelcome(self._version, self.keepalive_ms)]
        effects += self.establish(self._version, principal)
        if expires_ms is not None:
            self._expires_at_ms = now_ms + expires_ms
            effects += self._expire(now_ms)
        return [*effects, HearOn()]

    def _expire(self, now_ms: int) -> list[Effect]:
        left_ms = self._expires_at_ms - now_ms
        if left_ms > 0:
            # A certificate may be good for decades, which no timer can wait for: it looks again now and then.
            return [SetTimer("expiry", min(left_ms, PROOF_TIMER_MS_MAX))]
        return self.end("EXPIRED", "your proof has expired: connect again with a new one", say=True)

    def invariants(self) -> None:
        self.check_rounds(self._rounds)
        self.check_wrapped()
        is_waiting = self.state is LinkState.AWAITING_HELLO
        assert not (is_waiting and self._is_checking), "Y1: a proof is checked before a hello"
        if self.state is LinkState.OPEN:
            assert not self._is_checking, "Y1: a proof is checked of a link that is open"
            assert self._is_accepted, "Y2: open, and nobody was accepted"
            assert VERSION_MIN <= self._version <= VERSION_MAX, f"Y2: version {self._version}"
            is_taken = not self.mechanism or self.mechanism in self.mechanisms
            assert is_taken, f"Y2: {self.mechanism!r} is not taken here"
