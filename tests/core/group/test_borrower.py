"""The Borrower: build, handle, compare effects."""

import pytest

from moorline.core.delivery.progress import Cursor
from moorline.core.effects import (
    CancelTimer,
    Effect,
    Event,
    PeerLost,
    Received,
    Send,
    SetTimer,
    TimerFired,
)
from moorline.core.group.borrower import LEADER, Borrower, BorrowerState
from moorline.core.group.events import (
    BorrowerTimes,
    Destroyed,
    Disconnected,
    Install,
    Recreate,
    Remove,
    Retire,
    StreamProgress,
    Subscribed,
    Unsubscribed,
)
from moorline.core.group.message import (
    Disconnect,
    FromLeader,
    Grant,
    Invalidate,
    LeaderConnectResponse,
    LeaderWanted,
    Ping,
    PingResponse,
    Revoke,
    Revoked,
    RevokeFinished,
    UpdateProgress,
    report_item,
)
from moorline.core.sets.digest import Digest
from moorline.core.stream import Gap, Stream
from moorline.errors import MachineError
from moorline.limits import LEASES_REMEMBERED_MAX

S1, S2 = Stream("n1", 0, 0), Stream("n1", 1, 0)
TIMES = BorrowerTimes()
EMPTY = bytes(Digest.empty())


def tell(borrower: Borrower, event: Event) -> list[Effect]:
    effects = borrower.handle(event, 0)
    borrower.check()
    return effects


def hear(borrower: Borrower, message: FromLeader) -> list[Effect]:
    return tell(borrower, Received(LEADER, message))


def sent(effects: list[Effect]) -> list[object]:
    return [effect.message for effect in effects if isinstance(effect, Send)]


def connecting() -> Borrower:
    borrower = Borrower("b1", "ann", 16, TIMES)
    assert tell(borrower, Subscribed()) == [
        Send(LEADER, LeaderWanted("b1", "ann", 16)),
        SetTimer("find leader", TIMES.find_leader_ms),
    ]
    return borrower


def connected(epoch: int = 3) -> Borrower:
    borrower = connecting()
    assert hear(borrower, LeaderConnectResponse("b1", epoch, "n1")) == [
        CancelTimer("find leader"),
        SetTimer("ping", TIMES.ping_ms),
    ]
    return borrower


def grant(lease: int, stream: Stream = S1, epoch: int = 3) -> Grant:
    return Grant("b1", epoch, lease, stream, Cursor(0), 5)


def holding(*leases: int) -> Borrower:
    borrower = connected()
    for lease in leases:
        hear(borrower, grant(lease, Stream("n1", lease, 0)))
    return borrower


# --- connecting -----------------------------------------------------------------------------------


def test_it_asks_for_the_leader_until_one_answers() -> None:
    borrower = connecting()
    assert sent(tell(borrower, TimerFired("find leader"))) == [LeaderWanted("b1", "ann", 16)]
    hear(borrower, LeaderConnectResponse("b1", 3, "n1"))
    assert (borrower.state, borrower.leader, borrower.epoch) == (BorrowerState.CONNECTED, "n1", 3)
    assert tell(borrower, TimerFired("find leader")) == []


def test_x9_a_connect_response_that_is_lost_is_asked_for_again() -> None:
    borrower = connecting()
    assert hear(borrower, grant(1)) == [], "nobody has said where the Leader is"
    assert sent(tell(borrower, TimerFired("find leader"))) == [LeaderWanted("b1", "ann", 16)]
    hear(borrower, LeaderConnectResponse("b1", 3, "n1"))
    assert isinstance(hear(borrower, grant(1))[0], Install)


def test_i13_a_connect_response_that_comes_twice_changes_nothing() -> None:
    borrower = connected()
    assert hear(borrower, LeaderConnectResponse("b1", 3, "n1")) == []


def test_x11_unsubscribe_before_connect() -> None:
    borrower = connecting()
    effects = tell(borrower, Unsubscribed())
    assert sent(effects) == [Disconnect("b1", 0, ())]
    assert effects[-1] == Destroyed("b1")
    assert hear(borrower, LeaderConnectResponse("b1", 3, "n1")) == []


def test_a_link_that_breaks_while_connecting_is_left_to_the_timer() -> None:
    assert tell(connecting(), PeerLost("n1")) == []


# --- grants and revokes ---------------------------------------------------------------------------


