"""Who holds what: a lease is known in three places, or nowhere."""

import pytest

from moorline.core.delivery.progress import Cursor
from moorline.core.group.message import LeaderWanted
from moorline.core.group.sharing import Sharing
from moorline.core.group.stream_lease import Status
from moorline.core.group.views import BorrowerView
from moorline.core.stream import Extent, Shard, Stream


def sharing(shards: int, *borrowers: str) -> Sharing:
    found = Sharing((Shard("n1", n), Cursor(0)) for n in range(shards))
    for shard, view in found.shards.items():
        view.extents = (Extent(Stream("n1", shard.number, 0), 0, 9, False),)
    for borrower in borrowers:
        found.borrowers[borrower] = BorrowerView(LeaderWanted(borrower, f"m{borrower}", 16), 0)
    return found


def stream(number: int) -> Stream:
    return Stream("n1", number, 0)


def test_a_lease_comes_and_goes_everywhere_at_once() -> None:
    one = sharing(1, "b1")
    lease = one.grant(stream(0), "b1", 5, None)
    one.check()
    assert list(one.leases) == list(one.borrowers["b1"].leases) == [1]
    one.drop(lease)
    one.check()
    assert one.leases == one.borrowers["b1"].leases == one.shards[Shard("n1", 0)].leases == {}


def test_a_number_is_never_given_twice() -> None:
    one = sharing(1, "b1")
    one.drop(one.grant(stream(0), "b1", 0, None))
    assert one.grant(stream(0), "b1", 0, None).number == 2
    assert one.was_granted(1)
    assert not one.was_granted(3)


def test_what_is_on_its_way_back_is_nobodys_and_counts_all_the_same() -> None:
    one = sharing(3, "b1", "b2")
    leases = [one.grant(stream(n), "b1", 0, None) for n in range(3)]
    assert one.plan().revokes == [(Shard("n1", 2), "b1")]
    leases[2].move(Status.REVOKING, 0)
    assert one.plan() == ([], []), "its share is two, as long as the third is on its way"


def test_a_stream_goes_back_to_whoever_had_it() -> None:
    one = sharing(2, "b1", "b2")
    for number, borrower in ((0, "b2"), (1, "b1")):
        one.drop(one.grant(stream(number), borrower, 0, None))
    assert one.plan().grants == [(Shard("n1", 0), "b2"), (Shard("n1", 1), "b1")]


def test_what_is_meant_for_a_member_counts_as_its_own_until_it_has_it() -> None:
    one = sharing(4, "b1", "b2")
    leases = [one.grant(stream(n), "b1" if n < 2 else "b2", 0, None) for n in range(4)]
    for number, meant_for in ((0, "b2"), (2, "b1")):
        leases[number].move(Status.REVOKING, 0)
        one.shards[Shard("n1", number)].meant_for = meant_for
    one.check()
    assert one.plan() == ([], []), "they have as many as before"
    one.drop(leases[2])
    assert one.plan() == ([(Shard("n1", 2), "b1")], []), "not to b2, which had it"
    one.grant(stream(2), "b1", 0, None)
    one.check()
    # b2 goes, and b1 gets what is left of it too.
    one.drop(leases[3])
    del one.borrowers["b2"]
    assert one.plan() == ([(Shard("n1", 3), "b1")], [])
    assert one.shards[Shard("n1", 0)].meant_for == ""


def test_what_has_nothing_to_read_is_meant_for_nobody() -> None:
    one = sharing(1, "b1", "b2")
    view = one.shards[Shard("n1", 0)]
    view.meant_for, view.extents = "b2", ()
    assert one.plan() == ([], [])
    assert view.meant_for == ""


def test_a_group_is_quiet_when_everybody_has_what_they_should_have() -> None:
    one = sharing(2, "b1", "b2")
    assert not one.is_quiet(), "nothing is granted"
    leases = [one.grant(stream(n), f"b{n + 1}", 0, None) for n in range(2)]
    assert not one.is_quiet(), "not taken yet"
    for lease in leases:
        lease.move(Status.GRANTED, 0)
    assert one.is_quiet()
    assert one.held() == {"b1": [Shard("n1", 0)], "b2": [Shard("n1", 1)]}
    one.borrowers["b3"] = BorrowerView(LeaderWanted("b3", "mb3", 16), 0)
    assert one.is_quiet(), "there is no stream more"


def test_lags_say_who_reads_what() -> None:
    one = sharing(2, "b1")
    one.grant(stream(0), "b1", 0, None)
    assert [(lag.shard.number, lag.lag, lag.borrower, lag.status) for lag in one.lags()] == [
        (0, 9, "mb1", "granting"),
        (1, 9, "", "free"),
    ]


@pytest.mark.parametrize("where", ["shard", "member", "number", "stray"])
def test_a_broken_state_is_found(where: str) -> None:
    one = sharing(2, "b1")
    one.grant(stream(0), "b1", 0, None)
    one.check()
    match where:
        case "shard":
            one.shards[Shard("n1", 0)].leases.clear()
        case "member":
            one.borrowers["b1"].leases.clear()
        case "number":
            one._next_number = 1
        case _:
            one.shards[Shard("n1", 1)].leases[9] = one.leases[1]
    with pytest.raises(AssertionError, match="G1"):
        one.check()


def test_g3_what_somebody_keeps_is_not_meant_for_another() -> None:
    one = sharing(1, "b1")
    one.grant(stream(0), "b1", 0, None)
    one.shards[Shard("n1", 0)].meant_for = "b1"
    with pytest.raises(AssertionError, match="G3"):
        one.check()
