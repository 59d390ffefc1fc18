"""A lease at its Leader: its moves, what is said of it, and whether a Borrower can be right."""

from itertools import chain, combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorline.core.delivery.progress import Cursor
from moorline.core.group.message import Grant, Revoke, Revoked, lease_item, report_item
from moorline.core.group.stream_lease import STATUS_MOVES, Lease, Status, agrees, reported
from moorline.core.ranges import Range, Ranges
from moorline.core.sets.digest import Digest
from moorline.core.stream import Stream


def lease(number: int = 1, status: Status = Status.GRANTING, *ranges: Range) -> Lease:
    found = Lease(number, Stream("n1", number, 0), "b1", 0, ranges or None)
    for step in (Status.GRANTED, Status.REVOKING, Status.REVOKED):
        if found.status is not status:
            found.move(step, 0)
    return found


@pytest.mark.parametrize("status", Status)
def test_only_the_moves_of_the_map_are_made(status: Status) -> None:
    for after in Status:
        one = lease(1, status)
        if after is status or after in STATUS_MOVES[status]:
            one.move(after, 7)
            assert one.status is after
            one.check()
        else:
            with pytest.raises(AssertionError, match="no move of a lease"):
                one.move(after, 7)


def test_what_is_said_is_that_of_the_status() -> None:
    said = [lease(1, status).message(3, Cursor(4), 5) for status in Status]
    assert said == [
        Grant("b1", 3, 1, Stream("n1", 1, 0), Cursor(4), 5, None),
        None,
        Revoke("b1", 3, 1),
        Revoked("b1", 3, 1),
    ]


def test_a_deadline_runs_from_the_move() -> None:
    one = lease()
    one.move(Status.REVOKING, 70)
    one.move(Status.REVOKING, 90)
    assert one.since_ms == 70


@given(st.lists(st.sampled_from(Status), max_size=6), st.data())
def test_a_borrower_can_be_right_with_all_that_is_sure_and_any_of_the_rest(
    statuses: list[Status], data: st.DataObject
) -> None:
    leases = [lease(number, status) for number, status in enumerate(statuses, 1)]
    held = data.draw(st.lists(st.integers(1, 8), unique=True))
    digest = bytes(Digest.of(lease_item(number, Stream("n1", number, 0)) for number in held))
    sure = {one.number for one in leases if one.is_sure}
    unsure = sorted({one.number for one in leases} - sure)
    subsets = chain.from_iterable(combinations(unsure, n) for n in range(len(unsure) + 1))
    assert agrees(digest, leases) == (set(held) in [sure | set(subset) for subset in subsets])


def test_what_is_no_digest_agrees_with_nothing() -> None:
    assert not agrees(b"", [])
    assert agrees(bytes(Digest.empty()), [])


def test_leases_without_a_report_are_not_in_the_digest_of_reports() -> None:
    one, other = lease(1), lease(2)
    other.reported = 9
    assert reported([one, other]) == bytes(Digest.of([report_item(2, 9)]))


@pytest.mark.parametrize("broken", ["E1", "E2", "E3"])
def test_a_broken_state_is_found(broken: str) -> None:
    one = lease(1, Status.GRANTED)
    ranged = lease(2, Status.GRANTED, (3, 6))
    one.check()
    ranged.check()
    match broken:
        case "E1":
            one.confirmed = False
        case "E2":
            ranged.open = Ranges([(5, 7)])
        case _:
            one.is_gone = True
    with pytest.raises(AssertionError, match=broken):
        (ranged if broken == "E2" else one).check()
