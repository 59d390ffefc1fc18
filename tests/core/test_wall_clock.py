"""The wall clock of a node: jumps hold expiry back, slewing does not, and no jump ever drops anything."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.drawing import examples

from moorline.core.machine import diagram
from moorline.core.wall_clock import (
    Bounds,
    ClockHeld,
    ClockTrusted,
    Confirmed,
    Looked,
    Remembered,
    WallClock,
)

SECOND, HOUR, DAY = 1_000, 3_600_000, 86_400_000
BOUNDS = Bounds(jump_ms=300 * SECOND, confirm_ms=DAY, stop_ms=366 * DAY)
WALL = 1_790_000_000_000


class Life:
    """A machine's clock that only goes on, a wall clock that may be set, and the clock of a node between."""

    def __init__(self, remembered: Remembered | None = None, stopped_ms: int | None = None) -> None:
        self.now_ms = 7_000
        self.wall_ms = WALL
        self.clock = WallClock(BOUNDS, self.wall_ms, self.now_ms, remembered, stopped_ms)

    def passes(self, ms: int, look_ms: int = SECOND) -> list[object]:
        """Time, on both clocks, with looks."""
        effects: list[object] = []
        while ms > 0:
            step = min(ms, look_ms)
            self.now_ms += step
            self.wall_ms += step
            ms -= step
            effects += self.look()
        return effects

    def look(self) -> list[object]:
        effects = [*self.clock.handle(Looked(self.wall_ms), self.now_ms)]
        self.clock.check()
        return [*effects]

    def confirm(self) -> list[object]:
        effects = [*self.clock.handle(Confirmed(self.wall_ms), self.now_ms)]
        self.clock.check()
        return [*effects]

    @property
    def expiry_ms(self) -> int:
        return self.clock.expiry_ms(self.wall_ms, self.now_ms)

    @property
    def stamp_ms(self) -> int:
        return self.clock.stamp_ms(self.wall_ms, self.now_ms)

    def stopped(self, ms: int, *, same_boot: bool, wall_ms: int | None = None) -> None:
        """The node stops for so long and starts again, with the machine or without it."""
        note = self.clock.remembered(self.wall_ms, self.now_ms)
        self.wall_ms = self.wall_ms + ms if wall_ms is None else wall_ms
        self.now_ms = self.now_ms + ms if same_boot else 3_000
        self.clock = WallClock(BOUNDS, self.wall_ms, self.now_ms, note, ms if same_boot else None)
        self.look()


def test_a_clock_that_goes_evenly_is_the_time() -> None:
    life = Life()
    assert life.passes(2 * DAY, HOUR) == []
    assert life.expiry_ms == life.stamp_ms == life.wall_ms
    assert not life.clock.is_held


@pytest.mark.parametrize("jump_ms", [30 * DAY, -30 * DAY, 301 * SECOND, -301 * SECOND])
def test_a_jump_is_held_and_moves_no_expiry(jump_ms: int) -> None:
    life = Life()
    life.passes(HOUR)
    before = life.expiry_ms
    life.wall_ms += jump_ms
    # Already before the next look: nobody waits for it.
    assert life.expiry_ms == before + min(0, jump_ms)
    assert life.stamp_ms == before + max(0, jump_ms)
    assert life.clock.start_ms(life.wall_ms, life.now_ms) == before
    assert life.look() == [ClockHeld(jump_ms)]
    assert life.clock.is_held
    assert life.passes(HOUR) == []
    assert life.expiry_ms == before + HOUR + min(0, jump_ms)
    assert life.stamp_ms == before + HOUR + max(0, jump_ms)
    assert life.clock.jump_ms == jump_ms
    assert life.clock.confirms_in_ms == DAY - HOUR


@pytest.mark.parametrize("jump_ms", [30 * DAY, -30 * DAY])
def test_an_operator_confirms_it(jump_ms: int) -> None:
    life = Life()
    life.wall_ms += jump_ms
    life.look()
    assert life.confirm() == [ClockTrusted("CONFIRMED", jump_ms)]
    assert life.expiry_ms == life.stamp_ms == life.wall_ms
    assert life.passes(HOUR) == []
    assert life.confirm() == [], "nothing is left to confirm"


@pytest.mark.parametrize("jump_ms", [30 * DAY, -30 * DAY])
def test_enough_time_confirms_it(jump_ms: int) -> None:
    life = Life()
    life.wall_ms += jump_ms
    life.look()
    assert life.passes(DAY - SECOND) == []
    assert life.clock.is_held
    assert life.passes(SECOND) == [ClockTrusted("TIME", jump_ms)]
    assert life.expiry_ms == life.wall_ms


