"""The Leader: build, handle, compare effects. Numbers are those of the scenarios."""

import msgspec
import pytest
from tests.core.group.leader_scene import (
    EPOCH,
    LEASE_UNTIL_MS,
    OPTIONS,
    LeaderScene,
    shard,
    stream,
)

from moorline.core.delivery.progress import Cursor
from moorline.core.effects import SetTimer
from moorline.core.group.events import EndsSeen, Kick, Led, LookAtEnds
from moorline.core.group.leader import Leader, LeaderState
from moorline.core.group.message import (
    Grant,
    Invalidate,
    LeaderConnectResponse,
    LeaderWanted,
    Ping,
    PingResponse,
    Revoke,
    Revoked,
    UpdateProgress,
)
from moorline.core.group.queue_leader import QueueLeader
from moorline.core.group.stream_lease import Status
from moorline.limits import BORROWERS_DEPARTED_MAX, BORROWERS_MAX, BORROWERS_STRANGE_MAX


def led(streams: int, *borrowers: str) -> LeaderScene:
    """A quiet group: everything is granted and taken."""
    leading = LeaderScene()
    leading.streams(streams)
    leading.join(*borrowers)
    leading.confirm()
    return leading


def lease_of(leading: LeaderScene, number: int) -> int:
    (lease,) = leading.leader.shards[shard(number)].leases
    return lease


# --- joining --------------------------------------------------------------------------------------


def test_the_first_member_gets_every_stream_from_its_place_on() -> None:
    leading = LeaderScene(cursors=[(shard(0), Cursor(7, ((9, 10),)))])
    leading.streams(2)
    leading.hear(LeaderWanted("b1", "ann", 16))
    assert leading.take(LeaderConnectResponse) == [LeaderConnectResponse("b1", EPOCH, "n1")]
    leading.after(OPTIONS.replan_ms, "replan")
    assert leading.take(Grant) == [
        Grant("b1", EPOCH, 1, stream(0), Cursor(7, ((9, 10),)), OPTIONS.deliveries_max),
        Grant("b1", EPOCH, 2, stream(1), Cursor(0), OPTIONS.deliveries_max),
    ]


def test_i1_a_lease_goes_through_its_statuses_in_order() -> None:
    leading = LeaderScene()
    leading.streams(2)
    leading.join("b1")
    lease = leading.leader.leases[1]
    seen = [lease.status]
    leading.confirm()
    seen.append(lease.status)
    leading.join("b2")
    lease = next(one for one in leading.leader.leases.values() if one.is_leaving)
    seen.append(lease.status)
    leading.report("b1", lease.number, Cursor(0), final=True)
    seen.append(lease.status)
    leading.finished("b1", lease.number)
    assert seen == [Status.GRANTING, Status.GRANTED, Status.REVOKING, Status.REVOKED]
    assert lease.number not in leading.leader.leases


def test_a_report_does_not_end_a_revocation() -> None:
    leading = led(2, "b1")
    leading.join("b2")
    (revoke,) = leading.take(Revoke)
    leading.report("b1", revoke.lease, Cursor(1))
    assert leading.leader.leases[revoke.lease].status is Status.REVOKING
    leading.finished("b1", revoke.lease)
    assert revoke.lease in leading.leader.leases, "finished without a last word is out of turn"


def test_f6_a_late_member_gets_a_stream() -> None:
    leading = led(2, "b1")
    leading.join("b2")
    (revoke,) = leading.take(Revoke)
    assert leading.owners()["b2"] == [], "never in one step"
    leading.hand_over("b1", revoke.lease, Cursor(5))
    (grant,) = leading.take(Grant)
    assert (grant.borrower, grant.cursor) == ("b2", Cursor(5))


def test_x12_a_revoke_leaves_the_old_owner_its_other_streams() -> None:
    leading = led(4, "b1")
    before = set(leading.leader.leases)
    leading.join("b2")
    revoked = {revoke.lease for revoke in leading.take(Revoke)}
    assert len(revoked) == 2
    for lease in revoked:
        leading.hand_over("b1", lease)
    assert before - revoked <= set(leading.leader.leases)
    assert leading.take(Invalidate) == []
    assert sorted(map(len, leading.owners().values())) == [2, 2]


def test_f17_more_members_than_streams_idle_and_take_over() -> None:
    leading = led(1, "b1", "b2", "b3")
    assert leading.owners() == {"b1": [0], "b2": [], "b3": []}
    leading.leave("b1", (1, Cursor(4)))
    leading.after(OPTIONS.replan_ms, "replan")
    (grant,) = leading.take(Grant)
    assert (grant.borrower, grant.cursor) == ("b2", Cursor(4))


