"""The Leader of a `$queue` group: locks on messages, given back, run out, and shared out fairly."""

from collections import Counter

import pytest
from tests.core.group.leader_scene import EPOCH, OPTIONS, LeaderScene, growing, shard, stream

from moorline.core.delivery.progress import Cursor
from moorline.core.group.events import Change, GapFound, ShardsSeen
from moorline.core.group.message import Grant, Invalidate, Revoke, Revoked
from moorline.core.group.queue_leader import QueueLeader, QueueLending
from moorline.core.group.stream_lease import Status
from moorline.core.ranges import Range
from moorline.core.stream import Extent, Gap
from moorline.limits import QUEUE_SLICE_MAX


def queue(*borrowers: str, end: int = 100, window: int = 16, streams: int = 1) -> LeaderScene:
    leading = LeaderScene(QueueLeader)
    leading.join(*borrowers, window=window)
    leading.streams(streams, end)
    return leading


def ranges_of(grant: Grant) -> Range:
    assert grant.ranges is not None
    (found,) = grant.ranges
    return found


def granted(leading: LeaderScene) -> list[tuple[str, Range]]:
    return [(grant.borrower, ranges_of(grant)) for grant in leading.confirm()]


def locked(leading: LeaderScene) -> dict[str, int]:
    return {view.id: view.locked for view in leading.leader.borrowers.values()}


def lending(leading: LeaderScene) -> QueueLending:
    found = leading.leader.lending
    assert isinstance(found, QueueLending)
    return found


def test_f21_members_share_the_messages_of_a_stream() -> None:
    leading = queue("b1", "b2", end=8)
    assert granted(leading) == [("b1", (0, 4)), ("b2", (4, 8))]


@pytest.mark.parametrize("windows", [(16, 16, 16), (1_024, 16, 2)])
def test_f21_single_messages_go_round_whatever_the_windows(windows: tuple[int, ...]) -> None:
    leading = LeaderScene(QueueLeader)
    for number, window in enumerate(windows):
        leading.join(f"b{number}", window=window)
    got: Counter[str] = Counter()
    for end in range(1, 301):
        leading.streams(1, end)
        for grant in leading.confirm():
            first, upto = ranges_of(grant)
            got[grant.borrower] += upto - first
            leading.report(grant.borrower, grant.lease, Cursor(0, ((first, upto),)), delivered=upto)
            leading.finished(grant.borrower, grant.lease)
    assert set(got.values()) == {100}


def test_f21_a_member_that_is_slow_gets_less() -> None:
    leading = queue("quick", "slow", end=0)
    got: Counter[str] = Counter()
    for end in range(1, 13):
        leading.streams(1, end)
        for grant in leading.confirm():
            first, upto = ranges_of(grant)
            got[grant.borrower] += upto - first
            if grant.borrower == "quick":
                cursor = Cursor(0, ((first, upto),))
                leading.report("quick", grant.lease, cursor, delivered=upto)
    assert got == {"quick": 11, "slow": 1}


def test_f21_a_member_has_as_many_messages_as_its_window_says() -> None:
    leading = queue("b1", end=100, window=10)
    assert granted(leading) == [("b1", (0, 10))]
    leading.report("b1", 1, Cursor(4), delivered=10)
    assert granted(leading) == [("b1", (10, 14))]


def test_a_slice_is_bounded() -> None:
    leading = queue("b1", end=10_000, window=1_000)
    sizes = [upto - first for _, (first, upto) in granted(leading)]
    assert max(sizes) == QUEUE_SLICE_MAX
    assert sum(sizes) == 1_000


def test_a_lease_that_is_done_goes_back_by_itself() -> None:
    leading = queue("b1", end=4)
    leading.confirm()
    leading.report("b1", 1, Cursor(4), delivered=4)
    assert leading.take(Revoked) == [Revoked("b1", EPOCH, 1)]
    leading.finished("b1", 1)
    assert leading.leader.leases == {}
    assert leading.cursors()[shard(0)] == Cursor(4)


