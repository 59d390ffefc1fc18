"""Room: core/group. A shard and a member as a group's Leader sees them.

Invariants, looked at by `ShardView.check`:

    W1  the streams of a shard follow each other without a gap, and only the last of them grows
    W2  its progress is sound: nothing is done twice or failed after it was done
"""

from bisect import bisect_right
from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

import msgspec

from moorline.core.delivery.progress import Cursor, Progress
from moorline.core.group.message import LeaderWanted
from moorline.core.group.stream_lease import Lease
from moorline.core.ranges import Range
from moorline.core.stream import Extent, Gap, Shard, Stream


class BorrowerView:
    """A Borrower as the Leader sees it."""

    __slots__ = ("heard_ms", "id", "leases", "locked", "member", "number", "window")

    def __init__(self, wanted: LeaderWanted, now_ms: int) -> None:
        self.id = wanted.borrower
        self.member = wanted.member
        self.window = wanted.window
        self.heard_ms = now_ms
        self.number = 0
        """The highest that it gave to a message of its own; what has a lower one was overtaken."""
        self.leases: dict[int, Lease] = {}
        self.locked = 0
        """Of a `$queue` group: how many messages it has."""


class ShardView:
    """A shard as the group sees it."""

    __slots__ = (
        "extents",
        "leases",
        "lost",
        "meant_for",
        "owner",
        "progress",
        "rests_until_ms",
        "shard",
    )

    def __init__(self, shard: Shard, cursor: Cursor) -> None:
        self.shard = shard
        self.progress = Progress(cursor)
        self.extents: tuple[Extent, ...] = ()
        self.leases: dict[int, Lease] = {}
        self.lost = cursor.lost
        """Messages that were gone before they were done, and that a member was told of."""
        self.owner = ""
        """The Borrower that had it last: it is given back to it, if it is still there."""
        self.meant_for = ""
        """The Borrower that gets it, once it has come back: it is being exchanged."""
        self.rests_until_ms = 0
        """It was exchanged, and stays where it is until then."""

    def cursor(self) -> Cursor:
        """What is stored of it."""
        # Losses are the group's, and not of one lease: they are put in here alone.
        cursor = self.progress.cursor()
        return msgspec.structs.replace(cursor, lost=self.lost) if self.lost else cursor

    def lose(self, lost: Iterable[Gap]) -> list[Gap]:
        """A member told its client of these: what of it was open until now, which is counted."""
        found = [
            Gap(start, stop, reason)
            for first, upto, reason in lost
            for start, stop in self.progress.open_ranges(first, upto)
        ]
        # Done, as if acknowledged: from here on the same loss, told by another member or again, finds
        # nothing.
        for first, upto, _ in found:
            self.progress.ack(first, upto)
            self.lost += upto - first
        return found

    def current(self) -> Extent | None:
        """The stream that is to be read: a generation begins when the one before it is done."""
        # Ends only rise, and only the last of the streams grows.
        at = bisect_right(self.extents, self.progress.low, key=_end)
        if at < len(self.extents):
            return self.extents[at]
        return self.extents[-1] if self.extents and not self.extents[-1].sealed else None

    def extent_of(self, stream: Stream) -> Extent | None:
        if self.extents:
            # Generations are numbered without a gap, so mostly one look is enough.
            at = stream.generation - self.extents[0].stream.generation
            if 0 <= at < len(self.extents) and self.extents[at].stream == stream:
                return self.extents[at]
        return next((extent for extent in self.extents if extent.stream == stream), None)

    def extent_at(self, offset: int) -> Extent | None:
        """The stream that has this message."""
        at = bisect_right(self.extents, offset, key=_end)
        if at < len(self.extents) and self.extents[at].first <= offset:
            return self.extents[at]
        return None

    # Without extents the shard's node is away: nothing is known to be gone, and there is nothing to read.
    # So both ends are where the group is.

    @property
    def first(self) -> int:
        """Everything below is gone."""
        return self.extents[0].first if self.extents else self.progress.low

    @property
    def end(self) -> int:
        return self.extents[-1].end if self.extents else self.progress.low

    @property
    def lag(self) -> int:
        """Messages of the shard that are there and not done, whether they match the filter or not."""
        # From what is there still: what retention took is `gone`, and no work is left with it.
        return _count(self.progress.open_ranges(self.first, self.end))

    @property
    def gone(self) -> int:
        """Messages of the shard that are neither there nor done: the next member is told of them."""
        return _count(self.progress.open_ranges(self.progress.low, self.first))

    def check(self) -> None:
        # `current` and `extent_at` search by halves, which is right only while these hold.
        for before, after in pairwise(self.extents):
            assert before.sealed, f"W1: {before.stream} grows, and {after.stream} follows it"
            assert before.end == after.first, f"W1: {before.stream} and {after.stream} are apart"
        self.progress.check()
        assert self.lost >= 0, f"W2: {self.shard} has lost {self.lost}"


class Lag(NamedTuple):
    shard: Shard
    offset: int
    end: int
    lag: int
    borrower: str
    status: str


def _count(ranges: Iterable[Range]) -> int:
    return sum(upto - first for first, upto in ranges)


def _end(extent: Extent) -> int:
    return extent.end
