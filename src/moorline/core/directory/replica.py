"""Room: core/directory. What a publisher has published, brought to one resolver: a machine for each member.

    AWAY ─ connect ─► LOGGING_IN ─ opened ─► COMPARING ─ equal ─► CURRENT ◄─ confirmed ─ SENDING
     ▲  ◄── pause ─────── │ failed ────────────── │ lost ──────────── │ lost ─── changes ──┘
     └── third failure in a row: DEGRADED, tried again every ttl/2

A change of what is published goes to each member that is current. What a member has not confirmed is known up
to a bound; beyond it only the digest is, and a comparison finds the rest. So memory is bounded however long a
member is away, and no batch ever fails.

Invariants:

    P1  a member that is current is not behind: it had our digest at its last answer, but for what is unsent
    P2  changes are sent in their order, and one batch at a time
    P3  at most one connection, login, comparison or batch is under way
    P4  a member is degraded exactly if its last three tries failed
    P5  a member that is current hears of us at least every ttl/2: a timer is set, or something is under way

Design: docs/design/resolver.md.
"""

from collections.abc import Mapping
from enum import Enum
from typing import ClassVar, Protocol

from moorline.core.chance import Chance
from moorline.core.effects import CancelTimer, Effect, Event, SetTimer, TimerFired
from moorline.core.machine import Machine
from moorline.core.sets.digest import Digest
from moorline.limits import (
    REPLICA_CHANGES_MAX,
    REPLICA_PAUSE_MS_MAX,
    REPLICA_PAUSE_MS_MIN,
    REPLICA_TRIES_MAX,
    REPLICA_TTL_MS,
)

RETRY = "retry"
HEARTBEAT = "heartbeat"


class Published(Protocol):
    """What is published now: one set for all members."""

    def digest(self) -> Digest: ...


class Start(Event, frozen=True):
    pass


class LoggedIn(Event, frozen=True):
    """The answer to `LogIn`: the member's digest of us, and how long it remembers us."""

    digest: Digest
    ttl_ms: int


class Changed(Event, frozen=True):
    """What is published has changed: flags of new or changed paths, None for those that are gone."""

    changes: Mapping[str, int | None]


class Answered(Event, frozen=True):
    """The member's digest behind what was asked last: changes, a heartbeat or a comparison.

    `has_agreed` is of a comparison: both sides were the same at some moment within it.
    """

    digest: Digest
    has_agreed: bool = False


class Failed(Event, frozen=True):
    """What was under way failed: the member is not reached, does not answer, or refuses us."""

    why: str


class LinkLost(Event, frozen=True):
    """The connection is gone; also while nothing was under way."""

    why: str


class Doubted(Event, frozen=True):
    """The member says that rights have changed: it may have taken something of ours away."""


class Stop(Event, frozen=True):
    pass


class LogIn(Effect, frozen=True):
    """Connect, prove who we are, open the publisher: `LoggedIn` or `Failed`."""


class SendChanges(Effect, frozen=True):
    changes: dict[str, int | None]


class SayHeartbeat(Effect, frozen=True):
    """Our digest, as it is when this is performed."""


class Compare(Effect, frozen=True):
    """Reconcile all that is published with what the member has, whose digest was that."""

    theirs: Digest


class Disconnect(Effect, frozen=True):
    pass


class TellDegraded(Effect, frozen=True):
    """A log line, a metric, an event."""

    is_degraded: bool
    why: str = ""


class TellCurrent(Effect, frozen=True):
    """The member has all that is published now."""


class ReplicaState(Enum):
    AWAY = "away"
    LOGGING_IN = "logging in"
    COMPARING = "comparing"
    CURRENT = "current"
    SENDING = "sending"
    DEGRADED = "degraded"
    STOPPED = "stopped"


S = ReplicaState


