"""Ranges against a plain set of numbers."""

from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorline.core.ranges import Range, Ranges

LIMIT = 40
run = st.tuples(st.integers(0, LIMIT), st.integers(0, LIMIT))
runs = st.lists(st.tuples(st.booleans(), run), max_size=30)


def numbers(found: Iterable[Range]) -> set[int]:
    return {number for first, upto in found for number in range(first, upto)}


def built(changes: list[tuple[bool, Range]]) -> tuple[Ranges, set[int]]:
    ranges, plain = Ranges(), set[int]()
    for is_added, (first, upto) in changes:
        if is_added:
            ranges.add(first, upto)
            plain |= set(range(first, upto))
        else:
            ranges.remove(first, upto)
            plain -= set(range(first, upto))
    return ranges, plain


@given(runs)
def test_adding_and_removing_is_that_of_a_set(changes: list[tuple[bool, Range]]) -> None:
    ranges, plain = built(changes)
    assert numbers(ranges) == plain
    assert len(ranges) == len(plain)
    assert all((number in ranges) == (number in plain) for number in range(LIMIT + 1))
    pieces = list(ranges)
    assert all(first < upto for first, upto in pieces)
    assert all(one[1] < other[0] for one, other in pairwise(pieces)), "runs that touch are one"
    if plain:
        assert ranges.first == min(plain)
        assert ranges.end == max(plain) + 1


@given(runs, run)
def test_clip_and_missing_share_a_range_out(
    changes: list[tuple[bool, Range]], asked: Range
) -> None:
    ranges, plain = built(changes)
    inside = set(range(*asked))
    assert numbers(ranges.clip(*asked)) == plain & inside
    assert numbers(ranges.missing(*asked)) == inside - plain
    assert all(first < upto for first, upto in (*ranges.clip(*asked), *ranges.missing(*asked)))


@given(runs, st.integers(0, LIMIT))
def test_take_from_drops_what_is_below_and_the_run_at_it(
    changes: list[tuple[bool, Range]], low: int
) -> None:
    ranges, plain = built(changes)
    expected = low
    while expected in plain:
        expected += 1
    assert ranges.take_from(low) == expected
    assert numbers(ranges) == {number for number in plain if number >= expected}


def test_equal_ranges_are_equal() -> None:
    assert Ranges([(0, 2), (2, 4)]) == Ranges([(0, 4)])
    assert Ranges([(0, 2)]) != Ranges([(0, 3)])
    assert repr(Ranges([(0, 2)])) == "Ranges([(0, 2)])"


@pytest.mark.parametrize("broken", ["R1", "R2", "R3"])
def test_a_broken_state_is_found(broken: str) -> None:
    ranges = Ranges([(1, 3), (5, 9)])
    ranges.check()
    match broken:
        case "R1":
            ranges._stops[0] = 1
        case "R2":
            ranges._stops[0] = 5
        case _:
            ranges._count = 5
    with pytest.raises(AssertionError, match=broken):
        ranges.check()
