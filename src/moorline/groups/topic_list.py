"""Room: groups. The topics of a node, listed page by page.

Which topics there are is known to each generation by itself: to those that grow in memory, to sealed ones in
their files. So a listing walks over all of them, in slices, and keeps the first names that it finds for the
pages that follow; when those are given, it walks again from there. A topic that is there during the whole
listing is in it once; one that comes or goes meanwhile may be in it or not. Counts are those of the walk.
"""

import asyncio
from collections.abc import Generator
from functools import partial

import msgspec

from moorline.core.stream import Stream
from moorline.core.topic import Matcher
from moorline.groups.streams import LocalStreams
from moorline.limits import LISTINGS_KEPT_MAX, TOPICS_LISTED_MAX
from moorline.net.session import Session
from moorline.net.slices import in_slices

Counted = list[tuple[str, int]]

_STEP = 64
"""Topics that are looked at in one step of a slice."""


class Listing(msgspec.Struct):
    """What one session was not given yet."""

    filter: str
    after: str
    """The last name that it was given."""
    rows: Counted
    is_last: bool
    """Whether nothing stands behind the rows."""


class TopicList:
    """The listings of a node."""

    def __init__(self, streams: LocalStreams) -> None:
        self._streams = streams
        self._kept: dict[Session, Listing] = {}
        self._watched: set[Session] = set()
        """Those whose end is heard."""
        self._walking = asyncio.Lock()
        """One walk at a time: what each holds is not little."""

    async def page(self, session: Session, text: str, after: str, count: int) -> Counted:
        """The next topics behind that one, by name."""
        listing = self._kept.pop(session, None)
        goes_on = listing is not None and (listing.filter, listing.after) == (text, after)
        if listing is None or not goes_on or not (listing.rows or listing.is_last):
            async with self._walking:
                listing = await self._walked(text, after)
        page, listing.rows = listing.rows[:count], listing.rows[count:]
        if page and (listing.rows or listing.is_last):
            listing.after = page[-1][0]
            self._keep(session, listing)
        return page

    def _keep(self, session: Session, listing: Listing) -> None:
        if not session.is_open:
            return
        if session not in self._watched:
            self._watched.add(session)
            session.at_end(partial(self._forget, session))
        self._kept[session] = listing
        if len(self._kept) > LISTINGS_KEPT_MAX:
            del self._kept[next(iter(self._kept))]

    def _forget(self, session: Session) -> None:
        self._kept.pop(session, None)
        self._watched.discard(session)

    async def _walked(self, text: str, after: str) -> Listing:
        first = FirstNames(text, after)
        for extent in self._streams.store.extents():
            known = await self._topics_of(extent.stream)
            await in_slices(first.add(known))
        return Listing(text, after, first.rows(), first.is_all)

    async def _topics_of(self, stream: Stream) -> dict[str, int]:
        store, place = self._streams.store, (stream.shard, stream.generation)
        if store.topics_are_in_memory(*place):
            return store.topics(*place)
        return await asyncio.to_thread(store.topics, *place)


class FirstNames:
    """Of all topics that it is told of, the first ones by name that match, with their messages."""

    def __init__(self, text: str, after: str, rows_max: int = TOPICS_LISTED_MAX) -> None:
        self.is_all = True
        self._matcher = Matcher(text)
        self._after = after
        self._rows_max = rows_max
        self._counts: dict[str, int] = {}
        self._last: str | None = None
        """No name behind it can be among the first any more."""

    def add(self, known: dict[str, int]) -> Generator[None, None, None]:
        """One generation's topics; `""` stands for those that it did not count."""
        counts, matcher, after = self._counts, self._matcher, self._after
        for number, (topic, count) in enumerate(known.items()):
            if topic > after and (self._last is None or topic <= self._last) and matcher(topic):
                counts[topic] = counts.get(topic, 0) + count
                if len(counts) > 2 * self._rows_max:
                    self._shorten()
                    counts = self._counts
            if number % _STEP == 0:
                yield
        yield

    def rows(self) -> Counted:
        if len(self._counts) > self._rows_max:
            self._shorten()
        return sorted(self._counts.items())

    def _shorten(self) -> None:
        kept = sorted(self._counts)[: self._rows_max]
        self._counts = {topic: self._counts[topic] for topic in kept}
        self._last = kept[-1]
        self.is_all = False
