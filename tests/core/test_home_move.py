"""A home that moves: the steps by themselves, and many histories of crashes, lost answers and late ones."""

import random
from typing import ClassVar

import pytest

from moorline.core.effects import Effect, Event
from moorline.core.home_move import (
    Begin,
    Closed,
    CloseHome,
    CopyPass,
    CopyRest,
    GivenUp,
    HandedOver,
    HandOver,
    HomeMove,
    LetGo,
    MoveState,
    Opened,
    OpenHome,
    PassDone,
    Pause,
    Paused,
    RestCopied,
    StepFailed,
)
from moorline.errors import MachineError
from moorline.limits import (
    HOME_MOVE_PASSES_MAX,
    HOME_MOVE_REST_BYTES_MAX,
    HOME_MOVE_RETRY_MS,
    HOME_MOVE_STANDSTILL_MS_MAX,
    HOME_MOVE_STANDSTILLS_MAX,
)

AGAIN = [Pause(HOME_MOVE_RETRY_MS)]
MUCH = HOME_MOVE_REST_BYTES_MAX + 1


def closed(machine: HomeMove) -> None:
    assert machine.handle(Begin(), 0) == [CopyPass()]
    assert machine.handle(PassDone(0), 1) == [CloseHome()]
    assert machine.handle(Closed(), 2) == [CopyRest()]


def test_a_quiet_home_is_copied_once_closed_proven_and_handed_over() -> None:
    machine = HomeMove("m")
    closed(machine)
    assert machine.handle(RestCopied(is_equal=True), 3) == [HandOver()]
    machine.check()
    assert machine.handle(HandedOver(), 4) == [LetGo()]
    assert machine.state is MoveState.GONE
    assert machine.handle(Paused(), 5) == []


def test_what_is_written_meanwhile_is_copied_again_but_not_for_ever() -> None:
    machine = HomeMove("m")
    machine.handle(Begin(), 0)
    for _ in range(HOME_MOVE_PASSES_MAX - 1):
        assert machine.handle(PassDone(MUCH), 1) == [CopyPass()]
    assert machine.handle(PassDone(MUCH), 1) == [CloseHome()]


def test_what_is_not_equal_is_not_handed_over() -> None:
    machine = HomeMove("m")
    closed(machine)
    assert machine.handle(RestCopied(is_equal=False), 3) == [CopyRest()]
    assert machine.state is MoveState.HANDING


def test_a_copy_that_fails_is_tried_again_while_the_home_serves() -> None:
    machine = HomeMove("m")
    machine.handle(Begin(), 0)
    for now_ms in range(100):
        assert machine.handle(StepFailed(), now_ms) == AGAIN
        assert machine.handle(Paused(), now_ms) == [CopyPass()]
    assert machine.state is MoveState.COPYING


def test_a_handing_over_without_an_answer_is_proven_again_first() -> None:
    machine = HomeMove("m")
    closed(machine)
    machine.handle(RestCopied(is_equal=True), 3)
    assert machine.handle(StepFailed(), 4) == AGAIN
    assert machine.handle(Paused(), 5) == [CopyRest()]


def test_a_standstill_is_bounded_and_so_is_their_number() -> None:
    machine, now_ms = HomeMove("m"), 0
    for number in range(HOME_MOVE_STANDSTILLS_MAX):
        assert machine.handle(Begin() if not number else Paused(), now_ms) == [CopyPass()]
        assert machine.handle(PassDone(0), now_ms) == [CloseHome()]
        assert machine.handle(Closed(), now_ms) == [CopyRest()]
        now_ms += HOME_MOVE_STANDSTILL_MS_MAX
        assert machine.handle(StepFailed(), now_ms) == [OpenHome()]
        is_last = number + 1 == HOME_MOVE_STANDSTILLS_MAX
        assert machine.handle(Opened(is_ours=True), now_ms) == ([] if is_last else AGAIN)
    assert machine.state is MoveState.OVER


def test_a_home_that_is_gone_when_it_is_opened_is_let_go() -> None:
    machine = HomeMove("m")
    closed(machine)
    machine.handle(RestCopied(is_equal=True), 3)
    assert machine.handle(StepFailed(), HOME_MOVE_STANDSTILL_MS_MAX + 2) == [OpenHome()]
    assert machine.handle(StepFailed(), 4) == AGAIN
    assert machine.handle(Paused(), 5) == [OpenHome()]
    assert machine.handle(Opened(is_ours=False), 6) == [LetGo()]
    assert machine.state is MoveState.GONE