def test_f16_a_new_stream_is_granted_without_waiting() -> None:
    leading = led(1, "b1")
    leading.streams(2)
    (grant,) = leading.take(Grant)
    assert grant.stream == stream(1)


def test_streams_that_only_grow_say_nothing() -> None:
    leading = led(3, "b1", "b2")
    leading.take(Grant)
    leading.streams(3, end=5_000)
    assert leading.said == []


def test_i8_i9_a_quiet_group_has_nothing_to_plan() -> None:
    leading = led(10, "b1", "b2", "b3")
    assert sorted(map(len, leading.owners().values())) == [3, 3, 4]
    assert leading.leader.lending.replan(0) == []
    leading.take(Grant)
    leading.after(OPTIONS.tick_ms)
    assert leading.said == []


def test_a_member_beyond_the_bound_is_not_taken_in() -> None:
    leading = LeaderScene()
    leading.join(*(f"b{n}" for n in range(BORROWERS_MAX + 1)))
    assert len(leading.leader.borrowers) == BORROWERS_MAX
    # It would wait for ever if nobody said so.
    assert leading.take(Invalidate) == [Invalidate(f"b{BORROWERS_MAX}", EPOCH, "FULL")]


def test_x18_two_hundred_members_join_and_leave() -> None:
    leading = LeaderScene()
    leading.streams(64)
    said = 0
    for n in range(200):
        leading.join(f"b{n}")
        while leading.said:
            said += len(leading.said)
            answer_all(leading)
    assert sorted(map(len, leading.owners().values())) == [0] * 136 + [1] * 64
    assert said < 200 * 64
    said = 0
    for n in range(199):
        leading.leave(f"b{n}")
        leading.after(OPTIONS.replan_ms, "replan")
        while leading.said:
            said += len(leading.said)
            answer_all(leading)
    assert leading.owners() == {"b199": list(range(64))}
    assert said < 200 * 64


def answer_all(leading: LeaderScene) -> None:
    said, leading.said = leading.said, []
    for message in said:
        match message:
            case Grant():
                leading.report(message.borrower, message.lease, message.cursor)
            case Revoke():
                leading.report(message.borrower, message.lease, Cursor(0), final=True)
            case Revoked():
                leading.finished(message.borrower, message.lease)


# --- messages that are lost, late or twice --------------------------------------------------------


def test_x9_a_lost_grant_is_sent_again() -> None:
    leading = LeaderScene()
    leading.streams(1)
    leading.join("b1")
    (first,) = leading.take(Grant)
    leading.after(OPTIONS.resend_ms)
    assert leading.take(Grant) == [first]
    leading.confirm()
    leading.report("b1", 1, Cursor(0))
    leading.after(OPTIONS.resend_ms)
    assert leading.take(Grant) == []


def test_x9_a_lost_revoke_is_sent_again() -> None:
    leading = led(2, "b1")
    leading.join("b2")
    first = leading.take(Revoke)
    leading.after(OPTIONS.resend_ms)
    assert leading.take(Revoke) == first


def test_x9_a_lost_revoked_or_revoke_finished_is_asked_for_again() -> None:
    leading = led(2, "b1")
    leading.join("b2")
    (revoke,) = leading.take(Revoke)
    leading.report("b1", revoke.lease, Cursor(0), final=True)
    first = leading.take(Revoked)
    leading.after(OPTIONS.resend_ms)
    assert leading.take(Revoked) == first
    leading.finished("b1", revoke.lease)
    assert len(leading.take(Grant)) == 1


def test_x9_a_lost_connect_response_is_given_again() -> None:
    leading = led(1, "b1")
    leading.hear(LeaderWanted("b1", "ann", 16))
    assert len(leading.take(LeaderConnectResponse)) == 1
    assert leading.leader.leases[1].status is Status.GRANTED


def test_x9_a_lost_invalidate_is_given_again_with_its_reason() -> None:
    leading = led(1, "b1")
    leading.tell(Kick("b1"))
    leading.take(Invalidate)
    leading.ping("b1")
    assert leading.take(Invalidate) == [Invalidate("b1", EPOCH, "KICKED")]
    leading.hear(LeaderWanted("b1", "ann", 16))
    assert leading.take(Invalidate) == [Invalidate("b1", EPOCH, "KICKED")]
    assert leading.leader.borrowers == {}


def test_x11_a_borrower_that_leaves_before_it_is_known_does_not_come_in_later() -> None:
    leading = led(1)
    leading.leave("b1", epoch=0)
    leading.hear(LeaderWanted("b1", "ann", 16))
    assert leading.leader.borrowers == {}


