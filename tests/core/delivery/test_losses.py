"""Losses: what is gone before it was acknowledged is told, all of it, and nothing else.

Feeds tell them one by one. Whole readers are driven through everything that can happen to them elsewhere: a
private one in test_private_subscription.py, groups in their simulation (I18).
"""

import pytest

from moorline.core.delivery.feed import Feed, Loss
from moorline.core.delivery.progress import Cursor
from moorline.core.stream import DAMAGE, RETENTION, Gap, Shard, Stream
from moorline.limits import FEED_LOSSES_MAX

SHARD = Shard("node", 0)


def feed_at(cursor: Cursor, *ranges: tuple[int, int]) -> Feed:
    return Feed(1, 1, Stream("node", 0, 0), cursor, ranges=ranges or None)


def lost(*ranges: tuple[int, int], is_exact: bool = False) -> list[Loss]:
    return [Loss(Gap(*one, RETENTION), is_exact) for one in ranges]


def test_what_is_done_or_in_hand_is_not_lost() -> None:
    feed = feed_at(Cursor(2, ((4, 6),)))
    feed.looked_at(6, 8, [(6, 7)])
    assert feed.lose(0, 10, RETENTION) == lost((2, 4), (8, 10))
    assert feed.lose(0, 10, RETENTION) == [], "told once"
    assert feed.wanted(20) == (10, 20), "nothing of it is read any more"
    assert feed.ack(6, 7) == 1, "what is in hand counts"
    assert feed.progress.low == 2, "what is told and not confirmed is not done"
    assert feed.confirm(2, 4)
    assert not feed.confirm(2, 4)
    assert not feed.confirm(8, 9), "a range that was not told"
    assert feed.confirm(8, 10)
    assert feed.progress.cursor() == Cursor(10)
    assert feed.lost == [Gap(2, 4, RETENTION), Gap(8, 10, RETENTION)]


def test_what_was_delivered_once_is_lost_for_certain() -> None:
    feed = feed_at(Cursor(0))
    feed.looked_at(0, 4, [(1, 4)])
    feed.give_back(2, 4)
    assert feed.lose(0, 6, RETENTION) == [*lost((2, 4), is_exact=True), *lost((4, 6))]


def test_of_a_feed_of_ranges_only_its_own_is_lost() -> None:
    feed = feed_at(Cursor(0), (3, 6), (9, 12))
    feed.looked_at(3, 5, [(3, 5)])
    feed.give_back(3, 4)
    assert feed.lose(0, 20, RETENTION) == lost((5, 6), (9, 12)), "what went back is for others"
    assert not feed.is_done
    feed.ack(4, 5)
    feed.confirm(5, 6)
    assert not feed.is_done
    feed.confirm(9, 12)
    assert feed.is_done


def test_a_feed_that_is_stopped_tells_no_more_and_waits_for_what_it_told() -> None:
    feed = feed_at(Cursor(0))
    feed.lose(0, 3, RETENTION)
    feed.stop()
    assert feed.lose(0, 6, RETENTION) == []
    assert not feed.is_drained
    feed.confirm(0, 3)
    assert feed.is_drained


def test_neighbours_that_were_confirmed_are_one_loss() -> None:
    feed = feed_at(Cursor(0))
    for first in (4, 0, 2, 8):
        feed.telling[first, first + 2] = Gap(first, first + 2, RETENTION)
    feed.telling[10, 12] = Gap(10, 12, DAMAGE)
    for first in (4, 0, 2, 8, 10):
        assert feed.confirm(first, first + 2)
    assert feed.lost == [Gap(0, 6, RETENTION), Gap(8, 10, RETENTION), Gap(10, 12, DAMAGE)]
    assert feed.lost_messages == 10


def with_holes(feed: Feed, upto: int, *, confirms: bool) -> None:
    """Every other message is damaged; the others are acknowledged at once."""
    while (wanted := feed.wanted(upto)) is not None:
        offset = wanted[0]
        if offset % 2:
            feed.looked_at(offset, offset + 1, [(offset, offset + 1)])
            feed.ack(offset, offset + 1)
            continue
        for gap, _ in feed.lose(offset, offset + 1, DAMAGE):
            if confirms:
                feed.confirm(gap.first, gap.upto)


@pytest.mark.parametrize("confirms", [True, False])
def test_a_feed_with_many_losses_reads_no_more(confirms: bool) -> None:
    feed = feed_at(Cursor(0))
    with_holes(feed, 10 * FEED_LOSSES_MAX, confirms=confirms)
    assert len(feed.lost) + len(feed.telling) == FEED_LOSSES_MAX
    assert feed.next == 2 * FEED_LOSSES_MAX - 1
    assert len(feed.progress.cursor().acked) < FEED_LOSSES_MAX
    for gap in list(feed.telling.values()):
        feed.confirm(gap.first, gap.upto)
    assert feed.wanted(10 * FEED_LOSSES_MAX) is None, "until there is a new lease"


def test_a_private_feed_with_many_losses_goes_on_when_they_are_confirmed() -> None:
    """Nobody but its client hears of them, so nothing is kept of them."""
    feed = Feed(1, 1, Stream("node", 0, 0), Cursor(0), is_reported=False)
    with_holes(feed, 10 * FEED_LOSSES_MAX, confirms=True)
    assert feed.progress.cursor() == Cursor(10 * FEED_LOSSES_MAX)
    assert feed.lost == []
