"""The session's handler: leases become feeds, and what becomes of their messages becomes progress."""

from itertools import count

import msgspec
import pytest

from moorline.core.delivery.feed import Feed, FeedClosed, FeedOpened, FeedStopped
from moorline.core.delivery.progress import Cursor
from moorline.core.effects import Effect, SetTimer
from moorline.core.group.agent import SubscriptionOver, ToLeader
from moorline.core.group.events import BorrowerTimes
from moorline.core.group.message import (
    Disconnect,
    Grant,
    Invalidate,
    LeaderConnectResponse,
    Revoke,
    Revoked,
    UpdateProgress,
)
from moorline.core.group.shared_subscriptions import PROGRESS_TIMER, SharedSubscriptions
from moorline.core.ranges import Range
from moorline.core.stream import Gap, Stream
from moorline.limits import DISCONNECT_LOSSES_MAX, FEED_LOSSES_MAX, FRAME_BYTES_MAX


def subscribed(subscription: int = 1) -> SharedSubscriptions:
    ids, numbers = count(1), count(1)
    shared = SharedSubscriptions(
        "ann", lambda: f"b{next(ids)}", lambda: next(numbers), BorrowerTimes(), progress_ms=5
    )
    shared.on_subscribe(subscription, 16, 0)
    shared.received(LeaderConnectResponse("b1", 1, "n1"), 0)
    return shared


def opened(
    shared: SharedSubscriptions, lease: int, ranges: tuple[Range, ...] | None = None
) -> Feed:
    stream = Stream("n1", lease, 0)
    effects = shared.received(Grant("b1", 1, lease, stream, Cursor(0), 3, ranges), 0)
    assert isinstance(effects[0], FeedOpened)
    return effects[0].feed


def reports(effects: list[Effect]) -> list[UpdateProgress]:
    return [
        effect.message
        for effect in effects
        if isinstance(effect, ToLeader) and isinstance(effect.message, UpdateProgress)
    ]


def goodbyes(effects: list[Effect]) -> list[Disconnect]:
    return [
        effect.message
        for effect in effects
        if isinstance(effect, ToLeader) and isinstance(effect.message, Disconnect)
    ]


def read(feed: Feed, count: int) -> None:
    feed.looked_at(feed.next, feed.next + count, [(feed.next, feed.next + count)])


def test_a_grant_becomes_a_feed() -> None:
    shared = subscribed(subscription=4)
    feed = opened(shared, 1)
    assert (feed.subscription, feed.stream, feed.deliveries_max) == (4, Stream("n1", 1, 0), 3)
    assert shared.feeds == {feed.number: feed}
    assert shared.is_connected(4)


def test_what_happens_within_a_few_milliseconds_is_reported_together() -> None:
    shared = subscribed()
    one, other = opened(shared, 1), opened(shared, 2)
    read(one, 5)
    assert shared.changed(one, 0) == [SetTimer(PROGRESS_TIMER, 5)]
    one.ack(0, 3)
    assert shared.changed(one, 1) == []
    read(other, 2)
    assert shared.changed(other, 2) == []
    told = reports(shared.timer(PROGRESS_TIMER, 5))
    assert [(report.lease, report.cursor, report.delivered) for report in told] == [
        (1, Cursor(3), 5),
        (2, Cursor(0), 2),
    ]
    assert shared.timer(PROGRESS_TIMER, 6) == []


def test_a_revoke_with_nothing_out_is_finished_at_once() -> None:
    shared = subscribed()
    feed = opened(shared, 1)
    stopped, *rest = shared.received(Revoke("b1", 1, 1), 0)
    assert stopped == FeedStopped(feed)
    (last,) = reports(rest)
    assert last.final


def test_a_revoke_is_finished_when_the_last_message_is() -> None:
    shared = subscribed()
    feed = opened(shared, 1)
    read(feed, 2)
    shared.changed(feed, 0)
    assert shared.received(Revoke("b1", 1, 1), 0) == [FeedStopped(feed)]
    feed.ack(0, 1)
    assert reports(shared.changed(feed, 1)) == []
    feed.ack(1, 2)
    (last,) = reports(shared.changed(feed, 1))
    assert (last.final, last.cursor) == (True, Cursor(2))
    assert FeedClosed(feed) in shared.received(Revoked("b1", 1, 1), 2)
    assert shared.feeds == {}
    assert shared.changed(feed, 3) == [], "what its member still says is too late"


def test_f21_what_goes_back_of_a_queue_is_said_at_once_and_once() -> None:
    shared = subscribed()
    feed = opened(shared, 1, ((0, 4),))
    read(feed, 4)
    shared.changed(feed, 0)
    feed.reject(1)
    (report,) = reports(shared.changed(feed, 0))
    assert report.returned == ((1, 2),)
    feed.ack(0, 1)
    assert reports(shared.changed(feed, 0)) == [], "that one can wait for the timer"
    (later,) = reports(shared.timer(PROGRESS_TIMER, 5))
    assert (later.cursor, later.returned) == (Cursor(1, (), ((1, 1),)), ((1, 2),))


