"""A link that stays: who is dialled when, and what becomes of the calls that a loss met."""

import random

import pytest
from tests.core.staying_world import World

from moorline.core.effects import CancelTimer, Effect, SetTimer, TimerFired
from moorline.core.staying import (
    Answered,
    Asked,
    Begin,
    DeadlinePassed,
    Dial,
    Doubt,
    Hang,
    Kind,
    Leave,
    LinkLost,
    NotReached,
    Put,
    Reached,
    Refuse,
    Resume,
    Resumed,
    Staying,
    StayState,
    TellLost,
    TellNobody,
    TellOver,
    TellUp,
)
from moorline.limits import CLIENT_ASKS_MAX

A, B = "a", "b"


def link(places: int = 1) -> Staying:
    return Staying("the client", places, random.Random(1))


def up(places: int = 1, home: str = A) -> Staying:
    made = link(places)
    assert made.handle(Begin(), 0) == [Dial(1, 0)]
    assert made.handle(Reached(1, home), 0) == [Resume(1, is_first=True)]
    assert made.handle(Resumed(1), 0) == [TellUp(home, is_first=True, is_elsewhere=False)]
    return made


def again(made: Staying, attempt: int, home: str) -> list[Effect]:
    """Cut, and up again."""
    made.handle(TimerFired("retry"), 0)
    assert made.handle(Reached(attempt, home), 0) == [Resume(attempt, is_first=False)]
    return made.handle(Resumed(attempt), 0)


def test_the_first_round_goes_by_the_order_of_the_addresses_and_ends_if_nobody_is_there() -> None:
    made = link(3)
    assert made.handle(Begin(), 0) == [Dial(1, 0)]
    assert made.handle(NotReached(1, "no"), 0) == [Dial(2, 1)]
    assert made.handle(NotReached(2, "no"), 0) == [Dial(3, 2)]
    assert made.handle(NotReached(3, "nor there"), 0) == [
        CancelTimer("retry"),
        TellOver("nor there"),
    ]
    assert made.handle(Asked(1, Kind.QUESTION), 0) == [Refuse(1, "the client is closed")]


def test_a_place_that_says_hello_and_goodbye_was_not_reached() -> None:
    made = link(2)
    made.handle(Begin(), 0)
    made.handle(Reached(1, A), 0)
    assert made.handle(LinkLost(1, "busy"), 0) == [Hang(1), Dial(2, 1)]
    made.handle(Reached(2, B), 0)
    assert made.handle(LinkLost(2, "busy too"), 0) == [
        Hang(2), CancelTimer("retry"), TellOver("busy too"),
    ]  # fmt: skip


def test_behind_a_loss_places_that_say_goodbye_end_a_round_with_a_pause() -> None:
    made = up(1)
    made.handle(LinkLost(1, "cut"), 0)
    made.handle(TimerFired("retry"), 0)
    made.handle(Reached(2, A), 0)
    hang, nobody, timer = made.handle(LinkLost(2, "busy"), 0)
    assert (hang, isinstance(nobody, TellNobody), isinstance(timer, SetTimer)) == (
        Hang(2), True, True,
    )  # fmt: skip


def test_behind_a_loss_it_tries_all_of_them_until_one_is_there() -> None:
    made = up(2)
    hang, lost, timer = made.handle(LinkLost(1, "cut"), 0)
    assert (hang, lost) == (Hang(1), TellLost("cut"))
    assert isinstance(timer, SetTimer)
    (dial,) = made.handle(TimerFired("retry"), 0)
    assert isinstance(dial, Dial)
    for attempt in (2, 3):
        effects = made.handle(NotReached(attempt, "no"), 0)
    assert isinstance(effects[0], TellNobody)
    assert made.state is StayState.WAITING


def test_one_that_refuses_us_for_good_ends_it_only_if_all_do() -> None:
    made = up(2)
    made.handle(LinkLost(1, "cut"), 0)
    made.handle(TimerFired("retry"), 0)
    made.handle(NotReached(2, "no such user", is_final=True), 0)
    made.handle(NotReached(3, "down"), 0)
    assert made.state is StayState.WAITING
    made.handle(TimerFired("retry"), 0)
    made.handle(NotReached(4, "no such user", is_final=True), 0)
    effects = made.handle(NotReached(5, "no such user", is_final=True), 0)
    assert effects == [CancelTimer("retry"), TellOver("no such user")]


@pytest.mark.parametrize(
    ("kind", "home", "fate"),
    [
        (Kind.QUESTION, A, "put"),
        (Kind.QUESTION, B, "put"),
        (Kind.NUMBERED, A, "put"),
        (Kind.NUMBERED, B, "waits"),
        (Kind.CHANGE, A, "doubted"),
        (Kind.CHANGE, B, "doubted"),
    ],
)
def test_what_becomes_of_a_call_that_was_not_answered(kind: Kind, home: str, fate: str) -> None:
    made = up(2)
    assert made.handle(Asked(7, kind), 0) == [Put(7)]
    effects = [*made.handle(LinkLost(1, "cut"), 0), *again(made, 2, home)]
    assert (Put(7) in effects, Doubt(7, "cut") in effects) == (fate == "put", fate == "doubted")
    if fate == "waits":
        assert made.handle(DeadlinePassed(7), 0) == [Doubt(7, "its deadline passed")]


