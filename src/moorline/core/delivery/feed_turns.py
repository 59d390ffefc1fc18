"""Room: core/delivery. Whose turn it is among the feeds of a session, and who waits for room in a window.

A feed that may have something is READY and stands in one queue with all others of its session: a turn is one
block, so that a stream with a million messages and one with three are served alike. A feed whose window is
full is STARVED, and stands at that window instead: in the queue it would have turn after turn for nothing.

Invariants, looked at by `check`:

    D2  a feed is starved only while its window is full, and is known there
    D5  every READY feed has its turn in the queue once
"""

from collections import Counter, deque
from collections.abc import Iterable

from moorline.core.delivery.open_feed import OpenFeed, State, Window


class FeedTurns:
    """The feeds of one session, first come, first served."""

    def __init__(self) -> None:
        self.queue: deque[OpenFeed] = deque()
        """Turns, also of feeds that are over: `next` passes those over."""

    def make_ready(self, one: OpenFeed) -> None:
        # Of a member that takes by itself nothing is ever read here.
        if one.window.is_held:
            one.state = State.IDLE
        elif one.state is not State.CLOSED and one.state is not State.READY:
            # Only one that is not READY yet: with two turns it would read two blocks at once (D5, D3).
            one.state = State.READY
            self.queue.append(one)

    def next(self) -> OpenFeed | None:
        """Takes the first turn out; None if its feed has been closed since.

        One at a time, whatever it is: whoever hosts a delivery asks between two turns whether its client has
        room.
        """
        one = self.queue.popleft()
        if one.state is not State.READY:
            return None
        # Left at once, so that whatever follows puts it in a state for a reason, and not by omission.
        one.state = State.IDLE
        return one

    def starve(self, one: OpenFeed) -> None:
        one.state = State.STARVED
        one.window.starved[one.feed.number] = one

    def feed_starved(self, window: Window) -> None:
        """A window may have room again."""
        if window.starved and not window.is_full:
            # All of them, though there may be room for one message only: whoever finds none starves again,
            # and which of them has something nobody knows before it has looked.
            starved, window.starved = window.starved, {}
            for one in starved.values():
                self.make_ready(one)

    def check(self, feeds: Iterable[OpenFeed]) -> None:
        """Asserts the invariants, of all feeds that are open."""
        turns = Counter(id(one) for one in self.queue if one.state is State.READY)
        for one in feeds:
            number, window = one.feed.number, one.window
            is_starved = one.state is State.STARVED
            assert is_starved == (number in window.starved), f"D2: {number} is {one.state}"
            assert not is_starved or window.is_full, f"D2: {number} starves for nothing"
            assert turns[id(one)] == (one.state is State.READY), f"D5: {number} is {one.state}"
