"""Wrong guesses: how long who waits, and that nobody else does."""

import random
from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.drawing import examples

from moorline.core.access.throttle import (
    OF_ADDRESSES,
    OF_NAMES,
    Attempt,
    Meter,
    Meters,
    Outcome,
    Throttle,
    Wait,
    network_of,
)
from moorline.limits import (
    GUESS_WAIT_MS_MAX,
    NAME_GUESSES_FREE,
    THROTTLE_KNOWN_ADDRESSES_MAX,
    THROTTLE_KNOWN_MS,
)

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
HOME = "192.0.2.1"
AWAY = "198.51.100.7"


def guess(throttle: Throttle, name: str, address: str, now_ms: int) -> int:
    """A wrong one; how long it has to wait in place of being looked at."""
    asked = throttle.ask(name, address, now_ms)
    if isinstance(asked, Wait):
        return asked.wait_ms
    throttle.settle(asked, Outcome.WRONG, now_ms)
    return 0


def log_on(throttle: Throttle, name: str, address: str, now_ms: int) -> int:
    """With the right password; how long it has to wait."""
    asked = throttle.ask(name, address, now_ms)
    if isinstance(asked, Wait):
        return asked.wait_ms
    throttle.settle(asked, Outcome.RIGHT, now_ms)
    return 0


def test_each_wrong_guess_waits_twice_as_long_up_to_half_a_minute() -> None:
    throttle, now_ms, waits_ms = Throttle(), 0, list[int]()
    for _ in range(14):
        assert guess(throttle, "alice", AWAY, now_ms) == 0
        wait_ms = guess(throttle, "alice", AWAY, now_ms)
        waits_ms.append(wait_ms)
        if wait_ms:
            # A moment before nothing is looked at, and to have asked prolongs nothing.
            assert guess(throttle, "alice", AWAY, now_ms + wait_ms - 1) == 1
        else:
            # The second guess was looked at too.
            waits_ms.append(0)
        now_ms += wait_ms
    doubling = [wait_ms for wait_ms in waits_ms if wait_ms]
    assert doubling[:7] == [250, 500, 1_000, 2_000, 4_000, 8_000, 16_000]
    assert set(doubling[7:]) == {GUESS_WAIT_MS_MAX}


def test_a_thousand_guesses_in_a_minute_are_a_dozen() -> None:
    throttle = Throttle()
    looked_at = sum(guess(throttle, "alice", AWAY, now_ms) == 0 for now_ms in range(0, 60_000, 60))
    assert 5 < looked_at <= 12


def test_guesses_at_the_same_time_count_before_any_is_answered() -> None:
    throttle = Throttle()
    asked = [throttle.ask("alice", AWAY, 0) for _ in range(1_000)]
    assert sum(isinstance(one, Attempt) for one in asked) == NAME_GUESSES_FREE


def test_the_right_password_and_one_that_nobody_could_check_count_for_nothing() -> None:
    throttle = Throttle()
    for outcome in (Outcome.RIGHT, Outcome.UNKNOWN):
        for turn in range(100):
            asked = throttle.ask(f"user of {outcome}", HOME, turn)
            assert isinstance(asked, Attempt)
            throttle.settle(asked, outcome, turn)


def test_a_count_is_forgotten_one_by_one() -> None:
    throttle = Throttle()
    for _ in range(NAME_GUESSES_FREE):
        assert guess(throttle, "alice", AWAY, 0) == 0
    assert guess(throttle, "alice", AWAY, 0) > 0
    assert guess(throttle, "alice", AWAY, 10 * MINUTE_MS) == 0
    assert guess(throttle, "alice", AWAY, 10 * MINUTE_MS) == 0


def test_who_came_from_there_before_is_not_shut_out_by_an_attack_on_its_name() -> None:
    throttle = Throttle()
    assert log_on(throttle, "alice", HOME, 0) == 0
    for now_ms in range(0, HOUR_MS, 500):
        guess(throttle, "alice", AWAY, now_ms)
        assert log_on(throttle, "alice", HOME, now_ms) == 0
    # From elsewhere it waits like everybody.
    assert log_on(throttle, "alice", "203.0.113.9", HOUR_MS) > 0


