"""A change is tried for those that it may be for, and told as a record, a deletion or nothing."""

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.records.tables import TABLE

from moorline.core.records.audience import Audience, Audiences, Outcome
from moorline.core.records.filter import parse_filter
from moorline.core.records.permit import Permit, make_permit, owner_column
from moorline.core.records.row_hash import digest_of_rows
from moorline.core.records.table import After, Before, Change, Scopes

COLUMN = owner_column(TABLE)
ALL = make_permit(COLUMN, is_all=True)


BUT_ONE = make_permit(COLUMN, is_all=True, owners=frozenset({1}))


def only(*owners: int) -> Permit:
    return make_permit(COLUMN, is_all=False, owners=frozenset(owners))


def scopes(workspace: int | None, state: str | None = "NEW") -> Scopes:
    return (workspace, state, Decimal(1), "n")


def change(before: Scopes | None, after: Scopes | None, key: str = "1") -> Change:
    was = None if before is None else Before(1, before)
    return Change((key,), was, None if after is None else After(2, after, b"{}"))


def joined(audiences: Audiences, where: dict[str, Any], permit: Permit = ALL) -> Audience:
    found = audiences.join(parse_filter(TABLE, where), permit)
    found.members.add(found.number)
    return found


def test_equal_subscriptions_are_one() -> None:
    audiences = Audiences(TABLE)
    one = joined(audiences, {"workspace": [1, 2]})
    assert joined(audiences, {"workspace": [2, 1]}) is one
    assert joined(audiences, {"workspace": [1, 2]}, only(1)) is not one
    assert audiences.join(parse_filter(TABLE, {"workspace": [1, 2]}, ["state"]), ALL) is not one
    assert len(audiences) == 3


@pytest.mark.parametrize(
    ("before", "after", "outcome"),
    [
        (None, scopes(1), Outcome.RECORD),
        (scopes(1), scopes(1), Outcome.RECORD),
        (scopes(2), scopes(1), Outcome.RECORD),
        (scopes(1), scopes(2), Outcome.DELETION),
        (scopes(1), None, Outcome.DELETION),
        (scopes(2), None, Outcome.NOTHING),
        (None, scopes(2), Outcome.NOTHING),
        (scopes(1, "OLD"), scopes(1), Outcome.RECORD),
        (scopes(1), scopes(1, None), Outcome.DELETION),
    ],
)
def test_what_a_change_is_for_an_audience(
    before: Scopes | None, after: Scopes | None, outcome: Outcome
) -> None:
    """By its filter, and by its permit: a fallout and a disappearance are the same."""
    audiences = Audiences(TABLE)
    for where, permit in (
        ({"workspace": 1, "state": "NEW"}, ALL),
        ({"state": "NEW"}, only(1)),
    ):
        assert joined(audiences, where, permit).outcome(change(before, after)) is outcome


def test_what_cannot_match_is_not_tried() -> None:
    """However many there are: by the value of a filter, by owners, and before as well as after."""
    audiences = Audiences(TABLE)
    wanted = {
        joined(audiences, {"workspace": 1}).number,
        joined(audiences, {"workspace": [1, 7]}).number,
    }
    rest = joined(audiences, {"size": {">": 1}}).number
    tried = []
    for others in (10, 1_000):
        for n in range(others):
            joined(audiences, {"workspace": 100 + n})
            joined(audiences, {}, only(100_000 + n))
            joined(audiences, {"workspace": []})
        found = {one.number for one in audiences.touched(change(scopes(1), scopes(2)))}
        assert found == {*wanted, rest}
        tried.append(len(list(audiences.touched(change(scopes(3), scopes(1))))))
    assert tried == [3, 3]
    audiences.check()


@given(
    st.lists(
        st.tuples(
            st.sampled_from(
                [{}, {"workspace": 1}, {"workspace": [1, None]}, {"state": "NEW"}, {"size": {"<": 5}}]
            ),
            st.sampled_from([ALL, only(1), only(1, 2), only(), BUT_ONE]),
        ),
        max_size=8,
    ),
    st.sampled_from([None, scopes(1), scopes(2), scopes(None, None)]),
    st.sampled_from([None, scopes(1), scopes(2, "OLD"), scopes(None)]),
)  # fmt: skip
def test_the_index_leaves_nobody_out(
    wanted: list[tuple[dict[str, Any], Permit]], before: Scopes | None, after: Scopes | None
) -> None:
    audiences = Audiences(TABLE)
    found = [joined(audiences, where, permit) for where, permit in wanted]
    audiences.check()
    touched = {one.number for one in audiences.touched(change(before, after))}
    for one in found:
        if one.outcome(change(before, after)) is not Outcome.NOTHING:
            assert one.number in touched
    for one in {one.number: one for one in found}.values():
        one.members.clear()
        audiences.leave(one)
        audiences.check()
    assert not audiences._index


def test_rf4_a_digest_rolls_with_the_step_and_not_with_one_that_fails() -> None:
    one = joined(Audiences(TABLE), {"workspace": 1})
    one.prove(digest_of_rows(TABLE.salt, [(("1",), 1)]), TABLE.salt, is_proven=True)
    one.roll(change(scopes(1), scopes(1)))
    one.roll(change(None, scopes(2), "9"))
    one.settle(has_failed=True)
    assert one.digest() == digest_of_rows(TABLE.salt, [(("1",), 1)])
    one.roll(change(scopes(1), scopes(1)))
    one.settle()
    assert one.digest() == digest_of_rows(TABLE.salt, [(("1",), 2)])


def test_a_scan_beats_what_a_cursor_said() -> None:
    one = joined(Audiences(TABLE), {})
    said, seen = digest_of_rows(1, [(("1",), 1)]), digest_of_rows(1, [(("1",), 2)])
    one.prove(said, 1, is_proven=False)
    one.prove(seen, 1, is_proven=True)
    one.prove(said, 1, is_proven=False)
    assert one.digest() == seen


def test_a_digest_that_cannot_be_is_forgotten() -> None:
    one = joined(Audiences(TABLE), {})
    one.prove(digest_of_rows(1, []), 1, is_proven=False)
    one.roll(change(scopes(1), None))
    one.settle()
    assert one.digest() is None


def test_au1_a_lost_audience_is_found() -> None:
    audiences = Audiences(TABLE)
    joined(audiences, {"workspace": 1})
    audiences._index[0][1].clear()
    with pytest.raises(AssertionError, match="AU1"):
        audiences.check()
