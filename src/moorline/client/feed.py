"""Room: client. What comes of a stream: its feed, the messages in it, and what is said of them."""

from datetime import UTC, datetime

from moorline.client.shard_cursor import ShardCursor
from moorline.core.frames.frame import (
    FRAME,
    HEAD,
    QOS0,
    TOMBSTONE,
    Stored,
    all_stored,
    decode_headers,
)
from moorline.core.stream import Stream
from moorline.errors import Stale
from moorline.net.caller import Caller
from moorline.wire.topic import (
    AckMessages,
    FeedBegun,
    GiveBack,
    MessagesLost,
    RejectMessage,
)


class LostMessages:
    """Messages that were gone before they were acknowledged.

    None of them was acknowledged. With `is_exact` each of them was for this reader. Else that is a bound: the
    messages of other topics that lay between are among them, and nobody can tell any more.
    """

    __slots__ = ("first", "is_exact", "reason", "shard", "upto")

    def __init__(self, lost: MessagesLost) -> None:
        self.shard = f"{lost.node}/{lost.shard}"
        self.first = lost.first
        self.upto = lost.upto
        self.reason = lost.reason
        self.is_exact = lost.is_exact

    @property
    def count(self) -> int:
        """How many; at most so many, unless `is_exact`."""
        return self.upto - self.first

    def __repr__(self) -> str:
        bound = "" if self.is_exact else "at most "
        return (
            f"<LostMessages {bound}{self.count} of {self.shard}, from {self.first}: {self.reason}>"
        )


class TopicMessage:
    """One message of a stream. It is yours until you acknowledge or reject it."""

    __slots__ = ("_feed", "_stored", "_upto", "deliveries")

    def __init__(self, feed: "Feed | None", stored: Stored, deliveries: int, upto: int = 0) -> None:
        self._feed = feed
        self._stored = stored
        self._upto = upto
        """Up to here nothing else is for us; 0 if that is not known."""
        self.deliveries = deliveries
        """1 the first time; above it, as many deliveries before this one failed."""

    @property
    def topic(self) -> str:
        return self._stored.topic

    @property
    def body(self) -> bytes:
        """Empty for a tombstone too: `is_tombstone` tells the two apart."""
        return self._stored.body

    @property
    def is_tombstone(self) -> bool:
        """Whether it says that there is nothing under its key any more."""
        return bool(self._stored.flags & TOMBSTONE)

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
        """Done with. Leaves with all other acknowledgements of this turn of the loop.

        `Stale` says that the connection it came by is gone: it comes again.
        """
        if self._feed is not None:
            await self._feed.ack(self.offset, covers=self._upto)

    async def reject(self) -> None:
        """Failed: it comes again, here or at another member, until it has failed too often."""
        if self._feed is not None:
            await self._feed.reject(self.offset)

    def __repr__(self) -> str:
        where = f"{self.stream} at {self.offset}" if self._feed is not None else "retained"
        what = "a tombstone" if self.is_tombstone else f"{len(self.body)} bytes"
        return f"<TopicMessage {self.topic}: {what}, {where}>"


class Feed:
    """One stream on its way to us."""

    __slots__ = (
        "_acked",
        "_caller",
        "cursor",
        "is_open",
        "is_stale",
        "number",
        "qos",
        "stream",
        "tries",
    )

    def __init__(self, caller: Caller, begun: FeedBegun) -> None:
        self.number = begun.feed
        self.stream = Stream(begun.node, begun.shard, begun.generation)
        self.qos = begun.qos
        self.is_open = True
        self.is_stale = False
        """Its link is gone, and another one has followed or will."""
        self.cursor: ShardCursor | None = None
        """Of its shard, where the client has to know it."""
        self.tries: dict[int, int] = {}
        self._caller = caller
        self._acked: list[tuple[int, int]] = []

    async def ack(self, first: int, upto: int | None = None, *, covers: int = 0) -> None:
        """Up to `upto`; and up to `covers` nothing else is for us."""
        self._caller.check_loop()
        self._check_stale()
        self.ack_soon(first, first + 1 if upto is None else upto)
        if self.cursor is not None and self.is_open:
            self.cursor.done(first, max(covers, first + 1 if upto is None else upto))
        if not self._caller.writable:
            await self._caller.room_to_write()

    def ack_soon(self, first: int, upto: int) -> None:
        if not self.is_open or self.qos == 0:
            return
        if not self._acked:
            self._caller.soon(self.flush)
        if self._acked and self._acked[-1][1] == first:
            self._acked[-1] = (self._acked[-1][0], upto)
        else:
            self._acked.append((first, upto))

    def flush(self) -> None:
        """Sends what is acknowledged; before anything else that is said of the feed."""
        if self._acked and self._caller.is_open:
            self._caller.send(AckMessages(self.number, self._acked))
        self._acked = []

    def _check_stale(self) -> None:
        if self.is_stale and self.qos:
            raise Stale(
                f"this message of {self.stream} was delivered over a connection that is gone: it comes again"
            )

    async def reject(self, offset: int) -> None:
        self._caller.check_loop()
        self._check_stale()
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

    __slots__ = ("_feed", "_frames", "_is_new", "_messages", "_taken", "_upto")

    def __init__(self, feed: Feed, frames: bytes, upto: int, *, is_new: bool = False) -> None:
        self._feed = feed
        self._is_new = is_new
        """Each of them came for the first time, so what lies between is not for us."""
        self._frames = frames
        self._upto = upto
        self._messages: list[TopicMessage] | None = None
        self._taken = 0

    @property
    def feed(self) -> Feed:
        return self._feed

    @property
    def stream(self) -> Stream:
        return self._feed.stream

    @property
    def frames(self) -> bytes:
        """As they are stored: see moorline.core.frames.frame."""
        return self._frames

    @property
    def messages(self) -> list[TopicMessage]:
        if self._messages is None:
            tries = self._feed.tries
            all_of_them = list(all_stored(self._frames))
            uptos = [0] * len(all_of_them)
            if self._is_new:
                uptos = [*(stored.offset for stored in all_of_them[1:]), self._upto]
            self._messages = [
                TopicMessage(self._feed, stored, tries.pop(stored.offset, 1) if tries else 1, upto)
                for stored, upto in zip(all_of_them, uptos, strict=True)
            ]
        return self._messages

    async def ack(self) -> None:
        """All of them."""
        # What does not match the filter lies between, and is the node's: it takes no notice of it.
        first, upto = self.bounds()
        await self._feed.ack(first, upto)

    def take(self) -> tuple[TopicMessage, bool]:
        """The next message, for whoever takes them one by one; and whether it is the last."""
        messages = self._messages or self.messages
        message = messages[self._taken]
        self._taken += 1
        return message, self._taken == len(messages)

    def rest(self) -> "Batch":
        """What nobody has taken of it."""
        if not self._taken:
            return self
        start = 0
        for _ in range(self._taken):
            start += HEAD.size + HEAD.unpack_from(self._frames, start)[0]
        rest = Batch(self._feed, self._frames[start:], self._upto, is_new=self._is_new)
        rest._messages = self.messages[self._taken :]
        return rest

    def bounds(self) -> tuple[int, int]:
        """From the first offset that nobody has taken to behind the last."""
        if self._taken:
            return self.messages[self._taken].offset, self._upto
        return FRAME.unpack_from(self._frames, 0)[2], self._upto

    def give_back(self) -> None:
        self._feed.give_back([self.bounds()])