@pytest.mark.parametrize("steps", [0, 1, 2, 3])
def test_given_up_at_any_step_the_home_stays_and_serves(steps: int) -> None:
    machine = HomeMove("m")
    answers: list[Event] = [Begin(), PassDone(0), Closed(), RestCopied(is_equal=True)]
    for event in answers[:steps]:
        machine.handle(event, 0)
    assert machine.handle(GivenUp(), 0) == []
    effects = machine.handle(answers[steps], 1)
    if effects:
        assert effects == [OpenHome()]
        assert machine.handle(Opened(is_ours=True), 2) == []
    assert machine.state is MoveState.OVER


def test_an_answer_to_nothing_is_a_mistake_of_ours() -> None:
    machine = HomeMove("m")
    with pytest.raises(MachineError, match="a copy knows no"):
        machine.handle(HandedOver(), 0)


def test_h1_a_machine_that_hands_over_what_is_not_proven_is_stopped() -> None:
    machine = HomeMove("m")
    closed(machine)
    machine.handle(RestCopied(is_equal=True), 3)
    machine.check()
    machine._is_equal = False
    with pytest.raises(AssertionError, match="H1"):
        machine.check()


def test_h1_a_machine_that_hands_over_while_it_serves_is_stopped() -> None:
    machine = HomeMove("m")
    machine.handle(Begin(), 0)
    machine._is_handing_over = machine._is_equal = True
    with pytest.raises(AssertionError, match="H1"):
        machine.check()


def test_h2_a_machine_that_stands_still_too_often_or_too_long_is_stopped() -> None:
    machine = HomeMove("m")
    closed(machine)
    machine._standstills = HOME_MOVE_STANDSTILLS_MAX
    machine.check()
    machine._standstills += 1
    with pytest.raises(AssertionError, match="H2"):
        machine.check()
    machine = HomeMove("m")
    closed(machine)
    machine._now_ms += HOME_MOVE_STANDSTILL_MS_MAX
    with pytest.raises(AssertionError, match="H2"):
        machine.check()


