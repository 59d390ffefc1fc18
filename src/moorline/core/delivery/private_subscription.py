"""Room: core/delivery. A private subscription: one reader of all shards, with a cursor of its own in each.

It reads the generations of a shard one after the other, as a group does, without a Leader: nobody shares it.
What retention took is passed by the feed that should have read it, when the client knows.

Invariants, looked at by `check`:

    V1  a shard has one feed at most, and each feed is known by its number and at its shard
    V2  a feed is of a stream of its shard, and is not stopped while it is here
    V3  only cursors of known shards are due to be stored
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
        # A set, and taken whole: however often a cursor moves between two commits, it is stored once.
        self._dirty: set[Shard] = set()
        self._by_feed: dict[int, Shard] = {}

    def knows(self, shard: Shard) -> bool:
        return shard in self._shards

    def seen(self, shard: Shard, extents: tuple[Extent, ...], start: int) -> list[Effect]:
        """A shard has these streams now; `start` is where to begin in one never seen before."""
        view = self._shards.get(shard)
        if view is None:
            view = self._shards[shard] = _ShardView(Cursor(start))
            # Stored before anything is read: after a restart it would begin at whatever is the end by then.
            self._dirty.add(shard)
        view.extents = extents
        return self._go_on(shard, view)

    def changed(self, feed: Feed) -> list[Effect]:
        """Something of a feed was delivered, acknowledged or given back."""
        # A feed that is over may still be spoken of: its client has not heard so yet.
        shard = self._by_feed.get(feed.number)
        if shard is None:
            return []
        # Before `_go_on`, which may end the feed: the last cursor of a stream counts too.
        self._dirty.add(shard)
        return self._go_on(shard, self._shards[shard])

    def take_dirty(self) -> list[tuple[Shard, Cursor]]:
        """The cursors that changed since the last time."""
        cursors = [(shard, self._cursor(self._shards[shard])) for shard in sorted(self._dirty)]
        self._dirty.clear()
        return cursors

    def lows(self) -> list[tuple[Shard, int]]:
        """Below these places all is done."""
        return [(shard, self._cursor(view).offset) for shard, view in self._shards.items()]

    def cursors(self) -> list[tuple[Shard, Cursor]]:
        """The place in every shard that is known."""
        return [(shard, self._cursor(view)) for shard, view in sorted(self._shards.items())]

    def put_back(self, shards: Iterable[Shard]) -> None:
        """These could not be stored: they are due again."""
        self._dirty.update(shards)

    def close(self) -> list[Effect]:
        effects: list[Effect] = []
        for view in self._shards.values():
            effects += self._close(view)
        return effects

    def check(self) -> None:
        """Asserts the invariants; a feed is looked at by whoever delivers it."""
        fed = {view.feed.number: shard for shard, view in self._shards.items() if view.feed}
        assert fed == self._by_feed, f"V1: {fed} are not {self._by_feed}"
        for shard, view in self._shards.items():
            if view.feed is not None:
                assert view.feed.stream.shard == shard, f"V2: {view.feed.stream} is not of {shard}"
                assert not view.feed.stopped, f"V2: {view.feed.stream} is stopped, and still here"
        assert self._dirty <= self._shards.keys(), f"V3: {self._dirty} are due"

    def _cursor(self, view: _ShardView) -> Cursor:
        return view.feed.progress.cursor() if view.feed is not None else view.cursor

    def _close(self, view: _ShardView) -> list[Effect]:
        if view.feed is None:
            return []
        feed, view.feed = view.feed, None
        # The cursor is kept here while there is no feed: it counts on through the generations.
        view.cursor = feed.progress.cursor()
        del self._by_feed[feed.number]
        # A read of it that is under way must find nothing wanted when it comes back.
        feed.stopped = True
        return [FeedClosed(feed)]

    def _go_on(self, shard: Shard, view: _ShardView) -> list[Effect]:
        """Ends the feed of a stream that is done or gone, and begins the next one."""
        effects: list[Effect] = []
        if view.feed is not None:
            if not _is_over(view.feed, view.extents):
                return []
            effects += self._close(view)
        # The first that has anything beyond the cursor; one that is not sealed may grow. One generation
        # after the other: two feeds of a shard would deliver out of order.
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
    extent = extents[-1] if extents else None
    if extent is not None and extent.stream != feed.stream:  # mostly it reads the newest
        at = bisect_left(extents, feed.stream.generation, key=_generation)
        extent = extents[at] if at < len(extents) else None
    # Without any extents the shard's node is away: that is no end of a stream.
    if extent is None or extent.stream != feed.stream:
        return bool(extents) and feed.progress.low >= extents[0].first
    return extent.sealed and feed.progress.low >= extent.end


def _generation(extent: Extent) -> int:
    return extent.stream.generation
