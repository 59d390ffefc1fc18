"""Room: core. The two ends of a link: who speaks first, which version, and whether the peer lives.

Design: docs/design/wire.md. The machines know nothing of bytes; `net.connection` is their shell.
"""

from collections.abc import Mapping
from enum import Enum
from typing import ClassVar, Final

from moorline.core.effects import CancelTimer, Effect, Event, SetTimer, TimerFired
from moorline.core.machine import Machine

VERSION_MIN = 1
VERSION_MAX = 1


class LinkState(Enum):
    AWAITING_HELLO = "awaiting hello"
    AWAITING_WELCOME = "awaiting welcome"
    OPEN = "open"
    CLOSED = "closed"


class Opened(Event, frozen=True):
    """The socket is there (and its TLS handshake is done)."""


class HelloHeard(Event, frozen=True):
    version_min: int
    version_max: int


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


class Say(Effect, frozen=True):
    """Tell the peer, in the words of the protocol that is spoken."""


class SayHello(Say, frozen=True):
    version_min: int
    version_max: int


class SayWelcome(Say, frozen=True):
    version: int
    keepalive_ms: int


class SayPing(Say, frozen=True):
    pass


SAID: Final[tuple[type[Say], ...]] = (SayHello, SayWelcome, SayPing)


class CheckSilence(Effect, frozen=True):
    """Ask the shell how long nothing was heard; it keeps that time so that we need no event a read."""


class Established(Effect, frozen=True):
    """From now on messages pass."""

    version: int


class EndLink(Say, frozen=True):
    """Close the socket; `say` asks for a Goodbye first, while the peer can still read it."""

    code: str
    text: str
    say: bool


class Link(Machine[LinkState]):
    """What both ends share: the hello's timeout, keepalive, and the ways to end."""

    moves: ClassVar[Mapping[Enum, frozenset[Enum]]] = {
        LinkState.AWAITING_HELLO: frozenset({LinkState.OPEN, LinkState.CLOSED}),
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

    def step(self, event: Event, now_ms: int) -> list[Effect]:  # noqa: ARG002  (no clock needed)
        if self.state is LinkState.CLOSED:
            return []
        match event:
            case Opened():
                return [SetTimer("hello", self.hello_timeout_ms), *self.greet()]
            case HelloHeard() | WelcomeHeard():
                return self.greeted(event)
            case TimerFired("hello"):
                return self.end("HELLO_TIMEOUT", "no whole hello in time", say=True)
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
                raise AssertionError(f"a link knows no {event}")

    def greet(self) -> list[Effect]:
        """What this end says as soon as the socket is there."""
        raise NotImplementedError

    def greeted(self, event: HelloHeard | WelcomeHeard) -> list[Effect]:
        """What this end does with the other's greeting."""
        raise NotImplementedError

    def silent(self, silent_ms: int) -> list[Effect]:
        if silent_ms >= 2 * self.keepalive_ms:
            return self.end("SILENT", f"nothing heard for {silent_ms} ms", say=False)
        if silent_ms >= self.keepalive_ms:
            # One ping, and the rest of the second keepalive to answer it.
            return [SayPing(), SetTimer("keepalive", 2 * self.keepalive_ms - silent_ms)]
        return [SetTimer("keepalive", self.keepalive_ms - silent_ms)]

    def establish(self, version: int) -> list[Effect]:
        self.move(LinkState.OPEN)
        return [
            CancelTimer("hello"),
            SetTimer("keepalive", self.keepalive_ms),
            Established(version),
        ]

    def end(self, code: str, text: str, *, say: bool) -> list[Effect]:
        self.move(LinkState.CLOSED)
        return [CancelTimer("hello"), CancelTimer("keepalive"), EndLink(code, text, say)]


class AcceptingLink(Link):
    """The end that waits for a hello: a node."""

    def __init__(self, name: str, *, hello_timeout_ms: int, keepalive_ms: int) -> None:
        super().__init__(
            name,
            LinkState.AWAITING_HELLO,
            hello_timeout_ms=hello_timeout_ms,
            keepalive_ms=keepalive_ms,
        )

    def greet(self) -> list[Effect]:
        return []

    def greeted(self, event: HelloHeard | WelcomeHeard) -> list[Effect]:
        if not isinstance(event, HelloHeard) or self.state is not LinkState.AWAITING_HELLO:
            return self.end("MALFORMED", "a greeting out of place", say=True)
        version = min(event.version_max, VERSION_MAX)
        if version < max(event.version_min, VERSION_MIN):
            text = f"this node speaks versions {VERSION_MIN} to {VERSION_MAX}"
            return self.end("VERSION", text, say=True)
        return [SayWelcome(version, self.keepalive_ms), *self.establish(version)]


class ConnectingLink(Link):
    """The end that says hello: a client, or a node that calls another."""

    def __init__(self, name: str, *, hello_timeout_ms: int, keepalive_ms: int) -> None:
        super().__init__(
            name,
            LinkState.AWAITING_WELCOME,
            hello_timeout_ms=hello_timeout_ms,
            keepalive_ms=keepalive_ms,
        )

    def greet(self) -> list[Effect]:
        return [SayHello(VERSION_MIN, VERSION_MAX)]

    def greeted(self, event: HelloHeard | WelcomeHeard) -> list[Effect]:
        if not isinstance(event, WelcomeHeard) or self.state is not LinkState.AWAITING_WELCOME:
            return self.end("MALFORMED", "a greeting out of place", say=True)
        if not VERSION_MIN <= event.version <= VERSION_MAX:
            return self.end("VERSION", f"the node chose version {event.version}", say=True)
        # The node's keepalive rules: it is the one that cuts.
        self.keepalive_ms = event.keepalive_ms
        return self.establish(event.version)
