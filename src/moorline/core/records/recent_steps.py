"""Room: core/records. The changes of a table's last steps, for those who are behind: bounded in bytes.

    recent.begin(8); recent.add(changes); recent.end()
    recent.reaches(5)              whether all behind step 5 is there
    recent.folded(5)               what the steps behind it did to each key, as one

One ring for a whole table: nothing is kept for a single subscription. A step that does not fit is not
kept, and neither is anything before it: whoever is behind that goes by the log.

Invariant, looked at by `check`:

    RE1  the steps follow each other, and the bytes are those of their changes, within the bound
"""

from collections import deque
from collections.abc import Iterator, Sequence

from moorline.core.records.table import Change, Key

CHANGE_BYTES = 1_000
"""Of a change beside its row: some 200 in objects of Python, and 2.5 µs of the loop whenever it is folded."""


class Folded:
    """A key over several steps: net, and each state that it had in between."""

    __slots__ = ("between", "net")

    def __init__(self, change: Change) -> None:
        self.net = change
        self.between: list[Change] = []

    def follow(self, change: Change) -> None:
        self.between.append(self.net)
        self.net = Change(change.key, self.net.before, change.after)


class RecentSteps:
    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._steps: deque[tuple[int, list[Change], int]] = deque()
        self._open: list[Change] | None = None
        self._open_bytes = 0
        self._number = 0
        self._first = 0
        """All behind this step is here."""
        self.bytes = 0

    def begin(self, number: int) -> None:
        self._number, self._open, self._open_bytes = number, [], 0

    def add(self, changes: Sequence[Change]) -> None:
        if self._open is None:
            return
        self._open += changes
        self._open_bytes += sum(map(_bytes_of, changes))
        if self._open_bytes > self._bytes_max:
            # Nobody could be served from it; and it must not be held until the end of the step.
            self._open = None

    def end(self) -> None:
        if self._open is None:
            self.clear(self._number)
            return
        self._steps.append((self._number, self._open, self._open_bytes))
        self.bytes += self._open_bytes
        self._open, self._open_bytes = None, 0
        while self.bytes > self._bytes_max:
            number, _, size = self._steps.popleft()
            self.bytes -= size
            self._first = number

    def drop(self) -> None:
        """The step that was begun has failed."""
        self._open, self._open_bytes = None, 0

    def clear(self, number: int) -> None:
        """Nothing up to this step is here."""
        self._steps.clear()
        self._open, self._open_bytes, self.bytes, self._first = None, 0, 0, number

    def reaches(self, step: int) -> bool:
        return step >= self._first

    def since(self, step: int) -> Iterator[Change]:
        """All changes behind a step, in order."""
        assert self.reaches(step), "it is gone"
        for number, changes, _ in self._steps:
            if number > step:
                yield from changes

    def folded(self, step: int) -> list[Folded]:
        found: dict[Key, Folded] = {}
        for change in self.since(step):
            if (before := found.get(change.key)) is not None:
                before.follow(change)
            else:
                found[change.key] = Folded(change)
        return list(found.values())

    def check(self) -> None:
        sizes = [sum(map(_bytes_of, changes)) for _, changes, _ in self._steps]
        assert sizes == [size for _, _, size in self._steps], "RE1: bytes of a step"
        assert self.bytes == sum(sizes) <= self._bytes_max, f"RE1: {self.bytes} bytes"
        numbers = [self._first, *(number for number, _, _ in self._steps)]
        assert numbers == list(range(self._first, self._first + len(numbers))), f"RE1: {numbers}"


def _bytes_of(change: Change) -> int:
    return CHANGE_BYTES + (0 if change.after is None else len(change.after.row))
