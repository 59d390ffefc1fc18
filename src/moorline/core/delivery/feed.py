"""Room: core/delivery. A feed: one stream, or some ranges of one, on its way through one session.

It knows what was delivered and what became of it, and never touches a message. A feed that is stopped
delivers no more and is *drained* when nothing that it delivered is still out.

What is gone from its stream is delivered too, as a loss: it is told to the client, who confirms it, and only
then is it done. What the client has in hand is not lost: it may still be acknowledged. A report says all
losses of the lease, so they have a bound: a feed that has come to it reads no more, and the Leader gives the
stream under a new lease.

Invariants, looked at by `check`:

    F1  a message is out, to come again, returned, or being told as lost: one of these at most
    F2  all that is one of these was looked at, but for what a feed of ranges returned unseen when it stopped
    F3  none of them is done: whatever is acknowledged leaves them in the same step
    F4  of a feed of ranges they lie within its ranges; only such a feed returns anything
    F5  losses are in order and apart, and are counted
"""

from bisect import bisect_left
from itertools import pairwise
from typing import NamedTuple

from moorline.core.delivery.progress import Cursor, Progress
from moorline.core.effects import Effect
from moorline.core.ranges import Range, Ranges
from moorline.core.stream import Gap, Stream
from moorline.limits import FEED_LOSSES_MAX


class Loss(NamedTuple):
    """Messages that a client is to be told of; `is_exact` if each of them was for this reader."""

    gap: Gap
    is_exact: bool


