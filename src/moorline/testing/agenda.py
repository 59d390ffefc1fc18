"""Room: testing. What a simulation still has to do, in order of time."""

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from moorline.core.effects import Event

ENTRIES_MAX: Final = 100_000
"""Things to do at once. A simulation that has more is a storm: some machine feeds on itself."""


@dataclass(frozen=True, slots=True)
class Post:
    """An event for a node: of any life, or, as the end of a link, of that one only."""

    node: str
    event: Event
    life: int | None = None


@dataclass(frozen=True, slots=True)
class Fire:
    """A timer of a node's present life; `number` tells it from one of the same name set before."""

    node: str
    life: int
    name: str
    number: int


@dataclass(frozen=True, slots=True)
class FinishSync:
    """The end of a sync. `late` says that the data become durable only now."""

    node: str
    life: int
    file: str
    upto: int
    late: bool


@dataclass(frozen=True, slots=True)
class Restart:
    node: str
    life: int


@dataclass(frozen=True, slots=True)
class Resume:
    node: str
    life: int


@dataclass(frozen=True, slots=True)
class Heal:
    a: str
    b: str


Entry: TypeAlias = Post | Fire | FinishSync | Restart | Resume | Heal


class Agenda:
    """A heap of entries by time; entries of equal time come in the order they were added."""

    def __init__(self, is_stale: Callable[[Entry], bool]) -> None:
        self._heap: list[tuple[int, int, Entry]] = []
        self._number = 0
        self._is_stale = is_stale

    def add(self, due_ms: int, entry: Entry) -> None:
        if len(self._heap) >= ENTRIES_MAX:
            self._drop_stale()
            assert len(self._heap) < ENTRIES_MAX, f"a storm: {ENTRIES_MAX} things to do at once"
        self._number += 1
        heapq.heappush(self._heap, (due_ms, self._number, entry))

    def next_due_ms(self) -> int | None:
        # Stale entries (a timer set anew, things of a former life) must not move the clock.
        while self._heap and self._is_stale(self._heap[0][2]):
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def take(self) -> Entry:
        return heapq.heappop(self._heap)[2]

    def _drop_stale(self) -> None:
        self._heap = [entry for entry in self._heap if not self._is_stale(entry[2])]
        heapq.heapify(self._heap)