def test_x24_one_message_does_not_stall_the_others() -> None:
    leading = queue("b1", "b2", end=40, window=10)
    leading.confirm()
    leading.report("b1", 1, Cursor(0, ((1, 10),)), delivered=10)
    assert granted(leading) == [("b1", (20, 29))]
    assert locked(leading) == {"b1": 10, "b2": 10}
    assert leading.leader.lags()[0].offset == 0


def test_f21_what_is_rejected_goes_elsewhere_at_once() -> None:
    leading = queue("b1", "b2", end=8)
    leading.confirm()
    cursor = Cursor(0, (), ((2, 1),))
    leading.report("b1", 1, cursor, delivered=4, returned=((2, 3),))
    (grant,) = leading.take(Grant)
    assert (grant.borrower, ranges_of(grant)) == ("b2", (2, 3))
    assert grant.cursor.failures == ((2, 1),), "its failures travel with it"


def test_what_is_rejected_waits_for_another_while_there_is_one() -> None:
    leading = queue("b1", "b2", end=8, window=4)
    leading.confirm()
    leading.report("b1", 1, Cursor(0, (), ((2, 1),)), delivered=4, returned=((2, 3),))
    assert leading.take(Grant) == [], "the other has no room"
    leading.leave("b2", (2, Cursor(0, ((4, 8),))))
    leading.after(OPTIONS.replan_ms, "replan")
    assert granted(leading) == [("b1", (2, 3))], "now there is nobody else"


def test_what_is_rejected_does_not_hold_up_what_came_back_with_it() -> None:
    leading = queue("b1", "b2", end=8, window=4)
    leading.confirm()
    leading.report("b1", 1, Cursor(0, (), ((1, 1),)), delivered=3, returned=((0, 4),))
    assert granted(leading) == [("b1", (0, 1)), ("b1", (2, 4))]


def test_given_back_without_blame_may_come_to_the_same_member() -> None:
    leading = queue("b1", end=4)
    leading.confirm()
    leading.report("b1", 1, Cursor(0), delivered=4, returned=((2, 4),))
    assert granted(leading) == [("b1", (2, 4))]


def test_i13_a_report_of_what_was_returned_counts_once() -> None:
    leading = queue("b1", "b2", end=8)
    leading.confirm()
    for _ in range(3):
        leading.report("b1", 1, Cursor(0, (), ((2, 1),)), delivered=4, returned=((2, 3),))
    assert granted(leading) == [("b2", (2, 3))]


def test_the_messages_of_a_member_that_went_are_for_others() -> None:
    leading = queue("b1", "b2", end=8)
    leading.confirm()
    leading.leave("b1", (1, Cursor(0, ((1, 2),))))
    leading.after(OPTIONS.replan_ms, "replan")
    assert granted(leading) == [("b2", (0, 1)), ("b2", (2, 4))]


def test_a_silent_member_is_blamed_for_the_oldest_of_each_lock() -> None:
    leading = queue("b1", end=8)
    leading.confirm()
    leading.report("b1", 1, Cursor(0, ((0, 1),)), delivered=5)
    leading.after(OPTIONS.borrower_ms)
    assert leading.take(Invalidate) == [Invalidate("b1", EPOCH, "SILENT")]
    assert leading.cursors()[shard(0)].failures == ((1, 1),)


def test_a_lock_that_runs_out_blames_the_oldest_and_frees_the_rest() -> None:
    leading = queue("b1", "b2", end=8)
    leading.confirm()
    leading.report("b1", 1, Cursor(0, ((0, 1),)), delivered=4)
    leading.report("b2", 2, Cursor(0, ((4, 8),)), delivered=8)
    leading.finished("b2", 2)
    keep_alive(leading, OPTIONS.lock_ms)
    assert leading.cursors()[shard(0)].failures == ((1, 1),)
    told = {(grant.borrower, ranges_of(grant)) for grant in leading.take(Grant)}
    assert ("b2", (1, 2)) in told, "the one that failed is for another"
    assert {message for _, message in told} == {(1, 2), (2, 4)}


