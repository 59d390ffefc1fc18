"""Room: core. The two ends of a link: who speaks first, which version, who is there, whether the peer lives.

What proofs are, and the rounds in which they are asked for, is in core.proof.
Design: docs/design/wire.md. The machines know nothing of bytes; `net.connection` is their shell.
"""

from collections.abc import Collection, Mapping
from enum import Enum
from typing import ClassVar, Final

from moorline.core.effects import CancelTimer, Effect, Event, Say, SetTimer, TimerFired
from moorline.core.machine import Machine
from moorline.core.proof import (
    ChallengeHeard,
    CheckProof,
    HearOn,
    MakeProof,
    ProofAccepted,
    ProofContinues,
    ProofFailed,
    ProofMade,
    ProofRefused,
    ResponseHeard,
    SayChallenge,
    SayResponse,
)
from moorline.core.secrecy import without_bytes
from moorline.limits import PROOF_ROUNDS_MAX, PROOF_TIMER_MS_MAX

VERSION_MIN = 1
VERSION_MAX = 1


class LinkState(Enum):
    AWAITING_HELLO = "awaiting hello"
    AUTHENTICATING = "authenticating"
    AWAITING_WELCOME = "awaiting welcome"
    OPEN = "open"
    CLOSED = "closed"


class Opened(Event, frozen=True):
    """The socket is there (and its TLS handshake is done)."""


class HelloHeard(Event, frozen=True):
    """Without a mechanism the peer is judged by what its transport proved."""

    version_min: int
    version_max: int
    mechanism: str = ""
    proof: bytes = b""

    __repr__ = without_bytes


class WelcomeHeard(Event, frozen=True):
    version: int
    keepalive_ms: int


class GoodbyeHeard(Event, frozen=True):
    code: str
    text: str


class BadBytes(Event, frozen=True):
    """The peer broke the protocol."""

    code: str
    text: str


class SilentFor(Event, frozen=True):
    """The answer to `CheckSilence`."""

    silent_ms: int


class LinkLost(Event, frozen=True):
    """The socket is gone."""


class SayHello(Say, frozen=True):
    version_min: int
    version_max: int
    mechanism: str = ""
    proof: bytes = b""

    __repr__ = without_bytes


class SayWelcome(Say, frozen=True):
    version: int
    keepalive_ms: int


class SayPing(Say, frozen=True):
    pass


SAID: Final[tuple[type[Say], ...]] = (SayHello, SayChallenge, SayResponse, SayWelcome, SayPing)


class CheckSilence(Effect, frozen=True):
    """Ask the shell how long nothing was heard; it keeps that time so that we need no event a read."""


class Established(Effect, frozen=True):
    """From now on messages pass, as those of that principal; empty is whoever the transport proved."""

    version: int
    principal: str = ""


class EndLink(Say, frozen=True):
    """Close the socket; `say` asks for a Goodbye first, while the peer can still read it."""

    code: str
    text: str
    say: bool


