"""The owners whose rows somebody may see, out of the one tree of grants."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.records.tables import TABLE

from moorline.core.access.grants import Grants
from moorline.core.access.right import SUBSCRIBE, WRITE
from moorline.core.access.row import Row, Subjects, check_row
from moorline.core.records.permit import (
    Permit,
    level_of_owner,
    make_permit,
    owner_of_level,
    permit_of,
)
from moorline.core.records.table import Column
from moorline.errors import LimitReached
from moorline.limits import RECORD_PERMIT_OWNERS_MAX

TEXT, WHOLE = Column("owner", "text"), Column("owner", "bigint")
ALICE = Subjects("alice", frozenset({"@staff"}))
BY_TEXT = msgspec.structs.replace(TABLE, scopes=("state",))
PLAIN = msgspec.structs.replace(TABLE, has_owner=False)


def permit(*rows: Row, who: Subjects = ALICE, table: object = TABLE) -> Permit:
    return permit_of(Grants(rows), who, table)  # type: ignore[arg-type]


def grant(path: str, subject: str = "@staff") -> Row:
    row = Row(path, subject, grants=SUBSCRIBE)
    check_row(row)
    return row


def deny(path: str, subject: str = "@staff") -> Row:
    return Row(path, subject, denies=SUBSCRIBE)


def test_all_but_some_and_none_but_some() -> None:
    some = permit(
        grant("/records/runs/3"), grant("/records/runs/4"), deny("/records/runs/4", "alice")
    )
    assert not some.is_all
    assert some.owners == {3}
    assert [some.matches(owner) for owner in (3, 4, None)] == [True, False, False]
    most = permit(grant("/records"), deny("/records/runs/9"))
    assert most.is_all
    assert most.owners == {9}
    assert [most.matches(owner) for owner in (3, 9, None)] == [True, False, True]
    assert permit().is_nothing
    assert permit(grant("/records/runs")).is_everything
    assert most.texts(WHOLE) == ["9"]


def test_other_rights_tables_and_deeper_rows_say_nothing() -> None:
    rows = [
        Row("/records/runs/3", "@staff", grants=WRITE),
        grant("/records/runs2/3"),
        grant("/records/runs/3/4"),
        grant("/records/runs/5", "@others"),
    ]
    assert permit(*rows).is_nothing


def test_a_table_without_owner_is_all_or_nothing() -> None:
    assert permit(grant("/records/runs/3"), table=PLAIN).is_nothing
    assert permit(grant("/records/runs"), deny("/records/runs/3"), table=PLAIN).is_everything


@pytest.mark.parametrize(
    "owner", ["a/b", "..", ".", "%u", "", "=", "a=2Fb", "+", "#", "ä", "-a", "x."]
)
def test_a_strange_owner_has_a_level_of_its_own_and_opens_nothing_else(owner: str) -> None:
    level = level_of_owner(owner)
    assert "/" not in level
    assert level not in ("", ".", "..", "%u")
    found = permit(grant(f"/records/runs/{level}"), table=BY_TEXT)
    assert found.owners == {owner}
    others = ["a", "b", "alice", "/", "runs", "a/b", "..", ".", "%u", "", "=", "a=2Fb"]
    assert [one for one in others if one != owner and found.matches(one)] == []


def test_a_row_for_the_principal_itself_is_for_the_owner_of_that_name() -> None:
    row = grant("/records/runs/%u")
    assert permit(row, table=BY_TEXT).owners == {"alice"}
    strange = Subjects("a=2Fb", frozenset({"@staff"}))
    assert permit(row, who=strange, table=BY_TEXT).owners == {"a=2Fb"}
    mail = Subjects("alice@example.org", frozenset({"@staff"}))
    assert permit(row, who=mail, table=BY_TEXT).owners == {"alice@example.org"}
    # By no number is a principal meant that is called so in letters.
    assert permit(row).is_nothing


@pytest.mark.parametrize(
    "level", ["01", "+1", "1.0", "x", "=31", "9223372036854775808", "=FF", "", "ä"]
)
def test_a_level_that_is_written_otherwise_is_nobodys(level: str) -> None:
    assert owner_of_level(WHOLE, level) is None


@given(st.text(max_size=20).filter(lambda one: "\0" not in one), st.text(max_size=20))
def test_levels_are_one_to_one(owner: str, other: str) -> None:
    level = level_of_owner(owner)
    assert owner_of_level(TEXT, level) == owner
    assert (level_of_owner(other) == level) == (owner == other)
    check_row(Row(f"/records/t/{level}", "@x", grants=SUBSCRIBE))


def test_truth_values_may_own() -> None:
    kind = Column("owner", "boolean")
    assert owner_of_level(kind, "true") is True
    assert owner_of_level(kind, "t") is None


def test_equal_permits_have_one_hash() -> None:
    by_group = permit(grant("/records/runs/3"))
    by_name = permit(grant("/records/runs/3", "alice"), deny("/records/runs/4"))
    assert by_group == by_name
    assert by_group.hash == by_name.hash
    others = [
        permit(),
        permit(grant("/records/runs")),
        permit(grant("/records/runs"), deny("/records/runs/3")),
    ]
    assert len({one.hash for one in [by_group, *others]}) == 4


def test_more_owners_than_a_scan_can_name_are_refused() -> None:
    rows = [grant(f"/records/runs/{n}") for n in range(RECORD_PERMIT_OWNERS_MAX + 1)]
    with pytest.raises(LimitReached, match="granted at the table"):
        permit(*rows)
    assert make_permit(WHOLE, is_all=True).is_everything
