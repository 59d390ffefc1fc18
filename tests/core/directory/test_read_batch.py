"""One batch to a list of resolvers: who is asked when, and that it always ends."""

from collections.abc import Callable
from random import Random

import pytest

from moorline.core.directory.read_batch import (
    Answered,
    Ask,
    Begin,
    Connect,
    Connected,
    Failed,
    Finish,
    GiveUp,
    Heard,
    Leave,
    ReadBatch,
    ReadState,
)
from moorline.core.effects import Effect, Event, SetTimer, TimerFired
from moorline.limits import READ_PARTS_AT_ONCE, READ_PAUSE_MS_MAX, READ_PAUSE_MS_MIN, READ_ROUNDS

TIMER_MS = 100
STEPS = 100_000


def batch(members: int = 3, parts: int = 2, connected: tuple[int, ...] = ()) -> ReadBatch:
    return ReadBatch("batch", members, parts, TIMER_MS, Random(1), connected)


def tried(effects: list[Effect]) -> Connect:
    (found,) = [effect for effect in effects if isinstance(effect, Connect)]
    return found


def asked(effects: list[Effect]) -> list[int]:
    return [effect.part for effect in effects if isinstance(effect, Ask)]


def test_all_parts_are_answered_by_the_first_member_that_does() -> None:
    machine = batch()
    first = tried(machine.handle(Begin(), 0))
    assert asked(machine.handle(Connected(first.attempt), 0)) == [0, 1]
    effects = machine.handle(Answered(first.attempt, 1), 0)
    assert effects == [SetTimer("answer", TIMER_MS)]
    assert Finish() in machine.handle(Answered(first.attempt, 0), 0)
    assert machine.state is ReadState.DONE


def test_a_member_that_is_connected_is_asked_first() -> None:
    for seed in range(20):
        machine = ReadBatch("batch", 5, 1, TIMER_MS, Random(seed), [3])
        assert tried(machine.handle(Begin(), 0)).member == 3


def test_what_is_unanswered_goes_to_the_next_member_at_once() -> None:
    machine = batch()
    first = tried(machine.handle(Begin(), 0))
    machine.handle(Connected(first.attempt), 0)
    machine.handle(Answered(first.attempt, 0), 0)
    second = tried(machine.handle(Failed(first.attempt, "lost"), 0))
    assert second.member != first.member
    assert asked(machine.handle(Connected(second.attempt), 0)) == [1]
    # What the first says now is of no matter.
    assert machine.handle(Answered(first.attempt, 1), 0) == []
    assert machine.handle(Failed(first.attempt, "lost"), 0) == []


def test_who_hangs_is_left_and_every_answer_gives_it_more_time() -> None:
    machine = batch()
    first = tried(machine.handle(Begin(), 0))
    machine.handle(Connected(first.attempt), 0)
    assert SetTimer("answer", TIMER_MS) in machine.handle(Answered(first.attempt, 0), 0)
    effects = machine.handle(TimerFired("answer"), 0)
    assert effects[0] == Leave(first.member, first.attempt)
    assert tried(effects).member != first.member


def test_a_page_gives_more_time_and_answers_nothing() -> None:
    machine = batch(parts=1)
    first = tried(machine.handle(Begin(), 0))
    machine.handle(Connected(first.attempt), 0)
    assert machine.handle(Heard(first.attempt), 0) == [SetTimer("answer", TIMER_MS)]
    assert machine.state is ReadState.ASKING
    machine.handle(Failed(first.attempt, "lost"), 0)
    assert machine.handle(Heard(first.attempt), 0) == [], "of a member that was left"


def test_behind_the_third_round_it_says_what_each_member_said() -> None:
    machine = batch(members=2)
    effects = machine.handle(Begin(), 0)
    for round_number in range(READ_ROUNDS):
        members = []
        for _ in range(2):
            one = tried(effects)
            members.append(one.member)
            effects = machine.handle(Failed(one.attempt, f"no {one.member}"), 0)
        assert sorted(members) == [0, 1]
        if round_number < READ_ROUNDS - 1:
            (pause,) = [one for one in effects if isinstance(one, SetTimer)]
            assert pause.name == "pause"
            assert READ_PAUSE_MS_MIN <= pause.after_ms <= READ_PAUSE_MS_MAX
            effects = machine.handle(TimerFired("pause"), 0)
    (given_up,) = [one for one in effects if isinstance(one, GiveUp)]
    assert sorted(given_up.whys) == ["no 0", "no 1"]
    assert machine.state is ReadState.FAILED


def test_a_weak_answer_is_kept_while_others_are_asked_and_is_enough_at_last() -> None:
    machine = batch(members=2, parts=1)
    first = tried(machine.handle(Begin(), 0))
    machine.handle(Connected(first.attempt), 0)
    second = tried(machine.handle(Answered(first.attempt, 0, is_weak=True), 0))
    assert asked(machine.handle(Connected(second.attempt), 0)) == [0]
    assert Finish() in machine.handle(Answered(second.attempt, 0, is_weak=True), 0)
    machine = batch(members=2, parts=1)
    first = tried(machine.handle(Begin(), 0))
    machine.handle(Connected(first.attempt), 0)
    second = tried(machine.handle(Answered(first.attempt, 0, is_weak=True), 0))
    assert Finish() in machine.handle(Failed(second.attempt, "gone"), 0)


def test_few_parts_are_under_way_at_once() -> None:
    machine = batch(parts=100)
    first = tried(machine.handle(Begin(), 0))
    assert len(asked(machine.handle(Connected(first.attempt), 0))) == READ_PARTS_AT_ONCE
    assert asked(machine.handle(Answered(first.attempt, 0), 0)) == [READ_PARTS_AT_ONCE]


