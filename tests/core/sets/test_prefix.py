"""Prefixes of hashes: the children of one share out its range, without a gap and without an overlap."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from moorline.core.sets.prefix import HASH_BITS, Prefix, are_apart


def test_the_empty_prefix_is_everything() -> None:
    assert (Prefix(0, 0).first, Prefix(0, 0).last) == (0, (1 << HASH_BITS) - 1)


@given(st.integers(0, 40), st.integers(0), st.integers(1, 6))
def test_children_share_the_range_out(bits: int, number: int, more: int) -> None:
    parent = Prefix(bits, number % (1 << bits))
    children = parent.children(more)
    assert len(children) == 1 << more
    assert (children[0].first, children[-1].last) == (parent.first, parent.last)
    assert all(one.last + 1 == other.first for one, other in pairwise(children))


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0)), max_size=8))
def test_prefixes_are_apart_if_no_hash_has_two(pairs: list[tuple[int, int]]) -> None:
    prefixes = [Prefix(bits, number % (1 << bits)) for bits, number in pairs]
    ends = sorted({end for one in prefixes for end in (one.first, one.last)})
    # Where two overlap, an end of one lies in the other.
    most = max((sum(one.first <= end <= one.last for one in prefixes) for end in ends), default=0)
    assert are_apart(prefixes) == (most <= 1)
