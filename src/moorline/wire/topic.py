"""Room: wire. The messages of topics: publishing, sessions and their subscriptions, what is delivered.

Messages travel as the frames they are stored in (core.frames.frame), whole runs of them at once. A *feed* is
one stream on its way through one subscription; acknowledgements name feeds and ranges of offsets, and need
no answer.
"""

from typing import Annotated, ClassVar

import msgspec
from msgspec import Meta

from moorline.core.frames.frame import FLAGS_ALL, StoredHeaders
from moorline.limits import (
    CLIENT_CURSOR_RANGES_MAX,
    CLUSTER_NODES_MAX,
    FILTER_LENGTH_MAX,
    LOST_RANGES_MAX,
    PRODUCER_LENGTH_MAX,
    RECORDS_PER_CALL_MAX,
    SESSION_EXPIRY_S_MAX,
    SESSION_NAME_BYTES_MAX,
    START_LENGTH_MAX,
    STREAM_SHARDS_MAX,
    STREAMS_PER_PAGE_MAX,
    SUBSCRIPTIONS_MAX,
    TOPIC_BYTES_MAX,
    TOPIC_KEY_BYTES_MAX,
    TOPIC_WINDOW_MAX,
    TOPICS_PER_PAGE_MAX,
    TTL_S_MAX,
)
from moorline.wire.bounds import Body, Code, FilterText, HashBytes, Name, RowsMax, WindowMax
from moorline.wire.message import Answer, Call, Message

Topic = Annotated[str, Meta(min_length=1, max_length=TOPIC_BYTES_MAX)]
Filter = Annotated[str, Meta(min_length=1, max_length=FILTER_LENGTH_MAX)]
Key = Annotated[bytes, Meta(max_length=TOPIC_KEY_BYTES_MAX)]
Seconds = Annotated[int, Meta(ge=0, le=TTL_S_MAX)]
Number = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
WindowSize = Annotated[int, Meta(ge=1, le=TOPIC_WINDOW_MAX)]
# Postgres takes no NUL in a text.
SessionName = Annotated[
    str, Meta(min_length=1, max_length=SESSION_NAME_BYTES_MAX, pattern=r"^[^\x00]*$")
]
Expiry = Annotated[int, Meta(ge=0, le=SESSION_EXPIRY_S_MAX)]
Qos = Annotated[int, Meta(ge=0, le=1)]
OffsetRange = tuple[Number, Number]
StreamKey = tuple[Annotated[int, Meta(ge=-1)], Annotated[int, Meta(ge=-1)]]
"""(shard, generation)."""
NO_STREAM: StreamKey = (-1, -1)
"""Before the first of all streams."""
ToldCursor = tuple[
    Number, Number, Annotated[tuple[OffsetRange, ...], Meta(max_length=CLIENT_CURSOR_RANGES_MAX)]
]
"""(shard, offset, ranges): done is everything below the offset, and the ranges above it."""
HomeCursors = tuple[Name, Annotated[list[ToldCursor], Meta(max_length=STREAM_SHARDS_MAX)]]
"""Of the shards of one home."""
CursorsOfAll = Annotated[list[HomeCursors], Meta(max_length=CLUSTER_NODES_MAX)]
StreamCount = Annotated[int, Meta(ge=0, le=STREAMS_PER_PAGE_MAX)]
"""Rows of a page; 0 is all, and refused if they do not fit an answer."""


