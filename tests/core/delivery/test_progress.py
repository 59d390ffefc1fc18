"""Progress only grows, and never passes what is not done."""

from hypothesis import given
from hypothesis import strategies as st

from moorline.core.delivery.progress import Place, Progress

LIMIT = 30
acks = st.lists(st.tuples(st.integers(0, LIMIT), st.integers(0, LIMIT)), max_size=20)


def done(progress: Progress) -> set[int]:
    return {offset for offset in range(LIMIT + 1) if progress.is_done(offset)}


def after(given_acks: list[tuple[int, int]], start: int = 0) -> Progress:
    progress = Progress(Place(start))
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
    assert progress.merge(told.place()) == is_new
    assert done(progress) == expected
    assert not progress.merge(told.place()), "I13: once more is once"
    assert progress.place() == Progress(progress.place()).place()


def test_failures_are_counted_until_the_message_is_done() -> None:
    progress = Progress(Place(10))
    assert progress.fail(12) == 1
    assert progress.fail(12) == 2
    assert progress.fail(9) == 0, "it is done"
    assert progress.place() == Place(10, (), ((12, 2),))
    progress.ack(12, 13)
    assert progress.place() == Place(10, ((12, 13),), ())
    progress.ack(10, 12)
    assert progress.place() == Place(13)


def test_of_two_counts_of_failures_the_higher_stays() -> None:
    progress = Progress(Place(0, (), ((3, 2), (4, 1))))
    assert progress.merge(Place(0, (), ((3, 1), (4, 5))))
    assert progress.failures == {3: 2, 4: 5}
    assert not progress.merge(Place(0, (), ((3, 2),)))
    assert progress.merge(Place(5))
    assert not progress.merge(Place(0, (), ((3, 9),))), "nobody counts what is done"


def test_open_ranges_are_what_is_left() -> None:
    progress = Progress(Place(5, ((7, 8), (10, 12))))
    assert progress.open_ranges(0, 15) == [(5, 7), (8, 10), (12, 15)]
    assert progress.open_ranges(10, 12) == []
