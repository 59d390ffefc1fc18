"""The digest: 24 bytes that do not care for the order."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorline.core.sets.digest import Digest

VECTORS = {
    b"": "99aa06d3014798d86001c324468d497f",
    b"a": "a96faf705af16834e6c632b61e964e1f",
    b"abc": "06b05ab6733a618578af5f94892f3950",
}
"""XXH3-128 with seed 0, as the reference implementation prints it."""


@pytest.mark.parametrize(("data", "expected"), VECTORS.items())
def test_one_item_is_its_hash(data: bytes, expected: str) -> None:
    assert Digest.empty().add(data).hash.hex() == expected
    assert str(Digest.of([data])) == "0000000000000001" + expected


def test_its_bytes_are_the_count_and_the_hash() -> None:
    digest = Digest.of([b"a", b"abc"])
    assert bytes(Digest.empty()) == bytes(24)
    assert bytes(digest)[:8] == (2).to_bytes(8, "big")
    mixed = int(VECTORS[b"a"], 16) ^ int(VECTORS[b"abc"], 16)
    assert bytes(digest)[8:] == mixed.to_bytes(16, "big")
    assert Digest.from_bytes(bytes(digest)) == digest


@given(st.lists(st.binary(max_size=300)), st.randoms(use_true_random=False))
def test_the_order_does_not_matter(items: list[bytes], chance: random.Random) -> None:
    shuffled = list(items)
    chance.shuffle(shuffled)
    one_by_one = Digest.empty()
    for item in shuffled:
        one_by_one = one_by_one.add(item)
    assert one_by_one == Digest.of(items)


@given(st.lists(st.binary()), st.lists(st.binary()))
def test_merge_is_both_and_remove_takes_back(ours: list[bytes], theirs: list[bytes]) -> None:
    both = Digest.of(ours).merge(Digest.of(theirs))
    assert both == Digest.of([*ours, *theirs])
    for item in theirs:
        both = both.remove(item)
    assert both == Digest.of(ours)


def test_two_equal_items_are_not_none() -> None:
    """The XOR of a pair is nothing: the count tells them from an empty set."""
    assert Digest.of([b"twice", b"twice"]) != Digest.empty()


def test_nothing_is_removed_from_an_empty_digest() -> None:
    with pytest.raises(AssertionError):
        Digest.empty().remove(b"never added")
