"""Room: client. Topics as a user of the library sees them.

await moor.publish("orders/eu", b"ahoy", key="42")
async for message in moor.subscribe("$shared/billing/orders/#"):
    print(message.topic, message.body)
    await message.ack()
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Generator
from typing import Protocol

from moorline.client.feed import Batch, Feed, LostMessages, TopicMessage
from moorline.client.record import Headers, record, start_text
from moorline.client.shard_cursor import ShardCursors
from moorline.errors import ConnectionLost, NotFound, Refused, Stale, SubscriptionEnded
from moorline.limits import TOPIC_WINDOW
from moorline.net.caller import Caller, Calls
from moorline.wire.queue import Done
from moorline.wire.topic import UnsubscribeTopic

__all__ = [
    "TOPIC_WINDOW",
    "Batch",
    "Feed",
    "Headers",
    "LostMessages",
    "Subscribing",
    "Subscription",
    "TopicMessage",
    "record",
    "start_text",
]


CLOSED = "CLOSED"
"""Why a subscription ended: by ourselves."""


class Owner(Protocol):
    """All subscriptions of a client: what one of them stands on."""

    @property
    def link(self) -> Caller:
        """The connection that there is, or was last."""

    @property
    def calls(self) -> Calls:
        """The client, also between two connections."""

    @property
    def stays(self) -> bool:
        """Whether another connection follows one that is lost."""

    def closed(self, subscription: "Subscription") -> None: ...


class Subscription:
    """Messages as they come. Iterate over it; `batches` is the fast way; `close` ends it.

    Several tasks may read it, one by one and in batches: each message goes to exactly one of them.
    """

    def __init__(self, owner: Owner, number: int, filter_text: str, qos: int) -> None:
        self.number = number
        """On the connection that there is; another one behind each loss."""
        self.filter = filter_text
        self.qos = qos
        self.window = TOPIC_WINDOW
        self.start = "now"
        self.is_asked = False
        """Whether the program subscribed; else it came with a durable session."""
        self.is_resumed = False
        """Whether it goes on from an earlier connection."""
        self.cursors: ShardCursors | None = ShardCursors() if owner.stays else None
        """Where it is, if nobody but the client knows."""
        self.lost: list[LostMessages] = []
        """What was gone before it was acknowledged, as it became known; a loss of a group is told to one
        member, who would have got the messages."""
        self._owner = owner
        self._waiting: deque[Batch | TopicMessage] = deque()
        """What is at hand. A batch that is taken one by one stays in it until its last message is taken."""
        self._ended = ""
        self._news = asyncio.Event()

    def __aiter__(self) -> AsyncIterator[TopicMessage]:
        return self

    async def __anext__(self) -> TopicMessage:
        self._owner.calls.check_loop()
        if not self._waiting and not await self._any():
            raise StopAsyncIteration
        first = self._waiting[0]
        if not isinstance(first, Batch):
            self._waiting.popleft()
            return first
        message, is_last = first.take()
        if is_last:
            self._waiting.popleft()
        return message

    async def batches(self) -> AsyncIterator[Batch]:
        """Runs of messages of one stream; retained messages are passed over."""
        while await self._any():
            first = self._waiting.popleft()
            if isinstance(first, Batch):
                yield first.rest()

    async def acking(self) -> AsyncIterator[TopicMessage]:
        """Each message, acknowledged when the next one is asked for; one that raised or broke out is not.

        With a client that stays, a program that reads so needs to know nothing of faults: what was in hand
        when a connection was lost comes again.
        """
        while (message := await anext(self, None)) is not None:
            yield message
            with contextlib.suppress(Stale):
                await message.ack()

    async def get(self, timeout_s: float) -> TopicMessage | None:
        """The next message, or None if none came in time or the subscription is closed."""
        try:
            async with asyncio.timeout(timeout_s):
                return await anext(self, None)
        except TimeoutError:
            return None

    async def close(self) -> None:
        """Gives back what nobody has looked at, and unsubscribes; in a durable session for good."""
        self._owner.calls.check_loop()
        if not self._leave():
            return
        with contextlib.suppress(NotFound):  # the node has just ended it
            # What the node has not answered it may still begin to deliver: until then we are known.
            try:
                await self._owner.link.call(
                    self._unsubscribing,
                    Done,
                    heard=lambda _: self._owner.closed(self),
                    must_arrive=True,
                )
            except (ConnectionLost, Refused):
                if not self._owner.stays:
                    raise
                self._owner.closed(self)

    def take_back(self) -> None:
        """Closes it without waiting: nobody has it."""
        if self._leave():
            self._owner.link.cast(self._unsubscribing, lambda _: self._owner.closed(self))

    def _leave(self) -> bool:
        """Takes no more; whether the node must be told."""
        self.give_back()
        if self._ended or not self._owner.link.is_open:
            if self._ended != CLOSED:
                self._owner.closed(self)
            if self._owner.stays and not self._ended:
                self.end(CLOSED)
            return False
        self._ended = CLOSED
        self._news.set()
        return True

    def _unsubscribing(self, call: int) -> UnsubscribeTopic:
        return UnsubscribeTopic(call, self.number)

    def give_back(self, feed: Feed | None = None) -> None:
        """Returns what was delivered and not taken, of one feed or of all.

        Without acknowledgements it is nobody else's any more: a feed's end leaves it here.
        """
        kept: deque[Batch | TopicMessage] = deque()
        for one in self._waiting:
            if isinstance(one, Batch) and (feed is None or (one.feed is feed and feed.qos)):
                one.give_back()
            else:
                kept.append(one)
        self._waiting = kept

    def put(self, one: Batch | TopicMessage) -> None:
        if isinstance(one, Batch) and not one.frames:
            return
        if self._ended != CLOSED:
            self._waiting.append(one)
            self._news.set()
        elif isinstance(one, Batch):
            # It was on its way when we left: a group is not to wait for us.
            one.give_back()

    def drop(self, feed: Feed) -> None:
        """A feed is over: what is left of it belongs to somebody else, if anybody acknowledges."""
        if feed.qos:
            self._waiting = deque(
                one for one in self._waiting if not (isinstance(one, Batch) and one.feed is feed)
            )

    def end(self, code: str) -> None:
        self._ended = code
        self._news.set()

    def connection_lost(self) -> None:
        self._news.set()

    @property
    def is_ended(self) -> bool:
        return bool(self._ended)

    def cut(self) -> None:
        """Its connection is gone, and another one will follow: what nobody has taken comes again."""
        self._waiting = deque(
            one for one in self._waiting if not (isinstance(one, Batch) and one.feed.qos)
        )
        if self.cursors is not None:
            self.cursors.again()

    def take_all(self) -> list[Batch | TopicMessage]:
        """What came for another one, before its number was known to be that one's."""
        taken, self._waiting = list(self._waiting), deque()
        return taken

    async def _any(self) -> bool:
        """Waits until something is at hand; False if we have closed it.

        Every reader that waits is woken by every message, and looks again: one that was cancelled, or came
        too late, takes nothing with it.
        """
        self._owner.calls.check_loop()
        while not self._waiting:
            if self._ended == CLOSED:
                return False
            if self._ended:
                raise SubscriptionEnded(self._ended)
            if self._owner.calls.lost.done():
                raise self._owner.calls.lost.result()
            self._news.clear()
            await self._news.wait()
        return True


class OpenedSession(list[Subscription]):
    """The subscriptions with which a session goes on."""

    left_out: dict[str, str]
    """By filter: those that do not go on now, and the code why, such as DENIED or OVER_QUOTA. They keep their
    places: open the session again when the right is granted, or when there is room."""


class Subscribes(Protocol):
    async def subscribe(
        self, filter_text: str, *, window: int, start: str, qos: int
    ) -> Subscription: ...


class Subscribing:
    """What `moor.subscribe` returns: `await` it for a `Subscription`, or iterate over it at once."""

    def __init__(
        self, subscriptions: "Subscribes", filter_text: str, window: int, start: str, qos: int
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

    async def acking(self) -> AsyncIterator[TopicMessage]:
        """As `Subscription.acking`; closed at its end."""
        subscription = await self._make()
        try:
            async for message in subscription.acking():
                yield message
        finally:
            await subscription.close()