def test_goodbyes_of_strangers_are_kept_neither_for_long_nor_at_the_cost_of_others() -> None:
    leading = led(1, "b1")
    leading.tell(Kick("b1"))
    leading.take(Invalidate)
    before = len(leading.leader._departed)
    for number in range(BORROWERS_DEPARTED_MAX + 1):
        leading.leave(f"forged {number}", epoch=0)
    assert len(leading.leader._departed) == before
    assert len(leading.leader._strangers) == BORROWERS_STRANGE_MAX
    leading.hear(LeaderWanted("b1", "ann", 16))
    assert leading.take(Invalidate) == [Invalidate("b1", EPOCH, "KICKED")], "it is not forgotten"


def test_x11_a_revoke_during_a_grant_in_flight() -> None:
    leading = LeaderScene()
    leading.streams(2)
    leading.join("b1")
    leading.take(Grant)
    leading.join("b2")
    (revoke,) = leading.take(Revoke)
    leading.ping("b1")
    assert leading.take(Invalidate) == [], "it cannot have what is on its way"
    leading.report("b1", revoke.lease, None, final=True)
    assert leading.take(Revoked) == [Revoked("b1", EPOCH, revoke.lease)]
    leading.finished("b1", revoke.lease)
    (grant,) = leading.take(Grant)
    assert grant.borrower == "b2"


def test_x11_a_disconnect_during_a_revoke_hands_over_at_once() -> None:
    leading = led(2, "b1")
    leading.join("b2")
    leading.take(Revoke)
    leading.leave("b1", (1, Cursor(3)), (2, Cursor(4)))
    leading.after(OPTIONS.replan_ms, "replan")
    assert [(grant.borrower, grant.cursor) for grant in leading.take(Grant)] == [
        ("b2", Cursor(3)),
        ("b2", Cursor(4)),
    ]


def test_a_borrower_that_has_forgotten_a_lease_gets_another() -> None:
    leading = LeaderScene()
    leading.streams(1)
    leading.join("b1")
    leading.take(Grant)
    leading.report("b1", 1, None, final=True)
    assert leading.take(Revoked) == [Revoked("b1", EPOCH, 1)]
    leading.finished("b1", 1)
    (grant,) = leading.take(Grant)
    assert grant.lease == 2


def test_x10_i13_every_message_twice_and_late_has_the_effect_of_one() -> None:
    once, twice = led(2, "b1"), led(2, "b1")
    for leading, times in ((once, 1), (twice, 3)):
        for _ in range(times):
            leading.hear(LeaderWanted("b2", "bob", 16))
        leading.after(OPTIONS.replan_ms, "replan")
        (revoke,) = leading.take(Revoke)
        for message in (
            UpdateProgress("b1", EPOCH, 90, revoke.lease, Cursor(9), 9, True),
            UpdateProgress("b1", EPOCH, 80, revoke.lease, Cursor(2), 5, False),
        ):
            for _ in range(times):
                leading.hear(message)
        for _ in range(times):
            leading.finished("b1", revoke.lease)
        leading.confirm()
        leading.leave("b2", (3, Cursor(20)))
        leading.leave("b2", (3, Cursor(20)))
        leading.after(OPTIONS.replan_ms, "replan")
    assert once.owners() == twice.owners()
    assert once.cursors() == twice.cursors()
    assert twice.cursors()[shard(1)] == Cursor(20)


# --- pings ----------------------------------------------------------------------------------------


def test_a_ping_that_agrees_is_answered() -> None:
    leading = led(1, "b1")
    leading.ping("b1", (1, stream(0)))
    (answer,) = leading.take(PingResponse)
    assert answer.number == leading.number


@pytest.mark.parametrize("holds", [[], [(1, 0), (2, 1), (9, 5)], [(1, 0)], [(1, 1), (2, 0)]])
def test_a_real_disagreement_is_found_at_the_next_ping(holds: list[tuple[int, int]]) -> None:
    leading = led(2, "b1")
    leading.ping("b1", *((lease, stream(number)) for lease, number in holds))
    assert leading.take(Invalidate) == [Invalidate("b1", EPOCH, "DISAGREED")]


