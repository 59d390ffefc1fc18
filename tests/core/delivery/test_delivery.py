"""Delivery by itself: what a session's feeds ask for, hand out and count."""

import numpy as np
import pytest

from moorline.core.delivery.delivery import Delivery
from moorline.core.delivery.effects import (
    AwaitNews,
    Bury,
    Deliver,
    FeedMoved,
    ForgetNews,
    ReadBlock,
    TellLost,
)
from moorline.core.delivery.feed import Feed
from moorline.core.delivery.open_feed import State, Window
from moorline.core.delivery.progress import Cursor
from moorline.core.effects import Effect
from moorline.core.frames.block import Block, block_of
from moorline.core.frames.frame import PRODUCER, Stored, all_stored, frame_of
from moorline.core.ranges import Range
from moorline.core.stream import RETENTION, Gap, Stream

STREAM = Stream("here", 3, 0)
NOW_US = 1_000_000


def blocks(first: int, upto: int, *, producers: tuple[int, ...] = (), topic: str = "t") -> Block:
    """Messages of a stream; their producers in turn, 0 is nobody."""
    frames = []
    for offset in range(first, upto):
        producer = producers[offset % len(producers)] if producers else 0
        flags = PRODUCER if producer else 0
        stored = Stored(offset, 0, 0, flags, topic, None, b"", producer, offset, b"body")
        frames.append(frame_of(stored, 0))
    starts = np.cumsum([0, *map(len, frames[:-1])], dtype=np.int64)
    return block_of(first, b"".join(frames), starts)


def opened(
    size: int = 10,
    *,
    qos: int = 1,
    deliveries_max: int = 0,
    own_producer: int = 0,
    is_held: bool = False,
) -> tuple[Delivery, Feed]:
    delivery = Delivery()
    feed = Feed(1, 7, STREAM, Cursor(0), deliveries_max=deliveries_max)
    window = Window(7, "t", size, qos, is_held=is_held, own_producer=own_producer)
    assert delivery.open(feed, window, 0) == []
    return delivery, feed


def asked(delivery: Delivery) -> ReadBlock:
    (effect,) = delivery.turn(NOW_US)
    assert isinstance(effect, ReadBlock)
    delivery.check()
    return effect


def given(effects: list[Effect]) -> list[int]:
    """The offsets that go to the client."""
    return [
        message.offset
        for effect in effects
        if isinstance(effect, Deliver)
        for message in all_stored(effect.frames)
    ]


def state(delivery: Delivery) -> State:
    delivery.check()
    return delivery.feeds[1].state


def test_a_feed_reads_delivers_and_reads_on() -> None:
    delivery, feed = opened()
    assert asked(delivery) == ReadBlock(1, STREAM, 0)
    effects = delivery.found(1, blocks(0, 4), NOW_US)
    assert given(effects) == [0, 1, 2, 3]
    assert effects[-1] == FeedMoved(feed)
    assert asked(delivery).offset == 4


def test_a_feed_that_comes_to_the_end_of_its_stream_waits_at_once() -> None:
    delivery, feed = opened()
    asked(delivery)
    effects = delivery.found(1, blocks(0, 4), NOW_US, end=4)
    assert effects[0] == AwaitNews(1, STREAM)
    assert effects[-1] == FeedMoved(feed)
    assert state(delivery) is State.WAITING
    assert not delivery.is_ready


def test_what_another_has_looked_at_while_it_waits_is_passed() -> None:
    delivery, feed = opened()
    assert delivery.passed(1, 4) == [], "it does not wait"
    asked(delivery)
    delivery.found(1, blocks(0, 4), NOW_US, end=4)
    assert delivery.passed(1, 4) == []
    assert delivery.passed(1, 9) == [FeedMoved(feed)]
    # What is out is still the client's, and holds the place.
    assert (state(delivery), feed.next, feed.progress.low) == (State.WAITING, 9, 0)
    delivery.ack(1, [(0, 4)])
    assert feed.progress.low == 9
    delivery.moved(1)
    assert asked(delivery).offset == 9
    assert delivery.passed(1, 12) == [], "it reads"
    assert delivery.passed(2, 12) == [], "it is over"