def test_a_grant_is_installed_and_reported() -> None:
    borrower = connected()
    assert hear(borrower, grant(1)) == [
        Install("b1", 1, S1, Cursor(0), 5, None),
        Send(LEADER, UpdateProgress("b1", 3, 1, 1, Cursor(0), 0, False)),
    ]


def test_x9_x10_a_grant_that_comes_twice_is_installed_once_and_reported_again() -> None:
    borrower = holding(1)
    (report,) = hear(borrower, grant(1))
    assert report == Send(LEADER, UpdateProgress("b1", 3, 2, 1, Cursor(0), 0, False))


def test_a_revoke_stops_the_stream_and_waits_for_what_is_out() -> None:
    borrower = holding(1)
    assert hear(borrower, Revoke("b1", 3, 1)) == [Retire("b1", 1)]
    (early,) = sent(tell(borrower, StreamProgress(1, Cursor(2), 5, False)))
    assert isinstance(early, UpdateProgress)
    assert not early.final
    (last,) = sent(tell(borrower, StreamProgress(1, Cursor(5), 5, True)))
    assert isinstance(last, UpdateProgress)
    assert (last.final, last.cursor) == (True, Cursor(5))
    assert 1 in borrower.leases, "it is there until the Leader has the last word"
    (again,) = sent(hear(borrower, Revoke("b1", 3, 1)))
    assert isinstance(again, UpdateProgress)
    assert again.final, "X9: a last word that is lost is said again"
    effects = hear(borrower, Revoked("b1", 3, 1))
    assert effects[0] == Remove("b1", 1)
    assert isinstance(sent(effects)[0], RevokeFinished)


def test_x9_revoked_that_comes_again_is_answered_again() -> None:
    borrower = holding(1)
    hear(borrower, Revoked("b1", 3, 1))
    (effect,) = hear(borrower, Revoked("b1", 3, 1))
    assert sent([effect]) == [RevokeFinished("b1", 3, 3, 1)]


def test_x11_a_revoke_that_overtakes_its_grant_ends_it_before_it_begins() -> None:
    borrower = connected()
    (never,) = sent(hear(borrower, Revoke("b1", 3, 1)))
    assert never == UpdateProgress("b1", 3, 1, 1, None, 0, True)
    (again,) = hear(borrower, grant(1))
    assert sent([again]) == [UpdateProgress("b1", 3, 2, 1, None, 0, True)]
    assert borrower.leases == {}


def test_x10_a_late_grant_of_a_lease_that_is_over_does_not_begin_it_again() -> None:
    borrower = holding(1)
    hear(borrower, Revoked("b1", 3, 1))
    effects = hear(borrower, grant(1))
    assert not any(isinstance(effect, Install) for effect in effects)
    assert borrower.leases == {}


def test_what_it_remembers_of_leases_is_bounded_and_still_right() -> None:
    borrower = connected()
    for lease in range(1, LEASES_REMEMBERED_MAX + 50):
        hear(borrower, Revoked("b1", 3, lease))
    assert len(borrower._leases._over) == LEASES_REMEMBERED_MAX
    hear(borrower, grant(1))
    assert borrower.leases == {}
    hear(borrower, grant(LEASES_REMEMBERED_MAX + 50))
    assert list(borrower.leases) == [LEASES_REMEMBERED_MAX + 50]


def test_x12_a_revoke_leaves_the_other_streams_alone() -> None:
    borrower = holding(1, 2)
    assert hear(borrower, Revoke("b1", 3, 1)) == [Retire("b1", 1)]
    (report,) = sent(tell(borrower, StreamProgress(2, Cursor(7), 7, False)))
    assert isinstance(report, UpdateProgress)
    assert (report.lease, report.cursor, report.final) == (2, Cursor(7), False)


def test_final_counts_only_for_a_stream_that_was_revoked() -> None:
    (report,) = sent(tell(holding(1), StreamProgress(1, Cursor(7), 7, True)))
    assert isinstance(report, UpdateProgress)
    assert not report.final


# --- pings ----------------------------------------------------------------------------------------


def test_a_ping_carries_the_digest_of_what_it_holds() -> None:
    assert tell(connected(), TimerFired("ping")) == [
        Send(LEADER, Ping("b1", 3, 1, EMPTY)),
        SetTimer("ping", TIMES.ping_ms),
        SetTimer("ping timeout", TIMES.ping_timeout_ms),
    ]


