"""A feed at work and the window of its subscription, as they begin and as they end."""

from moorline.core.delivery.delivery import Delivery
from moorline.core.delivery.feed import Feed
from moorline.core.delivery.open_feed import OpenFeed, State, Window
from moorline.core.delivery.progress import Cursor
from moorline.core.stream import Stream


def feed(number: int = 1) -> Feed:
    return Feed(number, 7, Stream("here", number, 0), Cursor(0))


def test_a_window_matches_what_its_filter_says() -> None:
    window = Window(7, "orders/+", 10, qos=1)
    assert window.matcher("orders/eu")
    assert not window.matcher("orders/eu/1")
    assert (window.out, window.starved, window.is_held) == (0, {}, False)


def test_a_feed_is_open_in_every_state_but_the_last() -> None:
    one = OpenFeed(feed(), Window(7, "t", 10, qos=1))
    assert one.state is State.IDLE
    for state in State:
        one.state = state
        assert one.is_open == (state is not State.CLOSED)


def test_those_that_starve_are_woken_in_the_order_in_which_they_came() -> None:
    delivery, window = Delivery(), Window(7, "t", 0, qos=1)
    for number in (3, 1, 2):
        delivery.open(feed(number), window, 0)
    while delivery.is_ready:
        assert delivery.turn(0) == []
    assert list(window.starved) == [3, 1, 2]
    delivery.check()
    delivery.change(window, 5, qos=1)
    assert [one.feed.number for one in delivery._turns.queue] == [3, 1, 2]
    assert window.starved == {}
    delivery.check()