class Replica(Machine[ReplicaState]):
    """One member of the resolvers, as one publisher keeps it."""

    moves: ClassVar[Mapping[Enum, frozenset[Enum]]] = {
        S.AWAY: frozenset({S.LOGGING_IN, S.STOPPED}),
        S.LOGGING_IN: frozenset({S.COMPARING, S.CURRENT, S.SENDING, S.AWAY, S.DEGRADED, S.STOPPED}),
        S.COMPARING: frozenset({S.CURRENT, S.SENDING, S.AWAY, S.DEGRADED, S.STOPPED}),
        S.CURRENT: frozenset({S.SENDING, S.COMPARING, S.AWAY, S.DEGRADED, S.STOPPED}),
        S.SENDING: frozenset({S.CURRENT, S.COMPARING, S.AWAY, S.DEGRADED, S.STOPPED}),
        S.DEGRADED: frozenset({S.LOGGING_IN, S.STOPPED}),
        S.STOPPED: frozenset(),
    }

    def __init__(self, name: str, published: Published, chance: Chance) -> None:
        super().__init__(name, S.AWAY)
        self._published = published
        self._chance = chance
        self._ttl_ms = REPLICA_TTL_MS
        self._failures = 0
        self._unsent: dict[str, int | None] = {}
        self._sent: Mapping[str, int | None] = {}
        """On its way, and not confirmed."""
        self._is_behind = False
        """More has changed than is known: only a comparison can tell what the member lacks."""
        self._is_asking = False
        """A heartbeat of a current member is under way."""
        self._theirs = Digest.empty()
        self._has_timer = False

    @property
    def is_current(self) -> bool:
        return self.state is S.CURRENT and not self._unsent and not self._is_behind

    def has_confirmed(self, path: str) -> bool:
        """Whether the member knows how we have this path: what it says of others is said without us."""
        is_known = self.state in (S.CURRENT, S.SENDING) and not self._is_behind
        return is_known and path not in self._unsent and path not in self._sent

    @property
    def is_degraded(self) -> bool:
        return self._failures >= REPLICA_TRIES_MAX

    def step(self, event: Event, now_ms: int) -> list[Effect]:  # noqa: ARG002  (no clock needed)
        if self.state is S.STOPPED:
            return []
        match event:
            case Start():
                return self._log_in()
            case TimerFired(name) if name == RETRY:
                return self._log_in()
            case LoggedIn(digest, ttl_ms):
                self._ttl_ms = ttl_ms
                # What it has of us may be all, some or nothing: its digest tells.
                self._unsent.clear()
                self._is_behind = False
                return self._heard(digest)
            case Changed(changes):
                return self._changed(changes)
            case Answered(digest, has_agreed):
                return self._answered(digest, has_agreed=has_agreed)
            case TimerFired(name) if name == HEARTBEAT:
                self._has_timer = False
                assert self.state is S.CURRENT, "nobody else has that timer"
                return self._ask()
            case Doubted():
                # Else what is under way brings its digest, or the next heartbeat does.
                is_idle = self.state is S.CURRENT and not self._is_asking
                return [*self._cancel_heartbeat(), *self._ask()] if is_idle else []
            case Failed(why) | LinkLost(why):
                return self._failed(why)
            case Stop():
                self.move(S.STOPPED)
                return [CancelTimer(RETRY), CancelTimer(HEARTBEAT), Disconnect()]
            case _:
                raise AssertionError(f"a replica knows no {event}")

    def _ask(self) -> list[Effect]:
        self._is_asking = True
        return [SayHeartbeat()]

    def _log_in(self) -> list[Effect]:
        self.move(S.LOGGING_IN)
        return [LogIn()]

    def _changed(self, changes: Mapping[str, int | None]) -> list[Effect]:
        if self.state in (S.AWAY, S.LOGGING_IN, S.DEGRADED):
            # The login's digest will tell; nothing is kept for a member that is not there.
            return []
        for path, flags in changes.items():
            # Behind those that changed before it: what is sent keeps the order of the last changes.
            self._unsent.pop(path, None)
            self._unsent[path] = flags
        if len(self._unsent) > REPLICA_CHANGES_MAX and self.state is not S.CURRENT:
            self._unsent.clear()
            self._is_behind = True
        if self.state is S.CURRENT and not self._is_asking:
            return self._send()
        return []

    def _send(self) -> list[Effect]:
        """A current member gets what has changed; of very much only a comparison is cheaper to remember."""
        self.move(S.SENDING)
        changes, self._unsent = self._unsent, {}
        self._sent = changes
        return [*self._cancel_heartbeat(), SendChanges(changes)]

    def _answered(self, digest: Digest, *, has_agreed: bool) -> list[Effect]:
        self._is_asking = False
        self._sent = {}
        if has_agreed:
            self._theirs = digest
            return self._settle()
        return self._heard(digest)

    def _heard(self, digest: Digest) -> list[Effect]:
        """Their digest, with nothing under way: what is to be done next."""
        self._theirs = digest
        if self._unsent and not self._is_behind:
            # What it has not been sent yet explains a difference; the answer to that will tell.
            return self._recovered() + self._send()
        if self._is_behind or digest != self._published.digest():
            self._is_behind = False
            self._unsent.clear()
            self.move(S.COMPARING)
            return [*self._cancel_heartbeat(), Compare(digest)]
        return self._settle()

    def _settle(self) -> list[Effect]:
        """The member had what was published; what has changed since is sent."""
        effects = self._recovered()
        if self._is_behind:
            self._is_behind = False
            self._unsent.clear()
            self.move(S.COMPARING)
            return [*effects, Compare(self._theirs)]
        if self._unsent:
            return [*effects, *self._send()]
        self.move(S.CURRENT)
        self._has_timer = True
        return [*effects, SetTimer(HEARTBEAT, max(1, self._ttl_ms // 2)), TellCurrent()]

    def _recovered(self) -> list[Effect]:
        was_degraded, self._failures = self.is_degraded, 0
        return [TellDegraded(is_degraded=False)] if was_degraded else []

    def _failed(self, why: str) -> list[Effect]:
        if self.state in (S.AWAY, S.DEGRADED):
            return []  # of a connection that was given up already
        self._failures += 1
        self._unsent.clear()
        self._sent = {}
        self._is_behind = self._is_asking = False
        effects: list[Effect] = [*self._cancel_heartbeat(), Disconnect()]
        if self._failures < REPLICA_TRIES_MAX:
            self.move(S.AWAY)
            pause_ms = self._chance.randint(REPLICA_PAUSE_MS_MIN, REPLICA_PAUSE_MS_MAX)
            return [*effects, SetTimer(RETRY, pause_ms)]
        self.move(S.DEGRADED)
        if self._failures == REPLICA_TRIES_MAX:
            effects.append(TellDegraded(is_degraded=True, why=why))
        return [*effects, SetTimer(RETRY, max(1, self._ttl_ms // 2))]

    def _cancel_heartbeat(self) -> list[Effect]:
        if not self._has_timer:
            return []
        self._has_timer = False
        return [CancelTimer(HEARTBEAT)]

    def invariants(self) -> None:
        if self.state is S.CURRENT and not self._unsent and not self._is_asking:
            assert not self._is_behind, "P1: behind and not comparing"
            assert self._has_timer, "P5: it would never hear of us"
        assert self.state is not S.CURRENT or not self._unsent or self._is_asking, (
            "P2: unsent and at rest"
        )
        assert not self._is_asking or self.state is S.CURRENT, (
            "P3: a heartbeat beside something else"
        )
        assert (self.state is S.DEGRADED) <= self.is_degraded, "P4: degraded too soon"
        assert self.state is not S.AWAY or not self.is_degraded, "P4: degraded, and not told"
