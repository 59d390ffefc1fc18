"""Passwords as they are stored, and the threads that check them."""

import asyncio
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.access.directory import LIGHT

from moorline.access.passwords import (
    COST,
    HashingThreads,
    StoredPassword,
    TooManyChecks,
    is_too_long,
    nobodys_password,
    store_password,
)
from moorline.access.tokens import new_token, token_hash
from moorline.limits import PASSWORD_BYTES_MAX, PASSWORD_THREADS, PASSWORDS_WAITING_MAX


@given(st.text(st.characters(exclude_characters="\0", codec="utf-8"), min_size=1, max_size=40))
def test_what_was_stored_matches_itself_and_nothing_else(password: str) -> None:
    stored = store_password(password, LIGHT)
    assert stored.matches(password)
    assert not stored.matches(password + " ")
    assert not stored.matches("")


def test_the_same_password_is_never_stored_twice_the_same() -> None:
    first, second = store_password("secret", LIGHT), store_password("secret", LIGHT)
    assert first.salt != second.salt
    assert first.hash != second.hash
    assert "secret" not in repr(first)
    assert str(first.hash) not in repr(first)


def test_a_letter_may_be_typed_in_two_ways() -> None:
    assert store_password("caf\u00e9", LIGHT).matches("cafe\u0301")


def test_the_cost_of_now_is_stored_beside_the_hash_and_can_be_paid() -> None:
    stored = store_password("secret")
    assert (stored.cost.cost, stored.cost.block, stored.cost.lanes) == (15, 8, 3)
    assert stored.matches("secret")


def test_nobodys_password_costs_what_others_cost() -> None:
    assert nobodys_password().cost == COST
    assert not nobodys_password(LIGHT).matches("")


def test_what_is_damaged_or_too_dear_is_no_stored_password() -> None:
    stored = store_password("secret", LIGHT)
    numbers = 1 << LIGHT.cost, LIGHT.block, LIGHT.lanes
    assert StoredPassword.of(*numbers, stored.salt, stored.hash) == stored
    for wrong in ((15, 1, 1), (0, 1, 1), (-16, 1, 1), (1, 1, 1), (16, 0, 1), (1 << 30, 8, 1)):
        assert StoredPassword.of(*wrong, stored.salt, stored.hash) is None
    assert StoredPassword.of(*numbers, b"", stored.hash) is None
    assert StoredPassword.of(*numbers, stored.salt, b"") is None


def test_a_password_has_a_longest_length_in_bytes() -> None:
    assert not is_too_long("x" * PASSWORD_BYTES_MAX)
    assert is_too_long("x" * (PASSWORD_BYTES_MAX + 1))
    assert is_too_long("\u20ac" * (PASSWORD_BYTES_MAX // 2))


def test_tokens_are_chance_with_a_prefix() -> None:
    tokens = {new_token() for _ in range(100)}
    assert len(tokens) == len({token_hash(token) for token in tokens}) == 100
    assert all(token.startswith("moor_") and len(token) == 48 for token in tokens)


@pytest.mark.parametrize("text", ["", "moor_", "moor_" + "x" * 42, "moor_" + "x" * 44, "x" * 48])
def test_what_is_no_token_has_no_hash(text: str) -> None:
    assert token_hash(text) is None


# --- threads --------------------------------------------------------------------------------------


class Busy:
    """Work that waits until the test lets it go."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.go = threading.Event()

    def work(self, name: str) -> str:
        self.begun.append(name)
        assert self.go.wait(20)
        return name


async def begun(busy: Busy, count: int) -> None:
    async with asyncio.timeout(20):
        while len(busy.begun) < count:
            await asyncio.sleep(0.001)


async def test_two_at_once_and_who_is_known_goes_first() -> None:
    busy = Busy()
    async with HashingThreads() as threads, asyncio.TaskGroup() as group:

        def run(name: str, *, is_known: bool) -> None:
            group.create_task(threads.run(lambda: busy.work(name), is_known=is_known))

        for number in range(PASSWORD_THREADS):
            run(f"first {number}", is_known=False)
        await begun(busy, PASSWORD_THREADS)
        for number in range(5):
            run(f"stranger {number}", is_known=False)
        run("known", is_known=True)
        await asyncio.sleep(0)
        assert len(busy.begun) == PASSWORD_THREADS
        busy.go.set()
    assert busy.begun[PASSWORD_THREADS] == "known"
    assert len(busy.begun) == PASSWORD_THREADS + 6


async def test_too_many_strangers_are_refused_and_known_ones_are_not() -> None:
    busy = Busy()
    async with HashingThreads() as threads:
        count = PASSWORD_THREADS + PASSWORDS_WAITING_MAX
        tasks = [
            asyncio.create_task(threads.run(lambda: busy.work("x"), is_known=False))
            for _ in range(count)
        ]
        await begun(busy, PASSWORD_THREADS)
        with pytest.raises(TooManyChecks):
            await threads.run(lambda: busy.work("x"), is_known=False)
        known = asyncio.create_task(threads.run(lambda: busy.work("known"), is_known=True))
        await asyncio.sleep(0)
        busy.go.set()
        assert await known == "known"
        assert len(await asyncio.gather(*tasks)) == count


async def test_who_goes_away_leaves_its_place_to_others() -> None:
    busy = Busy()
    async with HashingThreads() as threads:
        tasks = [
            asyncio.create_task(threads.run(lambda: busy.work("x"), is_known=False))
            for _ in range(PASSWORD_THREADS + 10)
        ]
        await begun(busy, PASSWORD_THREADS)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        # The two that run cannot be stopped: their threads are taken until they end.
        late = asyncio.create_task(threads.run(lambda: busy.work("late"), is_known=False))
        await asyncio.sleep(0)
        assert busy.begun == ["x"] * PASSWORD_THREADS
        busy.go.set()
        assert await late == "late"
        again = [threads.run(lambda: busy.work("again"), is_known=False) for _ in range(10)]
        assert await asyncio.gather(*again) == ["again"] * 10


async def test_work_that_fails_fails_for_who_asked() -> None:
    def fail() -> None:
        raise ValueError("damaged")

    async with HashingThreads() as threads:
        for _ in range(3 * PASSWORD_THREADS):
            with pytest.raises(ValueError, match="damaged"):
                await threads.run(fail, is_known=False)


async def test_who_goes_away_with_its_turn_in_hand_passes_it_on() -> None:
    busy = Busy()
    async with HashingThreads() as threads:
        tasks = [
            asyncio.create_task(threads.run(lambda: busy.work("x"), is_known=False))
            for _ in range(PASSWORD_THREADS + 2)
        ]
        await begun(busy, PASSWORD_THREADS)
        # A thread is given to the first that waits, and in the same moment that one is cancelled.
        threads._strangers.popleft().set_result(None)
        tasks[PASSWORD_THREADS].cancel()
        await asyncio.wait([tasks[PASSWORD_THREADS]])
        assert not threads._strangers
        busy.go.set()
        assert await tasks[PASSWORD_THREADS + 1] == "x"
