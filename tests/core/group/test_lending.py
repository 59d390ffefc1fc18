"""What a Leader lends, without the Leader: reports, losses, plans and reminders."""

import pytest

from moorline.core.delivery.progress import Cursor
from moorline.core.effects import Effect, Send
from moorline.core.group.events import GapFound, LeaderOptions
from moorline.core.group.lending import StreamLending
from moorline.core.group.message import (
    Disconnect,
    Grant,
    LeaderWanted,
    Revoke,
    Revoked,
    UpdateProgress,
)
from moorline.core.group.stream_lease import Status
from moorline.core.group.views import BorrowerView
from moorline.core.stream import RETENTION, Extent, Gap, Shard, Stream
from moorline.limits import GROUP_LOAD_RESTS

OPTIONS = LeaderOptions()
LOAD_MS = OPTIONS.load_ms
HOT_PER_MS = 2
EPOCH = 3


def lending(shards: int, *borrowers: str) -> StreamLending:
    found = StreamLending(EPOCH, (), OPTIONS)
    for borrower in borrowers:
        found.borrowers[borrower] = BorrowerView(LeaderWanted(borrower, borrower, 16), 0)
    found.seen([(Shard("n1", n), (extent(n),), 0) for n in range(shards)], 0)
    found.check()
    return found


def extent(number: int, *, sealed: bool = False) -> Extent:
    return Extent(Stream("n1", number, 0), 0, 10, sealed)


def said(effects: list[Effect]) -> list[object]:
    return [effect.message for effect in effects if isinstance(effect, Send)]


def report(one: StreamLending, lease: int, cursor: Cursor, *, final: bool = False) -> list[Effect]:
    update = UpdateProgress(one.leases[lease].borrower, EPOCH, 1, lease, cursor, 5, final)
    effects = one.reported(one.leases[lease], update, 0)
    one.check()
    return effects


def test_what_is_seen_is_shared_out_at_once() -> None:
    one = lending(3, "b1", "b2")
    assert sorted(len(view.leases) for view in one.borrowers.values()) == [1, 2]
    assert one.replan(0) == [], "a quiet group plans nothing"


def test_a_loss_is_taken_in_before_the_cursor_that_has_passed_it() -> None:
    one = lending(1, "b1")
    update = UpdateProgress("b1", EPOCH, 1, 1, Cursor(4), 5, False, (), (Gap(1, 3, RETENTION),))
    assert one.reported(one.leases[1], update, 0) == [GapFound(Shard("n1", 0), 1, 3, RETENTION)]
    assert one.shards[Shard("n1", 0)].cursor() == Cursor(4, lost=2)


def test_progress_during_a_revocation_does_not_grant_it_again() -> None:
    one = lending(1, "b1")
    one.take_back(one.leases[1], 0)
    report(one, 1, Cursor(2))
    assert one.leases[1].status is Status.REVOKING
    assert said(report(one, 1, Cursor(3), final=True)) == [Revoked("b1", EPOCH, 1)]


def test_what_came_back_is_granted_again_from_where_it_was() -> None:
    one = lending(1, "b1", "b2")
    report(one, 1, Cursor(2))
    one.take_back(one.leases[1], 0)
    report(one, 1, Cursor(3), final=True)
    (grant,) = said(one.returned(one.leases[1], (), 0))
    assert isinstance(grant, Grant)
    assert (grant.lease, grant.cursor) == (2, Cursor(3))
    one.check()


def test_a_goodbye_of_another_epoch_moves_nothing() -> None:
    one = lending(1, "b1")
    for epoch, low in ((EPOCH - 1, 0), (EPOCH, 7)):
        one.take_goodbye(one.borrowers["b1"], Disconnect("b1", epoch, ((1, Cursor(7)),)))
        assert one.shards[Shard("n1", 0)].progress.low == low
    one.left(one.borrowers["b1"])
    one.check()
    assert one.leases == {}


def test_only_the_oldest_of_what_a_member_had_is_blamed() -> None:
    one = lending(1, "b1")
    report(one, 1, Cursor(2, ((3, 4),)))
    one.blame(one.borrowers["b1"])
    assert one.shards[Shard("n1", 0)].progress.failures == {2: 1}


def test_what_is_not_answered_is_said_again_and_no_more_often_than_that() -> None:
    one = lending(1, "b1")
    assert one.remind(OPTIONS.resend_ms - 1) == []
    (again,) = said(one.remind(OPTIONS.resend_ms))
    assert isinstance(again, Grant)
    assert one.remind(OPTIONS.resend_ms + 1) == []
    report(one, 1, Cursor(0))
    assert one.remind(9 * OPTIONS.resend_ms) == []


def test_a_stream_that_is_sealed_and_read_goes_back_by_itself() -> None:
    one = lending(1, "b1")
    report(one, 1, Cursor(10))
    effects = one.seen([(Shard("n1", 0), (extent(0, sealed=True),), 0)], 0)
    assert said(effects) == [Revoked("b1", EPOCH, 1)]
    assert one.finish_if_done(one.leases[1], 0) == [], "said once"


def test_another_limit_is_granted_anew() -> None:
    one = lending(1, "b1")
    assert said(one.change(9, 0)) == [Revoke("b1", EPOCH, 1)]
    assert one.options.deliveries_max == 9


def test_a_member_is_late_with_what_it_was_asked_for() -> None:
    one = lending(1, "b1")
    view = one.borrowers["b1"]
    one.take_back(one.leases[1], 100)
    assert not one.is_late(view, 99 + OPTIONS.revoke_ms)
    assert one.is_late(view, 100 + OPTIONS.revoke_ms)


# --- what streams carry ---------------------------------------------------------------------------