def test_a_clock_that_is_set_right_counts_at_once() -> None:
    life = Life()
    life.wall_ms += 30 * DAY
    life.look()
    life.passes(HOUR)
    life.wall_ms -= 30 * DAY
    assert life.look() == [ClockTrusted("RETURNED", 30 * DAY)]
    assert life.expiry_ms == life.stamp_ms == life.wall_ms


def test_a_second_jump_begins_the_wait_anew() -> None:
    life = Life()
    life.wall_ms += 30 * DAY
    life.look()
    life.passes(DAY - HOUR)
    life.wall_ms += 30 * DAY
    assert life.look() == [ClockHeld(60 * DAY)]
    assert life.passes(DAY - SECOND) == []
    assert life.passes(SECOND) == [ClockTrusted("TIME", 60 * DAY)]


def test_slewing_is_no_jump() -> None:
    """Time servers correct by a two-thousandth: a day's worth of it is followed, and never noticed."""
    for direction in (1, -1):
        life = Life()
        for _ in range(24 * 60):
            life.wall_ms += direction * 30
            assert life.passes(60 * SECOND, 10 * SECOND) == []
        assert abs(life.expiry_ms - life.wall_ms) < SECOND


def test_a_small_step_is_made_up_slowly() -> None:
    life = Life()
    life.passes(HOUR)
    life.wall_ms += 200 * SECOND
    assert life.passes(60 * SECOND) == []
    assert not life.clock.is_held
    assert life.stamp_ms == life.wall_ms
    assert 0 <= life.wall_ms - life.expiry_ms <= 200 * SECOND
    life.passes(6 * HOUR)
    assert life.expiry_ms == life.wall_ms


def test_many_small_steps_are_a_jump() -> None:
    life = Life()
    effects: list[object] = []
    for _ in range(60):
        life.wall_ms += 60 * SECOND
        effects += life.passes(SECOND)
    assert any(isinstance(effect, ClockHeld) for effect in effects)
    assert life.expiry_ms < WALL + 60 * SECOND + 2 * BOUNDS.jump_ms


# --- over a stop ----------------------------------------------------------------------------------


@pytest.mark.parametrize("stop_ms", [0, SECOND, HOUR, 90 * DAY])
@pytest.mark.parametrize("same_boot", [True, False])
def test_a_long_stop_is_no_jump(stop_ms: int, same_boot: bool) -> None:
    life = Life()
    life.passes(HOUR)
    life.stopped(stop_ms, same_boot=same_boot)
    assert not life.clock.is_held
    assert life.expiry_ms == life.stamp_ms == life.wall_ms


def test_a_jump_while_the_node_is_stopped_is_found_where_the_machine_ran_on() -> None:
    life = Life()
    life.passes(HOUR)
    expected = life.wall_ms + HOUR
    life.stopped(HOUR, same_boot=True, wall_ms=expected + 30 * DAY)
    assert life.clock.is_held
    assert life.expiry_ms == expected
    assert life.stamp_ms == expected + 30 * DAY


def test_a_clock_before_the_last_time_is_held() -> None:
    """A machine that begins in 1970, until a time server has told it better."""
    life = Life()
    life.passes(HOUR)
    last = life.wall_ms
    life.stopped(0, same_boot=False, wall_ms=0)
    assert life.clock.is_held
    assert life.expiry_ms == 0
    assert life.stamp_ms == last, "what is stored now is not old when the clock is right again"
    life.passes(60 * SECOND)
    life.wall_ms = last + 60 * SECOND
    assert life.look() == [ClockTrusted("RETURNED", -last)]


def test_a_clock_that_is_absurdly_ahead_is_held() -> None:
    life = Life()
    life.passes(HOUR)
    last = life.wall_ms
    life.stopped(0, same_boot=False, wall_ms=last + 367 * DAY)
    assert life.clock.is_held
    assert life.expiry_ms == last
    assert life.confirm() == [ClockTrusted("CONFIRMED", 367 * DAY)]


@pytest.mark.parametrize("same_boot", [True, False])
def test_what_is_held_stays_so_over_a_stop(same_boot: bool) -> None:
    """A restart confirms nothing; the time before it counts."""
    life = Life()
    life.wall_ms += 30 * DAY
    life.look()
    life.passes(HOUR)
    before = life.expiry_ms
    life.stopped(60 * SECOND, same_boot=same_boot)
    assert life.clock.is_held
    assert before <= life.expiry_ms <= before + 60 * SECOND
    assert life.clock.confirms_in_ms <= DAY - HOUR
    assert ClockTrusted("TIME", life.clock.jump_ms) in life.passes(DAY - HOUR)


def test_a_jump_that_no_look_has_met_is_remembered() -> None:
    life = Life()
    life.passes(HOUR)
    before = life.expiry_ms
    life.wall_ms += 30 * DAY
    life.stopped(60 * SECOND, same_boot=False)
    assert life.clock.is_held
    assert life.expiry_ms == before


