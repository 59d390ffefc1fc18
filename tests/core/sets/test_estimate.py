"""The estimate of a difference: near the truth over four orders of magnitude, and nothing for equal sets."""

import random

import numpy as np
import pytest

from moorline.core.sets.estimate import ESTIMATE_BYTES, Estimate
from moorline.core.sets.sketch import Salt, Words

SALT = Salt(bytes(range(16)))


def drawn(seed: int, count: int) -> Words:
    chance = random.Random(seed)
    return np.array([chance.getrandbits(64) for _ in range(count)], np.uint64)


def estimate(*parts: Words) -> Estimate:
    found = Estimate(SALT)
    for part in parts:
        found.toggle(part)
    return found


@pytest.mark.parametrize("differences", [5, 50, 500, 5_000, 50_000])
def test_it_is_near_the_truth_whatever_both_have(differences: int) -> None:
    both, mine = drawn(1, 3_000), drawn(2, differences)
    found = estimate(both, mine).differences(estimate(both))
    assert differences / 2 <= found <= differences * 2


def test_equal_sets_have_no_difference() -> None:
    assert estimate(drawn(1, 1_000)).differences(estimate(drawn(1, 1_000))) == 0


def test_bytes_come_back_and_others_are_refused() -> None:
    one = estimate(drawn(3, 100))
    assert len(bytes(one)) == ESTIMATE_BYTES
    assert Estimate.parse(SALT, bytes(one)).differences(one) == 0
    with pytest.raises(ValueError, match="an estimate has"):
        Estimate.parse(SALT, bytes(one) + b"\0")
