"""The leases of a Borrower: held once, over for good, and reported with a number of their own."""

import pytest

from moorline.core.delivery.progress import Cursor
from moorline.core.group.events import StreamProgress
from moorline.core.group.held_leases import HeldLeases, LeaseState
from moorline.core.group.message import Grant, UpdateProgress
from moorline.core.sets.digest import Digest
from moorline.core.stream import RETENTION, Gap, Stream
from moorline.limits import LEASES_REMEMBERED_MAX

GAP = Gap(0, 2, RETENTION)


def held(*leases: int) -> HeldLeases:
    found = HeldLeases("b1")
    for lease in leases:
        found.hold(Grant("b1", 1, lease, Stream("n1", lease, 0), Cursor(3), 5))
    return found


def test_every_message_has_the_next_number() -> None:
    leases = held(1, 2)
    assert [leases.report(2, 7).number, leases.report_never(9, 7).number] == [1, 2]
    assert leases.next_number() == 3
    assert leases.report(1, 7) == UpdateProgress("b1", 7, 4, 1, Cursor(3), 3, False)
    leases.check()


def test_a_lease_that_was_given_up_is_over_for_good() -> None:
    leases = held(1)
    leases.held[1].lost = (GAP,)
    assert not leases.is_over(1)
    assert leases.give_up(1) == (True, (GAP,))
    assert leases.is_over(1)
    assert leases.give_up(1) == (False, (GAP,)), "said again, with what was lost of it"
    leases.check()


def test_what_is_forgotten_is_over_by_its_number() -> None:
    leases = held()
    for lease in range(1, LEASES_REMEMBERED_MAX + 3):
        leases.forget(lease)
    leases.check()
    assert all(leases.is_over(lease) for lease in (1, 2, 3, LEASES_REMEMBERED_MAX + 2))
    assert not leases.is_over(LEASES_REMEMBERED_MAX + 3)


def test_a_report_is_unsure_until_the_leader_has_it() -> None:
    leases = held(1, 2)
    leases.report(1, 7)
    ping = leases.next_number()
    leases.report(2, 7)
    assert leases.older_than(ping) == [1], "the second was made behind it"
    leases.heard([1])
    assert leases.older_than(ping + 9) == [2]
    assert sorted(leases.clear()) == [1, 2]
    assert leases.digest() == Digest.empty()
    leases.check()


def test_only_what_was_asked_for_can_be_final() -> None:
    leases = held(1)
    done = StreamProgress(1, Cursor(9), 9, True)
    leases.held[1].take_in(done)
    assert not leases.held[1].final
    leases.held[1].state = LeaseState.REVOKING
    leases.held[1].take_in(done)
    assert leases.held[1].final
    leases.check()


@pytest.mark.parametrize("broken", ["H1", "H2", "H3", "H4", "H5"])
def test_a_broken_state_is_found(broken: str) -> None:
    leases = held(1, 2)
    leases.report(1, 7)
    leases.check()
    match broken:
        case "H1":
            leases.forget(1)
        case "H2":
            leases._unsure[9] = None
        case "H3":
            leases.held[1].final = True
        case "H4":
            leases.held[2].number = 1
        case _:
            leases._over = dict.fromkeys(range(10, LEASES_REMEMBERED_MAX + 11), ())
    with pytest.raises(AssertionError, match=broken):
        leases.check()