class Link(Machine[LinkState]):
    """What both ends share: the hello's timeout, keepalive, and the ways to end."""

    moves: ClassVar[Mapping[Enum, frozenset[Enum]]] = {
        LinkState.AWAITING_HELLO: frozenset({LinkState.AUTHENTICATING, LinkState.CLOSED}),
        LinkState.AUTHENTICATING: frozenset({LinkState.OPEN, LinkState.CLOSED}),
        LinkState.AWAITING_WELCOME: frozenset({LinkState.OPEN, LinkState.CLOSED}),
        LinkState.OPEN: frozenset({LinkState.CLOSED}),
        LinkState.CLOSED: frozenset(),
    }

    def __init__(
        self, name: str, state: LinkState, *, hello_timeout_ms: int, keepalive_ms: int
    ) -> None:
        super().__init__(name, state)
        self.hello_timeout_ms = hello_timeout_ms
        self.keepalive_ms = keepalive_ms

    def step(self, event: Event, now_ms: int) -> list[Effect]:
        if self.state is LinkState.CLOSED:
            return []
        match event:
            case Opened():
                return [SetTimer("hello", self.hello_timeout_ms), *self.greet()]
            case TimerFired("hello"):
                return self.end("HELLO_TIMEOUT", self.what_is_late(), say=True)
            case TimerFired("keepalive"):
                return [CheckSilence()]
            case SilentFor(silent_ms):
                return self.silent(silent_ms)
            case BadBytes(code, text):
                return self.end(code, text, say=True)
            case GoodbyeHeard(code, text):
                return self.end(code, text, say=False)
            case LinkLost():
                return self.end("LOST", "the connection is gone", say=False)
            case _:
                return self.greeted(event, now_ms)

    def greet(self) -> list[Effect]:
        """What this end says as soon as the socket is there."""
        raise NotImplementedError

    def greeted(self, event: Event, now_ms: int) -> list[Effect]:
        """What this end does with the other's greeting, and with what was asked about it."""
        raise NotImplementedError

    def what_is_late(self) -> str:
        return "no whole hello in time"

    def misplaced(self, event: Event) -> list[Effect]:
        """The peer said what nobody has asked for, or said it at the wrong end."""
        words: dict[type[Event], str] = {
            HelloHeard: "a greeting",
            WelcomeHeard: "a greeting",
            ChallengeHeard: "a challenge",
            ResponseHeard: "a response",
        }
        word = words.get(type(event))
        assert word is not None, f"a link knows no {event}"
        return self.end("MALFORMED", f"{word} out of place", say=True)

    def silent(self, silent_ms: int) -> list[Effect]:
        if silent_ms >= 2 * self.keepalive_ms:
            return self.end("SILENT", f"nothing heard for {silent_ms} ms", say=False)
        if silent_ms >= self.keepalive_ms:
            # One ping, and the rest of the second keepalive to answer it.
            return [SayPing(), SetTimer("keepalive", 2 * self.keepalive_ms - silent_ms)]
        return [SetTimer("keepalive", self.keepalive_ms - silent_ms)]

    def establish(self, version: int, principal: str = "") -> list[Effect]:
        self.move(LinkState.OPEN)
        return [
            CancelTimer("hello"),
            SetTimer("keepalive", self.keepalive_ms),
            Established(version, principal),
        ]

    def end(self, code: str, text: str, *, say: bool) -> list[Effect]:
        self.move(LinkState.CLOSED)
        timers = [CancelTimer(name) for name in ("hello", "keepalive", "expiry")]
        return [*timers, EndLink(code, text, say)]


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
        self._mechanism = ""
        self._is_checking = False
        self._rounds = 0
        self._expires_at_ms = 0

    def greet(self) -> list[Effect]:
        return []

    def greeted(self, event: Event, now_ms: int) -> list[Effect]:
        match event:
            case HelloHeard() if self.state is LinkState.AWAITING_HELLO:
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
        version = min(hello.version_max, VERSION_MAX)
        if version < max(hello.version_min, VERSION_MIN):
            text = f"this node speaks versions {VERSION_MIN} to {VERSION_MAX}"
            return self.end("VERSION", text, say=True)
        if hello.mechanism and hello.mechanism not in self.mechanisms:
            taken = ", ".join(sorted(self.mechanisms)) or "no proofs"
            text = f"{hello.mechanism!r} is not taken at this address: it takes {taken}"
            return self.end("AUTH", text, say=True)
        self.move(LinkState.AUTHENTICATING)
        self._version, self._mechanism = version, hello.mechanism
        return self._check(hello.proof)

    def _check(self, proof: bytes) -> list[Effect]:
        assert not self._is_checking, "one check at a time"
        self._is_checking = True
        return [CheckProof(self._mechanism, proof)]

    def _verdict(
        self, verdict: ProofAccepted | ProofContinues | ProofRefused, now_ms: int
    ) -> list[Effect]:
        match verdict:
            case ProofRefused(text):
                return self.end("AUTH", text, say=True)
            case ProofContinues(challenge):
                self._rounds += 1
                if self._rounds > PROOF_ROUNDS_MAX:
                    return self.end("AUTH", "the proof has too many rounds", say=True)
                return [SayChallenge(challenge), HearOn()]
            case ProofAccepted(principal, expires_ms):
                return self._accepted(principal, expires_ms, now_ms)

    def _accepted(self, principal: str, expires_ms: int | None, now_ms: int) -> list[Effect]:
        effects: list[Effect] = [SayWelcome(self._version, self.keepalive_ms)]
        if expires_ms is None:
            return [*effects, *self.establish(self._version, principal), HearOn()]
        if expires_ms <= 0:
            return self.end("AUTH", "the proof has expired", say=True)
        self._expires_at_ms = now_ms + expires_ms
        effects += self.establish(self._version, principal)
        return [*effects, *self._expire(now_ms), HearOn()]

    def _expire(self, now_ms: int) -> list[Effect]:
        left_ms = self._expires_at_ms - now_ms
        if left_ms > 0:
            return [SetTimer("expiry", min(left_ms, PROOF_TIMER_MS_MAX))]
        return self.end("EXPIRED", "your proof has expired: connect again with a new one", say=True)


