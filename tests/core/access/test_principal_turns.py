"""Whoever has a thousand connections has no more turns than whoever has one: simulated, for many seeds."""

import random
from collections import Counter

import pytest

from moorline.core.access.principal_turns import ROUND_US, TURNS_PER_ROUND_MAX, PrincipalTurns
from moorline.limits import TURN_CHARGE_US_MIN, TURN_DEBT_ROUNDS_MAX

LONGEST_US = 8_000
"""Of a turn: a step may begin at the end of it."""


class Loop:
    """The event loop of a node: one turn after the other, each as long as chance says."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.turns = PrincipalTurns()
        self.count = 0
        self.now_us = 0
        self.used_us: Counter[str] = Counter()
        self.forever: set[tuple[str, int]] = set()
        """Connections that always have more to do."""
        self.costs_us: dict[str, tuple[int, int]] = {"alice": (0, ROUND_US)}
        """A single call of hers takes no more than a round, so that she owes nothing."""

    def flood(self, principal: str, connections: int, first: int = 0) -> None:
        for connection in range(first, first + connections):
            self.forever.add((principal, connection))
            self.turns.wait(principal, connection)

    def turn(self) -> tuple[str, int] | None:
        served = self.turns.next()
        if served is None:
            return None
        low_us, high_us = self.costs_us.get(served[0], (0, LONGEST_US))
        cost_us = self.chance.randint(low_us, high_us)
        self.count += 1
        self.now_us += cost_us
        self.used_us[served[0]] += cost_us
        if served in self.forever:
            self.turns.wait(*served)
        self.turns.check()
        self.turns.spent(cost_us)
        self.turns.check()
        return served


@pytest.mark.parametrize("seed", range(40))
def test_a_call_begins_within_a_round_beside_a_thousand_connections_of_another(seed: int) -> None:
    loop = Loop(seed)
    loop.flood("mallory", 1_000)
    for number in range(50):
        for _ in range(loop.chance.randrange(30)):
            loop.turn()
        came, came_us = loop.count, loop.now_us
        loop.turns.wait("alice", number)
        while loop.turn() != ("alice", number):
            assert loop.count - came <= TURNS_PER_ROUND_MAX
            assert loop.now_us - came_us <= ROUND_US + LONGEST_US


@pytest.mark.parametrize("seed", range(40))
def test_the_bound_holds_for_any_number_of_principals(seed: int) -> None:
    loop = Loop(seed)
    others = loop.chance.randint(2, 30)
    for number in range(others):
        loop.flood(f"m{number}", loop.chance.choice([1, 3, 200]), first=1_000 * number)
        high_us = loop.chance.choice([10, 2_000, LONGEST_US])
        loop.costs_us[f"m{number}"] = (0, high_us)
    for number in range(20):
        for _ in range(loop.chance.randrange(100)):
            loop.turn()
        came, came_us = loop.count, loop.now_us
        loop.turns.wait("alice", number)
        while loop.turn() != ("alice", number):
            assert loop.count - came <= TURNS_PER_ROUND_MAX * others
            assert loop.now_us - came_us <= (ROUND_US + LONGEST_US) * others


@pytest.mark.parametrize("seed", range(20))
def test_those_who_always_have_more_share_the_time_and_not_the_connections(seed: int) -> None:
    loop = Loop(seed)
    loop.flood("many", 1_000)
    loop.flood("one", 1)
    loop.flood("few", 7)
    loop.costs_us |= {"many": (4_000, 8_000), "one": (1_300, 6_000), "few": (1_300, 8_000)}
    while loop.now_us < 60_000_000:
        loop.turn()
    shares = [used_us / loop.now_us for used_us in loop.used_us.values()]
    assert len(shares) == 3
    assert max(shares) - min(shares) < 0.02


def test_connections_of_one_principal_come_in_turn() -> None:
    loop = Loop(1)
    loop.flood("alice", 5)
    loop.flood("bob", 2)
    served = [served for _ in range(200) if (served := loop.turn()) is not None]
    mine = [connection for principal, connection in served if principal == "alice"]
    assert mine == [number % 5 for number in range(len(mine))]


def test_alone_everybody_has_its_turn_as_it_came_whatever_it_costs() -> None:
    turns = PrincipalTurns()
    for connection in range(100):
        turns.wait("anonymous", connection)
    for connection in range(100):
        assert turns.next() == ("anonymous", connection)
        turns.spent(50_000)
    assert turns.next() is None


def test_a_turn_that_took_far_too_long_is_paid_with_rounds_but_not_for_ever() -> None:
    turns = PrincipalTurns()
    turns.wait("slow", 1)
    for connection in range(100):
        turns.wait("alice", connection)
    assert turns.next() == ("slow", 1)
    turns.wait("slow", 1)
    turns.spent(10_000_000)
    served: list[str] = []
    while "slow" not in served:
        found = turns.next()
        assert found is not None
        turns.spent(ROUND_US)
        served.append(found[0])
    assert TURN_DEBT_ROUNDS_MAX - 1 <= len(served) - 1 <= TURN_DEBT_ROUNDS_MAX + 1


def test_to_go_away_and_come_back_saves_up_no_credit() -> None:
    turns = PrincipalTurns()
    turns.wait("busy", 0)
    for _ in range(50):  # comes and goes without a turn
        turns.wait("sly", 1)
        turns.leave("sly", 1)
    for connection in range(100):
        turns.wait("sly", connection)
    assert turns.next() == ("busy", 0)
    turns.wait("busy", 0)
    turns.spent(ROUND_US)
    in_a_row = 0
    while (found := turns.next()) is not None and found[0] == "sly":
        turns.spent(0)
        in_a_row += 1
    assert in_a_row == TURNS_PER_ROUND_MAX


@pytest.mark.parametrize("seed", range(30))
def test_nobody_is_forgotten_or_served_twice_and_nothing_stays_of_who_left(seed: int) -> None:
    chance, turns = random.Random(seed), PrincipalTurns()
    waiting: set[tuple[str, int]] = set()
    for _ in range(3_000):
        one = (f"p{chance.randrange(6)}", chance.randrange(20))
        match chance.randrange(4):
            case 0 | 1:
                turns.wait(*one)
                waiting.add(one)
            case 2:
                turns.leave(*one)
                waiting.discard(one)
            case _:
                found = turns.next()
                assert (found is None) == (not waiting)
                if found is not None:
                    waiting.remove(found)
                    if chance.random() < 0.5:
                        turns.wait(*found)
                        waiting.add(found)
                    turns.spent(chance.randrange(20_000))
        turns.check()
        assert len(turns) == len(waiting)
        assert turns.is_empty == (not waiting)
    while (found := turns.next()) is not None:
        waiting.remove(found)
        turns.spent(0)
    assert not waiting
    for number in range(6):
        turns.forget(f"p{number}")
    assert turns.principals == 0


def test_who_was_alone_owes_nobody_anything() -> None:
    turns = PrincipalTurns()
    for _ in range(100):
        turns.wait("first", 1)
        assert turns.next() == ("first", 1)
        turns.spent(1_000_000)
    assert turns.principals == 0


def test_a_connection_that_ends_in_its_own_turn_is_gone() -> None:
    turns = PrincipalTurns()
    turns.wait("alice", 1)
    turns.wait("alice", 2)
    turns.wait("bob", 3)
    assert turns.next() == ("alice", 1)
    turns.wait("alice", 1)
    turns.leave("alice", 1)
    turns.leave("alice", 2)
    turns.spent(0)
    assert turns.next() == ("bob", 3)
    turns.spent(0)
    assert turns.is_empty


def test_a_charge_of_a_turn_makes_a_round_of_whole_turns() -> None:
    assert TURNS_PER_ROUND_MAX * TURN_CHARGE_US_MIN == ROUND_US


@pytest.mark.parametrize(
    "broken", ["PT1 twice", "PT1 gone", "PT1 idle", "PT2 debt", "PT2 credit", "PT2 kept", "PT3"]
)
def test_a_broken_state_is_found(broken: str) -> None:
    turns = PrincipalTurns()
    turns.wait("alice", 1)
    turns.wait("alice", 2)
    turns.wait("bob", 3)
    assert turns.next() == ("alice", 1)
    turns.check()
    alice = turns._principals["alice"]
    match broken:
        case "PT1 twice":
            turns._ring.append("bob")
        case "PT1 gone":
            turns._ring.remove("bob")
        case "PT1 idle":
            turns._principals["bob"].connections.clear()
        case "PT2 debt":
            alice.credit_us = -TURN_DEBT_ROUNDS_MAX * ROUND_US - 1
        case "PT2 credit":
            alice.credit_us = ROUND_US + 1
        case "PT2 kept":
            turns._principals["carol"] = type(alice)()
        case _:
            turns._ring.rotate(1)
    with pytest.raises(AssertionError, match=broken[:3]):
        turns.check()
