"""The Leader and what it stores: streams, commits, fencing, and what operators ask for."""

import pytest
from tests.core.group.leader_scene import EPOCH, OPTIONS, LeaderScene, growing, shard, stream

from moorline.core.delivery.progress import Cursor
from moorline.core.effects import Effect, Event, SetTimer
from moorline.core.group.events import (
    Change,
    Commit,
    CommitFailed,
    Committed,
    End,
    Fenced,
    GapFound,
    Kick,
    LeaderOptions,
    LeaseHeld,
    ShardsSeen,
    Stopped,
)
from moorline.core.group.leader import LeaderState
from moorline.core.group.message import (
    Disconnect,
    Grant,
    Invalidate,
    Revoke,
    Revoked,
)
from moorline.core.stream import Extent, Gap
from moorline.errors import MachineError
from moorline.limits import FEED_LOSSES_MAX


def led(streams: int, *borrowers: str) -> LeaderScene:
    """A quiet group: everything is granted and taken."""
    leading = LeaderScene()
    leading.streams(streams)
    leading.join(*borrowers)
    leading.confirm()
    return leading


# --- streams --------------------------------------------------------------------------------------


def generations(*ends: int, sealed: int) -> ShardsSeen:
    firsts = [0, *ends]
    extents = tuple(
        Extent(stream(0, place), firsts[place], end, place < sealed)
        for place, end in enumerate(ends)
    )
    return ShardsSeen(((shard(0), extents, 0),))


def test_i7_a_generation_begins_when_the_one_before_it_is_done() -> None:
    leading = LeaderScene()
    leading.tell(generations(10, 20, sealed=1))
    leading.join("b1", "b2")
    (grant,) = leading.confirm()
    assert grant.stream == stream(0, 0)
    leading.report("b1", 1, Cursor(8, ((9, 10),)))
    assert leading.take(Revoked) == []
    leading.report("b1", 1, Cursor(10))
    assert leading.take(Revoked) == [Revoked("b1", EPOCH, 1)]
    leading.finished("b1", 1)
    (following,) = leading.take(Grant)
    assert (following.stream, following.cursor) == (stream(0, 1), Cursor(10))
    assert following.borrower == "b1", "it stays with whoever had the one before"


def test_a_generation_that_is_sealed_after_it_was_read_goes_back_by_itself() -> None:
    leading = LeaderScene()
    leading.tell(generations(10, sealed=0))
    leading.join("b1")
    leading.confirm()
    leading.report("b1", 1, Cursor(10))
    assert leading.take(Revoked) == []
    leading.tell(generations(10, 10, sealed=1))
    assert leading.take(Revoked) == [Revoked("b1", EPOCH, 1)]


DROPPED = ShardsSeen(((shard(0), (Extent(stream(0, 1), 10, 20, False),), 0),))


def slow_group() -> LeaderScene:
    """Its first generation is gone, of which 3, 4 and 6 to 9 are not done; 3 is in its member's hand."""
    leading = LeaderScene()
    leading.tell(generations(10, 20, sealed=1))
    leading.join("b1")
    leading.confirm()
    leading.report("b1", 1, Cursor(3, ((5, 6),)), delivered=6)
    leading.tell(DROPPED)
    return leading


def test_x15_what_a_member_tells_its_client_to_be_lost_is_counted_once_and_passed() -> None:
    leading = slow_group()
    assert leading.take(Revoked) == [], "what it has in hand may still be acknowledged"
    lost = (Gap(4, 5, "RETENTION"), Gap(6, 10, "RETENTION"))
    for _ in range(2):
        leading.report("b1", 1, Cursor(3, ((4, 10),)), delivered=10, lost=lost)
    assert leading.gaps == [GapFound(shard(0), *gap) for gap in lost]
    leading.report("b1", 1, Cursor(10), delivered=10, lost=lost)
    assert leading.take(Revoked) == [Revoked("b1", EPOCH, 1)]
    leading.finished("b1", 1, lost)
    (grant,) = leading.take(Grant)
    assert (grant.stream, grant.cursor) == (stream(0, 1), Cursor(10))
    assert leading.cursors()[shard(0)] == Cursor(10, lost=5)
    assert len(leading.gaps) == 2


