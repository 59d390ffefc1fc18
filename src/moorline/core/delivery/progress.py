"""Room: core/delivery. How far a reader is in a shard: what is done, and what failed how often.

    offset     everything below is done
    acked      ranges above it that are done too
    failures   (offset, count) of those not done that a member rejected or died over
    lost       how many were gone before they were done, and were told; they are among those that are done

It only grows: merging an old report changes nothing. Going back is a seek, which starts another one.

Invariants, looked at by `check`:

    M1  what is done above the low mark does not touch it: else the mark would be higher, and the cursor
        that is stored longer than it need be
    M2  only what is not done has failures; a message that is done is never buried
"""

from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from moorline.core.ranges import Range, Ranges
from moorline.limits import CURSOR_RANGES_MAX

CursorRanges = Annotated[tuple[Range, ...], Meta(max_length=CURSOR_RANGES_MAX)]


class Cursor(msgspec.Struct, frozen=True, array_like=True):
    """Progress as a value, as it travels and is stored."""

    offset: int
    acked: CursorRanges = ()
    failures: CursorRanges = ()
    lost: int = 0
    """Only of what a group has stored: of one lease nobody asks."""


class Progress:
    """Progress that moves."""

    __slots__ = ("_done", "failures", "low")

    def __init__(self, cursor: Cursor) -> None:
        self.low = cursor.offset
        self._done = Ranges(cursor.acked)
        self.failures: dict[int, int] = dict(cursor.failures)

    def cursor(self) -> Cursor:
        failures = tuple(sorted(self.failures.items())) if self.failures else ()
        return Cursor(self.low, tuple(self._done), failures)

    def is_done(self, offset: int) -> bool:
        return offset < self.low or offset in self._done

    def open_ranges(self, first: int, upto: int) -> list[Range]:
        """What is not done in that range."""
        return self._done.missing(max(first, self.low), upto)

    def ack(self, first: int, upto: int) -> None:
        if first <= self.low:
            if upto <= self.low:
                return
            self.low = upto
        else:
            self._done.add(first, upto)
        # What was acknowledged out of order before may follow the mark now.
        self.low = self._done.take_from(self.low)
        # Few messages ever fail: mostly this costs one look.
        if self.failures:
            for offset in [offset for offset in self.failures if offset < upto]:
                if self.is_done(offset):
                    del self.failures[offset]

    def fail(self, offset: int) -> int:
        """One more failure of a message; returns how many there were."""
        if self.is_done(offset):
            return 0  # blamed too late: somebody has finished it
        count = self.failures.get(offset, 0) + 1
        self.failures[offset] = count
        return count

    def merge(self, cursor: Cursor) -> bool:
        """Takes over what another knows; whether that was anything new."""
        before = (self.low, len(self._done), dict(self.failures))
        # From our own mark: what lies below it is done, whatever the other says.
        self.ack(self.low, cursor.offset)
        if cursor.acked:
            for first, upto in _difference(list(self._done), cursor.acked):
                self.ack(first, upto)
        for offset, count in cursor.failures:
            if not self.is_done(offset):
                # The higher count, not the sum: the same failure is in both.
                self.failures[offset] = max(count, self.failures.get(offset, 0))
        return before != (self.low, len(self._done), self.failures)

    def check(self) -> None:
        if self._done:
            self._done.check()
            assert self.low < self._done.first, f"M1: {self._done} touches {self.low}"
        for offset, count in self.failures.items():
            assert not self.is_done(offset), f"M2: {offset} is done, and has failed"
            assert count > 0, f"M2: {offset} has failed {count} times"


def _difference(known: Sequence[Range], told: Sequence[Range]) -> Sequence[Range]:
    """A report has all ranges above the low mark, and mostly all but a few in the middle are known."""
    # Equal at both ends: a member with a wide window acknowledges here and there, and each of its reports
    # would else cost as much as all that it ever did out of order.
    start = 0
    for one, other in zip(known, told, strict=False):
        if one != other:
            break
        start += 1
    stop, shorter = 0, min(len(known), len(told)) - start
    while stop < shorter and known[-1 - stop] == told[-1 - stop]:
        stop += 1
    return told[start : len(told) - stop]
