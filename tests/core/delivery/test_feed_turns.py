"""Whose turn it is: a feed stands in the queue once, and a starved one at its window."""

import pytest

from moorline.core.delivery.feed import Feed
from moorline.core.delivery.feed_turns import FeedTurns
from moorline.core.delivery.open_feed import OpenFeed, State, Window
from moorline.core.delivery.progress import Cursor
from moorline.core.stream import Stream


def window(size: int = 1, *, is_held: bool = False) -> Window:
    return Window(7, "t", size, qos=1, is_held=is_held)


def opened(number: int, of: Window) -> OpenFeed:
    return OpenFeed(Feed(number, 7, Stream("here", number, 0), Cursor(0)), of)


def test_feeds_have_their_turns_in_the_order_in_which_they_became_ready() -> None:
    turns, of = FeedTurns(), window()
    feeds = [opened(number, of) for number in (3, 1, 2)]
    for one in [*feeds, *feeds]:
        turns.make_ready(one)
    turns.check(feeds)
    assert len(turns.queue) == 3, "whoever is ready is not made ready again"
    assert [turns.next() for _ in feeds] == feeds
    assert {one.state for one in feeds} == {State.IDLE}


def test_a_feed_that_was_closed_has_no_turn() -> None:
    turns, one = FeedTurns(), opened(1, window())
    turns.make_ready(one)
    one.state = State.CLOSED
    assert turns.next() is None
    turns.make_ready(one)
    assert not turns.queue, "and never gets one"


def test_a_member_that_takes_by_itself_has_no_turn() -> None:
    turns, one = FeedTurns(), opened(1, window(is_held=True))
    turns.make_ready(one)
    assert (len(turns.queue), one.state) == (0, State.IDLE)


def test_those_who_starve_wait_until_their_window_has_room() -> None:
    turns, full, other = FeedTurns(), window(), window()
    full.out = 1
    feeds = [opened(1, full), opened(2, full)]
    for one in feeds:
        turns.starve(one)
    turns.check(feeds)
    turns.feed_starved(full)
    turns.feed_starved(other)
    assert not turns.queue
    full.out = 0
    turns.feed_starved(full)
    assert [turns.next(), turns.next()] == feeds
    turns.check(feeds)


@pytest.mark.parametrize(
    "broken", ["D2 nobody", "D2 a stranger", "D2 room", "D5 twice", "D5 none", "D5 idle"]
)
def test_a_broken_state_is_found(broken: str) -> None:
    turns, of = FeedTurns(), window()
    one = opened(1, of)
    turns.make_ready(one)
    turns.check([one])
    match broken:
        case "D2 nobody":
            turns.next()
            one.state = State.STARVED
        case "D2 a stranger":
            of.starved[1] = one
        case "D2 room":
            turns.next()
            turns.starve(one)
        case "D5 twice":
            turns.queue.append(one)
        case "D5 none":
            turns.queue.clear()
        case _:
            turns.next()
            one.state = State.READY
    with pytest.raises(AssertionError, match=broken[:2]):
        turns.check([one])
