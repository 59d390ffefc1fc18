"""The changes of the last steps: bounded, in order, and folded to one for each key."""

import pytest

from moorline.core.records.recent_steps import CHANGE_BYTES, RecentSteps
from moorline.core.records.table import After, Before, Change


def change(key: str, before: int | None, after: int | None, row: bytes = b"") -> Change:
    was = None if before is None else Before(before, ())
    return Change((key,), was, None if after is None else After(after, (), row))


def put(recent: RecentSteps, number: int, *changes: Change) -> None:
    recent.begin(number)
    recent.add(changes)
    recent.end()
    recent.check()


def test_t8_one_change_for_each_key() -> None:
    recent = RecentSteps(10_000)
    put(recent, 1, change("a", 1, 2), change("b", None, 3))
    put(recent, 2, change("b", 3, None), change("a", 2, 4))
    put(recent, 3, change("a", 4, 5))
    folded = {one.net.key[0]: one for one in recent.folded(0)}
    assert folded["a"].net == change("a", 1, 5)
    assert folded["b"].net == change("b", None, None)
    assert folded["b"].between == [change("b", None, 3)]
    assert [one.net for one in recent.folded(2)] == [change("a", 4, 5)]
    assert recent.folded(3) == []


def test_the_oldest_go_first_and_are_known_to_be_gone() -> None:
    recent = RecentSteps(2 * CHANGE_BYTES)
    for number in range(1, 5):
        put(recent, number, change("a", number, number + 1))
    assert [recent.reaches(step) for step in range(5)] == [False, False, True, True, True]
    assert recent.bytes == 2 * CHANGE_BYTES


def test_a_step_that_does_not_fit_is_not_kept() -> None:
    recent = RecentSteps(1_000)
    put(recent, 1, change("a", 1, 2))
    put(recent, 2, change("b", 1, 2, b"x" * 1_000))
    assert not recent.reaches(1)
    assert recent.reaches(2)
    put(recent, 3, change("c", 1, 2))
    assert len(recent.folded(2)) == 1


def test_a_step_that_fails_leaves_nothing() -> None:
    recent = RecentSteps(1_000)
    recent.begin(1)
    recent.add([change("a", 1, 2)])
    recent.drop()
    put(recent, 1, change("b", 1, 2))
    assert [one.net.key for one in recent.folded(0)] == [("b",)]


def test_re1_bytes_and_order_can_be_wrong() -> None:
    recent = RecentSteps(1_000)
    put(recent, 1, change("a", 1, 2))
    recent.bytes += 1
    with pytest.raises(AssertionError, match="RE1"):
        recent.check()
    recent.bytes -= 1
    recent._first = 5
    with pytest.raises(AssertionError, match="RE1"):
        recent.check()
