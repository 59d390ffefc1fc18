"""Progress only grows, and never passes what is not done."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorline.core.delivery.progress import Cursor, Progress

LIMIT = 30
acks = st.lists(st.tuples(st.integers(0, LIMIT), st.integers(0, LIMIT)), max_size=20)


def done(progress: Progress) -> set[int]:
    return {offset for offset in range(LIMIT + 1) if progress.is_done(offset)}


def after(given_acks: list[tuple[int, int]], start: int = 0) -> Progress:
    progress = Progress(Cursor(start))
    for first, upto in given_acks:
        progress.ack(first, upto)
    return progress


@given(acks, st.integers(0, LIMIT))
def test_i5_the_low_mark_is_below_the_first_that_is_not_done(
    given_acks: list[tuple[int, int]], start: int
) -> None:
    progress = after(given_acks, start)
    plain = set(range(start)) | {n for first, upto in given_acks for n in range(first, upto)}
    assert done(progress) == plain & set(range(LIMIT + 1))
    assert progress.low == min(set(range(LIMIT + 2)) - plain)


@given(acks, acks)
def test_i4_merging_is_a_union_and_an_old_report_changes_nothing(
    one: list[tuple[int, int]], other: list[tuple[int, int]]
) -> None:
    progress, told = after(one), after(other)
    expected = done(progress) | done(told)
    is_new = expected != done(progress)
    assert progress.merge(told.cursor()) == is_new
    assert done(progress) == expected
    assert not progress.merge(told.cursor()), "I13: once more is once"
    assert progress.cursor() == Progress(progress.cursor()).cursor()


def test_failures_are_counted_until_the_message_is_done() -> None:
    progress = Progress(Cursor(10))
    assert progress.fail(12) == 1
    assert progress.fail(12) == 2
    assert progress.fail(9) == 0, "it is done"
    assert progress.cursor() == Cursor(10, (), ((12, 2),))
    progress.ack(12, 13)
    assert progress.cursor() == Cursor(10, ((12, 13),), ())
    progress.ack(10, 12)
    assert progress.cursor() == Cursor(13)


def test_of_two_counts_of_failures_the_higher_stays() -> None:
    progress = Progress(Cursor(0, (), ((3, 2), (4, 1))))
    assert progress.merge(Cursor(0, (), ((3, 1), (4, 5))))
    assert progress.failures == {3: 2, 4: 5}
    assert not progress.merge(Cursor(0, (), ((3, 2),)))
    assert progress.merge(Cursor(5))
    assert not progress.merge(Cursor(0, (), ((3, 9),))), "nobody counts what is done"


def test_open_ranges_are_what_is_left() -> None:
    progress = Progress(Cursor(5, ((7, 8), (10, 12))))
    assert progress.open_ranges(0, 15) == [(5, 7), (8, 10), (12, 15)]
    assert progress.open_ranges(10, 12) == []


@pytest.mark.parametrize("broken", ["M1", "M2", "R3"])
def test_a_broken_state_is_found(broken: str) -> None:
    progress = Progress(Cursor(3, ((5, 7),), ((4, 1),)))
    progress.check()
    match broken:
        case "M1":
            progress.low = 5
            progress.failures.clear()
        case "M2":
            progress.failures[6] = 1
        case _:
            progress._done._count = 9
    with pytest.raises(AssertionError, match=broken):
        progress.check()