def test_a_batch_of_nothing_is_done_at_once() -> None:
    assert Finish() in batch(parts=0).handle(Begin(), 0)


def _try_twice(machine: ReadBatch) -> None:
    machine._tried.append(machine._tried[-1])


def _ask_again(machine: ReadBatch) -> None:
    machine._waiting.append(77)


def _ask_nothing(machine: ReadBatch) -> None:
    machine._asked.clear()


@pytest.mark.parametrize(
    ("name", "harm"), [("C1", _try_twice), ("C2", _ask_again), ("C3", _ask_nothing)]
)
def test_each_invariant_can_fail(name: str, harm: Callable[[ReadBatch], None]) -> None:
    machine = batch()
    first = tried(machine.handle(Begin(), 0))
    machine.handle(Connected(first.attempt), 0)
    machine.check()
    harm(machine)
    with pytest.raises(AssertionError, match=name):
        machine.check()


class Member:
    """A resolver of the simulation: up, hanging, away, or just started."""

    def __init__(self, chance: Random) -> None:
        self._chance = chance
        self.mood = "up"

    def change(self) -> None:
        self.mood = self._chance.choice(["up", "up", "hangs", "away", "young", "breaks"])


class World:
    """A batch, members that come and go, and answers that are late, lost or twice there."""

    def __init__(self, seed: int) -> None:
        chance = self.chance = Random(seed)
        self.members = [Member(chance) for _ in range(chance.randint(1, 4))]
        self.parts = chance.randint(0, 30)
        connected = [0] if chance.random() < 0.5 else []
        self.machine = ReadBatch(
            "batch", len(self.members), self.parts, TIMER_MS, chance, connected
        )
        self.now_ms = 0
        self.agenda: list[tuple[int, int, Event]] = []
        self.timers: dict[str, int] = {}
        self.number = 0
        self.member_of: dict[int, Member] = {}
        self.answered: set[int] = set()
        self.pages = 0
        self.outcome: Effect | None = None
        self.steps = 0

    def run(self) -> None:
        self.post(Begin())
        while self.outcome is None:
            self.steps += 1
            assert self.steps < 5_000, "it does not end"
            if self.chance.random() < 0.1:
                self.chance.choice(self.members).change()
            self.next()

    def next(self) -> None:
        due = [(at, name) for name, at in self.timers.items()]
        timer = min(due, default=None)
        if self.agenda and (timer is None or min(self.agenda)[0] <= timer[0]):
            self.agenda.sort(key=lambda one: one[:2])
            at, _, event = self.agenda.pop(0)
            self.now_ms = max(self.now_ms, at)
            self.post(event)
        else:
            assert timer is not None, "nothing will ever happen again"
            self.now_ms = max(self.now_ms, timer[0])
            del self.timers[timer[1]]
            self.post(TimerFired(timer[1]))

    def later(self, event: Event) -> None:
        for _ in range(2 if self.chance.random() < 0.05 else 1):
            self.number += 1
            at = self.now_ms + self.chance.choice([0, 1, 5, TIMER_MS + 10])
            self.agenda.append((at, self.number, event))

    def post(self, event: Event) -> None:
        if isinstance(event, Answered) and event.part in self.duplicates(event):
            return  # the shell hears each answer of a call once
        is_asking = self.machine.state is ReadState.ASKING
        match event:
            case Answered(attempt, part, False) if is_asking and attempt == self.machine._attempt:
                self.answered.add(part)
            case _:
                pass
        effects = self.machine.handle(event, self.now_ms)
        self.machine.check()
        for effect in effects:
            self.perform(effect)

    def duplicates(self, event: Answered) -> set[int]:
        machine = self.machine
        is_now = machine.state is ReadState.ASKING and event.attempt == machine._attempt
        return set(range(self.parts)) - machine._asked if is_now else set()

    def perform(self, effect: Effect) -> None:
        match effect:
            case SetTimer(name, after_ms):
                self.timers[name] = self.now_ms + after_ms
            case Connect(member, attempt):
                one = self.member_of[attempt] = self.members[member]
                if one.mood == "away":
                    self.later(Failed(attempt, "away"))
                elif one.mood != "hangs":
                    self.later(Connected(attempt))
            case Ask(part, attempt):
                one = self.member_of[attempt]
                assert part not in self.answered, "C2: it is asked for again"
                if one.mood in ("up", "young"):
                    for _ in range(self.chance.choice([0, 0, 0, 3])):
                        self.pages += 1
                        self.later(Heard(attempt))
                    self.later(Answered(attempt, part, is_weak=one.mood == "young"))
                elif one.mood != "hangs":
                    self.later(Failed(attempt, "it broke"))
            case Finish() | GiveUp():
                self.outcome = effect
            case Leave():
                pass
            case _:
                self.timers.pop(getattr(effect, "name", ""), None)


@pytest.mark.slow
def test_every_batch_ends_within_its_bound_whatever_members_do() -> None:
    steps, seed, done, failed = 0, 0, 0, 0
    while steps < STEPS:
        world = World(seed)
        try:
            world.run()
        except Exception as error:
            pytest.fail(f"seed {seed}: {error}\n{world.machine.story()}")
        steps += world.steps
        seed += 1
        done += isinstance(world.outcome, Finish)
        failed += isinstance(world.outcome, GiveUp)
        # C3: each answer and each page may start the time anew, and there are as many answers as parts in
        # each try.
        tries = READ_ROUNDS * len(world.members)
        bound = tries * (world.parts + 1) * TIMER_MS + (READ_ROUNDS - 1) * READ_PAUSE_MS_MAX
        bound += (tries + 2 * world.pages) * TIMER_MS
        assert world.now_ms <= bound, f"seed {seed}"
    assert done > 100, "a simulation in which nothing succeeds proves nothing"
    assert failed > 100, "nor one in which nothing fails"