def test_a_single_ping_that_is_lost_ends_nothing() -> None:
    borrower = connected()
    tell(borrower, TimerFired("ping"))
    second = tell(borrower, TimerFired("ping"))
    assert [effect for effect in second if isinstance(effect, SetTimer)] == [
        SetTimer("ping", TIMES.ping_ms)
    ], "the time runs from the first that has no answer"
    assert hear(borrower, PingResponse("b1", 3, 2, EMPTY)) == [CancelTimer("ping timeout")]
    assert hear(borrower, PingResponse("b1", 3, 2, EMPTY)) == []


def test_no_answer_in_time_ends_it_and_asks_for_a_new_one() -> None:
    borrower = holding(1)
    tell(borrower, TimerFired("ping"))
    effects = tell(borrower, TimerFired("ping timeout"))
    assert effects[0] == Remove("b1", 1)
    assert effects[-1] == Recreate("b1", "no answer to a ping")
    assert borrower.state is BorrowerState.DESTROYED


def test_a_report_that_was_lost_is_made_again_after_the_next_ping() -> None:
    borrower = holding(1, 2)
    tell(borrower, StreamProgress(1, Cursor(4), 4, False))
    (ping, *_) = sent(tell(borrower, TimerFired("ping")))
    assert isinstance(ping, Ping)
    heard = bytes(Digest.of([report_item(1, 1), report_item(2, 2)]))  # the one of Cursor(4) is lost
    again = sent(hear(borrower, PingResponse("b1", 3, ping.number, heard)))
    cursors = [
        (update.lease, update.cursor) for update in again if isinstance(update, UpdateProgress)
    ]
    assert cursors == [(1, Cursor(4)), (2, Cursor(0))]


def test_a_report_that_came_is_not_made_again() -> None:
    borrower = holding(1, 2)
    (ping, *_) = sent(tell(borrower, TimerFired("ping")))
    assert isinstance(ping, Ping)
    heard = bytes(Digest.of([report_item(1, 1), report_item(2, 2)]))
    assert sent(hear(borrower, PingResponse("b1", 3, ping.number, heard))) == []
    assert borrower._leases._unsure == {}


# --- the end --------------------------------------------------------------------------------------


def test_i11_an_invalidated_borrower_ends_and_nothing_moves_it_any_more() -> None:
    borrower = holding(1)
    effects = hear(borrower, Invalidate("b1", 3, "DISAGREED"))
    assert effects[0] == Remove("b1", 1)
    assert effects[-1] == Recreate("b1", "invalidated: DISAGREED")
    for message in (grant(2), Revoke("b1", 3, 1), Invalidate("b1", 3, "AGAIN")):
        assert hear(borrower, message) == []
    assert tell(borrower, TimerFired("ping")) == []


def test_a_leader_that_was_replaced_is_not_heard() -> None:
    borrower = holding(1)
    assert hear(borrower, grant(9, S2, epoch=2)) == []
    assert hear(borrower, Invalidate("b1", 2, "UNKNOWN")) == []
    assert borrower.state is BorrowerState.CONNECTED


def test_another_leader_ends_it() -> None:
    effects = hear(holding(1), grant(9, S2, epoch=4))
    assert effects[-1] == Recreate("b1", "the group has another Leader, of epoch 4")


def test_unsubscribing_waits_for_what_is_out_and_says_it_all_at_once() -> None:
    borrower = holding(1, 2)
    assert tell(borrower, Unsubscribed()) == [
        Retire("b1", 1),
        Retire("b1", 2),
        SetTimer("unsubscribe", TIMES.unsubscribe_ms),
    ]
    assert tell(borrower, Unsubscribed()) == []
    assert tell(borrower, StreamProgress(1, Cursor(4), 4, True)) == []
    effects = tell(borrower, StreamProgress(2, Cursor(9), 9, True))
    assert sent(effects) == [Disconnect("b1", 3, ((1, Cursor(4)), (2, Cursor(9))))]
    assert effects[-1] == Destroyed("b1")


@pytest.mark.parametrize("message", [grant(7, S2), Revoke("b1", 3, 1), Revoked("b1", 3, 1)])
def test_x11_a_borrower_that_unsubscribes_does_not_hear_grants_and_revokes(
    message: FromLeader,
) -> None:
    borrower = holding(1)
    tell(borrower, Unsubscribed())
    assert hear(borrower, message) == []
    assert list(borrower.leases) == [1]