def test_a_lock_lasts_while_its_member_gets_on() -> None:
    leading = queue("b1", end=8)
    leading.confirm()
    for done in range(1, 8):
        keep_alive(leading, OPTIONS.lock_ms - OPTIONS.tick_ms)
        leading.report("b1", 1, Cursor(done), delivered=8)
    assert leading.leader.shards[shard(0)].progress.failures == {}
    keep_alive(leading, OPTIONS.lock_ms + OPTIONS.tick_ms)
    assert leading.leader.shards[shard(0)].progress.failures == {7: 1}


def keep_alive(leading: LeaderScene, passed_ms: int) -> None:
    """Time passes, and the members ping."""
    for _ in range(0, passed_ms, OPTIONS.tick_ms):
        leading.after(OPTIONS.tick_ms)
        for view in leading.leader.borrowers.values():
            view.heard_ms = leading.now_ms


def test_what_is_done_after_its_lock_ran_out_leaves_the_pool() -> None:
    leading = queue("b1", "b2", end=4, window=4)
    leading.confirm()
    leading.leave("b2")
    leading.report("b1", 1, Cursor(0), delivered=2)
    keep_alive(leading, OPTIONS.lock_ms)
    leading.report("b1", 1, Cursor(4), delivered=4)
    leading.after(OPTIONS.tick_ms)
    for lease in list(leading.leader.borrowers["b1"].leases):
        leading.report("b1", lease, Cursor(4), delivered=4)
        leading.finished("b1", lease)
    leading.after(OPTIONS.tick_ms)
    pool = lending(leading)._pool(shard(0))
    assert list(pool.back) == []
    assert pool._refused_by == {}
    assert leading.cursors()[shard(0)] == Cursor(4)


def test_the_pool_does_not_grow_with_rejections() -> None:
    leading = queue("b1", "b2", end=1_000, window=8)
    rounds = 0
    while leading.leader.shards[shard(0)].progress.low < 1_000:
        rounds += 1
        assert rounds < 2_000
        for grant in leading.confirm():
            first, upto = ranges_of(grant)
            failures = tuple((offset, 1) for offset in range(first, upto) if offset % 3 == 0)
            was_there = dict(grant.cursor.failures)
            if failures and not was_there:
                returned = tuple((offset, offset + 1) for offset, _ in failures)
                left = tuple((o, o + 1) for o in range(first, upto) if o % 3)
                leading.report(
                    grant.borrower,
                    grant.lease,
                    Cursor(0, left, failures),
                    delivered=upto,
                    returned=returned,
                )
            else:
                leading.report(
                    grant.borrower, grant.lease, Cursor(0, ((first, upto),)), delivered=upto
                )
            leading.finished(grant.borrower, grant.lease)
        leading.after(OPTIONS.tick_ms)
        pool = lending(leading)._pool(shard(0))
        assert len(pool._refused_by) <= len(pool.back) <= 16
    assert leading.leader.leases == {}


def test_shards_take_turns() -> None:
    leading = queue("b1", end=10_000, window=8, streams=4)
    seen = [grant.stream.shard_number for grant in leading.confirm()]
    for _ in range(7):
        for lease in list(leading.leader.leases.values()):
            if lease.open:
                (held,) = list(lease.open)
                leading.report("b1", lease.number, Cursor(0, (held,)), delivered=held[1])
        seen += [grant.stream.shard_number for grant in leading.confirm()]
    assert {0, 1, 2, 3} <= set(seen[:5]), "one that is far behind does not hold up the others"


def test_a_leader_goes_on_where_the_one_before_it_was() -> None:
    leading = LeaderScene(QueueLeader, cursors=[(shard(0), Cursor(3, ((5, 7),), ((4, 2),)))])
    leading.join("b1")
    leading.streams(1, end=10)
    grants = leading.take(Grant)
    assert [ranges_of(grant) for grant in grants] == [(3, 5), (7, 10)]
    assert grants[0].cursor.failures == ((4, 2),)


