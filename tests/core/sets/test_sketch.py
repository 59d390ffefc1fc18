"""Sketches: the difference of two sets is found in that of their sketches, or it is said that it is not."""

import random

import numpy as np
import pytest

from moorline.core.sets.sketch import (
    CELLS_FULL,
    DIVISORS,
    Salt,
    Sketch,
    Words,
    cells_for,
    short_ids,
    size_at_least,
)

SALT = Salt(bytes(range(16)))


def drawn(seed: int, count: int) -> Words:
    chance = random.Random(seed)
    return np.array([chance.getrandbits(64) for _ in range(count)], np.uint64)


def sketch(high: Words, cells: int = CELLS_FULL, salt: Salt = SALT) -> Sketch:
    found = Sketch(salt, cells)
    found.toggle(high)
    return found


@pytest.mark.parametrize("differences", [0, 1, 9, 120])
def test_a_difference_is_found_whatever_both_have(differences: int) -> None:
    both, mine = drawn(1, 2_000), drawn(2, differences)
    cells = cells_for(differences)
    found = sketch(np.concatenate([both, mine]), cells).difference(sketch(both, cells))
    assert found is not None
    assert sorted(found.tolist()) == sorted(short_ids(mine).tolist())


def test_too_many_are_said_to_be_too_many() -> None:
    assert sketch(drawn(3, 5_000), 16).difference(sketch(drawn(4, 0), 16)) is None


@pytest.mark.parametrize("cells", [1, 16, 60, 5_040])
def test_a_full_sketch_folds_to_what_would_have_been_made(cells: int) -> None:
    high = drawn(5, 300)
    assert bytes(sketch(high).folded(cells)) == bytes(sketch(high, cells))


def test_to_toggle_twice_is_nothing() -> None:
    one = sketch(drawn(6, 50), 16)
    one.toggle(drawn(6, 50))
    assert not one.words.any()


def test_bytes_come_back_and_others_are_refused() -> None:
    one = sketch(drawn(8, 50), 16)
    assert bytes(Sketch.parse(SALT, 16, bytes(one))) == bytes(one)
    with pytest.raises(ValueError, match="a sketch of 16 cells"):
        Sketch.parse(SALT, 16, bytes(one)[:-1])


def test_sizes_are_divisors_up_to_the_full_one() -> None:
    assert size_at_least(17) == 18
    assert all(size_at_least(size) == size for size in DIVISORS)
    assert size_at_least(CELLS_FULL + 1) == CELLS_FULL + 1
