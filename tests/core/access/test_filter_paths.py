"""Paths that stand for a filter, against all topics of a small world."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorline.core.access.filter_paths import filled, is_filter, named_part, unified
from moorline.core.access.row import TOPICS, UNNAMED, Levels
from moorline.core.topic import matches

NAMES = ["a", "b", "$x"]
WORLD = [
    (TOPICS, *levels)
    for depth in (1, 2, 3, 4)
    for levels in itertools.product([*NAMES, UNNAMED], repeat=depth)
]

middles = st.lists(st.sampled_from([*NAMES, "+"]), min_size=1, max_size=3)
filters = st.builds(
    lambda levels, rest: (TOPICS, *levels, *rest), middles, st.sampled_from([(), ("#",)])
)
places = st.lists(st.sampled_from(NAMES), max_size=3).map(lambda levels: (TOPICS, *levels))


def takes(levels: Levels, path: Levels) -> bool:
    return matches("/".join(levels[1:]), "/".join(path[1:]))


@given(filters)
def test_the_shortest_that_a_filter_takes_is_one_of_them(levels: Levels) -> None:
    found = filled(levels)
    assert takes(levels, found)
    assert len(found) == min(len(path) for path in WORLD if takes(levels, path))
    assert found[: len(named_part(levels))] == named_part(levels)[: len(found)]


@given(filters, places)
def test_below_a_row_it_is_the_shortest_there_and_none_if_there_is_none(
    levels: Levels, at: Levels
) -> None:
    below = [path for path in WORLD if path[: len(at)] == at and takes(levels, path)]
    found = unified(levels, at)
    if not below:
        assert found is None
    else:
        assert found is not None
        assert found[: len(at)] == at
        assert takes(levels, found)
        assert len(found) == min(map(len, below))


@given(filters)
def test_what_all_have_in_common_is_what_stands_before_the_first_wildcard(levels: Levels) -> None:
    known = named_part(levels)
    assert all(path[: len(known)] == known for path in WORLD if takes(levels, path))
    assert known == levels or levels[len(known)] in ("+", "#")


@pytest.mark.parametrize(
    ("levels", "is_one"),
    [
        (("topics", "a"), False),
        (("topics", "+"), True),
        (("topics", "a", "#"), True),
        (("queues", "#", "a"), False),
        ((), False),
    ],
)
def test_what_is_a_filter(levels: Levels, is_one: bool) -> None:
    assert is_filter(levels) == is_one
