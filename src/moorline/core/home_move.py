"""Room: core. How a home is moved to another node: one thing at a time, by whoever has the home.

    COPYING   it serves; its files are copied, and again what has changed since, until little is left
    CLOSING   it stops to serve
    HANDING   nobody serves; the rest is copied, both sides have one digest, the other node takes the home
    OPENING   it is opened again, if the catalog says that it is still ours
    GONE      the other node has it
    OVER      the move was given up; it serves here

Each step asks for one thing, and the next step hears how that ended. Nothing is remembered over a crash: a
process that starts has the home if the catalog says so, and begins anew with COPYING, where all that the
other side has already is passed over. Who has the home is decided in one transaction of the catalog, which
succeeds only while nobody has claimed the home since it was closed: opening it again is such a claim. So
an answer that is lost costs nothing but the question. Design: docs/design/home-moves.md.

Invariants, looked at by `check`:

    H1  the home is handed over only in HANDING, behind a digest that both sides had since it was closed
    H2  it stands still for a bounded time: behind that it is opened again, whatever hangs
"""

from collections.abc import Mapping
from enum import Enum
from typing import ClassVar, assert_never

from moorline.core.effects import Effect, Event
from moorline.core.machine import Machine
from moorline.limits import (
    HOME_MOVE_PASSES_MAX,
    HOME_MOVE_REST_BYTES_MAX,
    HOME_MOVE_RETRY_MS,
    HOME_MOVE_STANDSTILL_MS_MAX,
    HOME_MOVE_STANDSTILLS_MAX,
)


class MoveState(Enum):
    COPYING = "it is copied while it serves"
    CLOSING = "it stops to serve"
    HANDING = "the rest is copied, and the other node takes it"
    OPENING = "it is opened again"
    GONE = "the other node has it"
    OVER = "it was not moved"


class Begin(Event, frozen=True):
    """A move is wanted, and we serve the home."""


class PassDone(Event, frozen=True):
    """All files were looked at, and what the other side did not have was copied: so many bytes."""

    bytes_copied: int


class Closed(Event, frozen=True):
    """The home serves nobody, and all that it answered is in its files."""


class RestCopied(Event, frozen=True):
    """The files as they are since the home was closed were copied, and both sides have counted and hashed
    theirs."""

    is_equal: bool


class HandedOver(Event, frozen=True):
    """The catalog says that the other node has the home."""


class Opened(Event, frozen=True):
    """It was tried to open the home again."""

    is_ours: bool


class StepFailed(Event, frozen=True):
    """What was asked for did not come to its end. Of handing over that says nothing of what was done."""


class Paused(Event, frozen=True):
    """The pause is over."""


class GivenUp(Event, frozen=True):
    """An operator wants the home to stay. Heard between two steps."""


class CopyPass(Effect, frozen=True):
    """Copy what the other side does not have, while the home serves."""


class CloseHome(Effect, frozen=True):
    """Stop to serve it, in order."""


class CopyRest(Effect, frozen=True):
    """Copy the rest, and compare the digests of both sides."""


class HandOver(Effect, frozen=True):
    """Note in the catalog what was proven, and let the other node take the home."""


class OpenHome(Effect, frozen=True):
    """Claim the home, and serve it."""


class Pause(Effect, frozen=True):
    after_ms: int


class LetGo(Effect, frozen=True):
    """The other node has the home: set our files aside, and serve without it."""


