"""Room: core/group. What of a shard can be handed out to the members of a `$queue` group.

             low                    next                end
    ──done────┼──locked──back──locked─┼──fresh───────────┤

Everything below `next` was handed out once, and is done, locked or back; what is fresh needs no list. So a
shard with a million messages that nobody had costs as much as an empty one.

Invariants, looked at by `check`:

    P1  what came back was handed out before: it lies below `next`
    P2  a refusal is remembered only of what came back, or the list of them would grow for ever
"""

from bisect import bisect_left
from collections.abc import Iterator
from typing import NamedTuple

from moorline.core.group.views import ShardView
from moorline.core.ranges import Range, Ranges


class Piece(NamedTuple):
    """Messages of one stream that came back; `refused_by` does not get them while there is another."""

    first: int
    upto: int
    refused_by: str


class Pool:
    """All from `next` on, and what came back from a member."""

    __slots__ = ("_refused_by", "back", "next", "view")

    def __init__(self, view: ShardView) -> None:
        self.view = view
        self.next = view.progress.low
        """Everything below was handed out once."""
        self.back = Ranges()
        self._refused_by: dict[int, str] = {}

    def has_fresh(self) -> bool:
        return max(self.next, self.view.progress.low) < self.view.end

    def put_back(self, first: int, upto: int, refused: int | None = None, by: str = "") -> None:
        """Messages come back; what is done in the meantime does not."""
        for start, stop in self.view.progress.open_ranges(first, upto):
            self.back.add(start, stop)
        # The one that was refused may be done by another meanwhile, and then nobody is to be spared it.
        if refused is not None and refused in self.back:
            self._refused_by[refused] = by

    def take_back(self, first: int, upto: int) -> None:
        """These go to a member again."""
        self.back.remove(first, upto)
        for offset in [offset for offset in self._refused_by if first <= offset < upto]:
            del self._refused_by[offset]

    def forget_done(self) -> None:
        """A member whose lock ran out may have finished after all; and retention passes over messages."""
        for first, upto in list(self.back):
            is_open = self.view.progress.open_ranges(first, upto)
            if is_open != [(first, upto)]:
                self.back.remove(first, upto)
                for start, stop in is_open:
                    self.back.add(start, stop)
        for offset in [offset for offset in self._refused_by if offset not in self.back]:
            del self._refused_by[offset]

    def pieces(self) -> Iterator[Piece]:
        """What came back, in pieces of one stream, with what a member refused apart from the rest."""
        # Lists, and not the sets themselves: whoever hands pieces out changes both between two of them.
        all_refused = sorted(self._refused_by)
        for first, upto in list(self.back):
            low, high = bisect_left(all_refused, first), bisect_left(all_refused, upto)
            for offset in (*all_refused[low:high], upto):
                yield from self._of_one_stream(first, offset)
                if offset < upto:
                    yield Piece(offset, offset + 1, self._refused_by[offset])
                    first = offset + 1

    def _of_one_stream(self, first: int, upto: int) -> Iterator[Piece]:
        # A lease is of one stream. What no stream has any more is left for `take_gone`.
        while first < upto and (extent := self.view.extent_at(first)) is not None:
            stop = min(upto, extent.end)
            yield Piece(first, stop, "")
            first = stop

    def fresh(self) -> Range | None:
        """The next messages of one stream that nobody had yet."""
        # The progress may be ahead of us: another Leader handed out what is done above `low` before our time.
        self.next = max(self.next, self.view.progress.low)
        is_open = self.view.progress.open_ranges(self.next, self.view.end)
        for first, upto in is_open:
            extent = self.view.extent_at(first)
            if extent is not None:
                return first, min(upto, extent.end)
        if not is_open:
            # So that the next look begins there, and not at the same done messages.
            self.next = max(self.next, self.view.end)
        return None

    def take_gone(self) -> tuple[Range, ...]:
        """Takes out what nobody has and nobody can get any more."""
        gone, low = Ranges(), self.view.progress.low
        for first, upto in self.back.clip(low, self.view.first):
            for one in self.view.progress.open_ranges(first, upto):
                gone.add(*one)
        for one in self.view.progress.open_ranges(self.next, self.view.first):
            gone.add(*one)
        # Taken out in the same step as they are told, or two members would be told the same.
        self.take_back(low, self.view.first)
        self.next = max(self.next, self.view.first)
        return tuple(gone)

    def check(self) -> None:
        """Asserts the invariants; that no two members have a message is Q1, of all their leases."""
        assert not self.back or self.back.end <= self.next, f"P1: {self.back} from {self.next} on"
        strangers = [offset for offset in self._refused_by if offset not in self.back]
        assert not strangers, f"P2: {strangers} were refused, and are not back"
        self.back.check()
