"""Room: topics. The topics of a node, listed page by page.

Which topics there are is known to each generation by itself: to those that grow in memory, to sealed ones in
their files. So a listing walks over all of them, in slices, and keeps the first names that it finds for the
pages that follow; when those are given, it walks again from there. A topic that is there during the whole
listing is in it once; one that comes or goes meanwhile may be in it or not. Counts are those of the walk.
"""

import asyncio
from collections.abc import Generator, Iterator
from functools import partial
from heapq import merge
from itertools import islice

import msgspec

from moorline.core.stream import Stream
from moorline.core.topic import Matcher
from moorline.limits import LISTINGS_KEPT_MAX, TOPICS_LISTED_LENGTH_MAX, TOPICS_LISTED_MAX
from moorline.net.fair_lock import FairLock
from moorline.net.session import Session
from moorline.net.slices import in_slices
from moorline.topics.streams import LocalStreams

Row = tuple[str, int]
"""A topic and its messages."""

_STEP = 64
"""Topics that are looked at in one step of a slice."""
_RUN = 1_024
"""Topics that are sorted in one."""
_SAMPLE = 512
"""Topics that stand for all where the middle is looked for."""


class Listing(msgspec.Struct):
    """What one session was not given yet."""

    filter: str
    after: str
    """The last name that it was given."""
    rows: Iterator[Row]
    is_last: bool
    """Whether nothing stands behind the rows."""


class TopicList:
    """The listings of a node."""

    def __init__(self, streams: LocalStreams) -> None:
        self._streams = streams
        self._kept: dict[Session, Listing] = {}
        self._watched: set[Session] = set()
        """Those whose end is heard."""
        self._walking = FairLock()
        """One walk at a time: what each holds is not little."""

    async def page(self, session: Session, text: str, after: str, count: int) -> list[Row]:
        """The next topics behind that one, by name; fewer than asked for only at the end."""
        listing = self._kept.pop(session, None)
        if listing is None or (listing.filter, listing.after) != (text, after):
            listing = await self._walked(session, text, after)
        page = list(islice(listing.rows, count))
        while len(page) < count and not listing.is_last:
            after = page[-1][0] if page else listing.after
            listing = await self._walked(session, text, after)
            page += islice(listing.rows, count - len(page))
        if page:
            listing.after = page[-1][0]
            self._keep(session, listing)
        return page

    def _keep(self, session: Session, listing: Listing) -> None:
        if session not in self._watched:
            self._watched.add(session)
            session.at_end(partial(self._forget, session))
        if session in self._watched:
            self._kept[session] = listing
        if len(self._kept) > LISTINGS_KEPT_MAX:
            del self._kept[next(iter(self._kept))]

    def _forget(self, session: Session) -> None:
        self._kept.pop(session, None)
        self._watched.discard(session)

    async def _walked(self, session: Session, text: str, after: str) -> Listing:
        principal = session.rights.principal
        async with self._walking.held_by(principal):
            first = FirstNames(text, after)
            for extent in self._streams.store.extents():
                known = await self._topics_of(extent.stream)
                await in_slices(first.add(known), principal)
            rows = await in_slices(first.rows(), principal)
            return Listing(text, after, rows, first.is_all)

    async def messages_of(self, topic: str, principal: str) -> int:
        """Of one topic, in all that is kept; of those that were not counted by name nothing."""
        found = 0
        async with self._walking.held_by(principal):
            for extent in self._streams.store.extents():
                found += (await self._topics_of(extent.stream)).get(topic, 0)
        return found

    async def _topics_of(self, stream: Stream) -> dict[str, int]:
        store, place = self._streams.store, (stream.shard_number, stream.generation)
        if store.topics_are_in_memory(*place):
            return store.topics(*place)
        return await asyncio.to_thread(store.topics, *place)


class FirstNames:
    """Of all topics that it is told of, the first ones by name that match, with their messages.

    Of too many it gives up about half, those behind a name in the middle: which one need not be exact.
    """

    def __init__(self, text: str, after: str, names_max: int = TOPICS_LISTED_MAX) -> None:
        self.is_all = True
        self._matcher = Matcher(text)
        self._after = after
        self._names_max = names_max
        self._counts: dict[str, int] = {}
        self._bytes = 0
        self._last: str | None = None
        """No name behind it is kept any more."""

    def add(self, known: dict[str, int]) -> Generator[None, None, None]:
        """One generation's topics; `""` stands for those that it did not count."""
        matcher, after, takes_all = self._matcher, self._after, self._matcher.takes_all
        for number, (topic, count) in enumerate(known.items()):
            if (
                topic > after
                and (self._last is None or topic <= self._last)
                and (topic[0] != "$" if takes_all else matcher(topic))
            ):
                before = self._counts.get(topic)
                if before is None:
                    before, self._bytes = 0, self._bytes + len(topic)
                self._counts[topic] = before + count
                if len(self._counts) > self._names_max or self._bytes > TOPICS_LISTED_LENGTH_MAX:
                    yield from self._halve()
            if number % _STEP == 0:
                yield

    def _halve(self) -> Generator[None, None, None]:
        names = list(self._counts)
        some = sorted(names[:: max(1, len(names) // _SAMPLE)])
        last = self._last = some[len(some) // 2 - 1]
        kept: dict[str, int] = {}
        for start in range(0, len(names), _STEP):
            kept |= {one: self._counts[one] for one in names[start : start + _STEP] if one <= last}
            yield
        self._counts, self._bytes = kept, sum(map(len, kept))
        self.is_all = False

    def rows(self) -> Generator[None, None, Iterator[Row]]:
        """In order. They are sorted in runs, which are merged as far as somebody asks."""
        rows = list(self._counts.items())
        runs = []
        for start in range(0, len(rows), _RUN):
            runs.append(sorted(rows[start : start + _RUN]))
            yield
        return merge(*runs)