class Place:
    """A data folder: what is in it, and how often its home had moved when it was made."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.stored: set[int] = set()
        self.moves = -1
        """None of its own."""
        self.incarnation: int | None = None
        """Of the process that serves it."""


class World:
    """A home at one of two places; both processes may die, and any answer may be lost.

    The catalog gives the home away by the rule of home_move_take.sql: to what was proven, as long as the
    process that closed the home is the last that claimed it.
    """

    drops: ClassVar[float] = 0.15

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.source, self.target = Place("source"), Place("target")
        self.source.moves = 0
        self.moves, self.claimed, self.is_released = 0, 0, False
        self.proven: tuple[int, frozenset[int]] | None = None
        self.answered: set[int] = set()
        self.number = 0
        self.now_ms = 0
        self.machine: HomeMove | None = None
        self.event: Event = Begin()
        self.closed_as: int | None = None
        self.is_taking = False
        """The target was asked to take the home; the question may reach it late."""
        self.calm = False

    # --- the processes ----------------------------------------------------------------------------

    def claim(self, place: Place) -> bool:
        """A start of a process on a folder: as check_moves, and a new incarnation."""
        if place.moves != self.moves:
            return False
        self.claimed += 1
        self.is_released = False
        place.incarnation = self.claimed
        return True

    def start_source(self) -> None:
        if self.claim(self.source):
            self.machine, self.event = HomeMove("m"), Begin()

    def start_target(self) -> None:
        self.claim(self.target)

    def kill_source(self) -> None:
        self.source.incarnation = None
        self.machine, self.closed_as = None, None

    def kill_target(self) -> None:
        self.target.incarnation = None

    def write(self) -> None:
        """Answered by whoever serves."""
        for place in (self.source, self.target):
            if place.incarnation is not None:
                self.number += 1
                place.stored.add(self.number)
                self.answered.add(self.number)

    def take_late(self) -> None:
        if self.is_taking:
            self.take()

    def give_up(self) -> None:
        """The next process knows too: the row in the catalog is not wanted any more."""
        if self.machine is not None and not self.machine.has_ended:
            self.machine.handle(GivenUp(), self.now_ms)

    # --- what the machine asks for ----------------------------------------------------------------

    def step(self) -> None:
        self.now_ms += self.chance.randrange(0, 20_000)
        if self.machine is None or self.machine.has_ended:
            return
        effects = self.machine.handle(self.event, self.now_ms)
        self.machine.check()
        if effects:
            (effect,) = effects
            self.event = self.perform(effect)

    def perform(self, effect: Effect) -> Event:
        if isinstance(effect, Pause):
            return Paused()
        if isinstance(effect, HandOver) and not self.calm and self.chance.random() < 0.3:
            self.is_taking = True
            return StepFailed()  # it is under way, and comes when it comes
        is_lost = not self.calm and self.chance.random() < self.drops
        if is_lost and self.chance.random() < 0.5 and not isinstance(effect, LetGo):
            return StepFailed()  # it was never done
        done = self.done(effect)
        if is_lost and not isinstance(effect, LetGo | OpenHome):
            return StepFailed()  # it was, and nobody heard of it
        return done

    def done(self, effect: Effect) -> Event:
        source, target = self.source, self.target
        match effect:
            case CopyPass():
                if target.moves != self.moves:
                    target.stored = {one for one in source.stored if self.chance.random() < 0.9}
                return PassDone(self.chance.choice([0, MUCH]))
            case CloseHome():
                self.closed_as, source.incarnation = source.incarnation, None
                if self.closed_as == self.claimed:
                    self.is_released = True
                return Closed()
            case CopyRest():
                if self.moves > source.moves:
                    return HandedOver()
                if self.chance.random() < 0.8:
                    target.stored = set(source.stored)
                is_equal = target.stored == source.stored
                if is_equal and self.closed_as is not None:
                    self.proven = (self.closed_as, frozenset(source.stored))
                return RestCopied(is_equal)
            case HandOver():
                self.is_taking = True
                if self.take():
                    return HandedOver()
                return StepFailed()
            case OpenHome():
                return Opened(self.claim(source))
            case LetGo():
                source.moves = -1
                return Paused()
            case _:
                raise AssertionError(f"nobody performs {effect}")

    def take(self) -> bool:
        """The target's side of HandOver: one transaction."""
        if self.moves > self.source.moves:
            return True
        is_free = self.proven is not None and self.proven[0] == self.claimed and self.is_released
        if not is_free or self.proven is None or self.target.stored != self.proven[1]:
            return False
        self.moves += 1
        self.target.moves = self.moves
        return True

    # --- what must hold ---------------------------------------------------------------------------

    def check(self) -> None:
        serving = [one for one in (self.source, self.target) if one.incarnation is not None]
        assert len(serving) <= 1, f"{[one.name for one in serving]} serve one home"
        for place in serving:
            assert self.answered <= place.stored, f"{place.name} lacks what was answered"


@pytest.mark.parametrize("block", range(8))
def test_one_place_serves_and_nothing_answered_is_lost(block: int) -> None:
    ended: dict[str, int] = {}
    for seed in range(block * 250, block * 250 + 250):
        world = World(seed)
        world.start_source()
        for _ in range(world.chance.randrange(5, 80)):
            acts = [world.step] * 6 + [world.write] * 2 + [world.start_source, world.start_target]
            if world.machine is None or world.source.incarnation is None:
                acts.append(world.start_source)
            acts.append(world.take_late)
            seldom = [world.kill_source, world.kill_target, world.give_up]
            act = world.chance.choice([*acts, *acts, *seldom])
            if act == world.start_source and world.machine is not None:
                continue  # whoever is alive holds the lock of the folder
            if act == world.start_target and world.target.incarnation is not None:
                continue
            act()
            world.check()
        world.calm = True
        if world.machine is None:
            world.start_source()
        for _ in range(2_000):
            if world.machine is None or world.machine.has_ended:
                break
            world.step()
            world.check()
        else:
            raise AssertionError(f"seed {seed}: the move has no end")
        where = world.target if world.moves else world.source
        if where.incarnation is None:
            assert world.claim(where), f"seed {seed}: nobody can serve the home"
        world.check()
        assert world.answered <= where.stored
        ended[where.name] = ended.get(where.name, 0) + 1
    assert set(ended) == {"source", "target"}, "both ends are met"