class ConnectingLink(Link):
    """The end that says hello: a client, or a node that calls another; with a mechanism it proves itself."""

    def __init__(
        self, name: str, *, hello_timeout_ms: int, keepalive_ms: int, mechanism: str = ""
    ) -> None:
        super().__init__(
            name,
            LinkState.AWAITING_WELCOME,
            hello_timeout_ms=hello_timeout_ms,
            keepalive_ms=keepalive_ms,
        )
        self.mechanism = mechanism
        self._is_making = False
        self._is_content = True
        self._rounds = 0

    def greet(self) -> list[Effect]:
        if not self.mechanism:
            return [SayHello(VERSION_MIN, VERSION_MAX)]
        return self._make(None)

    def greeted(self, event: Event, now_ms: int) -> list[Effect]:  # noqa: ARG002  (no clock needed)
        match event:
            case ProofMade(proof, is_content):
                assert self._is_making, f"nobody asked for {event}"
                self._is_making, self._is_content = False, is_content
                return [self._proof(proof), HearOn()]
            case ProofFailed(text):
                assert self._is_making, f"nobody asked for {event}"
                # Why it failed is for the user here, and not for whoever is at the other end.
                return self.end("AUTH", text, say=False)
            case ChallengeHeard(proof) if self.mechanism and self._is_listening:
                self._rounds += 1
                if self._rounds > PROOF_ROUNDS_MAX:
                    return self.end("AUTH", "the proof has too many rounds", say=True)
                return self._make(proof)
            case WelcomeHeard() if self._is_listening:
                return self._welcomed(event)
            case _:
                return self.misplaced(event)

    @property
    def _is_listening(self) -> bool:
        return self.state is LinkState.AWAITING_WELCOME and not self._is_making

    def _make(self, challenge: bytes | None) -> list[Effect]:
        self._is_making = True
        return [MakeProof(challenge)]

    def _proof(self, proof: bytes) -> Say:
        if self._rounds:
            return SayResponse(proof)
        return SayHello(VERSION_MIN, VERSION_MAX, self.mechanism, proof)

    def _welcomed(self, event: WelcomeHeard) -> list[Effect]:
        if not self._is_content:
            return self.end("AUTH", "the node has not proved who it is", say=True)
        if not VERSION_MIN <= event.version <= VERSION_MAX:
            return self.end("VERSION", f"the node chose version {event.version}", say=True)
        # The node's keepalive rules: it is the one that cuts.
        self.keepalive_ms = event.keepalive_ms
        return self.establish(event.version)
