"""Room: core. Whose the identity of a node is: one process at a time, by a lease in the catalog.

    judge(held, claim, now_ms)     the catalog's side: may this process take the identity over?
    Tenure(lease_ms, asked_ms)     the holder's side: may it still answer, and must it end?

Two rules keep two processes apart. Another process gets the identity only when the lease is over by the
catalog's clock, or when it holds the very lock that the holder had: the kernel gives a lock to one process
at a time, and no copy of a folder has the same one. And a holder counts its lease from before it asked for
it, so it stops to answer before the catalog lets anybody else begin. Design: docs/design/identity.md.

Invariants of a `Tenure`, looked at by `check`:

    U1  it keeps less than its lease: what is left covers the difference between two clocks
    U2  its time runs from a moment when it asked, which has passed
    U3  it is HELD while that time runs, and LAPSED behind it, as of the last look
"""

from collections.abc import Mapping
from enum import Enum
from typing import ClassVar, NamedTuple, assert_never

from moorline.core.effects import Effect, Event
from moorline.core.machine import Machine
from moorline.limits import IDENTITY_MARGIN_PARTS


class Held(NamedTuple):
    """Who had the identity last, as the catalog knows."""

    incarnation: bytes
    """Drawn by every start for itself."""
    lock: str
    """Which lock that process held: of this boot of a machine, this device, this file."""
    lease_until_ms: int | None
    """By the catalog's clock; None if it was given back."""


class Claim(NamedTuple):
    """A process that wants it. It holds the lock of its folder."""

    incarnations: tuple[bytes, ...]
    """What its folder knows of earlier starts."""
    lock: str
    """Empty where this system cannot tell."""
    is_alone: bool = False
    """The catalog is in the folder itself, so whoever holds the folder holds the catalog."""


class ClaimVerdict(Enum):
    NEW = "nobody had it before"
    SAME_LOCK = "whoever had it held the lock that the claimant holds now, so it is gone"
    FREE = "it was given back, or its lease is over"
    TAKEN = "another process holds it"


def judge(held: Held | None, claim: Claim, now_ms: int) -> ClaimVerdict:
    """Whether the claimant may have the identity."""
    if held is None:
        return ClaimVerdict.NEW
    # Before the lease: a process that was killed is followed at once in its own folder, without a wait.
    if claim.lock and claim.lock == held.lock:
        return ClaimVerdict.SAME_LOCK
    if held.lease_until_ms is None or held.lease_until_ms <= now_ms or claim.is_alone:
        return ClaimVerdict.FREE
    return ClaimVerdict.TAKEN


def is_older_copy(held: Held | None, claim: Claim) -> bool:
    """Whether a process ran under this identity of which the claimant's folder knows nothing."""
    if held is None or not held.incarnation or held.lock == claim.lock:
        return False
    return held.incarnation not in claim.incarnations


class TenureState(Enum):
    HELD = "held"
    LAPSED = "lapsed"
    LOST = "lost"


class Renewed(Event, frozen=True):
    """The catalog renewed the lease; it was asked at `asked_ms`."""

    asked_ms: int


class Looked(Event, frozen=True):
    """Time has passed."""


class Taken(Event, frozen=True):
    """The catalog says that another process holds the identity."""


class HoldBack(Effect, frozen=True):
    """Answer nobody: another process may have begun."""


class GoOn(Effect, frozen=True):
    """Nobody else had the identity meanwhile: what waits may be answered."""


class EndNode(Effect, frozen=True):
    """Another process holds the identity: nothing may be answered any more."""


class Tenure(Machine[TenureState]):
    """One process's hold on an identity, from its claim to its end."""

    moves: ClassVar[Mapping[Enum, frozenset[Enum]]] = {
        TenureState.HELD: frozenset({TenureState.LAPSED, TenureState.LOST}),
        TenureState.LAPSED: frozenset({TenureState.HELD, TenureState.LOST}),
        TenureState.LOST: frozenset(),
    }

    def __init__(self, name: str, lease_ms: int, asked_ms: int) -> None:
        super().__init__(name, TenureState.HELD)
        # Two clocks do not run equally fast: ours must be the first at the end of the lease.
        self._lease_ms = lease_ms
        self._kept_ms = lease_ms - lease_ms // IDENTITY_MARGIN_PARTS
        self._until_ms = asked_ms + self._kept_ms
        self._looked_ms = asked_ms

    def may_answer(self, now_ms: int) -> bool:
        """Whether nobody else can have the identity now; asked before anything is promised."""
        return self.state is TenureState.HELD and now_ms < self._until_ms

    def step(self, event: Event, now_ms: int) -> list[Effect]:
        assert isinstance(event, Renewed | Looked | Taken), f"a tenure knows no {event}"
        if self.state is TenureState.LOST:
            # For good: a renewal that comes now was answered before the other process began.
            return []
        self._looked_ms = now_ms
        match event:
            case Taken():
                self.move(TenureState.LOST)
                return [EndNode()]
            case Renewed(asked_ms):
                # An answer that took long says little: the lease runs from the asking. Never back: answers
                # may come out of order.
                self._until_ms = max(self._until_ms, asked_ms + self._kept_ms)
                return self._look(now_ms)
            case Looked():
                return self._look(now_ms)
            case _:
                assert_never(event)

    def _look(self, now_ms: int) -> list[Effect]:
        # Looked at with each event, and the other way round too: whoever was stopped wakes LAPSED, and goes
        # on if the catalog says that nobody took the identity meanwhile.
        is_over = now_ms >= self._until_ms
        if is_over and self.state is TenureState.HELD:
            self.move(TenureState.LAPSED)
            return [HoldBack()]
        if not is_over and self.state is TenureState.LAPSED:
            self.move(TenureState.HELD)
            return [GoOn()]
        return []

    def invariants(self) -> None:
        assert 0 < self._kept_ms < self._lease_ms, f"U1: {self._kept_ms} of {self._lease_ms} ms"
        asked_ms = self._until_ms - self._kept_ms
        assert asked_ms <= self._looked_ms, f"U2: asked at {asked_ms}, it is {self._looked_ms}"
        if self.state is not TenureState.LOST:
            is_over = self._looked_ms >= self._until_ms
            is_lapsed = self.state is TenureState.LAPSED
            assert is_lapsed == is_over, f"U3: {self.state.name} until {self._until_ms}"