def test_unsubscribing_stops_all_feeds_and_waits_for_what_is_out() -> None:
    shared = subscribed()
    one, other = opened(shared, 1), opened(shared, 2)
    read(one, 3)
    effects = shared.on_unsubscribe(1, 0)
    assert [effect for effect in effects if isinstance(effect, FeedStopped)] == [
        FeedStopped(one),
        FeedStopped(other),
    ]
    one.ack(0, 3)
    assert goodbyes(shared.changed(one, 1)) == [
        Disconnect("b1", 1, ((1, Cursor(3)), (2, Cursor(0))))
    ]
    assert shared.feeds == {}


def test_unsubscribing_that_takes_too_long_says_all_that_is_known() -> None:
    shared = subscribed()
    feed = opened(shared, 1)
    read(feed, 3)
    shared.on_unsubscribe(1, 0)
    feed.ack(0, 2)
    shared.changed(feed, 1)
    assert goodbyes(shared.timer("b1 unsubscribe", 9)) == [Disconnect("b1", 1, ((1, Cursor(2)),))]


def test_x2_a_disconnect_hands_on_what_was_not_acknowledged() -> None:
    shared = subscribed()
    feed = opened(shared, 1)
    read(feed, 20)
    feed.ack(0, 1)
    effects = shared.on_disconnect(0, blame=False)
    assert goodbyes(effects) == [Disconnect("b1", 1, ((1, Cursor(1)),))]
    assert FeedClosed(feed) in effects


def test_a24_one_that_is_denied_goes_at_once_with_what_is_out_and_leaves_others_alone() -> None:
    shared = subscribed()
    feed = opened(shared, 1)
    read(feed, 20)
    feed.ack(0, 1)
    shared.on_subscribe(2, 16, 0)
    shared.received(LeaderConnectResponse("b2", 7, "n1"), 0)
    effects = shared.on_denied(1, 0)
    assert goodbyes(effects) == [Disconnect("b1", 1, ((1, Cursor(1)),))]
    assert FeedClosed(feed) in effects
    assert not shared.has_members(1)
    assert shared.is_connected(2)
    shared.check()
    # What its Leader says from now on is for nobody.
    assert shared.received(Grant("b1", 1, 2, Stream("n1", 2, 0), Cursor(0), 3, None), 0) == []


def test_x21_a_member_that_died_is_blamed_for_the_oldest_that_was_out() -> None:
    shared = subscribed()
    feed = opened(shared, 1)
    read(feed, 20)
    feed.ack(0, 1)
    (goodbye,) = goodbyes(shared.on_disconnect(0, blame=True))
    assert goodbye.cursors == ((1, Cursor(1, (), ((1, 1),))),)


def test_a_borrower_that_is_over_closes_its_feeds_and_a_new_one_asks() -> None:
    shared = subscribed()
    feed = opened(shared, 1)
    effects = shared.received(Invalidate("b1", 1, "SILENT"), 0)
    assert effects[0] == FeedClosed(feed)
    assert feed.stopped
    assert not shared.is_connected(1)
    assert any(isinstance(effect, ToLeader) for effect in effects)


def test_x23_a_kicked_subscription_is_over() -> None:
    shared = subscribed()
    assert SubscriptionOver(1, "KICKED") in shared.received(Invalidate("b1", 1, "KICKED"), 0)


def test_a_node_that_is_lost_closes_the_feeds_of_its_leader() -> None:
    shared = subscribed()
    feed = opened(shared, 1)
    assert FeedClosed(feed) in shared.node_lost("n1", 0)
    assert shared.node_lost("n9", 0) == []


def test_a_loss_beside_another_is_reported_at_once_too() -> None:
    shared = subscribed()
    feed = opened(shared, 7)
    for first in (0, 1):
        feed.lose(first, first + 1, "DAMAGE")
        shared.changed(feed, 0)
        feed.confirm(first, first + 1)
        (report,) = reports(shared.changed(feed, 0))
        assert report.lost == (Gap(0, first + 1, "DAMAGE"),)


def test_the_last_word_carries_no_more_losses_than_a_frame_can_hold() -> None:
    """Of a lease that has no room there its place stays out too: it has passed what is lost."""
    shared = subscribed()
    fit = DISCONNECT_LOSSES_MAX // FEED_LOSSES_MAX
    for lease in range(1, fit + 3):
        feed = opened(shared, lease)
        for offset in range(0, 2 * FEED_LOSSES_MAX, 2):
            feed.lose(offset, offset + 1, "DAMAGE")
            feed.confirm(offset, offset + 1)
            feed.looked_at(offset + 1, offset + 2, [])
    effects = shared.on_disconnect(0, blame=False)
    assert len(reports(effects)) == fit + 2
    (goodbye,) = goodbyes(effects)
    assert [lease for lease, _ in goodbye.lost] == list(range(1, fit + 1))
    assert [lease for lease, _ in goodbye.cursors] == list(range(1, fit + 1))
    assert len(msgspec.msgpack.encode(goodbye)) < FRAME_BYTES_MAX


@pytest.mark.parametrize("broken", ["S1", "S2", "S3", "S4", "A2"])
def test_a_broken_state_is_found(broken: str) -> None:
    shared = subscribed()
    feed = opened(shared, 1)
    shared.check()
    match broken:
        case "S1":
            del shared._by_lease["b1", 1]
        case "S2":
            shared._changed[feed.number] = None
        case "S3":
            shared.received(Revoke("b1", 1, 1), 0)
            feed.stopped = False
        case "S4":
            shared._retired.append(feed)
        case _:
            shared._agent._windows[9] = 16
    with pytest.raises(AssertionError, match=broken):
        shared.check()
