"""What can be a row of rights, and what a path's levels are."""

import pytest

from moorline.core.access.right import LIST, SUBSCRIBE, WRITE
from moorline.core.access.row import Row, Subjects, check_row, levels_of
from moorline.errors import BadGrant


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("topics", "begin with /"),
        ("", "begin with /"),
        ("/topics/", "leave it out"),
        ("/topics/+", "wildcard"),
        ("/topics/#", "wildcard"),
        ("/topics/a\0", "zero"),
        ("/topics/x%u", "level of its own"),
        ("/" + "x" * 1_024, "bytes"),
        ("/a" * 40, "levels"),
        ("/\ud800", "not text"),
    ],
)
def test_a_path_that_is_none(path: str, why: str) -> None:
    with pytest.raises(BadGrant, match=why):
        check_row(Row(path, "alice", grants=SUBSCRIBE))


def test_a_row_says_something_about_somebody() -> None:
    check_row(Row("/topics//a", "@sales", grants=SUBSCRIBE))
    check_row(Row("/", "alice", denies=WRITE))
    with pytest.raises(BadGrant, match="at least one"):
        check_row(Row("/topics", "alice"))
    with pytest.raises(BadGrant, match="no principal"):
        check_row(Row("/topics", "$node/x", grants=LIST))
    with pytest.raises(BadGrant, match="no group"):
        check_row(Row("/topics", "@", grants=LIST))


def test_levels_of_a_path() -> None:
    assert levels_of("/") == ()
    assert levels_of("/topics/orders/eu") == ("topics", "orders", "eu")
    assert levels_of("/topics//a") == ("topics", "", "a")


def test_whose_rows_count_for_somebody() -> None:
    who = Subjects("host/x@REALM", frozenset({"@everyone", "@ops"}))
    assert who.names == {"host/x@REALM", "@everyone", "@ops"}
    assert who.level == "host%2Fx@REALM"