class Feed:
    """One lease of a stream in a session."""

    __slots__ = (
        "again",
        "deliveries_max",
        "is_reported",
        "lost",
        "lost_messages",
        "next",
        "number",
        "out",
        "progress",
        "ranges",
        "returned",
        "stopped",
        "stream",
        "subscription",
        "telling",
    )

    def __init__(
        self,
        number: int,
        subscription: int,
        stream: Stream,
        cursor: Cursor,
        *,
        ranges: tuple[Range, ...] | None = None,
        deliveries_max: int = 0,
        is_reported: bool = True,
    ) -> None:
        """`is_reported`: somebody is to hear of what was lost, and not of the cursor alone."""
        self.number = number
        self.subscription = subscription
        self.stream = stream
        self.progress = Progress(cursor)
        self.ranges = Ranges(ranges) if ranges is not None else None
        """What of the stream is ours; None is all of it from the cursor on. Of a feed of ranges the
        progress says nothing of what is below and between them."""
        self.returned = Ranges()
        """Of a feed of ranges: what others should have."""
        self.deliveries_max = deliveries_max
        self.next = self.ranges.first if self.ranges else cursor.offset
        """Everything below was looked at once."""
        self.out = Ranges()
        """Delivered, and neither acknowledged nor given back."""
        self.again = Ranges()
        """Looked at, and to be delivered once more."""
        self.telling: dict[Range, Gap] = {}
        """Gone, and told to the client, who has not confirmed it yet."""
        self.lost: list[Gap] = []
        """Gone, and the client knows it: in order, and apart from each other."""
        self.lost_messages = 0
        self.is_reported = is_reported
        self.stopped = False

    @property
    def lowest(self) -> int:
        """Nothing below is ours to deliver."""
        return self.ranges.first if self.ranges else self.progress.low

    @property
    def is_drained(self) -> bool:
        return self.stopped and not self.out and not self.telling

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to do with a feed of ranges."""
        is_at_end = self.ranges is not None and self.next >= self.ranges.end
        return is_at_end and not self.out and not self.telling

    def wanted(self, upto: int) -> Range | None:
        """What is to be read next, below `upto`: first what must be delivered again."""
        # Those that are being told count too: with them a report may come to the bound, and not beyond it.
        if self.stopped or len(self.telling) + len(self.lost) >= FEED_LOSSES_MAX:
            return None
        # Again goes before new, so that a message that failed does not fall behind for ever, and the progress
        # can pass it.
        for first, stop in self.again:
            if first < upto:
                return (first, min(stop, upto))
        if self.ranges is None:
            fresh = self.progress.open_ranges(self.next, upto)
        else:
            fresh = self.ranges.clip(self.next, upto)
        return fresh[0] if fresh else None

    def is_at(self, end: int) -> bool:
        """Whether all below `end` was looked at, and what comes behind it would be ours."""
        is_ours = self.ranges is None or self.next < self.ranges.end
        return is_ours and self.next >= end and not self.again

    def looked_at(self, first: int, upto: int, delivered: list[Range]) -> None:
        """A range was read: these of it went out, the others are not for this reader and are done."""
        # Out of `again` before it is out: a message is in one of them (F1).
        self.again.remove(first, upto)
        # Never back: what is delivered again lies below it.
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
        # Only what is out: a client may say what it likes of others, and say it twice.
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
        self.progress.fail(offset)
        if self.has_failed_too_often(offset):
            return True  # it stays out until it is buried, so that nothing passes it
        # Out before it is put back: a message is in one of them (F1).
        self.out.remove(offset, offset + 1)
        self._put_back(offset, offset + 1)
        return False

    # --- what is gone -----------------------------------------------------------------------------

    def lose(self, first: int, upto: int, reason: str) -> list[Loss]:
        """All below `upto` that was not looked at, and from `first` on what is to come again, is gone.

        Returns what of it the client is to be told of now: neither what is done, nor what it has in hand, nor
        what it was told before. A feed that is stopped tells no more: whoever has the stream next does.
        """
        if self.stopped:
            return []
        # In one go for all of it: told once more with the next loss, it would be counted twice.
        told = Ranges(self.telling)
        mine = [(first, upto)] if self.ranges is None else self.ranges.clip(first, upto)
        gone = Ranges()
        for start, stop in mine:
            for one in self.progress.open_ranges(start, stop):
                gone.add(*one)
        for known in (self.out, told, self.returned):
            for start, stop in known.clip(first, upto):
                gone.remove(start, stop)
        losses: list[Loss] = []
        for start, stop in gone:
            # What was delivered once matched the filter; of the rest nobody can tell any more.
            losses += [Loss(Gap(*one, reason), True) for one in self.again.clip(start, stop)]
            losses += [Loss(Gap(*one, reason), False) for one in self.again.missing(start, stop)]
        for gap, _ in losses:
            self.telling[gap.first, gap.upto] = gap
            self.again.remove(gap.first, gap.upto)
        # Passed in the same step: a read that finds the same gap would tell it again.
        self.next = max(self.next, upto)
        return sorted(losses)

    def confirm(self, first: int, upto: int) -> bool:
        """The client knows of a loss: now it is done. False if it was not told so."""
        # By the very range that was told: a client that confirms more than it heard of confirms nothing.
        gap = self.telling.pop((first, upto), None)
        if gap is None:
            return False
        self.progress.ack(first, upto)
        self.lost_messages += upto - first
        if self.is_reported:
            self._keep(gap)
        return True

    def _keep(self, gap: Gap) -> None:
        """Neighbours of one reason are one."""
        # Merged as they come: each report carries all of them, and retention takes whole generations bit by
        # bit.
        at = bisect_left(self.lost, gap)
        behind = self.lost[at : at + 1]
        if behind and (behind[0].first, behind[0].reason) == (gap.upto, gap.reason):
            gap = Gap(gap.first, self.lost.pop(at).upto, gap.reason)
        before = self.lost[at - 1] if at else None
        if before is not None and (before.upto, before.reason) == (gap.first, gap.reason):
            self.lost[at - 1] = Gap(before.first, gap.upto, gap.reason)
        else:
            self.lost.insert(at, gap)

    # --- what comes back --------------------------------------------------------------------------

    def _put_back(self, first: int, upto: int) -> None:
        """Members that share messages share these too; otherwise the stream is ours, and so are they."""
        (self.again if self.ranges is None else self.returned).add(first, upto)

    def stop(self) -> None:
        """Delivers no more. Of a feed of ranges, what was not looked at goes to others."""
        self.stopped = True
        if self.ranges is not None:
            for first, upto in self.ranges.clip(self.next, self.ranges.end):
                self.returned.add(first, upto)

    def check(self) -> None:
        """Asserts the invariants."""
        told = Ranges(self.telling)
        count = sum([upto - first for first, upto in self.telling])
        assert len(told) == count, "F1: told twice"
        seen = Ranges()
        kinds = {"out": self.out, "again": self.again, "returned": self.returned, "told": told}
        for name, kind in kinds.items():
            kind.check()
            # Most feeds have nothing in hand most of the time, and simulations ask after every step.
            if not kind:
                continue
            before = len(seen)
            for first, upto in kind:
                seen.add(first, upto)
                assert name == "returned" or upto <= self.next, f"F2: {name} {upto} of {self.next}"
                is_open = self.progress.open_ranges(first, upto) == [(first, upto)]
                assert is_open, f"F3: {name} {first}-{upto} is done"
                is_mine = self.ranges is None or not self.ranges.missing(first, upto)
                assert is_mine, f"F4: {name} {first}-{upto} is not of {self.ranges}"
            assert len(seen) == before + len(kind), f"F1: some of {name} are something else too"
        assert self.ranges is not None or not self.returned, f"F4: {self.returned} went back"
        for one, other in pairwise(self.lost):
            is_one = one.upto == other.first and one.reason == other.reason
            assert one.upto <= other.first and not is_one, f"F5: {one} and {other}"  # noqa: PT018
        kept = sum(gap.upto - gap.first for gap in self.lost)
        assert kept == (self.lost_messages if self.is_reported else 0), f"F5: {kept} are kept"
        self.progress.check()

    def blame(self) -> None:
        """The member died: what it was at, the oldest that is out, counts as failed."""
        if self.out:
            self.progress.fail(self.out.first)

    def has_failed_too_often(self, offset: int) -> bool:
        """Whether a message is to be buried as a dead letter: it failed as often as it may."""
        return bool(self.deliveries_max) and (
            self.progress.failures.get(offset, 0) >= self.deliveries_max
        )


class FeedOpened(Effect, frozen=True):
    """Read this feed and deliver it."""

    feed: Feed


class FeedStopped(Effect, frozen=True):
    """Deliver nothing more of it; the member gives back what it has not looked at."""

    feed: Feed


class FeedClosed(Effect, frozen=True):
    """It is over; what its member still says of it is too late."""

    feed: Feed