class HomeMove(Machine[MoveState]):
    """One move, in the process that has the home."""

    moves: ClassVar[Mapping[Enum, frozenset[Enum]]] = {
        MoveState.COPYING: frozenset({MoveState.CLOSING, MoveState.OVER}),
        MoveState.CLOSING: frozenset({MoveState.HANDING, MoveState.OPENING}),
        MoveState.HANDING: frozenset({MoveState.GONE, MoveState.OPENING}),
        MoveState.OPENING: frozenset({MoveState.COPYING, MoveState.GONE, MoveState.OVER}),
        MoveState.GONE: frozenset(),
        MoveState.OVER: frozenset(),
    }

    def __init__(self, name: str) -> None:
        super().__init__(name, MoveState.COPYING)
        self._passes = 0
        self._standstills = 0
        self._closed_ms = 0
        self._now_ms = 0
        self._is_equal = False
        self._is_handing_over = False
        self._is_given_up = False

    @property
    def has_ended(self) -> bool:
        return self.state in (MoveState.GONE, MoveState.OVER)

    def step(self, event: Event, now_ms: int) -> list[Effect]:
        self._now_ms = now_ms
        if isinstance(event, GivenUp):
            # What is under way is heard of first: its end is the moment to stop.
            self._is_given_up = True
            return []
        match self.state:
            case MoveState.COPYING:
                return self._copying(event, now_ms)
            case MoveState.CLOSING:
                return self._closing(event, now_ms)
            case MoveState.HANDING:
                return self._handing(event, now_ms)
            case MoveState.OPENING:
                return self._opening(event)
            case MoveState.GONE | MoveState.OVER:
                return []
            case _:
                assert_never(self.state)

    def _copying(self, event: Event, now_ms: int) -> list[Effect]:
        if self._is_given_up:
            self.move(MoveState.OVER)
            return []
        if isinstance(event, StepFailed):
            return [Pause(HOME_MOVE_RETRY_MS)]
        if not isinstance(event, PassDone):
            assert isinstance(event, Begin | Paused), f"a copy knows no {event}"
            return [CopyPass()]
        self._passes += 1
        # A home that is written to faster than it is copied never comes to little: then the rest is large.
        if event.bytes_copied > HOME_MOVE_REST_BYTES_MAX and self._passes < HOME_MOVE_PASSES_MAX:
            return [CopyPass()]
        self.move(MoveState.CLOSING)
        self._closed_ms = now_ms
        return [CloseHome()]

    def _closing(self, event: Event, now_ms: int) -> list[Effect]:
        if isinstance(event, StepFailed) or self._is_given_up:
            return self._open()
        assert isinstance(event, Closed), f"a home that closes knows no {event}"
        self.move(MoveState.HANDING)
        self._closed_ms = now_ms
        self._is_equal = False
        return [CopyRest()]

    def _handing(self, event: Event, now_ms: int) -> list[Effect]:
        self._is_handing_over = False
        if isinstance(event, HandedOver):
            self.move(MoveState.GONE)
            return [LetGo()]
        is_late = now_ms - self._closed_ms >= HOME_MOVE_STANDSTILL_MS_MAX
        if is_late or self._is_given_up:
            return self._open()
        match event:
            case RestCopied(is_equal):
                self._is_equal = is_equal
                if not is_equal:
                    return [CopyRest()]
                self._is_handing_over = True
                return [HandOver()]
            case StepFailed():
                return [Pause(HOME_MOVE_RETRY_MS)]
            case Paused():
                # From the start of it: the other side may have begun anew, without what it had.
                self._is_equal = False
                return [CopyRest()]
            case _:
                raise AssertionError(f"a home that is handed over knows no {event}")

    def _opening(self, event: Event) -> list[Effect]:
        if isinstance(event, Paused):
            return [OpenHome()]
        if isinstance(event, StepFailed):
            return [Pause(HOME_MOVE_RETRY_MS)]
        assert isinstance(event, Opened), f"a home that is opened knows no {event}"
        if not event.is_ours:
            self.move(MoveState.GONE)
            return [LetGo()]
        if self._is_given_up or self._standstills >= HOME_MOVE_STANDSTILLS_MAX:
            self.move(MoveState.OVER)
            return []
        self.move(MoveState.COPYING)
        self._passes = 0
        return [Pause(HOME_MOVE_RETRY_MS)]

    def _open(self) -> list[Effect]:
        self.move(MoveState.OPENING)
        self._standstills += 1
        self._is_equal = False
        return [OpenHome()]

    def invariants(self) -> None:
        if self._is_handing_over:
            is_proven = self.state is MoveState.HANDING and self._is_equal
            assert is_proven, f"H1: handed over in {self.state.name}, equal: {self._is_equal}"
        assert self._standstills <= HOME_MOVE_STANDSTILLS_MAX, "H2: it stands still once too often"
        if self.state is MoveState.HANDING:
            closed_ms = self._now_ms - self._closed_ms
            assert closed_ms < HOME_MOVE_STANDSTILL_MS_MAX, (
                f"H2: it stands still for {closed_ms} ms"
            )
