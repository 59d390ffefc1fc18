"""Feeds: what is out, what comes again, and when nothing is out any more."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorline.core.delivery.feed import Feed
from moorline.core.delivery.progress import Cursor
from moorline.core.ranges import Ranges
from moorline.core.stream import RETENTION, Stream

STREAM = Stream("node", 0, 0)


def feed_at(cursor: Cursor = Cursor(0), **options: int) -> Feed:  # noqa: B008  (a value)
    return Feed(1, 1, STREAM, cursor, deliveries_max=options.get("deliveries_max", 0))


def queue_feed(*ranges: tuple[int, int], deliveries_max: int = 0) -> Feed:
    return Feed(1, 1, STREAM, Cursor(0), ranges=ranges, deliveries_max=deliveries_max)


def test_what_is_not_for_this_reader_is_done_at_once() -> None:
    feed = feed_at()
    assert feed.wanted(10) == (0, 10)
    feed.looked_at(0, 10, [(2, 4), (7, 8)])
    assert list(feed.out) == [(2, 4), (7, 8)]
    assert feed.progress.cursor() == Cursor(2, ((4, 7), (8, 10)))
    assert feed.wanted(10) is None
    assert feed.wanted(12) == (10, 12)


def test_i5_the_place_waits_for_the_oldest_that_is_out() -> None:
    feed = feed_at()
    feed.looked_at(0, 5, [(0, 5)])
    assert feed.ack(2, 4) == 2
    assert feed.ack(2, 4) == 0, "I13: once more is once"
    assert feed.progress.cursor() == Cursor(0, ((2, 4),))
    feed.ack(0, 2)
    assert feed.progress.low == 4
    assert feed.ack(4, 99) == 1
    assert feed.progress.cursor() == Cursor(5)


def test_it_goes_on_where_the_group_was_without_what_is_done_above() -> None:
    feed = feed_at(Cursor(3, ((5, 7),)))
    assert feed.wanted(9) == (3, 5)
    feed.looked_at(3, 5, [(3, 5)])
    assert feed.wanted(9) == (7, 9)


def test_what_was_given_back_comes_first_and_blames_nobody() -> None:
    feed = feed_at()
    feed.looked_at(0, 5, [(0, 5)])
    assert feed.give_back(1, 3) == 2
    assert feed.wanted(10) == (1, 3)
    feed.looked_at(1, 3, [(1, 3)])
    assert feed.wanted(10) == (5, 10)
    assert feed.progress.failures == {}


def test_x21_the_last_rejection_buries_and_until_then_nothing_passes_it() -> None:
    feed = feed_at(deliveries_max=2)
    feed.looked_at(0, 2, [(0, 2)])
    assert feed.reject(0) is False
    assert feed.reject(0) is None, "it is not out"
    assert feed.wanted(2) == (0, 1)
    feed.looked_at(0, 1, [(0, 1)])
    assert feed.reject(0) is True
    assert feed.has_failed_too_often(0)
    assert 0 in feed.out
    assert feed.progress.low == 0
    feed.ack(0, 1)
    assert feed.progress.low == 1
    assert not feed.has_failed_too_often(0)


def test_a_member_that_died_failed_at_the_oldest_that_was_out() -> None:
    feed = feed_at(deliveries_max=3)
    feed.looked_at(0, 5, [(0, 5)])
    feed.ack(0, 1)
    feed.blame()
    assert feed.progress.failures == {1: 1}


def test_a_stopped_feed_is_drained_when_nothing_is_out() -> None:
    feed = feed_at()
    feed.looked_at(0, 3, [(0, 3)])
    feed.stop()
    assert feed.wanted(10) is None
    assert not feed.is_drained
    feed.ack(0, 2)
    feed.give_back(2, 3)
    assert feed.is_drained
    assert feed.progress.cursor() == Cursor(2)


def test_a_feed_of_ranges_reads_those_alone() -> None:
    feed = queue_feed((5, 8), (20, 22))
    assert feed.wanted(100) == (5, 8)
    feed.looked_at(5, 8, [(5, 6), (7, 8)])
    assert feed.wanted(100) == (20, 22)
    feed.ack(5, 8)
    assert feed.progress.cursor() == Cursor(0, ((5, 8),))


def test_f21_what_a_member_of_a_queue_rejects_is_for_others() -> None:
    feed = queue_feed((5, 8), deliveries_max=5)
    feed.looked_at(5, 8, [(5, 8)])
    assert feed.reject(6) is False
    assert list(feed.returned) == [(6, 7)]
    assert feed.wanted(100) is None
    assert feed.progress.failures == {6: 1}


def test_a_feed_of_ranges_that_stops_returns_what_it_did_not_look_at() -> None:
    feed = queue_feed((5, 8), (20, 22))
    feed.looked_at(5, 7, [(5, 7)])
    feed.stop()
    assert list(feed.returned) == [(7, 8), (20, 22)]
    feed.give_back(5, 6)
    feed.ack(6, 7)
    assert feed.is_drained
    assert list(feed.returned) == [(5, 6), (7, 8), (20, 22)]


@given(st.data())
def test_every_message_is_out_done_or_comes_again(data: st.DataObject) -> None:
    feed, end = feed_at(), 20
    for _ in range(data.draw(st.integers(0, 30))):
        first = data.draw(st.integers(0, end))
        match data.draw(st.sampled_from(("read", "ack", "back", "reject"))):
            case "read":
                if (wanted := feed.wanted(end)) is not None:
                    upto = data.draw(st.integers(wanted[0] + 1, wanted[1]))
                    feed.looked_at(wanted[0], upto, [(wanted[0], upto)])
            case "ack":
                feed.ack(first, first + 3)
            case "back":
                feed.give_back(first, first + 2)
            case "reject":
                feed.reject(first)
        for offset in range(feed.next):
            states = (feed.progress.is_done(offset), offset in feed.out, offset in feed.again)
            assert sum(states) == 1, (offset, states)


@pytest.mark.parametrize("broken", ["F1", "F2", "F3", "F4", "F5"])
def test_a_broken_state_is_found(broken: str) -> None:
    feed = Feed(1, 1, Stream("n1", 0, 0), Cursor(0), ranges=((0, 20),))
    feed.looked_at(0, 10, [(0, 4)])
    feed.give_back(2, 3)
    feed.lose(0, 14, RETENTION)
    feed.check()
    match broken:
        case "F1":
            feed.again.add(0, 1)
        case "F2":
            feed.next = 2
        case "F3":
            feed.progress.ack(0, 1)
        case "F4":
            feed.ranges = Ranges([(1, 20)])
        case _:
            feed.lost_messages = 3
    with pytest.raises(AssertionError, match=broken):
        feed.check()
