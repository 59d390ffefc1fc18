"""Known ids in ranges: what is no such text is refused, and nothing is expanded."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.records.known_ranges import ranges_text

from moorline.core.records.known_ids import KnownIds
from moorline.errors import BadFilter
from moorline.limits import RECORD_KNOWN_CHARACTERS_MAX

ids = st.sets(st.integers(0, 60)).map(sorted)


@given(ids, ids)
def test_membership_and_what_is_absent(known: list[int], present: list[int]) -> None:
    found = KnownIds.parse(ranges_text(known))
    assert found.count == len(known)
    assert [one for one in range(62) if one in found] == known
    absent = [one for first, last in found.absent(present) for one in range(first, last + 1)]
    assert absent == [one for one in known if one not in present]


def test_the_text_of_the_seed() -> None:
    assert list(KnownIds.parse("1-5,7")) == [(1, 5), (7, 7)]
    assert ranges_text([1, 2, 3, 4, 5, 7]) == "1-5,7"
    assert list(KnownIds.parse("")) == []
    assert list(KnownIds.parse("1-2,3-4")) == [(1, 2), (3, 4)]


@pytest.mark.parametrize(
    "text",
    [
        ",", "1,", ",1", "1-", "-1", "1--2", "a", "1-2-3", "1 - 2", " 1", "5-1", "3,2", "1-5,5", "1-5,3-9",
        "1,1",
        "9223372036854775808", "1-99999999999999999999", "1-9223372036854775806", "0-9223372036854775807",
        "1-20000000", "\u0661", "1_0", "0x10", "1.0", "+1", "\n1",
    ],
)  # fmt: skip
def test_t47_malformed_unsorted_overlapping_and_huge_ranges_are_refused(text: str) -> None:
    with pytest.raises(BadFilter, match=r"accepted are|by digest"):
        KnownIds.parse(text)


def test_a_text_that_is_too_long_is_not_read() -> None:
    with pytest.raises(BadFilter, match="characters"):
        KnownIds.parse("1" * (RECORD_KNOWN_CHARACTERS_MAX + 1))


@given(st.text(alphabet="0123456789-,", max_size=30))
def test_whatever_comes_is_ranges_or_refused(text: str) -> None:
    try:
        found = KnownIds.parse(text)
    except BadFilter:
        return
    runs = list(found)
    assert all(a <= b for a, b in runs)
    assert all(one[1] < other[0] for one, other in pairwise(runs))
