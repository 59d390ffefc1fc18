"""Room: core/delivery. What a delivery (core/delivery/delivery.py) wants done.

Effects are of blocks, never of messages: a million messages a second are some thousands of effects. Each
names its feed by number, and what it brings back names it too: a feed may be over by then, and its number is
never another's.
"""

from moorline.core.delivery.feed import Feed
from moorline.core.effects import Effect
from moorline.core.stream import Gap, Stream


class ReadBlock(Effect, frozen=True):
    """Find what the stream has from that offset on; the answer is `found`, or `unread` to try again."""

    feed: int
    stream: Stream
    offset: int


class AwaitNews(Effect, frozen=True):
    """Say `moved` once, when the stream's shard has something new."""

    feed: int
    stream: Stream


class ForgetNews(Effect, frozen=True):
    """Nobody waits for them any more."""

    feed: int
    stream: Stream


class Deliver(Effect, frozen=True):
    """Frames for the client: all that it was to get of this feed below `upto`."""

    subscription: int
    feed: int
    frames: bytes
    tries: list[tuple[int, int]]
    """(offset, how many times it is tried with this one), of those that failed before."""
    upto: int


class TellLost(Effect, frozen=True):
    """The client is to confirm that it knows of these messages that are gone."""

    subscription: int
    feed: int
    stream: Stream
    gap: Gap
    is_exact: bool


class Bury(Effect, frozen=True):
    """A message failed too often: make a dead letter of it, and say `buried` or `not_buried`."""

    feed: int
    offset: int


class FeedMoved(Effect, frozen=True):
    """Something became of the feed's messages: whoever answers for its cursor looks at it."""

    feed: Feed