def test_a_clock_that_was_set_right_while_the_machine_was_off_counts() -> None:
    life = Life()
    life.wall_ms += 30 * DAY
    life.look()
    right = WALL + HOUR
    life.stopped(0, same_boot=False, wall_ms=right)
    assert not life.clock.is_held
    assert life.expiry_ms == right


# --- any life -------------------------------------------------------------------------------------

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["passes", "jump", "step", "stop", "reboot", "confirm", "none"]),
        st.integers(-400 * DAY, 400 * DAY),
        st.integers(1, 3 * HOUR),
    ),
    max_size=40,
)


@settings(max_examples=examples(150), deadline=None)
@given(STEPS)
def test_nothing_expires_before_its_time_whatever_the_clock_does(
    steps: list[tuple[str, int, int]],
) -> None:
    """But for what a confirmation, or a stop of unknown length, lets go.

    What is stored at some moment has lived, by the machine's own clock, at least as long as expiry thinks; up
    to the bound that counts as no jump, and the hundredth by which differences are made up.
    """
    life = Life()
    stored: list[tuple[int, int]] = []
    lived_ms = 0
    for what, jump_ms, ms in steps:
        match what:
            case "passes":
                effects = life.passes(ms, 10 * SECOND)
                lived_ms += ms
                if any(isinstance(one, ClockTrusted) and one.reason == "TIME" for one in effects):
                    stored.clear()
            case "jump":
                life.wall_ms = max(0, life.wall_ms + jump_ms)
            case "step":
                life.wall_ms = max(
                    0, life.wall_ms + jump_ms % (2 * BOUNDS.jump_ms) - BOUNDS.jump_ms
                )
            case "stop":
                life.stopped(ms, same_boot=True)
                lived_ms += ms
                if not life.clock.is_held:
                    stored.clear()  # it may have become confirmed by the time of the stop
            case "reboot":
                life.stopped(ms, same_boot=False)
                stored.clear()
            case "confirm":
                life.confirm()
                stored.clear()
            case _:
                life.look()
        stored.append((life.stamp_ms, lived_ms))
        for stamp_ms, at_ms in stored:
            age_ms = life.expiry_ms - stamp_ms
            lived = lived_ms - at_ms
            assert age_ms <= lived + lived // 100 + 3 * BOUNDS.jump_ms + 2


def test_a_life_of_a_thousand_seeds_never_drops_early_and_always_recovers() -> None:
    """Seeded: jumps that are taken back within a day change nothing in the end."""
    for seed in range(1_000):
        chance = random.Random(seed)
        life = Life()
        life.passes(chance.randrange(HOUR), 60 * SECOND)
        for _ in range(chance.randrange(1, 5)):
            jump_ms = chance.choice([-1, 1]) * chance.randrange(BOUNDS.jump_ms + 1, 300 * DAY)
            right = life.expiry_ms
            life.wall_ms += jump_ms
            life.look()
            assert life.clock.is_held, seed
            ms = chance.randrange(1, 5 * HOUR)
            life.passes(ms, HOUR)
            if chance.random() < 0.3:
                life.stopped(chance.randrange(HOUR), same_boot=True)
            assert life.expiry_ms <= right + 7 * HOUR, seed
            life.wall_ms -= jump_ms
            life.look()
            assert not life.clock.is_held, seed
            assert abs(life.expiry_ms - life.wall_ms) <= BOUNDS.jump_ms, seed


def test_the_moves_are_those_of_the_diagram() -> None:
    assert diagram(WallClock) == "\n".join(
        ["stateDiagram-v2", "    TRUSTED --> HELD", "    HELD --> TRUSTED"]
    )


@pytest.mark.parametrize("broken", ["X1", "X2", "X3"])
def test_a_broken_state_is_found_and_tells_the_story(broken: str) -> None:
    life = Life()
    life.passes(HOUR)
    life.clock.check()
    match broken:
        case "X1":
            life.clock._jump_ms = 5
        case "X2":
            life.wall_ms += DAY
            life.look()
            life.clock._held_ms = 2 * DAY
        case _:
            life.clock._slew_ms = -1
    with pytest.raises(AssertionError, match=broken) as caught:
        life.clock.check()
    assert "story of wall clock" in str(caught.value)


def test_a_wait_that_was_shortened_is_over_with_the_next_look() -> None:
    note = Remembered(WALL + 30 * DAY, WALL, is_held=True, held_ms=DAY - SECOND)
    bounds = Bounds(BOUNDS.jump_ms, confirm_ms=HOUR, stop_ms=BOUNDS.stop_ms)
    clock = WallClock(bounds, WALL + 30 * DAY, 7_000, note, 0)
    clock.check()
    assert (clock.is_held, clock.confirms_in_ms) == (True, 0)
    assert clock.handle(Looked(WALL + 30 * DAY), 7_000) == [ClockTrusted("TIME", 30 * DAY)]
