"""Room: client. Topics as a user of the library sees them.

await moor.publish("orders/eu", b"ahoy", key="42")
async for message in moor.subscribe("$shared/billing/orders/#"):
    print(message.topic, message.body)
    await message.ack()
"""

import asyncio
import contextlib
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Generator

from moorline.client.feed import Batch, Feed, Lost, TopicMessage
from moorline.client.record import (
    Headers,
    check_session,
    check_subscription,
    record,
    start_text,
)
from moorline.core.frames.frame import stored_at
from moorline.errors import NotFound, SessionTaken, SubscriptionEnded
from moorline.limits import TOPIC_WINDOW
from moorline.net.caller import Caller
from moorline.wire.message import Answer
from moorline.wire.message import Message as WireMessage
from moorline.wire.queue import Done
from moorline.wire.topic import (
    ConfirmLost,
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


CLOSED = "CLOSED"
"""Why a subscription ended: by ourselves."""


class Subscription:
    """Messages as they come. Iterate over it; `batches` is the fast way; `close` ends it.

    Several tasks may read it, one by one and in batches: each message goes to exactly one of them.
    """

    def __init__(
        self,
        caller: Caller,
        number: int,
        filter_text: str,
        qos: int,
        closed: Callable[[int], object],
    ) -> None:
        self.number = number
        self.filter = filter_text
        self.qos = qos
        self.lost: list[Lost] = []
        """What was gone before it was acknowledged, as it became known; a loss of a group is told to one
        member, who would have got the messages."""
        self._caller = caller
        self._closed = closed
        self._waiting: deque[Batch | TopicMessage] = deque()
        """What is at hand. A batch that is taken one by one stays in it until its last message is taken."""
        self._ended = ""
        self._news = asyncio.Event()

    def __aiter__(self) -> AsyncIterator[TopicMessage]:
        return self

    async def __anext__(self) -> TopicMessage:
        self._caller.check_loop()
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

    async def get(self, timeout_s: float) -> TopicMessage | None:
        """The next message, or None if none came in time or the subscription is closed."""
        try:
            async with asyncio.timeout(timeout_s):
                return await anext(self, None)
        except TimeoutError:
            return None

    async def close(self) -> None:
        """Gives back what nobody has looked at, and unsubscribes; in a durable session for good."""
        self._caller.check_loop()
        if not self._leave():
            return
        with contextlib.suppress(NotFound):  # the node has just ended it
            # What the node has not answered it may still begin to deliver: until then we are known.
            await self._caller.call(
                self._unsubscribing,
                Done,
                heard=lambda _: self._closed(self.number),
                must_arrive=True,
            )

    def take_back(self) -> None:
        """Closes it without waiting: nobody has it."""
        if self._leave():
            self._caller.cast(self._unsubscribing, lambda _: self._closed(self.number))

    def _leave(self) -> bool:
        """Takes no more; whether the node must be told."""
        self.give_back()
        if self._ended or not self._caller.is_open:
            if self._ended != CLOSED:
                self._closed(self.number)
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

    async def _any(self) -> bool:
        """Waits until something is at hand; False if we have closed it.

        Every reader that waits is woken by every message, and looks again: one that was cancelled, or came
        too late, takes nothing with it.
        """
        self._caller.check_loop()
        while not self._waiting:
            if self._ended == CLOSED:
                return False
            if self._ended:
                raise SubscriptionEnded(self._ended)
            if self._caller.lost.done():
                raise self._caller.lost.result()
            self._news.clear()
            await self._news.wait()
        return True


class OpenedSession(list[Subscription]):
    """The subscriptions with which a session goes on."""

    left_out: dict[str, str]
    """By filter: those that do not go on now, and the code why, such as DENIED or OVER_QUOTA. They keep their
    places: open the session again when the right is granted, or when there is room."""


class Subscriptions:
    """Sorts what a node pushes by subscription and feed."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._known: dict[int, Subscription] = {}
        self._feeds: dict[int, tuple[Feed, Subscription]] = {}
        self._wanted: Counter[str] = Counter()
        """Filters of subscriptions that somebody waits for."""
        self._unread: dict[str, Subscription] = {}
        """Subscriptions by their filters that were answered to nobody, as long as somebody waits for them."""
        self._unheard_session: tuple[str, SessionOpened] | None = None

    async def open_session(self, name: str, expiry_s: int) -> OpenedSession:
        check_session(name, expiry_s)

        def keep(answer: Answer) -> None:
            if isinstance(answer, SessionOpened):
                self._unheard_session = (name, answer)

        try:
            opened = await self._caller.call(
                lambda call: OpenSession(call, name, expiry_s), SessionOpened, unheard=keep
            )
        except SessionTaken:
            # By ourselves, in a call that was cancelled: its answer is before this one.
            if self._unheard_session is None or self._unheard_session[0] != name:
                raise
            opened, self._unheard_session = self._unheard_session[1], None
        found = OpenedSession(self._of(number, text) for number, text in opened.subscriptions)
        found.left_out = dict(opened.left_out)
        return found

    async def subscribe(
        self, filter_text: str, *, window: int, start: str, qos: int, no_local: bool = False
    ) -> Subscription:
        check_subscription(filter_text, window, start, qos)
        self._wanted[filter_text] += 1
        try:
            answer = await self._caller.call(
                lambda call: SubscribeTopic(call, filter_text, window, start, qos, no_local),
                TopicSubscribed,
                unheard=self._unheard,
            )
        except BaseException:
            self._want_no_more(filter_text)
            self._take_back(filter_text)
            raise
        self._want_no_more(filter_text)
        self._unread.pop(filter_text, None)
        subscription = self._of(answer.subscription, filter_text)
        subscription.qos = qos
        for feed, owner in self._feeds.values():
            if owner is subscription:
                feed.qos = qos
        return subscription

    def _want_no_more(self, filter_text: str) -> None:
        self._wanted[filter_text] -= 1
        if not self._wanted[filter_text]:
            del self._wanted[filter_text]

    def _unheard(self, answer: Answer) -> None:
        """The caller gave up before the answer."""
        if isinstance(answer, TopicSubscribed):
            self._unread[answer.filter] = self._of(answer.subscription, "")
            self._take_back(answer.filter)

    def _take_back(self, filter_text: str) -> None:
        """A subscription that nobody reads must not stall a group.

        A filter is one subscription, however often it is asked for: others may have it, or wait for it.
        """
        if filter_text not in self._wanted:
            known = self._unread.pop(filter_text, None)
            if known is not None and not known.filter:
                known.take_back()

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
                self._feeds[number] = (Feed(self._caller, message), owner)
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
                self._caller.send(ConfirmLost(message.feed, [(message.first, message.upto)]))
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
