"""Which publisher a subscriber goes to."""

from collections import Counter
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from moorline.core.values.choice import Candidate, Failures, choose
from moorline.limits import FAILED_PUBLISHERS_MAX, PUBLISHER_FAILED_MS


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


@given(st.lists(st.integers(0, 2), min_size=1, max_size=8), st.integers())
def test_n_tries_in_a_row_reach_all_n(priorities: list[int], seed: int) -> None:
    """S3, again and again: behind the first round each has its turn too."""
    some, failures, chance = candidates(*priorities), Failures(), Random(seed)
    now_ms = 0
    for _ in range(3):
        reached = set()
        for _ in some:
            now_ms += 10
            one = choose(some, failures, chance, now_ms).instance
            failures.note(one, now_ms)
            reached.add(one)
        assert len(reached) == len(some)


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