def test_x11_unsubscribe_before_any_message() -> None:
    effects = tell(connected(), Unsubscribed())
    assert sent(effects) == [Disconnect("b1", 3, ())]
    assert effects[-1] == Destroyed("b1")


def test_unsubscribing_does_not_wait_for_ever() -> None:
    borrower = holding(1)
    tell(borrower, Unsubscribed())
    tell(borrower, StreamProgress(1, Cursor(2), 8, False))
    assert sent(tell(borrower, TimerFired("unsubscribe"))) == [
        Disconnect("b1", 3, ((1, Cursor(2)),))
    ]


def test_a_borrower_that_unsubscribes_is_not_made_anew() -> None:
    borrower = holding(1)
    tell(borrower, Unsubscribed())
    assert tell(borrower, TimerFired("ping timeout"))[-1] == Destroyed("b1")


def test_x11_disconnect_during_revoke() -> None:
    borrower = holding(1, 2)
    hear(borrower, Revoke("b1", 3, 1))
    tell(borrower, StreamProgress(1, Cursor(3), 6, False))
    effects = tell(borrower, Disconnected())
    assert sent(effects) == [Disconnect("b1", 3, ((1, Cursor(3)), (2, Cursor(0))))]
    assert effects[-1] == Destroyed("b1")


def test_a_link_that_breaks_ends_it_at_once() -> None:
    assert tell(holding(1), PeerLost("n1"))[-1] == Recreate("b1", "the link to the Leader is gone")


def test_an_event_that_it_does_not_know_is_a_mistake_of_ours() -> None:
    class Odd(Event, frozen=True):
        pass

    with pytest.raises(MachineError, match="a Borrower knows no"):
        tell(connected(), Odd())


def test_a_lease_that_is_over_waits_for_what_its_client_is_just_told() -> None:
    borrower = holding(1)
    gap = Gap(0, 4, "RETENTION")
    tell(borrower, StreamProgress(1, Cursor(0), 4, final=False, telling=True))
    assert hear(borrower, Revoked("b1", 3, 1)) == [], "it would be told to the next one too"
    told = StreamProgress(1, Cursor(4), 4, final=False, lost=(gap,))
    removed, finished = tell(borrower, told)
    assert removed == Remove("b1", 1)
    assert sent([finished]) == [RevokeFinished("b1", 3, 3, 1, (gap,))]
    # Said again, it says the same: the Leader may hear the second one first.
    assert sent(hear(borrower, Revoked("b1", 3, 1))) == [RevokeFinished("b1", 3, 4, 1, (gap,))]


def test_what_was_lost_is_in_every_report_and_in_the_last_word() -> None:
    borrower = holding(1, 2)
    gap = Gap(0, 4, "DAMAGE")
    tell(borrower, StreamProgress(1, Cursor(4), 4, final=False, lost=(gap,)))
    effects = hear(borrower, grant(1, Stream("n1", 1, 0)))
    assert sent(effects) == [UpdateProgress("b1", 3, 4, 1, Cursor(4), 4, False, (), (gap,))]
    (left, *_) = sent(tell(borrower, Disconnected()))
    assert left == Disconnect("b1", 3, ((1, Cursor(4)), (2, Cursor(0))), ((1, (gap,)),))


@pytest.mark.parametrize("broken", ["B1", "B2", "B3", "B4", "H1"])
def test_a_broken_state_is_found_and_tells_the_story(broken: str) -> None:
    borrower = Borrower("b1", "ann", 16, TIMES)
    tell(borrower, Subscribed())
    hear(borrower, LeaderConnectResponse("b1", 1, "n1"))
    hear(borrower, Grant("b1", 1, 1, S1, Cursor(0), 5))
    match broken:
        case "B1":
            borrower.state = BorrowerState.CONNECTING
        case "B2":
            borrower.state = BorrowerState.UNSUBSCRIBING
        case "B3":
            borrower.leases[1].is_over = True
        case "B4":
            borrower._unanswered = 99
        case _:
            borrower._leases.forget(1)
    with pytest.raises(AssertionError, match=broken) as caught:
        borrower.check()
    assert "story of borrower b1" in str(caught.value)
