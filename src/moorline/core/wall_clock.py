"""Room: core. Whether the wall clock can be relied upon, and the time by which things may expire.

The machine's own clock, which nobody sets, says how much time has passed; the wall clock says what time it
is. From both comes a third, the *trusted* time: it goes with the machine's clock, and follows the wall clock
slowly, by at most a hundredth of the time that passes.

    expiry = the earlier of the two      nothing is dropped because of a jump, forward or back
    stamp  = the later of the two        nothing is dropped because it was stored while the clock was wrong
             (the wall clock itself, while both are within the bound)

A difference beyond the bound is a jump, and the clock is HELD: it counts again when it returns, when an
operator confirms it, or when it has gone evenly for long enough. What is remembered on disk carries this over
a stop.

Invariants, looked at by `check`:

    X1  a clock that counts has no jump to wait out
    X2  a held one has not yet gone evenly for as long as confirms it
    X3  what slewing may still make up is never negative, and not more than one bound: else many small steps
        would pass that are a jump together
"""

from collections.abc import Mapping
from enum import Enum
from typing import ClassVar

import msgspec

from moorline.core.effects import Effect, Event
from moorline.core.machine import Machine

SLEW_PARTS = 100
"""Of so many parts of the time that passes, one makes up for a difference: far above what time servers slew
(a two-thousandth), far below what a jump is."""


class Trust(Enum):
    TRUSTED = "the wall clock goes with the machine's own"
    HELD = "it jumped: nothing expires because of that until it is confirmed"


class Looked(Event, frozen=True):
    """The wall clock says this now."""

    wall_ms: int


class Confirmed(Event, frozen=True):
    """An operator says that the wall clock is right."""

    wall_ms: int


class ClockHeld(Effect, frozen=True):
    """It is ahead of the trusted time by so much; behind it, if that is negative."""

    jump_ms: int


class ClockTrusted(Effect, frozen=True):
    """It counts again: RETURNED by itself, CONFIRMED by an operator, or by TIME."""

    reason: str
    jump_ms: int


class Remembered(msgspec.Struct, frozen=True):
    """What is on disk of a clock, as of one moment."""

    wall_ms: int
    trusted_ms: int
    is_held: bool = False
    held_ms: int = 0
    """For how long it has gone evenly since the jump."""


class Bounds(msgspec.Struct, frozen=True):
    jump_ms: int
    confirm_ms: int
    stop_ms: int


