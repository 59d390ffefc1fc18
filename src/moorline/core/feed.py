"""Room: core. A feed: one stream, or some ranges of one, on its way through one session.

It knows what was delivered and what became of it, and never touches a message. A feed that is stopped
delivers no more and is *drained* when nothing that it delivered is still out.
"""

from moorline.core.progress import Place, Progress
from moorline.core.ranges import Range, Ranges
from moorline.core.stream import Stream


class Feed:
    """One lease of a stream in a session."""

    __slots__ = (
        "again",
        "deliveries_max",
        "next",
        "number",
        "out",
        "progress",
        "ranges",
        "returned",
        "stopped",
        "stream",
        "subscription",
    )

    def __init__(
        self,
        number: int,
        subscription: int,
        stream: Stream,
        place: Place,
        *,
        ranges: tuple[Range, ...] | None = None,
        deliveries_max: int = 0,
    ) -> None:
        self.number = number
        self.subscription = subscription
        self.stream = stream
        self.progress = Progress(place)
        self.ranges = Ranges(ranges) if ranges is not None else None
        """What of the stream is ours; None is all of it from the place on. Of a feed of ranges the
        progress says nothing of what is below and between them."""
        self.returned = Ranges()
        """Of a feed of ranges: what others should have."""
        self.deliveries_max = deliveries_max
        self.next = self.ranges.first if self.ranges else place.offset
        """Everything below was looked at once."""
        self.out = Ranges()
        """Delivered, and neither acknowledged nor given back."""
        self.again = Ranges()
        """Looked at, and to be delivered once more."""
        self.stopped = False

    @property
    def is_drained(self) -> bool:
        return self.stopped and not self.out

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to do with a feed of ranges."""
        return self.ranges is not None and not self.out and self.next >= self.ranges.end

    def wanted(self, upto: int) -> Range | None:
        """What is to be read next, below `upto`: first what must be delivered again."""
        if self.stopped:
            return None
        for first, stop in self.again:
            if first < upto:
                return (first, min(stop, upto))
        if self.ranges is None:
            fresh = self.progress.open_ranges(self.next, upto)
        else:
            fresh = self.ranges.clip(self.next, upto)
        return fresh[0] if fresh else None

    def looked_at(self, first: int, upto: int, delivered: list[Range]) -> None:
        """A range was read: these of it went out, the others are not for this reader and are done."""
        self.again.remove(first, upto)
        self.next = max(self.next, upto)
        for start, stop in delivered:
            if first < start:
                self.progress.ack(first, start)
            self.out.add(start, stop)
            first = stop
        if first < upto:
            self.progress.ack(first, upto)

    def ack(self, first: int, upto: int) -> int:
        """Acknowledges what is out of that range; returns how many those were."""
        count = 0
        for start, stop in self.out.clip(first, upto):
            self.progress.ack(start, stop)
            count += stop - start
        if count:
            self.out.remove(first, upto)
        return count

    def give_back(self, first: int, upto: int) -> int:
        """Nobody looked at these: they come again, here or elsewhere, and nobody is to blame."""
        before = len(self.out)
        for start, stop in self.out.clip(first, upto):
            self._put_back(start, stop)
        self.out.remove(first, upto)
        return before - len(self.out)

    def reject(self, offset: int) -> bool | None:
        """A member does not want it: True if it is to be buried now, None if it was not out."""
        if offset not in self.out:
            return None
        failures = self.progress.fail(offset)
        if self.deliveries_max and failures >= self.deliveries_max:
            return True  # it stays out until it is buried, so that nothing passes it
        self.out.remove(offset, offset + 1)
        self._put_back(offset, offset + 1)
        return False

    def _put_back(self, first: int, upto: int) -> None:
        """Members that share messages share these too; otherwise the stream is ours, and so are they."""
        (self.again if self.ranges is None else self.returned).add(first, upto)

    def stop(self) -> None:
        """Delivers no more. Of a feed of ranges, what was not looked at goes to others."""
        self.stopped = True
        if self.ranges is not None:
            for first, upto in self.ranges.clip(self.next, self.ranges.end):
                self.returned.add(first, upto)

    def blame(self) -> None:
        """The member died: what it was at, the oldest that is out, counts as failed."""
        if self.out:
            self.progress.fail(self.out.first)

    def is_beyond(self, offset: int) -> bool:
        """Whether a message has failed as often as it may."""
        return bool(self.deliveries_max) and (
            self.progress.failures.get(offset, 0) >= self.deliveries_max
        )