def test_messages_of_two_generations_are_two_leases() -> None:
    leading = LeaderScene(QueueLeader)
    leading.join("b1")
    extents = (Extent(stream(0, 0), 0, 5, True), Extent(stream(0, 1), 5, 8, False))
    leading.tell(ShardsSeen(((shard(0), extents, 0),)))
    assert [(grant.stream, ranges_of(grant)) for grant in leading.take(Grant)] == [
        (stream(0, 0), (0, 5)),
        (stream(0, 1), (5, 8)),
    ]


def test_x15_what_retention_took_leaves_the_pool_and_ends_its_leases() -> None:
    leading = LeaderScene(QueueLeader)
    leading.join("b1", window=3)
    extents = (Extent(stream(0, 0), 0, 5, True), Extent(stream(0, 1), 5, 8, False))
    leading.tell(ShardsSeen(((shard(0), extents, 0),)))
    leading.confirm()
    leading.report("b1", 1, Cursor(0), delivered=3, returned=((1, 2),))
    leading.take(Grant)
    leading.tell(ShardsSeen(((shard(0), extents[1:], 0),)))
    # What is in hand may still be acknowledged. What nobody had is for a client to know, room or not.
    (gone,) = leading.take(Grant)
    assert (gone.stream, gone.ranges) == (stream(0, 1), ((3, 5),))
    leading.report("b1", gone.lease, gone.cursor)
    lost = Gap(3, 5, "RETENTION")
    leading.report("b1", gone.lease, Cursor(0, ((3, 5),)), delivered=5, lost=(lost,))
    assert leading.gaps == [GapFound(shard(0), *lost)]
    leading.finished("b1", gone.lease)
    leading.report("b1", 1, Cursor(0, ((0, 1), (2, 3))), delivered=3, returned=((1, 2),))
    for lease in list(leading.leader.leases.values()):
        assert lease.status is not Status.GRANTED or lease.stream == stream(0, 1)
    assert {held for _, held in granted(leading)} >= {(5, 7)}


def test_what_is_gone_is_told_once_and_takes_no_room() -> None:
    leading = LeaderScene(QueueLeader, cursors=[(shard(0), Cursor(2, ((4, 6),)))])
    leading.join("b1", "b2", window=2)
    leading.tell(ShardsSeen(((shard(0), (Extent(stream(0, 3), 900, 910, False),), 0),)))
    gone, *rest = leading.confirm()
    assert gone.ranges == ((2, 4), (6, 900))
    assert [ranges_of(grant) for grant in rest] == [(900, 902), (902, 904)]
    assert locked(leading) == {"b1": 2, "b2": 2}
    told = (Gap(2, 4, "RETENTION"), Gap(6, 900, "RETENTION"))
    for _ in range(3):
        leading.report(
            gone.borrower, gone.lease, Cursor(0, ((2, 4), (6, 900))), delivered=900, lost=told
        )
    assert leading.gaps == [GapFound(shard(0), *one) for one in told]
    view = leading.leader.shards[shard(0)]
    assert (view.lost, view.gone, view.progress.low) == (896, 0, 900)
    assert leading.cursors()[shard(0)] == Cursor(900, lost=896)


def test_what_is_gone_in_very_many_places_is_told_under_several_leases() -> None:
    count = 2 * QUEUE_SLICE_MAX + 5
    acked = tuple((2 * number + 1, 2 * number + 2) for number in range(count))
    leading = LeaderScene(QueueLeader, cursors=[(shard(0), Cursor(0, acked))])
    leading.join("b1")
    upto = 2 * count
    leading.tell(ShardsSeen(((shard(0), (Extent(stream(0, 3), upto, upto, False),), 0),)))
    grants = leading.confirm()
    assert [len(grant.ranges or ()) for grant in grants] == [QUEUE_SLICE_MAX, QUEUE_SLICE_MAX, 5]
    for grant in grants:
        assert grant.ranges is not None
        lost = tuple(Gap(*one, "RETENTION") for one in grant.ranges)
        leading.report("b1", grant.lease, Cursor(0, grant.ranges), delivered=upto, lost=lost)
    assert leading.cursors()[shard(0)] == Cursor(upto, lost=count)


