"""What a node knows of a table; NaN as Postgres has it."""

from decimal import Decimal

import pytest

from moorline.core.records.table import NAN, After, Before, Change, NotANumber


@pytest.mark.parametrize("number", [1, 1.5, Decimal("Infinity"), Decimal(3), float("inf")])
def test_nan_is_above_all_numbers_and_equal_to_itself(number: object) -> None:
    assert number < NAN
    assert number < NAN
    assert number <= NAN
    assert not number > NAN
    assert not number >= NAN
    assert not number >= NAN
    assert number != NAN
    assert NotANumber() == NAN
    assert NotANumber() <= NAN
    assert NotANumber() >= NAN
    assert not NotANumber() < NAN
    assert {NAN, NotANumber()} == {NAN}


def test_a_change_is_a_pair() -> None:
    change = Change(("1",), Before(1, (2,)), After(2, (3,), b"{}"))
    assert change.before is not None
    assert change.after is not None
    assert (change.before.seq, change.after.scopes) == (1, (3,))
