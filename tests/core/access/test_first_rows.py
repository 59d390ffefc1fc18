"""What the first rows are for is told of those that nobody has changed, and of no others."""

import pytest

from moorline.core.access.first_rows import MADE_BY, OPERATOR, PURPOSES, purpose_of
from moorline.core.access.principal import LOOPBACK


@pytest.mark.parametrize("made_by", sorted(MADE_BY))
def test_every_first_row_has_its_purpose(made_by: str) -> None:
    for (path, subject), purpose in PURPOSES.items():
        assert purpose_of(path, subject, made_by) == purpose
    assert len(set(PURPOSES.values())) == len(PURPOSES)


def test_a_row_that_somebody_changed_is_that_ones() -> None:
    assert purpose_of("/", LOOPBACK, "olga") == ""


def test_other_rows_of_an_upgrade_are_of_operators_at_the_root_and_else_of_nobody() -> None:
    assert purpose_of("/", "olga", "upgrade") == OPERATOR
    assert purpose_of("/topics/x", "olga", "upgrade") == ""