def test_what_had_not_left_is_put_on_the_next_link_wherever_it_leads() -> None:
    made = up()
    made.handle(Asked(7, Kind.CHANGE), 0)
    assert Put(7) not in made.handle(LinkLost(1, "cut", unsent=(7,)), 0)
    assert Put(7) in again(made, 2, B)


def test_a_deadline_refuses_what_never_left_and_doubts_what_did() -> None:
    made = up()
    made.handle(Asked(1, Kind.CHANGE), 0)
    assert made.handle(DeadlinePassed(1), 0) == [Doubt(1, "its deadline passed")]
    made.handle(LinkLost(1, "cut"), 0)
    assert made.handle(Asked(2, Kind.CHANGE), 0) == []
    assert made.handle(DeadlinePassed(2), 0) == [Refuse(2, "its deadline passed")]
    assert made.handle(Answered(2), 0) == []


def test_whoever_leaves_has_an_end_for_every_ask() -> None:
    made = up()
    made.handle(Asked(1, Kind.CHANGE), 0)
    made.handle(Asked(2, Kind.QUESTION), 0)
    ends = made.handle(Leave("done"), 0)
    assert ends == [
        CancelTimer("retry"), Hang(1), Doubt(1, "done"), Refuse(2, "done"), TellOver("done"),
    ]  # fmt: skip
    assert made.handle(LinkLost(1, "late"), 0) == []


def test_more_asks_than_may_wait_are_refused() -> None:
    made = link()
    made.handle(Begin(stays=True), 0)
    for number in range(CLIENT_ASKS_MAX):
        assert made.handle(Asked(number, Kind.CHANGE), 0) == []
    (refused,) = made.handle(Asked(CLIENT_ASKS_MAX, Kind.CHANGE), 0)
    assert isinstance(refused, Refuse)


def test_every_invariant_can_fail() -> None:
    def broken(name: str, kind: Kind, **changed: object) -> None:
        made = up(2)
        made.handle(Asked(1, kind), 0)
        for field, value in changed.items():
            setattr(made._asks[1], field, value)
        with pytest.raises(AssertionError, match=f"{name}: "):
            made.check()

    broken("S1", Kind.CHANGE, attempt=9)
    broken("S2", Kind.CHANGE, home=A)
    broken("S2", Kind.NUMBERED, home=B)
    broken("S4", Kind.QUESTION, attempt=0)
    over = up()
    over.handle(Asked(1, Kind.CHANGE), 0)
    over._asks[1].attempt = 0
    over.state = StayState.OVER
    with pytest.raises(AssertionError, match="S3: "):
        over.check()


def run(seed: int) -> World:
    world = World(seed)
    for _ in range(400):
        if world.chance.random() < 0.3:
            world.ask()
        if world.chance.random() < 0.05:
            world.befall()
        world.step()
    world.calm()
    while world.step():
        pass
    return world


@pytest.mark.parametrize("seed", range(200))
def test_through_crashes_stops_and_cuts_nothing_is_done_twice_and_every_call_has_one_end(
    seed: int,
) -> None:
    world = run(seed)
    assert world.is_up, "all nodes are there again"
    assert set(world.ends) == set(world.kinds), "a call has no end"
    assert len(world.machine) == 0
    for number, kind in world.kinds.items():
        if kind is not Kind.QUESTION:
            assert world.done[number] <= 1, f"{kind} {number} was done {world.done[number]} times"
        if world.ends[number] == "answered":
            assert world.done[number]
    world.leave()
    assert world.machine.state is StayState.OVER


def test_the_simulation_meets_every_fate() -> None:
    worlds = [run(seed) for seed in range(40)]
    fates = {(world.kinds[number], end) for world in worlds for number, end in world.ends.items()}
    assert fates >= {(kind, end) for kind in Kind for end in ("answered", "refused", "withdrawn")}
    assert fates >= {(Kind.CHANGE, "doubted"), (Kind.NUMBERED, "doubted")}
    assert (Kind.QUESTION, "doubted") not in fates


def test_the_simulation_finds_a_client_that_asks_again_what_it_must_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else it would prove nothing: with every kind taken for a question, something is done twice."""
    handle = Staying.handle

    def careless(self: Staying, event: object, now_ms: int) -> list[Effect]:
        if isinstance(event, Asked):
            event = Asked(event.number, Kind.QUESTION)
        return handle(self, event, now_ms)  # type: ignore[arg-type]

    monkeypatch.setattr(Staying, "handle", careless)
    worlds = []
    for seed in range(40):
        try:
            worlds.append(run(seed))
        except AssertionError:
            return
    assert any(
        world.done[number] > 1
        for world in worlds
        for number, kind in world.kinds.items()
        if kind is not Kind.QUESTION
    )