class Record(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A message that is to be stored. `flags` are RETAIN, QOS0 and TOMBSTONE of core.frames.frame;
    a tombstone has no body."""

    topic: Topic
    body: Body
    key: Key | None = None
    headers: StoredHeaders | None = None
    ttl_s: Seconds = 0
    flags: Annotated[int, Meta(ge=0, le=FLAGS_ALL)] = 0


class Publish(Call, frozen=True, gc=False, tag=100):
    """Stores messages. With a producer they are numbered from `sequence` on, and stored once."""

    weighed_by: ClassVar[str] = "records"

    records: Annotated[list[Record], Meta(max_length=RECORDS_PER_CALL_MAX)]
    producer: Annotated[str, Meta(max_length=PRODUCER_LENGTH_MAX)] = ""
    sequence: Number = 0


class Published(Answer, frozen=True, gc=False, tag=101):
    """They are stored, as durably as `streams.sync` says; the last one is at that place."""

    stored: int
    duplicates: int
    shard: int
    offset: int


class OpenSession(Call, frozen=True, gc=False, tag=102):
    """A durable session: its subscriptions and places outlive the connection, for `expiry_s`."""

    name: SessionName
    expiry_s: Expiry


class SessionOpened(Answer, frozen=True, gc=False, tag=103):
    """`subscriptions` are those that it had: (number, filter); their deliveries begin.

    `left_out` are those that do not go on now: (filter, the code why). They keep their places.
    """

    resumed: bool
    subscriptions: Annotated[list[tuple[int, FilterText]], Meta(max_length=SUBSCRIPTIONS_MAX)]
    left_out: Annotated[list[tuple[FilterText, Code]], Meta(max_length=SUBSCRIPTIONS_MAX)] = (
        msgspec.field(default_factory=list)
    )


class SubscribeTopic(Call, frozen=True, gc=False, tag=104):
    """Reads a filter, or takes part in a group (`$shared/G/F`, `$share/G/F`, `$queue/G/F`).

    `start` is "now", "beginning", "time:MICROSECONDS" or "offset:NUMBER"; a place that the session
    or the group has already goes before it. At most `window` messages are unacknowledged at once.
    With `hold` the feeds come and no messages: the member takes them by itself (wire.pull). With `places` a
    plain subscription goes on where it was on a connection before; shards that they do not name are new.
    """

    filter: Filter
    window: WindowSize = 256
    start: Annotated[str, Meta(max_length=START_LENGTH_MAX)] = "now"
    qos: Qos = 1
    no_local: bool = False
    hold: bool = False
    places: CursorsOfAll = msgspec.field(default_factory=list)


class TopicSubscribed(Answer, frozen=True, gc=False, tag=105):
    """`places` are where a plain subscription begins that has no place of its own at the node."""

    subscription: int
    filter: FilterText
    places: CursorsOfAll = msgspec.field(default_factory=list)


class UnsubscribeTopic(Call, frozen=True, gc=False, tag=106):
    """Ends a subscription, in a durable session for good; answered by `Done`."""

    subscription: Number


class AckMessages(Message, frozen=True, gc=False, tag=107):
    """These messages of a feed are done with."""

    weighed_by: ClassVar[str] = "ranges"

    feed: Number
    ranges: Annotated[list[OffsetRange], WindowMax]


class RejectMessage(Message, frozen=True, gc=False, tag=108):
    """This message failed: it comes again, here or elsewhere, until it has failed too often."""

    feed: Number
    offset: Number


class GiveBack(Message, frozen=True, gc=False, tag=109):
    """Nobody has looked at these: they come again, and nobody is to blame."""

    weighed_by: ClassVar[str] = "ranges"

    feed: Number
    ranges: Annotated[list[OffsetRange], WindowMax]


class FeedBegun(Message, frozen=True, gc=False, tag=110):
    """Pushed: messages of that stream will come under this number."""

    feed: int
    subscription: int
    node: Name
    shard: int
    generation: int
    qos: Qos = 1


class Messages(Message, frozen=True, gc=False, tag=111):
    """Pushed: frames of a feed, below `upto`. `tries` names those that come not for the first time."""

    feed: int
    frames: Body
    tries: Annotated[list[tuple[int, int]], WindowMax]
    upto: int


class FeedStopping(Message, frozen=True, gc=False, tag=112):
    """Pushed: no more of this feed will come; give back what nobody has looked at."""

    feed: int


class FeedEnded(Message, frozen=True, gc=False, tag=113):
    """Pushed: the feed is over; what is said of it now is too late."""

    feed: int


class MessagesLost(Message, frozen=True, gc=False, tag=114):
    """Pushed: a stream has lost messages before they were acknowledged: RETENTION or DAMAGE.

    Each of them was for this subscription where `is_exact`; else those of other topics that lay between are
    among them, and nobody can tell any more. To be confirmed by `ConfirmLost`: until then it is not done.
    """

    subscription: int
    node: Name
    shard: int
    first: int
    upto: int
    reason: Code
    feed: int = 0
    is_exact: bool = False


class ConfirmLost(Message, frozen=True, gc=False, tag=176):
    """These losses of a feed are known: ranges as `MessagesLost` told them."""

    feed: Number
    ranges: Annotated[list[OffsetRange], Meta(max_length=LOST_RANGES_MAX)]


class TopicSubscriptionEnded(Message, frozen=True, gc=False, tag=115):
    """Pushed: KICKED, DELETED, FULL, or TAKEN_OVER by another connection of the session."""

    subscription: int
    code: Code


class RetainedMessage(Message, frozen=True, gc=False, tag=116):
    """Pushed after a subscription that is not shared: the last retained message of a topic."""

    subscription: int
    frame: Body


class ListTopics(Call, frozen=True, gc=False, tag=117):
    """A page of the topics that this node has messages of, behind that one, by name."""

    after: FilterText = ""
    filter: FilterText = "#"
    count: Annotated[int, Meta(ge=1, le=TOPICS_PER_PAGE_MAX)] = TOPICS_PER_PAGE_MAX


class TopicsListed(Answer, frozen=True, gc=False, tag=118):
    """(topic, messages)."""

    topics: Annotated[list[tuple[FilterText, int]], Meta(max_length=TOPICS_PER_PAGE_MAX)]


class DescribeStreams(Call, frozen=True, gc=False, tag=119):
    """A page of the streams of this node behind that one, or all of them."""

    after: StreamKey = NO_STREAM
    count: StreamCount = 0


class StreamFacts(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A sealed stream has its digest, 24 bytes; others have none yet."""

    node: Name
    shard: int
    generation: int
    first: int
    end: int
    is_sealed: bool
    size_bytes: int
    first_time_us: int
    last_time_us: int
    digest: HashBytes


class StreamsDescribed(Answer, frozen=True, gc=False, tag=120):
    streams: Annotated[list[StreamFacts], RowsMax]
    dropped_messages: int
    lost_messages: int


COMMANDS = (
    Publish
    | OpenSession
    | SubscribeTopic
    | UnsubscribeTopic
    | AckMessages
    | RejectMessage
    | GiveBack
    | ConfirmLost
    | ListTopics
    | DescribeStreams
)
EVENTS = (
    Published
    | SessionOpened
    | TopicSubscribed
    | FeedBegun
    | Messages
    | FeedStopping
    | FeedEnded
    | MessagesLost
    | TopicSubscriptionEnded
    | RetainedMessage
    | TopicsListed
    | StreamsDescribed
)