def test_who_came_from_there_before_is_not_shut_out_by_others_of_its_address() -> None:
    """A proxy, an office behind one address, or this machine itself."""
    throttle = Throttle()
    assert log_on(throttle, "alice", HOME, 0) == 0
    for number in range(1_000):
        guess(throttle, f"name {number}", HOME, number)
        assert log_on(throttle, "alice", HOME, number) == 0
    assert log_on(throttle, "bob", HOME, 1_000) > 0


def test_a_known_address_may_not_guess_without_end() -> None:
    throttle = Throttle()
    assert log_on(throttle, "alice", HOME, 0) == 0
    looked_at = sum(guess(throttle, "alice", HOME, now_ms) == 0 for now_ms in range(0, 60_000, 60))
    assert looked_at <= 12
    assert guess(throttle, "bob", HOME, 60_000) == 0


def test_an_account_of_ones_own_wipes_no_guesses_out() -> None:
    """Right passwords of an attacker's own account between the guesses."""
    throttle, looked_at = Throttle(), 0
    for now_ms in range(0, 10 * MINUTE_MS, 100):
        log_on(throttle, "mallory", AWAY, now_ms)
        looked_at += guess(throttle, f"victim {now_ms}", AWAY, now_ms) == 0
    assert looked_at <= 20 + 8 + 2 * 10


def test_a_known_address_is_forgotten_behind_its_time_and_behind_newer_ones() -> None:
    throttle = Throttle()
    log_on(throttle, "alice", HOME, 0)
    asked = throttle.ask("alice", HOME, THROTTLE_KNOWN_MS)
    assert isinstance(asked, Attempt)
    assert not asked.is_known
    for number in range(THROTTLE_KNOWN_ADDRESSES_MAX):
        log_on(throttle, "bob", f"203.0.113.{number}", number)
    asked = throttle.ask("bob", "203.0.113.0", 100)
    assert isinstance(asked, Attempt)
    assert asked.is_known
    throttle.settle(asked, Outcome.UNKNOWN, 100)
    log_on(throttle, "bob", AWAY, 100)
    asked = throttle.ask("bob", "203.0.113.0", 100)
    assert isinstance(asked, Attempt)
    assert not asked.is_known


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::9", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::1", "::/64"),
        ("", ""),
        ("no address", "no address"),
    ],
)
def test_whose_address_it_is(address: str, network: str) -> None:
    assert network_of(address) == network


# --- bounds, and attempts to get around them ------------------------------------------------------


def test_invented_names_do_not_flush_the_one_that_is_attacked() -> None:
    """From as many addresses as anybody has, one guess for each name: no address waits."""
    throttle = Throttle(entries_max=800)
    for _ in range(2):
        assert guess(throttle, "alice", AWAY, 0) == 0
    now_ms = 0
    for number in range(50_000):
        now_ms = number // 10
        guess(
            throttle,
            f"name {number}",
            f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}",
            now_ms,
        )
    names, networks, _ = throttle.sizes
    assert names <= 800
    assert networks <= 800
    assert guess(throttle, "alice", "203.0.113.9", now_ms) == 0
    assert guess(throttle, "alice", "203.0.113.9", now_ms) > 0


def test_the_oldest_of_the_least_guilty_go() -> None:
    meters = Meters(OF_NAMES, entries_max=8)
    for _ in range(NAME_GUESSES_FREE):
        meters.guess("first, and guilty", 0)
    for number in range(7):
        meters.guess(f"name {number}", 0)
    meters.guess("one more", 0)
    assert len(meters) == 8
    for _ in range(NAME_GUESSES_FREE - 1):
        meters.guess("name 0", 0)  # it was forgotten: these are its first
        meters.guess("name 1", 0)
    assert meters.wait_ms("first, and guilty", 0) > 0


ACTS = st.lists(
    st.tuples(
        st.sampled_from(["alice", "bob", "carol", "dave"]),
        st.sampled_from([HOME, AWAY, "203.0.113.1", "2001:db8::1"]),
        st.sampled_from(list(Outcome)),
        st.integers(0, 40_000),
    ),
    max_size=120,
)


