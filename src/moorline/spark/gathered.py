"""Room: spark. Updates of live values that wait for the next batch of a query. Plain calls, no states.

What waits is bounded: beyond a number of updates the latest of each path is kept, in the order of their last
change, and the others are counted. So a query that is slow sees fewer values, and never old ones behind new.
An update that says that its value is the first keeps that when a later one takes its place.
"""

from itertools import islice
from typing import Any, NamedTuple


class ValueRow(NamedTuple):
    """One value: of which path, from which publisher, when it came here, and whether it is the first of a
    subscription."""

    path: str
    value: Any
    publisher: str
    time_us: int
    is_first: bool


class Gathered:
    """What has come and is in no batch yet."""

    def __init__(self, kept_max: int) -> None:
        self._kept_max = kept_max
        self._fold_at = kept_max
        self._rows: list[ValueRow] = []
        self.conflated = 0
        """Updates that a later one of their path has taken the place of."""

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, row: ValueRow) -> None:
        self._rows.append(row)
        if len(self._rows) > self._fold_at:
            self._fold()

    def take(self, count_max: int) -> list[ValueRow]:
        taken = list(islice(self._rows, count_max))
        del self._rows[: len(taken)]
        self._fold_at = max(self._kept_max, len(self._rows))
        return taken

    def _fold(self) -> None:
        latest: dict[str, ValueRow] = {}
        for row in self._rows:
            before = latest.pop(row.path, None)
            # Put in again: the order is that of the last change.
            is_first = row.is_first or (before is not None and before.is_first)
            latest[row.path] = row._replace(is_first=is_first)
        self.conflated += len(self._rows) - len(latest)
        self._rows = list(latest.values())
        # More paths than are kept: folding again pays when as many have come once more.
        self._fold_at = max(self._kept_max, 2 * len(self._rows))