def test_a_disagreement_is_found_while_other_leases_are_on_their_way() -> None:
    leading = led(4, "b1")
    leading.join("b2")
    leases = {
        lease.number: lease.stream
        for lease in leading.leader.leases.values()
        if lease.borrower == "b1"
    }
    revoked = [revoke.lease for revoke in leading.take(Revoke)]
    for lease in revoked:
        leading.report("b1", lease, Cursor(0), final=True)
    # Those that are being forgotten may be there or not, one by one.
    for missing in ([], revoked[:1], revoked[1:], revoked):
        held = [(lease, of) for lease, of in leases.items() if lease not in missing]
        leading.ping("b1", *held)
        assert leading.take(Invalidate) == []
    kept = [lease for lease in leases if lease not in revoked]
    leading.ping("b1", *((lease, leases[lease]) for lease in kept[1:]))
    assert leading.take(Invalidate) == [Invalidate("b1", EPOCH, "DISAGREED")]


def test_a_ping_that_was_overtaken_invalidates_nobody() -> None:
    leading = led(2, "b1")
    stale = Ping("b1", EPOCH, 1, bytes(24))
    leading.hear(stale)
    assert leading.take(Invalidate) == []


def test_a_ping_with_a_digest_of_odd_length_disagrees() -> None:
    leading = led(1, "b1")
    leading.hear(Ping("b1", EPOCH, 99, b"short"))
    assert len(leading.take(Invalidate)) == 1


def test_an_unknown_borrower_is_told_to_begin_anew() -> None:
    leading = led(1)
    leading.ping("b9")
    leading.report("b9", 1, Cursor(99))
    assert leading.take(Invalidate) == [Invalidate("b9", EPOCH, "UNKNOWN")] * 2


def test_i4_a_report_of_another_epoch_moves_nothing() -> None:
    leading = led(1, "b1")
    leading.hear(UpdateProgress("b1", EPOCH - 1, 50, 1, Cursor(99), 99, False))
    assert leading.leader.shards[shard(0)].progress.low == 0


def test_i4_a_goodbye_with_leases_of_another_leader_moves_nothing() -> None:
    leading = led(1, "b1")
    leading.leave("b1", (1, Cursor(99)), epoch=EPOCH - 1)
    assert leading.leader.borrowers == {}
    assert leading.leader.shards[shard(0)].progress.low == 0


def test_i4_a_stale_owner_moves_nothing() -> None:
    leading = led(2, "b1")
    leading.join("b2")
    (revoke,) = leading.take(Revoke)
    leading.hand_over("b1", revoke.lease, Cursor(5))
    leading.confirm()
    before = leading.cursors()
    leading.report("b1", revoke.lease, Cursor(50))
    assert leading.cursors() == before
    assert leading.take(Invalidate) == [], "a late report is no disagreement"


def test_a_lease_that_was_never_given_is_a_disagreement() -> None:
    leading = led(1, "b1")
    leading.report("b1", 77, Cursor(0))
    assert leading.take(Invalidate) == [Invalidate("b1", EPOCH, "DISAGREED")]


# --- members that go ------------------------------------------------------------------------------


def test_f10_a_graceful_disconnect_hands_over_before_any_timeout() -> None:
    leading = led(2, "b1", "b2")
    lease = lease_of(leading, 0)
    owner = leading.leader.leases[lease].borrower
    leading.leave(owner, (lease, Cursor(30)))
    leading.after(OPTIONS.replan_ms, "replan")
    (grant,) = leading.take(Grant)
    assert (grant.stream, grant.cursor) == (stream(0), Cursor(30))
    assert leading.now_ms < OPTIONS.tick_ms


def test_a_silent_member_is_removed_and_blamed_for_what_it_was_at() -> None:
    leading = led(1, "b1")
    leading.report("b1", 1, Cursor(3, ((4, 6),)), delivered=10)
    leading.after(OPTIONS.borrower_ms)
    assert leading.take(Invalidate) == [Invalidate("b1", EPOCH, "SILENT")]
    assert leading.cursors()[shard(0)] == Cursor(3, ((4, 6),), ((3, 1),))


def test_a_silent_member_with_nothing_out_is_not_blamed() -> None:
    leading = led(1, "b1")
    leading.report("b1", 1, Cursor(10), delivered=10)
    leading.after(OPTIONS.borrower_ms)
    assert leading.cursors()[shard(0)] == Cursor(10)


