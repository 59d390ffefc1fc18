"""Room: core/delivery. A private subscription: one reader of all shards, with a place of its own in each.

It reads the generations of a shard one after the other, as a group does, without a Leader: nobody shares it.
What retention took is passed by the feed that should have read it, when the client knows.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable

from moorline.core.delivery.feed import Feed, FeedClosed, FeedOpened
from moorline.core.delivery.progress import Cursor
from moorline.core.effects import Effect
from moorline.core.stream import Extent, Shard


class _Line:
    __slots__ = ("cursor", "extents", "feed")

    def __init__(self, cursor: Cursor) -> None:
        self.cursor = cursor
        self.extents: tuple[Extent, ...] = ()
        self.feed: Feed | None = None


class PrivateLines:
    """The shards of one subscription."""

    def __init__(
        self,
        subscription: int,
        cursors: Iterable[tuple[Shard, Cursor]],
        new_feed: Callable[[], int],
    ) -> None:
        self._subscription = subscription
        self._lines = {shard: _Line(cursor) for shard, cursor in cursors}
        self._new_feed = new_feed
        self._dirty: set[Shard] = set()
        self._by_feed: dict[int, Shard] = {}

    def knows(self, shard: Shard) -> bool:
        return shard in self._lines

    def seen(self, shard: Shard, extents: tuple[Extent, ...], start: int) -> list[Effect]:
        """A shard has these streams now; `start` is where to begin in one never seen before."""
        line = self._lines.get(shard)
        if line is None:
            line = self._lines[shard] = _Line(Cursor(start))
            self._dirty.add(shard)
        line.extents = extents
        return self._go_on(shard, line)

    def changed(self, feed: Feed) -> list[Effect]:
        """Something of a feed was delivered, acknowledged or given back."""
        shard = self._by_feed.get(feed.number)
        if shard is None:
            return []
        self._dirty.add(shard)
        return self._go_on(shard, self._lines[shard])

    def take_dirty(self) -> list[tuple[Shard, Cursor]]:
        """The places that changed since the last time."""
        cursors = [(shard, self._cursor(self._lines[shard])) for shard in sorted(self._dirty)]
        self._dirty.clear()
        return cursors

    def put_back(self, shards: Iterable[Shard]) -> None:
        """These could not be stored: they are due again."""
        self._dirty.update(shards)

    def close(self) -> list[Effect]:
        effects: list[Effect] = []
        for line in self._lines.values():
            effects += self._close(line)
        return effects

    def _cursor(self, line: _Line) -> Cursor:
        return line.feed.progress.cursor() if line.feed is not None else line.cursor

    def _close(self, line: _Line) -> list[Effect]:
        if line.feed is None:
            return []
        feed, line.feed = line.feed, None
        line.cursor = feed.progress.cursor()
        del self._by_feed[feed.number]
        feed.stopped = True
        return [FeedClosed(feed)]

    def _go_on(self, shard: Shard, line: _Line) -> list[Effect]:
        """Ends the feed of a stream that is done or gone, and begins the next one."""
        effects: list[Effect] = []
        if line.feed is not None:
            if not _is_over(line.feed, line.extents):
                return []
            effects += self._close(line)
        current = next(
            (e for e in line.extents if not e.sealed or e.end > line.cursor.offset), None
        )
        if current is not None:
            line.feed = Feed(
                self._new_feed(),
                self._subscription,
                current.stream,
                line.cursor,
                is_reported=False,
            )
            self._by_feed[line.feed.number] = shard
            effects.append(FeedOpened(line.feed))
        return effects


def _is_over(feed: Feed, extents: tuple[Extent, ...]) -> bool:
    """Whether a stream is done; or gone, and all of it acknowledged or told to be lost."""
    place = bisect_left(extents, feed.stream.generation, key=_generation)
    extent = extents[place] if place < len(extents) else None
    if extent is None or extent.stream != feed.stream:
        return bool(extents) and feed.progress.low >= extents[0].first
    return extent.sealed and feed.progress.low >= extent.end


def _generation(extent: Extent) -> int:
    return extent.stream.generation