def test_a_full_window_starves_its_feed_until_something_is_acknowledged() -> None:
    delivery, _ = opened(size=3)
    asked(delivery)
    assert given(delivery.found(1, blocks(0, 10), NOW_US)) == [0, 1, 2]
    assert delivery.turn(NOW_US) == []
    assert state(delivery) is State.STARVED
    delivery.ack(1, [(0, 2)])
    # What had no room is still at hand: nothing is read twice.
    assert given(delivery.turn(NOW_US)) == [3, 4]


def test_what_another_has_read_to_the_end_waits_for_news_once() -> None:
    delivery, _ = opened()
    asked(delivery)
    assert delivery.found(1, None, NOW_US) == [AwaitNews(1, STREAM)]
    assert not delivery.is_ready
    delivery.moved(1)
    delivery.moved(1)
    assert asked(delivery).offset == 0
    assert not delivery.is_ready


def test_what_is_given_back_is_read_while_the_feed_waits_for_news() -> None:
    delivery, feed = opened()
    asked(delivery)
    delivery.found(1, blocks(0, 3), NOW_US)
    asked(delivery)
    delivery.found(1, None, NOW_US)
    # The wait ends first: the feed may be closed by whoever hears that it moved.
    assert delivery.give_back(1, [(1, 2)]) == [ForgetNews(1, STREAM), FeedMoved(feed)]
    delivery.check()
    assert asked(delivery).offset == 1


def test_what_comes_again_goes_before_what_was_being_read() -> None:
    delivery, _ = opened()
    asked(delivery)
    delivery.found(1, blocks(0, 3), NOW_US)
    assert asked(delivery).offset == 3
    delivery.give_back(1, [(0, 1)])
    assert given(delivery.found(1, blocks(3, 6), NOW_US)) == []
    assert asked(delivery).offset == 0


def test_a_read_that_failed_is_asked_for_again() -> None:
    delivery, _ = opened()
    asked(delivery)
    delivery.unread(1)
    assert asked(delivery).offset == 0


def test_an_answer_for_a_feed_that_is_over_is_nothing() -> None:
    delivery, _ = opened()
    asked(delivery)
    delivery.close(1)
    assert delivery.found(1, blocks(0, 3), NOW_US) == []
    assert delivery.ack(1, [(0, 3)]) == []
    assert delivery.delivered == 0


def test_the_end_of_a_feed_that_waits_is_told_to_its_shard() -> None:
    delivery, _ = opened()
    asked(delivery)
    delivery.found(1, None, NOW_US)
    assert delivery.close(1) == [ForgetNews(1, STREAM)]


def test_the_end_of_one_feed_makes_room_for_another_of_its_subscription() -> None:
    delivery, feed = opened(size=3)
    window = delivery.feeds[1].window
    asked(delivery)
    delivery.found(1, blocks(0, 3), NOW_US)
    delivery.turn(NOW_US)
    delivery.open(Feed(2, 7, Stream("here", 4, 0), Cursor(0)), window, 0)
    assert delivery.turn(NOW_US) == []
    delivery.check()
    delivery.close(feed.number)
    delivery.check()
    assert delivery.turn(NOW_US) == [ReadBlock(2, Stream("here", 4, 0), 0)]


def test_a_gap_is_told_and_confirmed() -> None:
    delivery, feed = opened()
    asked(delivery)
    gap = Gap(0, 5, RETENTION)
    assert delivery.found(1, gap, NOW_US)[0] == TellLost(7, 1, STREAM, gap, False)
    assert asked(delivery).offset == 5
    delivery.confirm_lost(1, [(0, 5)])
    assert feed.lost_messages == 5


def test_what_retention_takes_is_told_while_the_window_is_full() -> None:
    delivery, _ = opened(size=2)
    asked(delivery)
    delivery.found(1, blocks(0, 2), NOW_US)
    delivery.turn(NOW_US)
    assert state(delivery) is State.STARVED
    (told, _) = delivery.kept_from(1, 9)
    # The client has 0 and 1 in hand: they may still be acknowledged.
    assert told == TellLost(7, 1, STREAM, Gap(2, 9, RETENTION), False)


