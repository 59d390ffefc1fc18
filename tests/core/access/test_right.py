"""The letters of rights, and their bits."""

import pytest

from moorline.core.access.right import EVERYTHING, LETTERS, NAMES, OWNERS, bits_of, letters_of
from moorline.errors import BadGrant


def test_letters() -> None:
    assert bits_of("slwpdag") == EVERYTHING
    assert letters_of(bits_of("gws")) == "swg"
    assert bits_of("") == 0
    with pytest.raises(BadGrant, match="'x' is no right; accepted: s"):
        bits_of("sx")
    with pytest.raises(BadGrant, match="twice"):
        bits_of("ss")


def test_every_right_has_a_letter_a_name_and_a_bit_of_its_own() -> None:
    assert sum(LETTERS.values()) == EVERYTHING
    assert set(NAMES) == set(LETTERS.values())
    assert all(bits_of(letters_of(bits)) == bits for bits in range(EVERYTHING + 1))


def test_an_owner_may_not_grant() -> None:
    assert letters_of(OWNERS) == "slwa"