@given(ACTS)
@settings(max_examples=examples(200))
def test_whatever_happens_waits_are_bounded_and_innocents_have_none(
    acts: list[tuple[str, str, Outcome, int]],
) -> None:
    throttle, now_ms = Throttle(entries_max=8, known_names_max=2), 0
    guilty_names, guilty_networks = set[str](), set[str]()
    for name, address, outcome, passed_ms in acts:
        now_ms += passed_ms
        asked = throttle.ask(name, address, now_ms)
        if isinstance(asked, Wait):
            assert 0 < asked.wait_ms <= GUESS_WAIT_MS_MAX
            assert name in guilty_names or network_of(address) in guilty_networks
            # Who waits as long as it was told is looked at.
            assert isinstance(throttle.ask(name, address, now_ms + asked.wait_ms), Attempt)
            now_ms += asked.wait_ms
            guilty_names.add(name)
            guilty_networks.add(network_of(address))
            continue
        throttle.settle(asked, outcome, now_ms)
        if outcome is Outcome.WRONG:
            guilty_names.add(name)
            guilty_networks.add(asked.network)
        names, networks, known = throttle.sizes
        assert names <= 8
        assert networks <= 8
        assert known <= 2 * THROTTLE_KNOWN_ADDRESSES_MAX


@pytest.mark.parametrize("seed", range(20))
def test_tables_stay_sound_however_many_come(seed: int) -> None:
    """Small ones, so that names and addresses push each other out all the time."""
    chance, throttle = random.Random(seed), Throttle(entries_max=16, known_names_max=3)
    open_attempts: list[Attempt] = []
    now_ms = 0
    for _ in range(500):
        now_ms += chance.choice([0, 1, 300, MINUTE_MS, THROTTLE_KNOWN_MS // 2])
        asked = throttle.ask(f"n{chance.randrange(40)}", f"10.0.0.{chance.randrange(40)}", now_ms)
        if isinstance(asked, Attempt):
            open_attempts.append(asked)
        throttle.check()
        if open_attempts and chance.random() < 0.8:
            attempt = open_attempts.pop(chance.randrange(len(open_attempts)))
            throttle.settle(attempt, chance.choice(list(Outcome)), now_ms)
        throttle.check()
    assert all(throttle.sizes), "each table was in use"


@pytest.mark.parametrize("broken", ["TH1 names", "TH1 known", "TH1 addresses", "TH2", "TH3"])
def test_a_broken_state_is_found(broken: str) -> None:
    throttle = Throttle(entries_max=16, known_names_max=3)
    log_on(throttle, "alice", HOME, 0)
    guess(throttle, "bob", AWAY, 0)
    throttle.check()
    known = throttle._known["alice"]
    match broken:
        case "TH1 names":
            throttle._names._entries_max = 0
        case "TH1 known":
            throttle._known_names_max = 0
        case "TH1 addresses":
            for number in range(THROTTLE_KNOWN_ADDRESSES_MAX):
                known.meters[str(number)] = Meter(OF_NAMES)
        case "TH2":
            throttle._names._meters["bob"]._level_ms = -1
        case _:
            known.seen_ms.clear()
    with pytest.raises(AssertionError, match=broken[:3]):
        throttle.check()


@pytest.mark.slow
@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 5))]
)
def test_an_hour_of_attackers_and_users(seed: int) -> None:
    """300 attackers with an address each guess ten names as fast as they may; the users of these names log on
    all the while, each from its own address."""
    chance = random.Random(seed)
    throttle = Throttle()
    victims = [f"user {number}" for number in range(10)]
    guesses: dict[str, int] = defaultdict(int)
    refused = 0
    for number, name in enumerate(victims):
        assert log_on(throttle, name, f"192.0.2.{number}", 0) == 0
    for now_ms in range(0, HOUR_MS, 100):
        for _ in range(3):
            name = chance.choice(victims)
            address = f"10.0.{chance.randrange(2)}.{chance.randrange(150)}"
            guesses[name] += guess(throttle, name, address, now_ms) == 0
        number = chance.randrange(10)
        refused += log_on(throttle, victims[number], f"192.0.2.{number}", now_ms) > 0
    throttle.check()
    assert refused == 0
    # Two a minute, and the first few.
    assert all(10 < count <= 2 * 60 + 12 for count in guesses.values())


def test_the_pace_of_addresses_is_for_many_people() -> None:
    assert OF_ADDRESSES.wait_ms(19) == 0
    assert OF_ADDRESSES.wait_ms(20) == 250
    assert OF_ADDRESSES.wait_ms(10_000) == GUESS_WAIT_MS_MAX
