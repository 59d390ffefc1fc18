"""Chance comes from outside: the same seed makes the same choices."""

from random import Random

from moorline.core.chance import Chance


def drawn(chance: Chance) -> list[int]:
    return [chance.randrange(100), chance.randint(5, 6), chance.choice([7, 8, 9])]


def test_a_seed_is_repeatable_and_random_is_a_chance() -> None:
    assert drawn(Random(4)) == drawn(Random(4))
    low, between, chosen = drawn(Random(4))
    assert 0 <= low < 100
    assert between in (5, 6)
    assert chosen in (7, 8, 9)
