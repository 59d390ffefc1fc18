"""Room: core/delivery. A feed at work in a delivery (core/delivery/delivery.py), and the window of its
subscription.

A feed is in one of these states:

    IDLE      nothing is to be done: it is stopped, or held, or has too many losses that nobody confirmed
    READY     there may be something for it; ready feeds take turns
    READING   a block was asked for: `ReadBlock`, answered by `found` or `unread`
    WAITING   it is at the end of its stream: `AwaitNews`, answered by `moved`
    STARVED   its subscription has as many messages out as its window holds
    CLOSED    it is over, and what still comes for it is too late

In READY, READING, WAITING and STARVED somebody is bound to wake it: the queue of turns, whoever reads the
block, the shard, the window. IDLE is left only by what the client or the Leader says. The invariants of
both classes are those of `Delivery.check`, which sees all of them together.
"""

from enum import Enum, auto
from typing import Protocol

from moorline.core.delivery.feed import Feed
from moorline.core.frames.block import Block
from moorline.core.ranges import Range
from moorline.core.topic import Matcher


class State(Enum):
    IDLE = auto()
    READY = auto()
    READING = auto()
    WAITING = auto()
    STARVED = auto()
    CLOSED = auto()


class FilterMatcher(Protocol):
    """What a window lets through: one filter, or several that are one subscription."""

    @property
    def filter(self) -> str:
        """The one that there is, if `takes_all` is false."""
        ...

    @property
    def takes_all(self) -> bool:
        """Whether a block is read whole, rather than what may match picked from it."""
        ...

    def __call__(self, topic: str, /) -> bool: ...


class Window:
    """A subscription as its feeds see it."""

    __slots__ = ("is_held", "matcher", "number", "out", "own_producer", "qos", "size", "starved")

    def __init__(
        self,
        number: int,
        filter_text: str,
        size: int,
        qos: int,
        *,
        is_held: bool = False,
        own_producer: int = 0,
        matcher: FilterMatcher | None = None,
    ) -> None:
        """`own_producer`: its messages are the subscriber's own, who does not want them back; 0 is nobody."""
        self.number = number
        self.matcher: FilterMatcher = matcher or Matcher(filter_text)
        self.size = size
        self.qos = qos
        self.is_held = is_held
        """Its member reads by itself: nothing is delivered."""
        self.own_producer = own_producer
        # Counted, and not summed up over the feeds: it is asked with every block (D1 says that it is right).
        self.out = 0
        """Messages that are delivered and not acknowledged."""
        # A dict for its order: whoever has starved longest is ready first.
        self.starved: dict[int, OpenFeed] = {}
        """Feeds that wait for room."""

    @property
    def is_full(self) -> bool:
        return self.out >= self.size


class OpenFeed:
    """A feed at work."""

    __slots__ = ("burying", "feed", "rest", "state", "wanted", "window")

    def __init__(self, feed: Feed, window: Window) -> None:
        self.feed = feed
        self.window = window
        self.state = State.IDLE
        self.wanted: Range = (0, 0)
        """What was asked for, while it is READING."""
        self.rest: Block | None = None
        """What was read and had no room in the window yet."""
        self.burying: set[int] = set()
        """Messages on their way to the dead letters."""

    @property
    def is_open(self) -> bool:
        return self.state is not State.CLOSED
