"""Room: client. Topics as a user of the library sees them.

await moor.publish("orders/eu", b"ahoy", key="42")
async for message in moor.subscribe("$shared/billing/orders/#"):
    print(message.topic, message.body)
    await message.ack()
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable, Generator

from moorline.client.feed import Batch, Feed, Lost, TopicMessage
from moorline.client.record import (
    Headers,
    check_session,
    check_subscription,
    record,
    start_text,
)
from moorline.errors import NotFound, SubscriptionEnded
from moorline.limits import TOPIC_WINDOW
from moorline.net.caller import Caller
from moorline.wire.message import Message as WireMessage
from moorline.wire.queue import Done
from moorline.wire.segment import stored_at
from moorline.wire.topic import (
    FeedBegun,
    FeedEnded,
    FeedStopping,
    Messages,
    MessagesLost,
    OpenSession,
    RetainedMessage,
    SessionOpened,
    SubscribeTopic,
    TopicSubscribed,
    TopicSubscriptionEnded,
    UnsubscribeTopic,
)

__all__ = [
    "TOPIC_WINDOW",
    "Batch",
    "Feed",
    "Headers",
    "Lost",
    "Subscribing",
    "Subscription",
    "Subscriptions",
    "TopicMessage",
    "record",
    "start_text",
]


class Subscription:
    """Messages as they come. Iterate over it; `batches` is the fast way; `close` ends it."""

    def __init__(
        self,
        caller: Caller,
        number: int,
        filter_text: str,
        qos: int,
        closed: Callable[[int], object] = lambda _: None,
    ) -> None:
        self.number = number
        self.filter = filter_text
        self.qos = qos
        self.lost: list[Lost] = []
        """What was gone before it could be delivered, as it became known."""
        self._caller = caller
        self._closed = closed
        self._waiting: deque[Batch | TopicMessage] = deque()
        self._at_hand: deque[TopicMessage] = deque()
        self._ended = ""
        self._news = asyncio.Event()

    def __aiter__(self) -> AsyncIterator[TopicMessage]:
        return self

    async def __anext__(self) -> TopicMessage:
        while not self._at_hand:
            batch = await self._next()
            if batch is None:
                raise StopAsyncIteration
            self._take(batch)
        return self._at_hand.popleft()

    async def batches(self) -> AsyncIterator[Batch]:
        """Runs of messages of one stream; retained messages are passed over."""
        while (batch := await self._next()) is not None:
            if isinstance(batch, Batch):
                yield batch

    async def get(self, timeout_s: float) -> TopicMessage | None:
        """The next message, or None if none came in time or the subscription is closed."""
        try:
            async with asyncio.timeout(timeout_s):
                return await anext(self, None)
        except TimeoutError:
            return None

    async def close(self) -> None:
        """Gives back what nobody has looked at, and unsubscribes; in a durable session for good."""
        self.give_back()
        if self._caller.is_open and not self._ended:
            self._ended = "CLOSED"
            self._news.set()
            with contextlib.suppress(NotFound):  # the node has just ended it
                await self._caller.call(lambda call: UnsubscribeTopic(call, self.number), Done)
        self._closed(self.number)

    def give_back(self, feed: Feed | None = None) -> None:
        """Returns what was delivered and not taken, of one feed or of all."""
        kept: deque[Batch | TopicMessage] = deque()
        for one in self._waiting:
            if isinstance(one, Batch) and feed in (None, one._feed):  # noqa: SLF001 - a part of it
                one.give_back()
            else:
                kept.append(one)
        self._waiting = kept
        still: deque[TopicMessage] = deque()
        ranges: dict[Feed, list[tuple[int, int]]] = {}
        for message in self._at_hand:
            own = message._feed  # noqa: SLF001 - a part of it
            if own is not None and feed in (None, own):
                ranges.setdefault(own, []).append((message.offset, message.offset + 1))
            else:
                still.append(message)
        for own, several in ranges.items():
            own.give_back(several)
        self._at_hand = still

    def put(self, batch: Batch | TopicMessage) -> None:
        self._waiting.append(batch)
        self._news.set()

    def drop(self, feed: Feed) -> None:
        """A feed is over: what is left of it belongs to somebody else."""
        self._waiting = deque(
            one
            for one in self._waiting
            if not (isinstance(one, Batch) and one._feed is feed)  # noqa: SLF001
        )
        self._at_hand = deque(one for one in self._at_hand if one._feed is not feed)  # noqa: SLF001

    def end(self, code: str) -> None:
        self._ended = code
        self._news.set()

    def connection_lost(self) -> None:
        self._news.set()

    def _take(self, batch: Batch | TopicMessage) -> None:
        if isinstance(batch, Batch):
            self._at_hand.extend(batch.messages)
        else:
            self._at_hand.append(batch)

    async def _next(self) -> Batch | TopicMessage | None:
        """None if we have closed it."""
        while not self._waiting:
            if self._ended == "CLOSED":
                return None
            if self._ended:
                raise SubscriptionEnded(self._ended)
            if self._caller.lost.done():
                raise self._caller.lost.result()
            self._news.clear()
            await self._news.wait()
        return self._waiting.popleft()


class Subscriptions:
    """Sorts what a node pushes by subscription and feed."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._known: dict[int, Subscription] = {}
        self._feeds: dict[int, tuple[Feed, Subscription]] = {}

    async def open_session(self, name: str, expiry_s: int) -> list[Subscription]:
        check_session(name, expiry_s)
        opened = await self._caller.call(
            lambda call: OpenSession(call, name, expiry_s), SessionOpened
        )
        return [self._of(number, text) for number, text in opened.subscriptions]

    async def subscribe(
        self, filter_text: str, *, window: int, start: str, qos: int, no_local: bool = False
    ) -> Subscription:
        check_subscription(filter_text, window, start, qos)
        asked = asyncio.ensure_future(
            self._caller.call(
                lambda call: SubscribeTopic(call, filter_text, window, start, qos, no_local),
                TopicSubscribed,
            )
        )
        try:
            answer = await asyncio.shield(asked)
        except asyncio.CancelledError:
            asked.add_done_callback(self._take_back)
            raise
        subscription = self._of(answer.subscription, filter_text)
        subscription.qos = qos
        for feed, owner in self._feeds.values():
            if owner is subscription:
                feed.qos = qos
        return subscription

    def _take_back(self, asked: "asyncio.Future[TopicSubscribed]") -> None:
        """The caller gave up before the answer: a subscription that nobody reads must not stall a group."""
        if asked.cancelled() or asked.exception() is not None or not self._caller.is_open:
            return
        number = asked.result().subscription
        if not self._of(number, "").filter:  # otherwise somebody has it already
            self._known.pop(number).give_back()
            self._caller.cast(lambda call: UnsubscribeTopic(call, number))

    def sort(self, message: WireMessage) -> bool:
        """Takes a push that is about topics; False if it is not."""
        match message:
            case Messages(number, frames, tries, upto):
                known = self._feeds.get(number)
                if known is not None:
                    known[0].tries.update(tries)
                    known[1].put(Batch(known[0], frames, upto))
            case FeedBegun(number, subscription):
                owner = self._of(subscription, "")
                self._feeds[number] = (Feed(self._caller, message, owner.qos), owner)
            case FeedStopping(number):
                known = self._feeds.get(number)
                if known is not None:
                    known[1].give_back(known[0])
            case FeedEnded(number):
                known = self._feeds.pop(number, None)
                if known is not None:
                    known[0].is_open = False
                    known[1].drop(known[0])
            case RetainedMessage(subscription, frame):
                self._of(subscription, "").put(TopicMessage(None, stored_at(frame, 0), 1))
            case MessagesLost(subscription):
                self._of(subscription, "").lost.append(Lost(message))
            case TopicSubscriptionEnded(subscription, code):
                self._of(subscription, "").end(code)
            case _:
                return False
        return True

    def lost(self) -> None:
        for subscription in self._known.values():
            subscription.connection_lost()

    def leave(self) -> None:
        """A clean end: what nobody has looked at is for others at once, and nobody is to blame."""
        for subscription in self._known.values():
            subscription.give_back()
        for feed, _ in self._feeds.values():
            feed.flush()

    def _of(self, number: int, filter_text: str) -> Subscription:
        known = self._known.get(number)
        if known is None:
            known = self._known[number] = Subscription(
                self._caller, number, filter_text, 1, lambda gone: self._known.pop(gone, None)
            )
        if filter_text:
            known.filter = filter_text
        return known


class Subscribing:
    """What `moor.subscribe` returns: `await` it for a `Subscription`, or iterate over it at once."""

    def __init__(
        self, subscriptions: Subscriptions, filter_text: str, window: int, start: str, qos: int
    ) -> None:
        self._subscriptions = subscriptions
        self._filter, self._window, self._start, self._qos = filter_text, window, start, qos

    async def _make(self) -> Subscription:
        return await self._subscriptions.subscribe(
            self._filter, window=self._window, start=self._start, qos=self._qos
        )

    def __await__(self) -> Generator[object, None, Subscription]:
        return self._make().__await__()

    async def __aiter__(self) -> AsyncIterator[TopicMessage]:
        subscription = await self._make()
        try:
            async for message in subscription:
                yield message
        finally:
            await subscription.close()
