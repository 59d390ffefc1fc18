"""The history of a campaign: every call that a client made and what became of it, and all that came.

Events stand in the order in which the clients saw them. The checker reads nothing else. Beside the events
there is what is still owed, so that the end of a round knows what to wait for.
"""

import zlib
from collections import defaultdict
from enum import Enum

import msgspec

BODY_BYTES_MAX = 600
BATCH_SPREAD = 8
"""Messages of others that may lie between two of a batch, for each of them."""


class Outcome(Enum):
    """What the client knows of a call when it is over."""

    ANSWERED = "answered"
    REFUSED = "refused"
    """The node said no: it must never take effect."""
    UNKNOWN = "unknown"
    """No answer: cancelled, or the connection was lost. It may have taken effect or not."""


class Sent(msgspec.Struct, frozen=True):
    node: str
    queue: str
    name: str
    outcome: Outcome
    message: int = 0


class Delivered(msgspec.Struct, frozen=True):
    """A message of a queue came; `session` is one reading of it from its head on."""

    queue: str
    session: int
    message: int
    name: str


class Acked(msgspec.Struct, frozen=True):
    queue: str
    message: int
    outcome: Outcome


class Published(msgspec.Struct, frozen=True):
    """`offset` is below 0 where the answer does not say it.

    Of a batch the answer tells the place of the last message: the others are a little before it.
    """

    node: str
    key: str
    name: str
    outcome: Outcome
    shard: int = -1
    offset: int = -1
    batch: int = 1

    @property
    def is_exact(self) -> bool:
        """Whether the answer says where it is."""
        return self.offset >= 0 and self.batch == 1

    @property
    def places(self) -> range:
        """Where it can be, as far as the answer says."""
        return range(self.offset - BATCH_SPREAD * (self.batch - 1), self.offset + 1)


class Got(msgspec.Struct, frozen=True):
    """A reader of topics got a message: a group, a durable session, the audit, or an archive."""

    reader: str
    node: str
    shard: int
    offset: int
    key: str
    name: str


class Done(msgspec.Struct, frozen=True):
    """It was acknowledged by its reader; nobody answers that."""

    reader: str
    node: str
    shard: int
    offset: int


class Operated(msgspec.Struct, frozen=True):
    """An operator asked for a group to be made ("create") or ended ("delete")."""

    group: str
    act: str
    outcome: Outcome


class GroupSeen(msgspec.Struct, frozen=True):
    """Whether a group is there, while nobody operates."""

    group: str
    exists: bool


class Stored(msgspec.Struct, frozen=True):
    """The catalog has all that was acknowledged before: none of it may come again."""


class Damaged(msgspec.Struct, frozen=True):
    """Somebody harmed the files of a stopped node. What was acknowledged there may come again."""

    node: str


class LostQueueMessages(msgspec.Struct, frozen=True):
    """A node, or `moor journal`, says that so many messages of a queue are gone."""

    queue: str
    count: int


class LostRange(msgspec.Struct, frozen=True):
    """A node says that these messages of a shard are gone."""

    node: str
    shard: int
    first: int
    upto: int


class Proof(msgspec.Struct, frozen=True):
    """Something said that two sides are equal, or that they differ; and what they really were."""

    what: str
    said_equal: bool
    is_equal: bool


class Mishap(msgspec.Struct, frozen=True):
    """Something that must not happen, whatever the faults: an unasked end, a traceback in a log."""

    what: str


Event = (
    Sent
    | Delivered
    | Acked
    | Published
    | Got
    | Done
    | Operated
    | GroupSeen
    | Stored
    | Damaged
    | LostQueueMessages
    | LostRange
    | Proof
    | Mishap
)


class Reader(msgspec.Struct, frozen=True):
    """Somebody who is to get every message that is published."""

    name: str
    is_ordered: bool
    """First deliveries of a shard come in the order of the shard."""
    is_exact: bool = False
    """Each message once: an archive."""


class History:
    """All events, and what is owed to whom."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.readers: dict[str, Reader] = {}
        self.unread: dict[str, set[str]] = defaultdict(set)
        """Of each queue: sends that were answered and have not come yet."""
        self._delivered: dict[str, set[str]] = defaultdict(set)
        self._published: dict[str, Published] = {}
        self._got: dict[str, set[str]] = defaultdict(set)
        self._place_of: dict[str, tuple[str, int, int]] = {}
        self._done_upto: dict[tuple[str, str, int], int] = {}
        self.lost_ranges: list[LostRange] = []
        self.lost_of_queues: dict[str, int] = defaultdict(int)

    def note(self, event: Event) -> None:
        self.events.append(event)
        match event:
            case Sent(_, queue, name, Outcome.ANSWERED):
                if name not in self._delivered[queue]:
                    self.unread[queue].add(name)
            case Delivered(queue, _, _, name):
                self._delivered[queue].add(name)
                self.unread[queue].discard(name)
            case Published(_, _, name, Outcome.ANSWERED):
                self._published[name] = event
            case Got(reader, node, shard, offset, _, name):
                self._got[reader].add(name)
                self._place_of[name] = (node, shard, offset)
            case Done(reader, node, shard, offset):
                place = (reader, node, shard)
                self._done_upto[place] = max(self._done_upto.get(place, 0), offset + 1)
            case LostRange():
                self.lost_ranges.append(event)
            case LostQueueMessages(queue, count):
                self.lost_of_queues[queue] += count
            case _:
                pass

    def add_reader(self, reader: Reader) -> None:
        self.readers[reader.name] = reader

    def missing(self, reader: str) -> set[str]:
        """What was published and answered, and the reader neither got nor was told to be lost."""
        found = self._published.keys() - self._got[reader]
        return {name for name in found if not self.is_reported(self._published[name])}

    def unread_messages(self, queue: str) -> set[str]:
        """Likewise of a queue; a count is all that is said of what is lost there."""
        waiting = self.unread[queue]
        return waiting if len(waiting) > self.lost_of_queues[queue] else set()

    def is_reported(self, published: Published) -> bool:
        """Whether a node said that this message is lost."""
        node, shard, places = published.node, published.shard, published.places
        if (known := self._place_of.get(published.name)) is not None:
            node, shard, places = known[0], known[1], range(known[2], known[2] + 1)
        return any(
            (one.node, one.shard) == (node, shard)
            and one.first < places.stop
            and places.start < one.upto
            for one in self.lost_ranges
        )

    def done_upto(self) -> dict[tuple[str, str, int], int]:
        """By reader, node and shard: the place that the catalog should have when all is stored."""
        return dict(self._done_upto)

    def answered_calls(self) -> int:
        return sum(
            1
            for event in self.events
            if isinstance(event, Sent | Acked | Published | Operated)
            and event.outcome is Outcome.ANSWERED
        )


def body_of(name: str) -> bytes:
    """The whole body of a message by its name; nobody has to remember it."""
    head = f"{name}|".encode()
    length = zlib.crc32(head) % BODY_BYTES_MAX
    return head + (head * (length // len(head) + 1))[:length]


def name_of(body: bytes) -> str:
    """The name of a message; one that begins with ! if the body is not what was sent."""
    name = body.split(b"|", 1)[0].decode(errors="replace")
    return name if body == body_of(name) else f"!{name}"
