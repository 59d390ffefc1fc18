"""Which publisher a subscriber goes to."""

from collections import Counter
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from moorline.core.values.choice import Candidate, Failures, Turns, choose, choose_in_turn
from moorline.limits import (
    FAILED_PUBLISHERS_MAX,
    PUBLISHER_FAILED_MS,
    TRIED_PATHS_MAX,
    TRIED_PUBLISHERS_MAX,
)


def candidates(*priorities: int) -> list[Candidate]:
    return [Candidate(bytes((place,)), priority) for place, priority in enumerate(priorities)]


def test_t3_the_choice_is_even() -> None:
    """T3: two publishers and 1,000 subscribers: each gets 400 to 600."""
    both, chance = candidates(1, 1), Random(3)
    chosen = Counter(choose(both, Failures(), chance, 0).instance for _ in range(1_000))
    assert all(400 <= count <= 600 for count in chosen.values())
    assert len(chosen) == 2


def test_the_best_priority_comes_first() -> None:
    some, chance = candidates(2, 0, 1, 0), Random(1)
    chosen = {choose(some, Failures(), chance, 0).instance for _ in range(100)}
    assert chosen == {b"\1", b"\3"}


PRIORITIES = st.lists(st.integers(0, 2), min_size=1, max_size=30)


@given(PRIORITIES, st.integers(), st.integers(1, 30_000))
def test_any_n_tries_in_a_row_reach_all_n(priorities: list[int], seed: int, try_ms: int) -> None:
    """S3: however long a try takes, and whatever priority those have that hang: any n of them, not only the
    first ones."""
    some, failures, chance, turns = candidates(*priorities), Failures(), Random(seed), Turns()
    now_ms, chosen = 0, list[bytes]()
    for _ in range(4 * len(some)):
        tried = turns.of("/a", now_ms)
        one = choose_in_turn(some, tried, failures, chance, now_ms).instance
        now_ms += try_ms
        failures.note(one, now_ms)
        turns.failed("/a", one, now_ms)
        chosen.append(one)
        if len(chosen) >= len(some):
            assert len(set(chosen[-len(some) :])) == len(some)
    turns.found("/a")
    assert turns.of("/a", now_ms) == ()


def test_those_that_failed_for_others_come_last_of_those_whose_turn_it_is() -> None:
    some, failures, chance = candidates(0, 0, 0), Failures(), Random(1)
    failures.note(b"\1", 0)
    assert choose_in_turn(some, (b"\0",), failures, chance, 1).instance == b"\2"
    assert choose_in_turn(some, (b"\0", b"\2"), failures, chance, 1).instance == b"\1"


def test_turns_are_forgotten_and_bounded() -> None:
    turns = Turns()
    turns.failed("/a", b"1", 0)
    turns.failed("/a", b"2", PUBLISHER_FAILED_MS - 1)
    turns.failed("/a", b"1", PUBLISHER_FAILED_MS)
    assert turns.of("/a", PUBLISHER_FAILED_MS) == (b"2", b"1")
    assert turns.of("/a", 2 * PUBLISHER_FAILED_MS) == ()
    for place in range(TRIED_PATHS_MAX + 10):
        turns.failed(f"/{place}", b"1", 0)
    assert len(turns) == TRIED_PATHS_MAX
    for place in range(TRIED_PUBLISHERS_MAX + 10):
        turns.failed("/a", place.to_bytes(4, "big"), 0)
    assert len(turns.of("/a", 0)) == TRIED_PUBLISHERS_MAX


def test_a_failure_is_forgotten() -> None:
    some, failures, chance = candidates(0, 1), Failures(), Random(1)
    failures.note(b"\0", 0)
    assert choose(some, failures, chance, PUBLISHER_FAILED_MS - 1).instance == b"\1"
    assert choose(some, failures, chance, PUBLISHER_FAILED_MS).instance == b"\0"
    failures.note(b"\0", 0)
    failures.forgive(b"\0")
    assert choose(some, failures, chance, 1).instance == b"\0"


def test_failures_are_bounded() -> None:
    failures = Failures()
    for place in range(FAILED_PUBLISHERS_MAX + 10):
        failures.note(place.to_bytes(4, "big"), place)
    assert len(failures._failed_ms) == FAILED_PUBLISHERS_MAX
    assert failures.when((0).to_bytes(4, "big"), 20) is None
