"""Room: core. A link: whether the peer lives, how it ends, and what both ends say and hear.

    core/accepting_link.py     the end that waits for a hello: a node
    core/connecting_link.py    the end that says it: a client, or a node that calls another
    core/proof.py              what proofs are, and the rounds in which they are asked for

Design: docs/design/wire.md. The machines know nothing of bytes; `net.connection` is their shell.

Invariants, looked at by `check`, with Y1 and Y2 of each end:

    Y3  a handshake has PROOF_ROUNDS_MAX rounds at most, whichever end would go on for ever
    Y4  a link that is open is wrapped exactly if its mechanism brings keys: no word of it goes in clear

That messages pass only through an open link is the shell's part: it asks for the state with every message.
"""

from collections.abc import Mapping
from enum import Enum
from typing import ClassVar, Final

from moorline.core.effects import CancelTimer, Effect, Event, Say, SetTimer, TimerFired
from moorline.core.hidden_bytes import without_bytes
from moorline.core.machine import Machine
from moorline.core.proof import (
    WRAPPING,
    ChallengeHeard,
    ResponseHeard,
    SayChallenge,
    SayResponse,
    Wrap,
)
from moorline.limits import PROOF_ROUNDS_MAX

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


# Whatever a link says but for its end: the shell hands these to the protocol, which has a word for each.
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

    # No way leads back: a peer that wants to be somebody else connects anew. So whatever was found out about
    # a link once, its version and its principal, holds until its end.
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
        self.mechanism = ""
        """By which the connecting end proves itself; empty where its transport does, or nothing."""
        self.is_wrapped = False

    def wrap(self) -> Wrap:
        """The switch: once, and only where a mechanism brings keys."""
        assert self.mechanism in WRAPPING, f"{self.mechanism!r} has nothing to wrap with"
        assert not self.is_wrapped, "a link is wrapped once"
        self.is_wrapped = True
        return Wrap()

    def step(self, event: Event, now_ms: int) -> list[Effect]:
        if self.state is LinkState.CLOSED:
            # Timers, verdicts and bytes that were on their way when it ended. To answer one of them would say
            # something behind the goodbye, or end the link a second time.
            return []
        match event:
            case Opened():
                # The timer goes first: credentials may ask a KDC for the first proof, and that one may hang.
                return [SetTimer("hello", self.hello_timeout_ms), *self.greet()]
            case TimerFired("hello"):
                return self.end("HELLO_TIMEOUT", self.what_is_late(), say=True)
            case TimerFired("keepalive"):
                # Asked for only now: an event for every read would cost more than the reads.
                return [CheckSilence()]
            case SilentFor(silent_ms):
                return self.silent(silent_ms)
            case BadBytes(code, text):
                return self.end(code, text, say=True)
            case GoodbyeHeard(code, text):
                # Not answered: whoever says goodbye reads no more.
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
        # What a peer can say is its mistake, and ends the link. Any other event is the shell's, so ours.
        word = words.get(type(event))
        assert word is not None, f"a link knows no {event}"
        return self.end("MALFORMED", f"{word} out of place", say=True)

    def silent(self, silent_ms: int) -> list[Effect]:
        if silent_ms >= 2 * self.keepalive_ms:
            # No goodbye: it would wait in a buffer that nobody empties, and the socket with it.
            return self.end("SILENT", f"nothing heard for {silent_ms} ms", say=False)
        if silent_ms >= self.keepalive_ms:
            # One ping, and the rest of the second keepalive to answer it.
            return [SayPing(), SetTimer("keepalive", 2 * self.keepalive_ms - silent_ms)]
        # Set to when the silence would be long enough, not to a whole keepalive: else a peer that went silent
        # right after a look would have twice the time.
        return [SetTimer("keepalive", self.keepalive_ms - silent_ms)]

    def establish(self, version: int, principal: str = "") -> list[Effect]:
        assert self.is_wrapped or self.mechanism not in WRAPPING, "it would go on in clear"
        self.move(LinkState.OPEN)
        # The hello's timer goes before `Established`, which lets handlers run: were one of them to fail, the
        # timer would end an open link as a handshake that took too long.
        return [
            CancelTimer("hello"),
            SetTimer("keepalive", self.keepalive_ms),
            Established(version, principal),
        ]

    def end(self, code: str, text: str, *, say: bool) -> list[Effect]:
        self.move(LinkState.CLOSED)
        # All of them, whether set or not: to cancel one that is not costs nothing, and one that stays would
        # keep the machine and its session in memory until it fires.
        timers = [CancelTimer(name) for name in ("hello", "keepalive", "expiry")]
        return [*timers, EndLink(code, text, say)]

    # --- what always holds ------------------------------------------------------------------------

    def check_wrapped(self) -> None:
        if self.state is LinkState.OPEN:
            is_due = self.mechanism in WRAPPING
            assert self.is_wrapped == is_due, f"Y4: open by {self.mechanism!r}, wrapped or not"

    def check_rounds(self, rounds: int) -> None:
        is_over = self.state is LinkState.CLOSED
        assert is_over or rounds <= PROOF_ROUNDS_MAX, f"Y3: round {rounds} of a proof"
