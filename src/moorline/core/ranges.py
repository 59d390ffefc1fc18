"""Room: core. A set of whole numbers that come in runs: offsets delivered, offsets done.

Half-open ranges, sorted, apart from each other. A hundred thousand acknowledged messages in a row are one
range; the cost is by the number of ranges.

Invariants, looked at by `check`: no range is empty (R1); each begins behind the end of the one before it,
so that two that touch are one and equal sets have equal ranges (R2); the count is that of the numbers in
them (R3).
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

Range = tuple[int, int]


class Ranges:
    """Mutable; `len` is how many numbers are in it."""

    __slots__ = ("_count", "_starts", "_stops")

    def __init__(self, ranges: Iterable[Range] = ()) -> None:
        # Two lists, not one of pairs: each can be searched by itself, and Python compares the numbers at
        # once.
        self._starts: list[int] = []
        self._stops: list[int] = []
        self._count = 0
        for first, upto in ranges:
            self.add(first, upto)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Range]:
        return iter(zip(self._starts, self._stops, strict=True))

    def __contains__(self, number: int) -> bool:
        at = bisect_right(self._starts, number) - 1
        return at >= 0 and number < self._stops[at]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ranges) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Ranges({list(self)})"

    @property
    def first(self) -> int:
        """The lowest number; only where there is one."""
        return self._starts[0]

    @property
    def end(self) -> int:
        """Behind the highest number; only where there is one."""
        return self._stops[-1]

    def add(self, first: int, upto: int) -> None:
        """Puts a run in; what is there already stays."""
        if first >= upto:
            return
        starts, stops = self._starts, self._stops
        if not starts or first > stops[-1]:  # mostly it grows at its end
            starts.append(first)
            stops.append(upto)
            self._count += upto - first
            return
        # Left for the stops and right for the starts, so that a run which only touches this one is among
        # them and becomes one with it (R2). `remove` below has them the other way round: there touching is
        # nothing.
        low = bisect_left(stops, first)  # the first run that touches it
        high = bisect_right(starts, upto)  # behind the last one that does
        if low == high:
            starts.insert(low, first)
            stops.insert(low, upto)
            self._count += upto - first
            return
        self._count -= sum(stops[low:high]) - sum(starts[low:high])
        first, upto = min(first, starts[low]), max(upto, stops[high - 1])
        starts[low:high] = [first]
        stops[low:high] = [upto]
        self._count += upto - first

    def remove(self, first: int, upto: int) -> None:
        """Takes a run out; what is not there is no mistake."""
        starts, stops = self._starts, self._stops
        low = bisect_right(stops, first)
        high = bisect_left(starts, upto)
        if first >= upto or low >= high:
            return
        if high - low == 1:
            self._remove_in(low, first, upto)
            return
        self._count -= sum(stops[low:high]) - sum(starts[low:high])
        kept: list[Range] = []
        if starts[low] < first:
            kept.append((starts[low], first))
        if stops[high - 1] > upto:
            kept.append((upto, stops[high - 1]))
        starts[low:high] = [start for start, _ in kept]
        stops[low:high] = [stop for _, stop in kept]
        self._count += sum(stop - start for start, stop in kept)

    def _remove_in(self, at: int, first: int, upto: int) -> None:
        """Of one run: acknowledgements mostly come one by one."""
        starts, stops = self._starts, self._stops
        start, stop = starts[at], stops[at]
        if first > start and upto < stop:
            # One becomes two: the start of the second goes behind, the stop of the first before the old one.
            starts.insert(at + 1, upto)
            stops.insert(at, first)
            self._count -= upto - first
        elif first > start:
            stops[at] = first
            self._count -= stop - first
        elif upto < stop:
            starts[at] = upto
            self._count -= upto - start
        else:
            del starts[at], stops[at]
            self._count -= stop - start

    def check(self) -> None:
        if not self._starts and not self._stops:
            # Most sets of ranges are empty most of the time, and simulations ask after every step.
            assert self._count == 0, f"R3: {self._count} are counted, and there are none"
            return
        count, end = 0, None
        for first, upto in zip(self._starts, self._stops, strict=True):
            assert first < upto, f"R1: {first}-{upto} in {self}"
            assert end is None or end < first, (
                f"R2: {first}-{upto} touches what is before it in {self}"
            )
            count, end = count + upto - first, upto
        assert self._count == count, f"R3: {self._count} are counted in {self}"

    def clip(self, first: int, upto: int) -> list[Range]:
        """The runs of this set within that one."""
        if first >= upto:
            return []
        low = bisect_right(self._stops, first)
        high = bisect_left(self._starts, upto)
        return [
            (max(first, self._starts[at]), min(upto, self._stops[at])) for at in range(low, high)
        ]

    def missing(self, first: int, upto: int) -> list[Range]:
        """The runs of that one that are not in this set."""
        found: list[Range] = []
        for start, stop in self.clip(first, upto):
            if first < start:
                found.append((first, start))
            first = stop
        if first < upto:
            found.append((first, upto))
        return found

    def take_from(self, low: int) -> int:
        """Drops all below `low`, then a run that begins at it; returns where that run ends, or `low`."""
        # Mostly nothing is at or below the mark, and this is asked with every acknowledgement.
        if self._starts and self._starts[0] <= low:
            self.remove(0, low)
            if self._starts and self._starts[0] == low:
                low = self._stops[0]
                self.remove(self._starts[0], low)
        return low
