"""Room: core/records. The ids that a client says it knows, in ranges: `1-5,7`.

    known = KnownIds.parse("1-5,7,9-1000")
    7 in known
    known.absent([2, 3, 4, 900])        runs of known ids that are not among these: they are deletions

Ranges rise and do not overlap, all within 63 bits. Nothing is ever expanded: parsing costs by the text,
and an answer by the ranges and the ids that are there. A range of more ids than any client can hold is
refused, since each of them might have to be answered by a deletion.
"""

import re
from bisect import bisect_right
from collections.abc import Generator, Iterable, Iterator
from typing import Final

from moorline.errors import BadFilter
from moorline.limits import RECORD_KNOWN_CHARACTERS_MAX, RECORD_KNOWN_IDS_MAX

RUNS_PER_STEP: Final = 256

ID_MAX: Final = (1 << 63) - 1

FORM: Final = 'ranges of ids that rise, as "1-5,7"'

# [0-9] and not \d, which takes the digits of every script; no more of them than 63 bits have.
_RANGE = re.compile(r"([0-9]{1,19})(?:-([0-9]{1,19}))?")


class KnownIds:
    """Sorted runs, both ends in them."""

    __slots__ = ("_firsts", "_lasts", "count")

    def __init__(self, runs: Iterable[tuple[int, int]] = ()) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        self.count = 0
        for first, last in runs:
            self._firsts.append(first)
            self._lasts.append(last)
            self.count += last - first + 1

    @staticmethod
    def parse(text: str) -> "KnownIds":
        """BadFilter for anything but such ranges."""
        steps = KnownIds.parsed(text)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                known: KnownIds = end.value
                return known

    @staticmethod
    def parsed(text: str) -> Generator[None, None, "KnownIds"]:
        """The same in steps, since a text may be long."""
        if len(text) > RECORD_KNOWN_CHARACTERS_MAX:
            raise BadFilter(f"known ids have at most {RECORD_KNOWN_CHARACTERS_MAX} characters")
        runs: list[tuple[int, int]] = []
        for run in _runs(text) if text else ():
            runs.append(run)
            if not len(runs) % RUNS_PER_STEP:
                yield
        return KnownIds(runs)

    def __contains__(self, number: int) -> bool:
        at = bisect_right(self._firsts, number) - 1
        return at >= 0 and number <= self._lasts[at]

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(zip(self._firsts, self._lasts, strict=True))

    def absent(self, present: Iterable[int]) -> Iterator[tuple[int, int]]:
        """Runs of known ids that are not among those present, which come in rising order."""
        there = iter(present)
        one = next(there, None)
        for first, last in self:
            while one is not None and one < first:
                one = next(there, None)
            while one is not None and one <= last:
                if first < one:
                    yield first, one - 1
                first = one + 1
                one = next(there, None)
            if first <= last:
                yield first, last


def _runs(text: str) -> Iterator[tuple[int, int]]:
    before, count = -1, 0
    for part in text.split(","):
        found = _RANGE.fullmatch(part)
        if found is None:
            raise BadFilter(f"{part[:44]!r} is no range of ids: accepted are {FORM}")
        first = int(found[1])
        last = first if found[2] is None else int(found[2])
        if not before < first <= last <= ID_MAX:
            raise BadFilter(f"{part!r} does not rise, or overlaps: accepted are {FORM}")
        count += last - first + 1
        if count > RECORD_KNOWN_IDS_MAX:
            raise BadFilter(
                f"more than {RECORD_KNOWN_IDS_MAX} known ids: say what is known by digest"
            )
        yield first, last
        before = last