def test_x15_a_stream_that_is_gone_is_taken_back_from_a_member_that_hangs() -> None:
    leading = slow_group()
    for _ in range(0, OPTIONS.revoke_ms, OPTIONS.tick_ms):
        leading.ping("b1", (1, stream(0)))
        leading.after(OPTIONS.tick_ms)
    assert leading.take(Revoke) == [Revoke("b1", EPOCH, 1)]
    leading.hand_over("b1", 1, Cursor(3, ((5, 6),)))
    (grant,) = leading.take(Grant)
    assert grant.cursor == Cursor(3, ((5, 6),)), (
        "whoever has the next one tells what is gone before it"
    )
    assert leading.gaps == []


@pytest.mark.parametrize("last_word", ["finished", "left"])
def test_x15_what_was_told_in_the_last_moment_counts_too(last_word: str) -> None:
    leading = slow_group()
    lost = (Gap(3, 5, "RETENTION"), Gap(6, 10, "RETENTION"))
    if last_word == "finished":
        leading.report("b1", 1, Cursor(3, ((5, 6),)), delivered=10, final=True)
        leading.finished("b1", 1, lost)
    else:
        leading.hear(Disconnect("b1", EPOCH, ((1, Cursor(10)),), ((1, lost),)))
    assert leading.leader.shards[shard(0)].progress.low == 10
    assert leading.cursors()[shard(0)] == Cursor(10, lost=6)


def test_a_lease_with_many_losses_is_given_anew() -> None:
    """Its reports carry no more; the rest follows under a new lease, which begins with none."""
    leading = LeaderScene()
    leading.tell(ShardsSeen((growing(0, 10_000),)))
    leading.join("b1")
    (grant,) = leading.confirm()
    lost = tuple(Gap(2 * number, 2 * number + 1, "DAMAGE") for number in range(FEED_LOSSES_MAX))
    upto = 2 * FEED_LOSSES_MAX
    leading.report("b1", grant.lease, Cursor(upto - 2), delivered=upto - 2, lost=lost[:-1])
    assert leading.take(Revoke) == []
    leading.report("b1", grant.lease, Cursor(upto), delivered=upto, lost=lost)
    assert [one.lease for one in leading.take(Revoke)] == [grant.lease]
    leading.report("b1", grant.lease, Cursor(upto), delivered=upto, final=True, lost=lost)
    leading.finished("b1", grant.lease, lost)
    (again,) = leading.confirm()
    assert (again.borrower, again.stream, again.cursor) == ("b1", grant.stream, Cursor(upto))
    assert again.lease > grant.lease
    assert leading.leader.shards[shard(0)].lost == FEED_LOSSES_MAX


def test_a_leader_goes_on_counting_where_the_one_before_it_was() -> None:
    leading = LeaderScene(cursors=[(shard(0), Cursor(3, lost=40))])
    leading.tell(DROPPED)
    view = leading.leader.shards[shard(0)]
    assert (view.lost, view.gone, view.lag) == (40, 7, 10)
    leading.join("b1")
    (grant,) = leading.confirm()
    assert (grant.stream, grant.cursor) == (stream(0, 1), Cursor(3)), "its client is told from 3 on"
    lost = (Gap(3, 10, "RETENTION"),)
    leading.report("b1", 1, Cursor(10), delivered=10, lost=lost)
    assert leading.cursors()[shard(0)] == Cursor(10, lost=47)


def test_x24_a_message_that_is_out_holds_its_stream_and_no_other() -> None:
    leading = led(2, "b1")
    leading.report("b1", 1, Cursor(0, ((1, 90),)), delivered=90)
    leading.report("b1", 2, Cursor(90), delivered=90)
    first, second = leading.leader.lags()
    assert (first.offset, first.lag) == (0, 11)
    assert (second.offset, second.lag) == (90, 10)
    assert (first.borrower, first.status) == ("member of b1", "granted")


# --- storing and fencing --------------------------------------------------------------------------


def commits(effects: list[Effect]) -> list[Commit]:
    return [effect for effect in effects if isinstance(effect, Commit)]