def busy(shards: int, *borrowers: str) -> StreamLending:
    """Everything is granted; of the streams of the first member much more comes than of the others."""
    one = lending(shards, *borrowers)
    for number in list(one.leases):
        report(one, number, Cursor(0))
    look(one, 0)
    return one


def look(one: StreamLending, now_ms: int, *hot: Shard) -> list[Effect]:
    """Of these much has come since the look before, of the others nothing."""
    ends = {shard: HOT_PER_MS * now_ms if shard in hot else 0 for shard in one.shards}
    effects = one.saw_ends(ends, now_ms)
    one.check()
    return effects


def owners(one: StreamLending) -> dict[Shard, str]:
    return {lease.stream.shard: lease.borrower for lease in one.leases.values()}


def of(one: StreamLending, borrower: str) -> list[Shard]:
    return sorted(shard for shard, owner in owners(one).items() if owner == borrower)


def come_back(one: StreamLending, shard: Shard) -> list[Effect]:
    """Its member has finished it, and it is granted to somebody else, who takes it."""
    (number,) = one.shards[shard].leases
    report(one, number, Cursor(0), final=True)
    granted = one.returned(one.leases[number], (), 0)
    for again in one.shards[shard].leases:
        report(one, again, Cursor(0))
    return granted


def test_a_member_with_two_hot_streams_exchanges_one_for_a_cold_one() -> None:
    one = busy(4, "b1", "b2")
    hot = of(one, "b1")
    effects = look(one, LOAD_MS, *hot)
    (gives, gets) = (message.lease for message in said(effects) if isinstance(message, Revoke))
    given, got = one.leases[gives].stream.shard, one.leases[gets].stream.shard
    assert given in hot
    assert got not in hot
    assert look(one, 2 * LOAD_MS, *hot) == [], "one thing after the other"
    assert one.replan(0) == [], "what is under way is no reason to move anything"
    come_back(one, got)
    come_back(one, given)
    assert (owners(one)[given], owners(one)[got]) == ("b2", "b1")
    assert all(look(one, turn * LOAD_MS, *hot) == [] for turn in range(3, 20)), "and that is all"


def test_what_was_exchanged_stays_for_a_while_whatever_comes() -> None:
    one = busy(4, "b1", "b2")
    look(one, LOAD_MS, *of(one, "b1"))
    for shard in [shard for shard, view in one.shards.items() if view.meant_for]:
        come_back(one, shard)
    moved = set(of(one, "b1")) - {Shard("n1", 0), Shard("n1", 2)}
    # Now all comes to what the other one has.
    turns = [look(one, turn * LOAD_MS, *of(one, "b2")) for turn in range(2, 2 + GROUP_LOAD_RESTS)]
    asked = {one.leases[message.lease].stream.shard for turn in turns for message in said(turn)}  # type: ignore[attr-defined]
    assert not asked & moved


def test_loads_that_are_equal_unknown_or_small_move_nothing() -> None:
    one = busy(4, "b1", "b2")
    assert look(one, LOAD_MS, *one.shards) == []
    assert look(one, 2 * LOAD_MS) == []
    one = busy(4, "b1", "b2")
    few = {shard: 150 if shard in of(one, "b1") else 0 for shard in one.shards}
    assert one.saw_ends(few, LOAD_MS) == [], "30 messages a second"
    assert one.saw_ends({}, 2 * LOAD_MS) == [], "nobody knows anything"


@pytest.mark.parametrize("goes", ["b1", "b2"])
def test_a_member_that_goes_while_streams_are_under_way_leaves_them_to_others(goes: str) -> None:
    one = busy(6, "b1", "b2", "b3")
    look(one, LOAD_MS, *of(one, "b1"))
    under_way = [shard for shard, view in one.shards.items() if view.meant_for]
    one.left(one.borrowers[goes])
    one.check()
    one.replan(0)
    for shard in under_way:
        if one.shards[shard].leases and next(iter(one.shards[shard].leases.values())).is_leaving:
            come_back(one, shard)
    for number in list(one.leases):
        report(one, number, Cursor(0))
    one.check()
    assert sorted(owners(one)) == sorted(one.shards), "everything is somebody's"
    assert sorted(len(view.leases) for view in one.borrowers.values()) == [3, 3]
    assert one.replan(0) == []


def test_members_that_come_while_streams_are_under_way_get_their_share() -> None:
    one = busy(6, "b1", "b2")
    look(one, LOAD_MS, *of(one, "b1"))
    one.borrowers["b3"] = BorrowerView(LeaderWanted("b3", "b3", 16), 0)
    one.replan(0)
    one.check()
    while leaving := [lease for lease in one.leases.values() if lease.is_leaving]:
        come_back(one, leaving[0].stream.shard)
        one.replan(0)
    assert sorted(len(view.leases) for view in one.borrowers.values()) == [2, 2, 2]
    assert not any(view.meant_for for view in one.shards.values())


@pytest.mark.parametrize("broken", ["G1", "G2", "G3", "E1", "C2", "W1"])
def test_a_broken_state_is_found(broken: str) -> None:
    one = lending(2, "b1")
    match broken:
        case "G1":
            del one.borrowers["b1"].leases[1]
        case "G2":
            one.grant(one.leases[1].stream, "b1", 0)
        case "G3":
            one.shards[Shard("n1", 0)].meant_for = "b1"
        case "E1":
            one.leases[1].confirmed = True
        case "C2":
            one.commits.note(Shard("nowhere", 0))
        case _:
            one.shards[Shard("n1", 0)].extents = (extent(0), extent(0))
    with pytest.raises(AssertionError, match=broken):
        one.check()