def test_a_message_that_failed_too_often_stays_out_until_it_is_buried() -> None:
    delivery, feed = opened(deliveries_max=1)
    asked(delivery)
    delivery.found(1, blocks(0, 3), NOW_US)
    assert delivery.reject(1, 1) == [Bury(1, 1)]
    assert delivery.reject(1, 1) == []
    delivery.ack(1, [(0, 3)])
    delivery.check()
    assert feed.progress.low == 1
    delivery.buried(1, 1)
    delivery.check()
    assert feed.progress.low == 3


def test_without_acknowledgements_a_hopeless_message_still_waits_for_its_grave() -> None:
    delivery, feed = opened(qos=0, deliveries_max=1)
    feed.progress.fail(1)
    asked(delivery)
    effects = delivery.found(1, blocks(0, 3), NOW_US)
    assert given(effects) == [0, 2]
    assert Bury(1, 1) in effects
    delivery.check()
    # A crash before its letter is stored must not have done with it.
    assert feed.progress.low == 1


def test_a_message_that_is_gone_before_its_burial_is_a_loss() -> None:
    delivery, _ = opened(deliveries_max=1)
    asked(delivery)
    delivery.found(1, blocks(0, 3), NOW_US)
    delivery.reject(1, 1)
    told = [one for one in delivery.not_buried(1, 1, RETENTION) if isinstance(one, TellLost)]
    assert [(one.gap, one.is_exact) for one in told] == [(Gap(1, 2, RETENTION), True)]
    delivery.check()


def test_ones_own_messages_are_left_out_and_done() -> None:
    delivery, feed = opened(own_producer=5)
    asked(delivery)
    assert given(delivery.found(1, blocks(0, 6, producers=(5, 0, 6)), NOW_US)) == [1, 2, 4, 5]
    delivery.ack(1, [(0, 6)])
    assert feed.progress.low == 6


def test_a_change_to_qos_0_frees_what_nobody_will_acknowledge() -> None:
    delivery, _ = opened(size=2)
    asked(delivery)
    delivery.found(1, blocks(0, 5), NOW_US)
    delivery.turn(NOW_US)
    delivery.change(delivery.feeds[1].window, 2, 0)
    assert state(delivery) is State.READY
    assert given(delivery.turn(NOW_US)) == [2, 3]
    assert given(delivery.turn(NOW_US)) == [4]


def test_who_holds_a_feed_takes_ranges_and_gets_no_messages() -> None:
    delivery, feed = opened(is_held=True)
    assert not delivery.is_ready
    ranges: list[Range]
    ranges, upto, effects = delivery.pull(1, 8, 5)
    assert (ranges, upto, effects) == ([(0, 5)], 5, [FeedMoved(feed)])
    delivery.check()
    delivery.ack(1, [(0, 2)])
    delivery.release()
    delivery.check()
    assert delivery.pull(1, 8, 5)[0] == [(2, 5), (5, 7)]


@pytest.mark.parametrize("broken", ["D1", "D2", "D3", "D4", "D5", "D6", "F2"])
def test_a_broken_state_is_found(broken: str) -> None:
    delivery, feed = opened()
    asked(delivery)
    delivery.found(1, blocks(0, 4), NOW_US)
    one = delivery.feeds[1]
    delivery.check()
    match broken:
        case "D1":
            one.window.out -= 1
        case "D2":
            one.window.starved[1] = one
        case "D3":
            delivery._turns.queue.clear()
            one.state = State.CLOSED
        case "D4":
            one.burying.add(9)
        case "D5":
            delivery._turns.queue.append(one)
        case "D6":
            delivery._turns.queue.clear()
            one.state, one.rest = State.WAITING, blocks(4, 5)
        case _:
            feed.next = 1
    with pytest.raises(AssertionError, match=broken):
        delivery.check()