def test_what_comes_while_a_commit_is_on_its_way_goes_with_the_next() -> None:
    leading = led(2, "b1")
    leading.answers = False
    leading.report("b1", 1, Cursor(1))
    (first,) = leading.commits[-1:]
    leading.report("b1", 1, Cursor(2))
    leading.report("b1", 2, Cursor(3))
    assert leading.commits[-1] is first
    assert leading.tell(Committed(first.number)) == [SetTimer("commit", OPTIONS.commit_ms)]
    (second,) = commits(leading.after(OPTIONS.commit_ms, "commit"))
    assert second.cursors == ((shard(0), Cursor(2)), (shard(1), Cursor(3)))
    assert leading.tell(Committed(first.number)) == [], "an answer that comes again"


def test_x16_a_catalog_that_is_away_is_asked_again_after_a_pause() -> None:
    leading = led(1, "b1")
    leading.answers = False
    leading.report("b1", 1, Cursor(5))
    number = leading.commits[-1].number
    assert leading.tell(CommitFailed(number)) == [SetTimer("commit", OPTIONS.commit_retry_ms)]
    (again,) = commits(leading.after(OPTIONS.commit_retry_ms, "commit"))
    assert again.cursors == ((shard(0), Cursor(5)),)
    assert again.number != number


def test_x4_a_leader_that_never_committed_leaves_the_start_of_the_group() -> None:
    leading = LeaderScene()
    leading.answers = False
    leading.tell(ShardsSeen(((shard(0), (Extent(stream(0), 0, 50, False),), 20),)))
    assert leading.commits[0].cursors == ((shard(0), Cursor(20)),), "the start is stored at once"
    following = LeaderScene(cursors=())
    following.tell(ShardsSeen(((shard(0), (Extent(stream(0), 0, 50, False),), 20),)))
    following.join("b1")
    assert following.take(Grant)[0].cursor == Cursor(20)


def test_x6_i12_a_leader_whose_commit_is_refused_is_over() -> None:
    leading = led(1, "b1")
    assert leading.tell(Fenced()) == [Stopped("FENCED")]
    assert leading.leader.state is LeaderState.STOPPED
    leading.said.clear()
    leading.report("b1", 1, Cursor(9))
    assert leading.said == []


@pytest.mark.parametrize("event", [End("STOPPING"), Kick("b1"), Committed(1)])
def test_x7_a_leader_that_wakes_after_its_lease_says_and_stores_nothing(event: Event) -> None:
    leading = LeaderScene(lease_until_ms=1_000)
    leading.streams(1)
    leading.join("b1")
    leading.confirm()
    leading.now_ms = 1_000
    assert leading.tell(event) == [Stopped("LEASE")]
    assert leading.tell(event) == []


def test_a_lease_that_is_renewed_goes_on() -> None:
    leading = LeaderScene(lease_until_ms=1_000)
    leading.now_ms = 900
    leading.tell(LeaseHeld(2_000))
    leading.tell(LeaseHeld(1_500))
    leading.now_ms = 1_900
    leading.streams(1)
    assert leading.leader.state is LeaderState.LEADING


def test_x19_only_the_clock_that_it_is_given_counts() -> None:
    # Times come with events, never in messages: who has a strange clock has nowhere to say so.
    leading = led(1, "b1")
    leading.after(OPTIONS.borrower_ms - 1)
    leading.ping("b1", (1, stream(0)))
    leading.after(OPTIONS.borrower_ms - 1)
    assert leading.take(Invalidate) == []


# --- operators ------------------------------------------------------------------------------------


def test_a_group_that_was_moved_sends_everybody_away_and_stores_nothing_more() -> None:
    leading = led(2, "b1")
    leading.report("b1", 1, Cursor(50, (), ((60, 2),)), delivered=70)
    before = len(leading.commits)
    leading.answers = False
    assert Stopped("SOUGHT") in leading.tell(End("SOUGHT"))
    assert leading.take(Invalidate) == [Invalidate("b1", EPOCH, "SOUGHT")]
    leading.report("b1", 1, Cursor(99))
    assert len(leading.commits) == before, "I4: who had it before moves nothing"


