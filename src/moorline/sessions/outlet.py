"""Room: sessions. Where the deliveries of a session go: an outlet for each protocol, and the native one.

An outlet says things in the words of its protocol and says when it has room. What its client answers goes to
the session's delivery: `ack`, `reject`, `give_back`, `confirm_lost`.
"""

from typing import Protocol

from moorline.core.delivery.effects import Deliver, TellLost
from moorline.core.delivery.feed import Feed
from moorline.net.session import Session
from moorline.wire.topic import (
    FeedBegun,
    FeedEnded,
    FeedStopping,
    Messages,
    MessagesLost,
    TopicSubscriptionEnded,
)


class Outlet(Protocol):
    """The client's side of a session, as delivery sees it."""

    @property
    def is_open(self) -> bool: ...

    @property
    def has_room(self) -> bool:
        """Whether the client is there and reads what it gets; if not, nothing more is read for it."""
        ...

    async def room(self) -> None:
        """Returns when it has room, or is over."""

    def begin_feed(self, feed: Feed, qos: int) -> None:
        """Messages of one more stream follow; with qos 0 nobody acknowledges them."""

    def stop_feed(self, feed: Feed) -> None:
        """No more of them follow: the client is to finish those that it has."""

    def end_feed(self, feed: Feed) -> None:
        """Nothing of it is awaited any more."""

    def deliver(self, effect: Deliver) -> None: ...

    def end_turn(self) -> None:
        """Nothing more is delivered in this turn of the loop: what waits to leave with it leaves now."""

    def tell_lost(self, effect: TellLost) -> None: ...

    def end_subscription(self, number: int, code: str) -> None:
        """Somebody else has ended it."""


class NativeOutlet:
    """Frames as they lie on disk, to a client of the native protocol."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @property
    def is_open(self) -> bool:
        return self._session.is_open

    @property
    def has_room(self) -> bool:
        return self._session.is_open and self._session.writable

    async def room(self) -> None:
        await self._session.room_to_write()

    def begin_feed(self, feed: Feed, qos: int) -> None:
        self._session.send(FeedBegun(feed.number, feed.subscription, *feed.stream, qos))

    def stop_feed(self, feed: Feed) -> None:
        self._session.send(FeedStopping(feed.number))

    def end_feed(self, feed: Feed) -> None:
        self._session.send(FeedEnded(feed.number))

    def deliver(self, effect: Deliver) -> None:
        message = Messages(effect.feed, effect.frames, effect.tries, effect.upto)
        self._session.gather(message, len(effect.frames))

    def end_turn(self) -> None:
        # Not by a turn of its own: of a message that comes alone that is time which its reader waits.
        self._session.flush_gathered()

    def tell_lost(self, effect: TellLost) -> None:
        stream = effect.stream
        self._session.send(
            MessagesLost(
                effect.subscription,
                stream.home,
                stream.shard_number,
                *effect.gap,
                feed=effect.feed,
                is_exact=effect.is_exact,
            )
        )

    def end_subscription(self, number: int, code: str) -> None:
        self._session.send(TopicSubscriptionEnded(number, code))
