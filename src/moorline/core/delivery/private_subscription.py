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


class _ShardView:
    __slots__ = ("cursor", "extents", "feed")

    def __init__(self, cursor: Cursor) -> None:
        self.cursor = cursor
        self.extents: tuple[Extent, ...] = ()
        self.feed: Feed | None = None


class PrivateSubscription:
    """The shards of one subscription."""

    def __init__(
        self,
        subscription: int,
        cursors: Iterable[tuple[Shard, Cursor]],
        new_feed: Callable[[], int],
    ) -> None:
        self._subscription = subscription
        self._shards = {shard: _ShardView(cursor) for shard, cursor in cursors}
        self._new_feed = new_feed
        self._dirty: set[Shard] = set()
        self._by_feed: dict[int, Shard] = {}

    def knows(self, shard: Shard) -> bool:
        return shard in self._shards

    def seen(self, shard: Shard, extents: tuple[Extent, ...], start: int) -> list[Effect]:
        """A shard has these streams now; `start` is where to begin in one never seen before."""
        view = self._shards.get(shard)
        if view is None:
            view = self._shards[shard] = _ShardView(Cursor(start))
            self._dirty.add(shard)
        view.extents = extents
        return self._go_on(shard, view)

    def changed(self, feed: Feed) -> list[Effect]:
        """Something of a feed was delivered, acknowledged or given back."""
        shard = self._by_feed.get(feed.number)
        if shard is None:
            return []
        self._dirty.add(shard)
        return self._go_on(shard, self._shards[shard])

    def take_dirty(self) -> list[tuple[Shard, Cursor]]:
        """The places that changed since the last time."""
        cursors = [(shard, self._cursor(self._shards[shard])) for shard in sorted(self._dirty)]
        self._dirty.clear()
        return cursors

    def put_back(self, shards: Iterable[Shard]) -> None:
        """These could not be stored: they are due again."""
        self._dirty.update(shards)

    def close(self) -> list[Effect]:
        effects: list[Effect] = []
        for view in self._shards.values():
            effects += self._close(view)
        return effects

    def _cursor(self, view: _ShardView) -> Cursor:
        return view.feed.progress.cursor() if view.feed is not None else view.cursor

    def _close(self, view: _ShardView) -> list[Effect]:
        if view.feed is None:
            return []
        feed, view.feed = view.feed, None
        view.cursor = feed.progress.cursor()
        del self._by_feed[feed.number]
        feed.stopped = True
        return [FeedClosed(feed)]

    def _go_on(self, shard: Shard, view: _ShardView) -> list[Effect]:
        """Ends the feed of a stream that is done or gone, and begins the next one."""
        effects: list[Effect] = []
        if view.feed is not None:
            if not _is_over(view.feed, view.extents):
                return []
            effects += self._close(view)
        current = next(
            (e for e in view.extents if not e.sealed or e.end > view.cursor.offset), None
        )
        if current is not None:
            view.feed = Feed(
                self._new_feed(),
                self._subscription,
                current.stream,
                view.cursor,
                is_reported=False,
            )
            self._by_feed[view.feed.number] = shard
            effects.append(FeedOpened(view.feed))
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
