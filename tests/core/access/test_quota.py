"""Nobody gets more than its bound, what is given back can be had again, and the idle cost nothing."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.drawing import examples

from moorline.core.access.quota import (
    COUNTS,
    RATES,
    UNBOUNDED,
    Account,
    Accounts,
    Bounds,
    OverBound,
    Quota,
)

RATE = Quota.MESSAGES_PER_S
COUNT = Quota.QUEUES


def rate(bound: int) -> Account:
    return Account(Bounds(messages_per_s=bound), 0)


def count(bound: int) -> Account:
    return Account(Bounds(queues=bound), 0)


# --- rates ----------------------------------------------------------------------------------------


def test_a_rate_gives_a_second_at_once_and_then_as_it_fills() -> None:
    account = rate(10)
    assert account.take(RATE, 10, 0) is None
    assert account.take(RATE, 1, 0) == OverBound(RATE, 10, 100)
    assert account.take(RATE, 1, 99) == OverBound(RATE, 10, 1)
    assert account.take(RATE, 1, 100) is None
    assert account.take(RATE, 1, 100) == OverBound(RATE, 10, 100)


def test_more_than_a_second_at_once_is_never_given() -> None:
    account = rate(10)
    assert account.take(RATE, 11, 0) == OverBound(RATE, 10, None, True)
    assert account.take(RATE, 10, 0) is None, "what was refused took nothing"


def test_a_rate_of_nothing_gives_nothing() -> None:
    account = rate(0)
    assert account.take(RATE, 1, 10**6) == OverBound(RATE, 0, None, True)
    assert account.take(RATE, 0, 10**6) is None


def test_a_clock_that_goes_back_gives_nothing_twice() -> None:
    account = rate(1_000)
    assert account.take(RATE, 1_000, 5_000) is None
    assert account.take(RATE, 1, 0) is not None
    assert account.take(RATE, 1, 5_000) is not None
    assert account.take(RATE, 1, 5_001) is None


TAKES = st.lists(st.tuples(st.integers(0, 300), st.integers(0, 40)), max_size=80)


@settings(max_examples=examples(200), deadline=None)
@given(st.integers(0, 30), TAKES)
def test_no_window_has_more_than_its_time_and_one_burst(
    bound: int, takes: list[tuple[int, int]]
) -> None:
    account, now_ms = rate(bound), 0
    given_at: list[tuple[int, int]] = []
    for pause_ms, amount in takes:
        now_ms += pause_ms
        if account.take(RATE, amount, now_ms) is None:
            given_at.append((now_ms, amount))
        account.check()
    for place, (start_ms, _) in enumerate(given_at):
        total = 0
        for end_ms, amount in given_at[place:]:
            total += amount
            assert total * 1_000 <= bound * 1_000 + bound * (end_ms - start_ms)


@settings(max_examples=examples(200), deadline=None)
@given(st.integers(1, 30), TAKES, st.integers(1, 30))
def test_who_comes_again_when_it_was_told_gets_it_and_not_a_moment_before(
    bound: int, takes: list[tuple[int, int]], wanted: int
) -> None:
    account, now_ms = rate(bound), 0
    for pause_ms, amount in takes:
        now_ms += pause_ms
        account.take(RATE, amount, now_ms)
    over = account.take(RATE, wanted, now_ms)
    if over is None:
        return
    if over.is_too_much_at_once:
        assert wanted > bound
        return
    assert over.retry_ms is not None
    assert account.take(RATE, wanted, now_ms + over.retry_ms - 1) is not None
    assert account.take(RATE, wanted, now_ms + over.retry_ms) is None


def test_what_is_asked_for_often_loses_nothing_to_rounding() -> None:
    account, given_in_all = rate(7), 0
    for now_ms in range(10_000):
        given_in_all += account.take(RATE, 1, now_ms) is None
    assert given_in_all == 7 + 7 * 9_999 // 1_000


# --- counts ---------------------------------------------------------------------------------------


def test_a_count_is_held_until_it_is_given_back() -> None:
    account = count(3)
    assert account.take(COUNT, 3, 0) is None
    assert account.take(COUNT, 1, 10**9) == OverBound(COUNT, 3, None)
    account.give_back(COUNT, 2)
    assert account.take(COUNT, 2, 10**9) is None
    assert account.take(COUNT, 4, 0) == OverBound(COUNT, 3, None, True)


def test_more_than_was_taken_cannot_be_given_back() -> None:
    account = count(3)
    account.take(COUNT, 1, 0)
    with pytest.raises(AssertionError):
        account.give_back(COUNT, 2)
    with pytest.raises(AssertionError):
        account.give_back(RATE, 0)


@settings(max_examples=examples(200), deadline=None)
@given(
    st.integers(0, 10),
    st.lists(st.tuples(st.booleans(), st.integers(0, 6), st.integers(0, 12)), max_size=100),
)
def test_held_is_what_was_taken_less_what_was_given_back(
    bound: int, steps: list[tuple[bool, int, int]]
) -> None:
    account, held = count(bound), 0
    for is_take, amount, new_bound in steps:
        if not is_take:
            back = min(amount, held)
            account.give_back(COUNT, back)
            held -= back
        elif amount == 6:
            bound = new_bound
            account.set_bounds(Bounds(queues=bound), 0)
        elif account.take(COUNT, amount, 0) is None:
            held += amount
            assert held <= bound or not amount
        else:
            assert held + amount > bound, "refused though there was room"
        account.check()
        assert account.held(COUNT) == held


# --- several at once ------------------------------------------------------------------------------


def test_several_are_given_together_or_not_at_all() -> None:
    account = Account(Bounds(messages_per_s=10, bytes_per_s=100, stored_bytes=50), 0)
    wanted = [(RATE, 5), (Quota.BYTES_PER_S, 60), (Quota.STORED_BYTES, 60)]
    over = account.take_all(wanted, 0)
    assert over is not None
    assert over.quota is Quota.STORED_BYTES
    assert account.held(Quota.STORED_BYTES) == 0
    assert account.take_all([(RATE, 10), (Quota.BYTES_PER_S, 100)], 0) is None


def test_what_has_no_bound_is_counted_all_the_same() -> None:
    account = Account()
    for quota in COUNTS:
        assert account.take(quota, 5, 0) is None
        assert account.held(quota) == 5
    for quota in RATES:
        assert account.take(quota, UNBOUNDED, 0) is None
    assert not account.has_rates
    account.set_bounds(Bounds(queues=5), 0)
    assert account.take(COUNT, 1, 0) == OverBound(COUNT, 5, None)


# --- other bounds ---------------------------------------------------------------------------------


def test_a_lower_bound_holds_at_once_and_takes_nothing_away() -> None:
    account = count(10)
    account.take(COUNT, 10, 0)
    account.set_bounds(Bounds(queues=4), 0)
    assert account.held(COUNT) == 10
    assert account.take(COUNT, 1, 0) is not None
    account.give_back(COUNT, 7)
    assert account.take(COUNT, 1, 0) is None


def test_another_rate_holds_at_once_and_is_no_way_to_a_second_burst() -> None:
    account = rate(100)
    account.take(RATE, 100, 0)
    account.set_bounds(Bounds(messages_per_s=1_000), 0)
    assert account.take(RATE, 1, 0) == OverBound(RATE, 1_000, 1)
    assert account.take(RATE, 50, 50) is None
    account.set_bounds(Bounds(messages_per_s=2), 1_000)
    assert account.take(RATE, 3, 1_000) is not None
    assert account.take(RATE, 2, 1_000) is None
    account.set_bounds(Bounds(), 1_000)
    assert account.take(RATE, 10**9, 1_000) is None


# --- accounts -------------------------------------------------------------------------------------


def test_those_that_hold_nothing_and_are_full_are_forgotten() -> None:
    accounts, bounds = Accounts(), Bounds(messages_per_s=10)
    accounts.open("holds", bounds, 0).take(Quota.CONNECTIONS, 1, 0)
    accounts.open("drained", bounds, 0).take(RATE, 10, 0)
    accounts.open("idle", bounds, 0)
    assert accounts.forget_idle(999, 10) == 1
    assert [name for name, _ in accounts] == ["holds", "drained"]
    assert accounts.forget_idle(1_000, 10) == 1
    assert [name for name, _ in accounts] == ["holds"]


def test_a_million_that_came_once_leave_nothing_and_each_look_is_bounded() -> None:
    accounts, bounds = Accounts(), Bounds(messages_per_s=10)
    held = accounts.open("stays", bounds, 0)
    held.take(COUNT, 1, 0)
    most = 0
    for number in range(20_000):
        accounts.open(f"p{number}", bounds, number).take(RATE, 1, number)
        accounts.forget_idle(number, 4)
        most = max(most, len(accounts))
    assert most < 400, "what stays is what came in the last moments"
    assert accounts.get("stays") is held


@pytest.mark.parametrize("seed", range(10))
def test_to_be_forgotten_changes_nothing(seed: int) -> None:
    chance = random.Random(seed)
    kept, swept = Accounts(), Accounts()
    bounds, now_ms = Bounds(messages_per_s=5, queues=3), 0
    for _ in range(2_000):
        now_ms += chance.randrange(200)
        name, amount = f"p{chance.randrange(5)}", chance.randrange(4)
        quota = chance.choice([RATE, COUNT])
        one, other = kept.open(name, bounds, now_ms), swept.open(name, bounds, now_ms)
        if chance.random() < 0.4 and one.held(COUNT):
            one.give_back(COUNT, 1)
            other.give_back(COUNT, 1)
        assert one.take(quota, amount, now_ms) == other.take(quota, amount, now_ms)
        for account in (one, other):
            account.check()
        swept.forget_idle(now_ms, 2)
    assert len(swept) <= len(kept)


@pytest.mark.parametrize(
    "broken", ["QA1 rate", "QA1 nothing", "QA2 none", "QA2 said", "QA2 debt", "QA2 too much", "QA3"]
)
def test_a_broken_state_is_found(broken: str) -> None:
    account = Account(Bounds(messages_per_s=5, queues=3), 0)
    assert account.take(COUNT, 2, 0) is account.take(RATE, 2, 0) is None
    account.check()
    match broken:
        case "QA1 rate":
            account._held[RATE] = 1
        case "QA1 nothing":
            account._held[COUNT] = 0
        case "QA2 none":
            account._buckets.clear()
        case "QA2 said":
            account.has_rates = False
        case "QA3":
            account._buckets[RATE] = list(account._buckets[RATE])
        case "QA2 debt":
            account._buckets[RATE][0] = -1
        case _:
            account._buckets[RATE][0] = 5_001
    with pytest.raises(AssertionError, match=broken[:3]):
        account.check()


@pytest.mark.parametrize("seed", range(20))
def test_a_publish_takes_what_both_rates_taken_together_would(seed: int) -> None:
    """Written out for every publish, it answers and leaves the same, whatever the clock does."""
    chance = random.Random(seed)
    bounds = Bounds(
        messages_per_s=chance.choice([None, 0, 5, 1_000]),
        bytes_per_s=chance.choice([None, 0, 300, 90_000]),
    )
    short, whole, now_ms = Account(bounds), Account(bounds), 0
    refused = 0
    for _ in range(500):
        now_ms += chance.choice([-3, 0, 0, 1, 7, 400])
        messages, size_bytes = chance.randrange(8), chance.randrange(400)
        wanted = [(Quota.MESSAGES_PER_S, messages), (Quota.BYTES_PER_S, size_bytes)]
        found = short.take_published(messages, size_bytes, now_ms)
        assert found == whole.take_all(wanted, now_ms)
        refused += found is not None
        short.check()
        for quota in short._buckets:
            assert short.left(quota, now_ms) == whole.left(quota, now_ms)
    assert refused or bounds.of(Quota.MESSAGES_PER_S) in (None, 1_000)
