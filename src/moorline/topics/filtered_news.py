"""Room: topics. Readers that sleep until something comes that their filters take.

    sleeper = news.sleeper()           of one reader; filters are added and taken away
    sleeper.wait(shard, place, wake)   wake(first) once, when a commit has a topic for it, which begins there
    sleeper.reached(shard)             below that nothing came for it, as long as it waits

Ten thousand clients with a filter each would otherwise be woken by every message. What the others sleep
through they need not read either: it was looked at here, by the topics of each commit.
"""

from collections.abc import Callable, Iterable
from typing import Final

from moorline.core.filter_tree import FilterIndex

Wake = Callable[[int], None]
"""Called with where the commit begins in the shard."""

NOWHERE: Final = 0
"""A place that nobody comes to by waiting."""


class FilteredNews:
    """Of the shards of this node."""

    def __init__(self) -> None:
        self._index: FilterIndex[Sleeper] = FilterIndex()
        self._waiting: dict[int, dict[Sleeper, Wake]] = {}
        """By shard."""
        self._ends: dict[int, int] = {}
        """How far each shard was looked at."""

    def sleeper(self) -> "Sleeper":
        return Sleeper(self, self._index)

    def moved(self, shard: int, first: int, upto: int, topics: Iterable[str]) -> None:
        """A commit was answered: whoever reads it from now on finds it."""
        self._ends[shard] = upto
        waiting = self._waiting.get(shard)
        if not waiting:
            return
        for topic in topics:
            for sleeper in self._index.matching(topic):
                wake = waiting.pop(sleeper, None)
                if wake is not None:
                    wake(first)

    def reshaped(self, shard: int) -> None:
        """It has other generations: all look again."""
        for sleeper, wake in list(self._waiting.get(shard, {}).items()):
            reached = self.reached(shard, sleeper)
            del self._waiting[shard][sleeper]
            wake(reached)

    # --- for sleepers -----------------------------------------------------------------------------

    def wait(self, shard: int, sleeper: "Sleeper", place: int, wake: Wake) -> bool:
        if place < self._ends.get(shard, NOWHERE):
            return False
        self._waiting.setdefault(shard, {})[sleeper] = wake
        return True

    def forget(self, shard: int, sleeper: "Sleeper") -> None:
        self._waiting.get(shard, {}).pop(sleeper, None)

    def reached(self, shard: int, sleeper: "Sleeper") -> int:
        if sleeper not in self._waiting.get(shard, ()):
            return NOWHERE
        return self._ends.get(shard, NOWHERE)


class Sleeper:
    """Of one reader."""

    __slots__ = ("_filters", "_index", "_news")

    def __init__(self, news: FilteredNews, index: "FilterIndex[Sleeper]") -> None:
        self._news = news
        self._index = index
        self._filters: dict[str, None] = {}

    def add(self, text: str) -> None:
        if text not in self._filters:
            self._filters[text] = None
            self._index.put(text, self)

    def remove(self, text: str) -> None:
        if text in self._filters:
            del self._filters[text]
            self._index.remove(text, self)

    def close(self) -> None:
        for text in list(self._filters):
            self.remove(text)

    def wait(self, shard: int, place: int, wake: Wake) -> bool:
        """False if there is more than its reader has looked at: that waits for whatever comes."""
        return self._news.wait(shard, self, place, wake)

    def forget(self, shard: int) -> None:
        self._news.forget(shard, self)

    def reached(self, shard: int) -> int:
        return self._news.reached(shard, self)
