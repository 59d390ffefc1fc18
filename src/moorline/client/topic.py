"""Room: client. Topics as a user of the library sees them.

await moor.publish("orders/eu", b"ahoy", key="42")
async for message in moor.subscribe("$shared/billing/orders/#"):
    print(message.topic, message.body)
    await message.ack()
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Generator, Mapping, Sequence
from datetime import UTC, datetime

from moorline.core.stream import Stream
from moorline.errors import SubscriptionEnded
from moorline.limits import TOPIC_WINDOW
from moorline.net.caller import Caller
from moorline.wire.message import Message as WireMessage
from moorline.wire.queue import Done
from moorline.wire.segment import (
    FRAME,
    HEAD,
    QOS0,
    RETAIN,
    Stored,
    all_stored,
    decode_headers,
    stored_at,
)
from moorline.wire.topic import (
    AckMessages,
    FeedBegun,
    FeedEnded,
    FeedStopping,
    GiveBack,
    Messages,
    MessagesLost,
    OpenSession,
    Record,
    RejectMessage,
    RetainedMessage,
    SessionOpened,
    SubscribeTopic,
    TopicSubscribed,
    TopicSubscriptionEnded,
    UnsubscribeTopic,
)

Headers = Mapping[str, bytes | str] | Sequence[tuple[str, bytes]]


def record(
    topic: str,
    body: bytes,
    *,
    key: bytes | str | None = None,
    headers: Headers | None = None,
    ttl_s: int = 0,
    retain: bool = False,
    qos: int = 1,
) -> Record:
    """A message as it is published."""
    flags = (RETAIN if retain else 0) | (QOS0 if qos == 0 else 0)
    key_bytes = key.encode() if isinstance(key, str) else key
    return Record(topic, body, key_bytes, _pairs(headers), ttl_s, flags)


def _pairs(headers: Headers | None) -> list[tuple[str, bytes]] | None:
    if not headers:
        return None
    items = headers.items() if isinstance(headers, Mapping) else headers
    return [(name, value.encode() if isinstance(value, str) else value) for name, value in items]


class Lost:
    """Messages that were gone before they could be delivered."""

    __slots__ = ("first", "reason", "shard", "upto")

    def __init__(self, lost: MessagesLost) -> None:
        self.shard = f"{lost.node}/{lost.shard}"
        self.first = lost.first
        self.upto = lost.upto
        self.reason = lost.reason

    def __repr__(self) -> str:
        count = self.upto - self.first
        return f"<Lost {count} of {self.shard}, from {self.first}: {self.reason}>"


class TopicMessage:
    """One message of a stream. It is yours until you acknowledge or reject it."""

    __slots__ = ("_feed", "_stored", "deliveries")

    def __init__(self, feed: "Feed | None", stored: Stored, deliveries: int) -> None:
        self._feed = feed
        self._stored = stored
        self.deliveries = deliveries
        """1 the first time; above it, as many deliveries before this one failed."""

    @property
    def topic(self) -> str:
        return self._stored.topic

    @property
    def body(self) -> bytes:
        return self._stored.body

    @property
    def key(self) -> bytes | None:
        return self._stored.key

    @property
    def headers(self) -> list[tuple[str, bytes]]:
        return decode_headers(self._stored.headers)

    @property
    def offset(self) -> int:
        return self._stored.offset

    @property
    def stream(self) -> Stream | None:
        """Where it is stored; None for a retained message, which is a copy."""
        return self._feed.stream if self._feed is not None else None

    @property
    def time(self) -> datetime:
        return datetime.fromtimestamp(self._stored.time_us / 1_000_000, UTC)

    @property
    def time_us(self) -> int:
        return self._stored.time_us

    @property
    def is_retained(self) -> bool:
        """Whether it came because it is the last retained one of its topic."""
        return self._feed is None

    @property
    def qos(self) -> int:
        """The lower of what it was published and subscribed with."""
        if self._feed is None:
            return 0
        return min(self._feed.qos, 0 if self._stored.flags & QOS0 else 1)

    async def ack(self) -> None:
        """Done with. Leaves with all other acknowledgements of this turn of the loop."""
        if self._feed is not None:
            await self._feed.ack(self.offset)

    async def reject(self) -> None:
        """Failed: it comes again, here or at another member, until it has failed too often."""
        if self._feed is not None:
            await self._feed.reject(self.offset)

    def __repr__(self) -> str:
        where = f"{self.stream} at {self.offset}" if self._feed is not None else "retained"
        return f"<TopicMessage {self.topic}: {len(self.body)} bytes, {where}>"


class Feed:
    """One stream on its way to us."""

    __slots__ = ("_acked", "_caller", "is_open", "number", "qos", "stream", "tries")

    def __init__(self, caller: Caller, begun: FeedBegun, qos: int) -> None:
        self.number = begun.feed
        self.stream = Stream(begun.node, begun.shard, begun.generation)
        self.qos = qos
        self.is_open = True
        self.tries: dict[int, int] = {}
        self._caller = caller
        self._acked: list[tuple[int, int]] = []

    async def ack(self, first: int, upto: int | None = None) -> None:
        self.ack_soon(first, first + 1 if upto is None else upto)
        if not self._caller.writable:
            await self._caller.room_to_write()

    def ack_soon(self, first: int, upto: int) -> None:
        if not self.is_open or self.qos == 0:
            return
        if not self._acked:
            asyncio.get_running_loop().call_soon(self.flush)
        if self._acked and self._acked[-1][1] == first:
            self._acked[-1] = (self._acked[-1][0], upto)
        else:
            self._acked.append((first, upto))

    def flush(self) -> None:
        """Sends what is acknowledged; before anything else that is said of the feed."""
        if self._acked and self._caller.is_open:
            self._caller.send(AckMessages(self.number, self._acked))
        self._acked = []

    async def reject(self, offset: int) -> None:
        if self.is_open and self.qos:
            self.flush()
            self._caller.send(RejectMessage(self.number, offset))
            if not self._caller.writable:
                await self._caller.room_to_write()

    def give_back(self, ranges: list[tuple[int, int]]) -> None:
        if ranges and self.is_open and self._caller.is_open:
            self.flush()
            self._caller.send(GiveBack(self.number, ranges))


class Batch:
    """Messages of one stream that came together."""

    __slots__ = ("_feed", "_frames", "_messages")

    def __init__(self, feed: Feed, frames: bytes) -> None:
        self._feed = feed
        self._frames = frames
        self._messages: list[TopicMessage] | None = None

    @property
    def stream(self) -> Stream:
        return self._feed.stream

    @property
    def frames(self) -> bytes:
        """As they are stored: see moorline.wire.segment."""
        return self._frames

    @property
    def messages(self) -> list[TopicMessage]:
        if self._messages is None:
            tries = self._feed.tries
            self._messages = [
                TopicMessage(self._feed, stored, tries.pop(stored.offset, 1) if tries else 1)
                for stored in all_stored(self._frames)
            ]
        return self._messages

    async def ack(self) -> None:
        """All of them."""
        # What does not match the filter lies between, and is the node's: it takes no notice of it.
        first, upto = self.bounds()
        await self._feed.ack(first, upto)

    def bounds(self) -> tuple[int, int]:
        """From the first offset to behind the last."""
        place, last = 0, 0
        while place < len(self._frames):
            last = place
            place += HEAD.size + HEAD.unpack_from(self._frames, place)[0]
        return FRAME.unpack_from(self._frames, 0)[2], FRAME.unpack_from(self._frames, last)[2] + 1

    def give_back(self) -> None:
        self._feed.give_back([self.bounds()])


class Subscription:
    """Messages as they come. Iterate over it; `batches` is the fast way; `close` ends it."""

    def __init__(self, caller: Caller, number: int, filter_text: str, qos: int) -> None:
        self.number = number
        self.filter = filter_text
        self.qos = qos
        self.lost: list[Lost] = []
        """What was gone before it could be delivered, as it became known."""
        self._caller = caller
        self._waiting: deque[Batch | TopicMessage] = deque()
        self._at_hand: deque[TopicMessage] = deque()
        self._ended = ""
        self._news = asyncio.Event()

    def __aiter__(self) -> AsyncIterator[TopicMessage]:
        return self

    async def __anext__(self) -> TopicMessage:
        while not self._at_hand:
            self._take(await self._next())
        return self._at_hand.popleft()

    async def batches(self) -> AsyncIterator[Batch]:
        """Runs of messages of one stream; retained messages are passed over."""
        while True:
            batch = await self._next()
            if isinstance(batch, Batch):
                yield batch

    async def get(self, timeout_s: float) -> TopicMessage | None:
        """The next message, or None if none came in time."""
        try:
            async with asyncio.timeout(timeout_s):
                return await anext(self)
        except TimeoutError:
            return None

    async def close(self) -> None:
        """Gives back what nobody has looked at, and unsubscribes; in a durable session for good."""
        self.give_back()
        if self._caller.is_open and not self._ended:
            self._ended = "CLOSED"
            await self._caller.call(lambda call: UnsubscribeTopic(call, self.number), Done)
        self._news.set()

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
        for message in self._at_hand:
            own = message._feed  # noqa: SLF001 - a part of it
            if own is not None and feed in (None, own):
                own.give_back([(message.offset, message.offset + 1)])
            else:
                still.append(message)
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

    async def _next(self) -> Batch | TopicMessage:
        while not self._waiting:
            if self._ended == "CLOSED":
                raise StopAsyncIteration
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
        self._qos: dict[int, int] = {}

    async def open_session(self, name: str, expiry_s: int) -> list[Subscription]:
        opened = await self._caller.call(
            lambda call: OpenSession(call, name, expiry_s), SessionOpened
        )
        return [self._of(number, text) for number, text in opened.subscriptions]

    async def subscribe(
        self, filter_text: str, *, window: int, start: str, qos: int, no_local: bool = False
    ) -> Subscription:
        answer = await self._caller.call(
            lambda call: SubscribeTopic(call, filter_text, window, start, qos, no_local),
            TopicSubscribed,
        )
        subscription = self._of(answer.subscription, filter_text)
        subscription.qos = qos
        for feed, owner in self._feeds.values():
            if owner is subscription:
                feed.qos = qos
        return subscription

    def sort(self, message: WireMessage) -> bool:
        """Takes a push that is about topics; False if it is not."""
        match message:
            case Messages(number, frames, tries):
                known = self._feeds.get(number)
                if known is not None:
                    known[0].tries.update(tries)
                    known[1].put(Batch(known[0], frames))
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
            known = self._known[number] = Subscription(self._caller, number, filter_text, 1)
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


def start_text(start: str | int | datetime) -> str:
    """`"now"`, `"beginning"`, a time, or an offset, as the wire has it."""
    if isinstance(start, datetime):
        return f"time:{int(start.timestamp() * 1_000_000)}"
    if isinstance(start, int):
        return f"offset:{start}"
    return start


__all__ = ["TOPIC_WINDOW", "Batch", "Lost", "Subscription", "Subscriptions", "TopicMessage"]