def test_a_changed_limit_is_granted_to_those_who_have_streams_without_a_failure() -> None:
    leading = led(2, "b1")
    leading.report("b1", 1, Cursor(50, (), ((60, 2),)), delivered=70)
    leading.tell(Change(deliveries_max=2))
    revoked = {message.lease for message in leading.take(Revoke)}
    assert revoked == {1, 2}
    for lease in revoked:
        leading.report("b1", lease, Cursor(61 if lease == 1 else 0), final=True)
    for message in leading.take(Revoked):
        leading.finished("b1", message.lease)
    grants = leading.take(Grant)
    assert {(grant.borrower, grant.deliveries_max) for grant in grants} == {("b1", 2)}
    assert {grant.stream: grant.cursor for grant in grants} == {
        stream(0): Cursor(61),
        stream(1): Cursor(0),
    }


def test_f4_a_group_that_is_deleted_tells_its_members_and_stores_nothing() -> None:
    leading = led(1, "b1", "b2")
    leading.answers = False
    before = len(leading.commits)
    leading.report("b1", 1, Cursor(5))
    leading.tell(Committed(leading.commits[-1].number))
    leading.after(OPTIONS.commit_ms, "commit")
    leading.report("b1", 1, Cursor(6))
    leading.take(Invalidate)
    effects = leading.tell(End("DELETED"))
    assert {message.borrower for message in leading.take(Invalidate)} == {"b1", "b2"}
    effects += leading.tell(Committed(leading.commits[-1].number))
    assert Stopped("DELETED") in effects
    assert len(leading.commits) == before + 2


def test_a_leader_that_stops_stores_what_it_knows_first() -> None:
    leading = led(1, "b1")
    leading.answers = False
    leading.report("b1", 1, Cursor(5))
    first = leading.commits[-1]
    leading.report("b1", 1, Cursor(6))
    assert Stopped("STOPPING") not in leading.tell(End("STOPPING"))
    (last,) = commits(leading.tell(Committed(first.number)))
    assert last.cursors == ((shard(0), Cursor(6)),)
    assert leading.tell(Committed(last.number)) == [Stopped("STOPPING")]


def test_a_leader_that_stops_waits_for_no_pause() -> None:
    leading = led(1, "b1")
    leading.answers = False
    leading.report("b1", 1, Cursor(5))
    leading.tell(Committed(leading.commits[-1].number))
    assert leading.leader.lending.commits.is_busy, "what is stored is followed by a pause"
    assert Stopped("STOPPING") in leading.tell(End("STOPPING"))


def test_behind_a_failure_a_leader_that_stops_waits() -> None:
    leading = led(1, "b1")
    leading.answers = False
    leading.report("b1", 1, Cursor(5))
    leading.tell(End("STOPPING"))
    failed = leading.commits[-1]
    assert leading.tell(CommitFailed(failed.number)) == [
        SetTimer("commit", OPTIONS.commit_retry_ms)
    ]
    (again,) = commits(leading.after(OPTIONS.commit_retry_ms, "commit"))
    assert again.cursors == failed.cursors
    assert leading.tell(Committed(again.number)) == [Stopped("STOPPING")]


def test_f20_an_empty_group_idles_out_and_the_next_leader_goes_on_there() -> None:
    leading = led(1, "b1")
    leading.leave("b1", (1, Cursor(42)))
    leading.after(OPTIONS.tick_ms)
    assert leading.after(OPTIONS.idle_ms - 1)[-1] == SetTimer("tick", OPTIONS.tick_ms)
    assert Stopped("IDLE") in leading.after(1)
    following = LeaderScene(cursors=leading.cursors().items())
    following.streams(1)
    following.join("b2")
    assert following.take(Grant)[0].cursor == Cursor(42)


def test_a_member_keeps_a_group_from_idling_out() -> None:
    leading = led(1, "b1")
    for _ in range(20):
        leading.ping("b1", (1, stream(0)))
        leading.after(OPTIONS.borrower_ms - 1)
    assert leading.leader.state is LeaderState.LEADING


def test_options_have_defaults_that_fit_together() -> None:
    options = LeaderOptions()
    assert options.tick_ms <= options.resend_ms < options.borrower_ms < options.revoke_ms


def test_an_event_that_it_does_not_know_is_a_mistake_of_ours() -> None:
    class Odd(Event, frozen=True):
        pass

    with pytest.raises(MachineError, match="a Leader knows no"):
        led(1).tell(Odd())
