"""Room: client. Where a plain subscription is in each shard, so that it can go on at another node.

A plain subscription has no cursor at a node: it ends with its connection. Done is what was acknowledged, what
the node passed over between two messages because it does not match, and what it said to be lost. All else
comes again. What is told of a cursor is bounded: of very many holes the highest are told as not done.
"""

from collections.abc import Iterable, Sequence

from moorline.core.delivery.progress import Cursor, Progress
from moorline.core.stream import Shard
from moorline.limits import CLIENT_CURSOR_RANGES_MAX, CLIENT_RANGES_MAX
from moorline.wire.topic import HomeCursors, ToldCursor


class ShardCursor:
    """One shard."""

    __slots__ = ("_progress", "_seen")

    def __init__(self, offset: int) -> None:
        self._progress = Progress(Cursor(offset))
        self._seen = offset
        """Behind the last message that has come."""

    def came(self, first: int, upto: int) -> bool:
        """Messages came, the first of them at that offset; whether they came for the first time."""
        is_new = first >= self._seen
        if is_new:
            # Between the last message and this one lies nothing for us.
            self._progress.ack(self._seen, first)
        self._seen = max(self._seen, upto)
        return is_new

    def done(self, first: int, upto: int) -> None:
        self._progress.ack(first, upto)

    def lost(self, first: int, upto: int) -> None:
        """What was to come between is gone."""
        self._progress.ack(first, upto)
        # What lies before it may be on its way.
        if first <= self._seen:
            self._seen = max(self._seen, upto)

    @property
    def offset(self) -> int:
        """Everything below is done."""
        return self._progress.low

    def told(self, number: int, ranges_max: int = CLIENT_CURSOR_RANGES_MAX) -> ToldCursor:
        cursor = self._progress.cursor()
        return number, cursor.offset, tuple(cursor.acked[:ranges_max])

    def again(self) -> None:
        """The link is gone: what is not done will come again."""
        self._seen = self._progress.low


class ShardCursors:
    """All shards of a subscription."""

    def __init__(self) -> None:
        self._cursors: dict[Shard, ShardCursor] = {}

    def __len__(self) -> int:
        return len(self._cursors)

    def begin(self, told: Iterable[HomeCursors]) -> None:
        """Where the node says that the subscription begins; what has come meanwhile is further."""
        for home, shards in told:
            for number, offset, _ in shards:
                self._cursors.setdefault(Shard(home, number), ShardCursor(offset))

    def at(self, shard: Shard, first: int) -> ShardCursor:
        """Of a shard from which messages come, the first at that offset."""
        cursor = self._cursors.get(shard)
        if cursor is None:
            # A new shard is read from its beginning, and what lies before its first message is not for us.
            cursor = self._cursors[shard] = ShardCursor(first)
        return cursor

    def known(self, shard: Shard) -> ShardCursor | None:
        return self._cursors.get(shard)

    def again(self) -> None:
        for cursor in self._cursors.values():
            cursor.again()

    def told(self) -> Sequence[HomeCursors]:
        """For the next node."""
        by_home: dict[str, list[ToldCursor]] = {}
        # All of them together fit a frame.
        ranges_max = CLIENT_RANGES_MAX // max(1, len(self._cursors))
        ranges_max = min(ranges_max, CLIENT_CURSOR_RANGES_MAX)
        for shard, cursor in self._cursors.items():
            by_home.setdefault(shard.home, []).append(cursor.told(shard.number, ranges_max))
        return [(home, shards) for home, shards in sorted(by_home.items())]