def test_what_is_gone_and_not_confirmed_in_time_is_told_to_another() -> None:
    leading = LeaderScene(QueueLeader, cursors=[(shard(0), Cursor(0))])
    leading.join("b1", "b2")
    leading.tell(ShardsSeen(((shard(0), (Extent(stream(0, 1), 5, 5, False),), 0),)))
    (gone,) = leading.confirm()
    keep_alive(leading, OPTIONS.lock_ms)
    (again,) = leading.take(Grant)
    assert again.ranges == ((0, 5),)
    assert leading.leader.shards[shard(0)].progress.failures == {}, "nobody is to blame"
    # The first one did confirm it, and that is heard late.
    lost = (Gap(0, 5, "RETENTION"),)
    leading.report(gone.borrower, gone.lease, Cursor(0, ((0, 5),)), delivered=5, lost=lost)
    leading.report(again.borrower, again.lease, Cursor(0, ((0, 5),)), delivered=5, lost=lost)
    assert leading.leader.shards[shard(0)].lost == 5


def test_a_changed_limit_counts_for_what_is_handed_out_next() -> None:
    leading = queue("b1", end=4)
    assert {grant.deliveries_max for grant in leading.confirm()} == {OPTIONS.deliveries_max}
    leading.tell(Change(deliveries_max=9))
    assert leading.take(Revoke) == [], "a lock does not last"
    leading.report("b1", 1, Cursor(4), delivered=4)
    for message in leading.take(Revoked):
        leading.finished("b1", message.lease)
    leading.tell(ShardsSeen((growing(0, 6),)))
    assert {grant.deliveries_max for grant in leading.take(Grant)} == {9}


def test_a_stream_that_is_away_for_a_while_is_waited_for() -> None:
    leading = queue("b1", end=4)
    leading.confirm()
    leading.tell(ShardsSeen(((shard(0), (), 0),)))
    assert leading.take(Grant) == []
    leading.tell(ShardsSeen((growing(0, 6),)))
    assert granted(leading) == [("b1", (4, 6))]


@pytest.mark.parametrize("members", [1, 3])
def test_x21_a_message_that_failed_too_often_still_goes_to_a_member_who_buries_it(
    members: int,
) -> None:
    leading = queue(*(f"b{n}" for n in range(members)), end=1)
    for failures in range(1, OPTIONS.deliveries_max + 1):
        (grant,) = leading.confirm()
        leading.report(
            grant.borrower,
            grant.lease,
            Cursor(0, (), ((0, failures),)),
            delivered=1,
            returned=((0, 1),),
        )
        leading.said = [message for message in leading.said if isinstance(message, Grant)]
    (last,) = leading.take(Grant)
    assert last.cursor.failures == ((0, OPTIONS.deliveries_max),)


@pytest.mark.parametrize("broken", ["Q1", "Q2", "Q3", "Q4", "Q5"])
def test_a_broken_state_is_found(broken: str) -> None:
    leading = queue("b1", "b2", end=40, window=8)
    leading.confirm()
    one = lending(leading)
    pool = one._pool(shard(0))
    match broken:
        case "Q1":
            pool.back.add(0, 1)
            one._refilled[shard(0)] = None
        case "Q2":
            one.borrowers["b1"].locked -= 1
        case "Q3":
            one._roomy["b1"] = None
        case "Q4":
            pool.next += 3
        case _:
            leading.report("b1", 1, Cursor(0), delivered=8, returned=((0, 1),))
            pool.back.add(0, 1)
            one.leases[next(n for n, held in one.leases.items() if 0 in held.open)].open.remove(
                0, 1
            )
            one._refilled.clear()
            for view in one.borrowers.values():
                view.locked = sum(len(lease.open) for lease in view.leases.values())
                one._count(view, 0)
    with pytest.raises(AssertionError, match=broken):
        leading.leader.check()