def test_x14_a_member_that_never_finishes_loses_the_stream_at_the_deadline() -> None:
    leading = led(2, "b1")
    for lease in (1, 2):
        leading.report("b1", lease, Cursor(0), delivered=5)
    leading.join("b2")
    for _ in range(OPTIONS.revoke_ms // OPTIONS.resend_ms):
        for borrower in ("b1", "b2"):
            leases = leading.leader.borrowers[borrower].leases.values()
            leading.ping(borrower, *((lease.number, lease.stream) for lease in leases))
        leading.after(OPTIONS.resend_ms)
    assert Invalidate("b1", EPOCH, "REVOKE_DEADLINE") in leading.said
    leading.after(OPTIONS.replan_ms, "replan")
    assert leading.owners() == {"b2": [0, 1]}


def test_x23_a_kicked_member_loses_its_streams_to_others() -> None:
    leading = led(2, "b1", "b2")
    leading.tell(Kick("member of b1"))
    assert leading.take(Invalidate) == [Invalidate("b1", EPOCH, "KICKED")]
    leading.after(OPTIONS.replan_ms, "replan")
    assert leading.owners() == {"b2": [0, 1]}


def test_x21_failures_are_stored_and_travel_with_the_grant() -> None:
    leading = led(1, "b1", "b2")
    owner = leading.leader.leases[1].borrower
    leading.report(owner, 1, Cursor(0, (), ((4, 2),)), delivered=9)
    leading.leave(owner, (1, Cursor(0, (), ((4, 3),))))
    assert leading.cursors()[shard(0)] == Cursor(0, (), ((4, 3),))
    leading.after(OPTIONS.replan_ms, "replan")
    (grant,) = leading.take(Grant)
    assert grant.cursor.failures == ((4, 3),)


@pytest.mark.slow
def test_what_it_remembers_of_those_that_went_is_bounded() -> None:
    leading = led(1)
    for n in range(BORROWERS_DEPARTED_MAX + 10):
        leading.hear(LeaderWanted(f"b{n}", "ann", 16))
        leading.leave(f"b{n}")
    assert len(leading.leader._departed) == BORROWERS_DEPARTED_MAX


@pytest.mark.parametrize("broken", ["L1", "L2", "L3", "L4", "G1"])
def test_a_broken_state_is_found_and_tells_the_story(broken: str) -> None:
    leading = LeaderScene()
    leading.streams(2)
    leading.join("b1")
    leader = leading.leader
    match broken:
        case "L1":
            leader._departed["b1"] = "LEFT"
        case "L2":
            leader._end_reason = "IDLE"
        case "L3":
            leader._idle_since_ms = 5
        case "L4":
            leader._departed = dict.fromkeys(map(str, range(BORROWERS_DEPARTED_MAX + 1)), "LEFT")
        case _:
            leader.borrowers["b1"].leases.clear()
    with pytest.raises(AssertionError, match=broken) as caught:
        leader.check()
    assert leader.state is LeaderState.LEADING
    assert "story of leader of g, epoch 3" in str(caught.value)


# --- what streams carry ---------------------------------------------------------------------------


def test_it_looks_at_what_streams_carry_again_and_again() -> None:
    leading = LeaderScene()
    leading.streams(4)
    leading.join("b1", "b2")
    leading.confirm()
    load_ms = OPTIONS.load_ms
    for turn in range(3):
        assert leading.after(load_ms, "load") == [LookAtEnds(), SetTimer("load", load_ms)]
        ends = {shard(number): 9_000 * turn * (number in (0, 2)) for number in range(4)}
        leading.tell(EndsSeen(tuple(ends.items())))
    assert {number % 2 for number in leading.owners()["b1"]} == {0}, "as it was shared by number"
    assert len(leading.take(Revoke)) == 2, (
        "one of the two that carry something, and one that does not"
    )


def test_a_member_that_is_sent_away_over_an_exchange_is_the_last_that_was_asked() -> None:
    leading = LeaderScene()
    leading.streams(4)
    leading.join("b1", "b2")
    leading.confirm()
    for turn in range(2):
        leading.now_ms += OPTIONS.load_ms
        leading.hear(LeaderWanted("b2", "member of b2", 16))
        ends = {shard(number): 9_000 * turn * (number in (0, 2)) for number in range(4)}
        leading.tell(EndsSeen(tuple(ends.items())))
    assert len(leading.take(Revoke)) == 2
    assert leading.leader.lending.exchanges_streams
    leading.after(OPTIONS.revoke_ms)
    assert {gone.reason for gone in leading.take(Invalidate)} == {"REVOKE_DEADLINE"}
    assert not leading.leader.lending.exchanges_streams


@pytest.mark.parametrize("kind", [Leader, QueueLeader])
def test_where_it_shall_not_or_members_share_messages_it_does_not_look(kind: type[Leader]) -> None:
    load_ms = 0 if kind is Leader else OPTIONS.load_ms
    options = msgspec.structs.replace(OPTIONS, load_ms=load_ms)
    leader = kind("g", "n1", EPOCH, (), LEASE_UNTIL_MS, options)
    timers = [effect.name for effect in leader.handle(Led(), 0) if isinstance(effect, SetTimer)]
    assert timers == ["tick"]