class WallClock(Machine[Trust]):
    """One wall clock. The time of each event is that of the machine's own clock."""

    moves: ClassVar[Mapping[Enum, frozenset[Enum]]] = {
        Trust.TRUSTED: frozenset({Trust.HELD}),
        Trust.HELD: frozenset({Trust.TRUSTED}),
    }

    def __init__(
        self,
        bounds: Bounds,
        wall_ms: int,
        now_ms: int,
        remembered: Remembered | None = None,
        stopped_ms: int | None = None,
    ) -> None:
        """`stopped_ms` is the time since it was remembered, if the machine's clock can tell: None behind a
        restart of the whole machine."""
        super().__init__("wall clock", Trust.TRUSTED)
        self._bounds = bounds
        self._looked_ms = now_ms
        self._trusted_ms = wall_ms
        self._jump_ms = 0
        self._held_ms = 0
        self._slew_ms = 0
        if remembered is not None and stopped_ms is not None:
            self._go_on(remembered, max(0, stopped_ms))
        elif remembered is not None:
            self._begin_anew(remembered, wall_ms)

    def _go_on(self, remembered: Remembered, stopped_ms: int) -> None:
        """As if there had been no stop: the first look finds what happened meanwhile."""
        self._looked_ms -= stopped_ms
        self._trusted_ms = remembered.trusted_ms
        if remembered.is_held:
            self.move(Trust.HELD)
            self._jump_ms = remembered.wall_ms - remembered.trusted_ms
            self._held_ms = self._waited_ms(remembered)

    def _begin_anew(self, remembered: Remembered, wall_ms: int) -> None:
        """Nobody knows how long the stop was. A long one is no jump; but time does not go back in one, what
        was held stays so while the clock is where it was, and beyond a bound no stop is believed."""
        bounds = self._bounds
        stop_ms = wall_ms - remembered.trusted_ms
        is_still_ahead = (
            remembered.is_held
            and remembered.wall_ms > remembered.trusted_ms
            and wall_ms >= remembered.wall_ms - bounds.jump_ms
        )
        if -bounds.jump_ms <= stop_ms <= bounds.stop_ms and not is_still_ahead:
            # From here on neither time goes back: what was stored last was stamped with the remembered one.
            self._trusted_ms = max(wall_ms, remembered.trusted_ms)
            return
        self._trusted_ms = remembered.trusted_ms
        self._jump_ms = stop_ms
        self._held_ms = self._waited_ms(remembered) if is_still_ahead else 0
        self.move(Trust.HELD)

    def _waited_ms(self, remembered: Remembered) -> int:
        """An operator may have shortened the wait since: then the next look ends it, and nothing before."""
        return min(max(0, remembered.held_ms), self._bounds.confirm_ms)

    # --- what time it is --------------------------------------------------------------------------

    @property
    def is_held(self) -> bool:
        return self.state is Trust.HELD

    @property
    def jump_ms(self) -> int:
        """How far the wall clock is ahead of the trusted time while it is held; 0 otherwise."""
        return self._jump_ms

    @property
    def confirms_in_ms(self) -> int:
        """Time that must still pass evenly until a held clock counts; 0 if it counts."""
        return self._bounds.confirm_ms - self._held_ms if self.is_held else 0

    def trusted_ms(self, now_ms: int) -> int:
        return self._trusted_ms + now_ms - self._looked_ms

    def expiry_ms(self, wall_ms: int, now_ms: int) -> int:
        """What is older than its time by this clock may go. Right also between a jump and the next look."""
        # What `trusted_ms` is, written out: this and the next are asked for every message.
        return min(wall_ms, self._trusted_ms + now_ms - self._looked_ms)

    def stamp_ms(self, wall_ms: int, now_ms: int) -> int:
        """The time of what is stored now."""
        trusted_ms = self._trusted_ms + now_ms - self._looked_ms
        if abs(wall_ms - trusted_ms) <= self._bounds.jump_ms:
            return wall_ms
        return max(wall_ms, trusted_ms)

    def start_ms(self, wall_ms: int, now_ms: int) -> int:
        """The time from which on somebody wants messages: not one that jumped, or some would be left out."""
        trusted_ms = self.trusted_ms(now_ms)
        return wall_ms if abs(wall_ms - trusted_ms) <= self._bounds.jump_ms else trusted_ms

    def remembered(self, wall_ms: int, now_ms: int) -> Remembered:
        """What is to be on disk for the next start."""
        trusted_ms = self.trusted_ms(now_ms)
        # Also of a jump that no look has met yet: the stop that follows must not be taken for its cause.
        is_held = self.is_held or abs(wall_ms - trusted_ms) > self._bounds.jump_ms
        return Remembered(wall_ms, trusted_ms, is_held, self._held_ms)

    # --- steps ------------------------------------------------------------------------------------

    def step(self, event: Event, now_ms: int) -> list[Effect]:
        assert now_ms >= self._looked_ms, "the machine's own clock never goes back"
        match event:
            case Looked(wall_ms):
                # The trusted time goes first, by the machine's clock alone: the wall clock is compared with
                # it as it would be had nobody touched anything.
                passed_ms = now_ms - self._looked_ms
                self._trusted_ms += passed_ms
                self._looked_ms = now_ms
                ahead_ms = wall_ms - self._trusted_ms
                if self.is_held:
                    return self._look_again(ahead_ms, passed_ms)
                return self._look(ahead_ms, passed_ms)
            case Confirmed(wall_ms):
                # A look first: the clock may have returned by itself, or jumped just now, and is then HELD
                # for the confirmation to end.
                effects = self.step(Looked(wall_ms), now_ms)
                return effects + self._trust("CONFIRMED", wall_ms) if self.is_held else effects
            case _:
                raise AssertionError(f"a clock knows no {event}")

    def _look(self, ahead_ms: int, passed_ms: int) -> list[Effect]:
        if abs(ahead_ms) > self._bounds.jump_ms:
            # The trusted time does not follow: nothing expires by a jump, in either direction.
            self.move(Trust.HELD)
            self._jump_ms, self._held_ms = ahead_ms, 0
            return [ClockHeld(ahead_ms)]
        # What was not needed may be used later, for one bound at most: many small steps are a jump too.
        room_ms = min(self._slew_ms + passed_ms, self._bounds.jump_ms * SLEW_PARTS)
        made_up_ms = min(abs(ahead_ms), room_ms // SLEW_PARTS)
        self._slew_ms = room_ms - made_up_ms * SLEW_PARTS
        self._trusted_ms += made_up_ms if ahead_ms > 0 else -made_up_ms
        return []

    def _look_again(self, ahead_ms: int, passed_ms: int) -> list[Effect]:
        if abs(ahead_ms) <= self._bounds.jump_ms:
            return self._trust("RETURNED", None)
        if abs(ahead_ms - self._jump_ms) > self._bounds.jump_ms:
            # Another jump: what had confirmed the first one says nothing of this one.
            self._jump_ms, self._held_ms = ahead_ms, 0
            return [ClockHeld(ahead_ms)]
        # Followed within the bound: a held clock that is slewed by its time server is still the same jump.
        self._jump_ms = ahead_ms
        self._held_ms += passed_ms
        if self._held_ms >= self._bounds.confirm_ms:
            return self._trust("TIME", self._trusted_ms + ahead_ms)
        return []

    def _trust(self, reason: str, wall_ms: int | None) -> list[Effect]:
        jump_ms, self._jump_ms, self._held_ms, self._slew_ms = self._jump_ms, 0, 0, 0
        # None where it returned by itself: what is left of a difference is made up slowly, as ever.
        if wall_ms is not None:
            self._trusted_ms = wall_ms
        self.move(Trust.TRUSTED)
        return [ClockTrusted(reason, jump_ms)]

    def invariants(self) -> None:
        if not self.is_held:
            waits = (self._jump_ms, self._held_ms)
            assert waits == (0, 0), f"X1: it counts, and waits for {waits}"
        confirm_ms, slew_max = self._bounds.confirm_ms, self._bounds.jump_ms * SLEW_PARTS
        assert 0 <= self._held_ms <= confirm_ms, f"X2: {self._held_ms} of {confirm_ms} ms"
        assert 0 <= self._slew_ms <= slew_max, f"X3: {self._slew_ms} of {slew_max}"
