"""Room: core/access. The topics that one principal brings up, counted by name.

Nobody makes a topic, and nobody owns one: it is there as long as a message of it is kept. So counted are the
names that a principal is said to use, within one to two spans of TOPIC_NAMES_MS: one that comes again counts
on, and one that does not is given back by the time. Who publishes is asked only for names that the node does
not know, so that what goes to known topics costs nothing.

    now      names of this span            before   those of the span before that are not among them

Invariant, looked at by `check`:

    TN1  no name is in both: together they are how many there are
"""

from collections.abc import Iterable

from moorline.core.access.quota import OverBound, Quota
from moorline.limits import TOPIC_NAMES_MS


class TopicNames:
    """Of one principal. A name is its hash: a bound of 100,000 names is some 6 MB."""

    __slots__ = ("_before", "_ends_ms", "_now")

    def __init__(self, now_ms: int) -> None:
        self._now: set[int] = set()
        self._before: set[int] = set()
        self._ends_ms = now_ms + TOPIC_NAMES_MS

    def count(self, now_ms: int) -> int:
        self._turn(now_ms)
        return len(self._now) + len(self._before)

    def knows(self, names: Iterable[int], now_ms: int) -> bool:
        """Whether all of them count already: then there is nothing to be added."""
        return now_ms < self._ends_ms and self._now.issuperset(names)

    def add(self, names: Iterable[int], bound: int, now_ms: int) -> OverBound | None:
        """All of them, or none and why not. What is known already is never refused."""
        self._turn(now_ms)
        now, before = self._now, self._before
        fresh = [name for name in names if name not in now]
        if not fresh:
            return None
        new = sum(name not in before for name in fresh)
        if new and len(now) + len(before) + new > bound:
            is_too_much = new > bound
            retry_ms = None if is_too_much else max(1, self._ends_ms - now_ms)
            return OverBound(Quota.TOPICS, bound, retry_ms, is_too_much_at_once=is_too_much)
        now.update(fresh)
        before.difference_update(fresh)
        return None

    def check(self) -> None:
        """Asserts the invariant."""
        assert self._now.isdisjoint(self._before), "TN1: a name counts twice"

    def _turn(self, now_ms: int) -> None:
        if now_ms < self._ends_ms:
            return
        spans = 1 + (now_ms - self._ends_ms) // TOPIC_NAMES_MS
        self._before = self._now if spans == 1 else set()
        self._now = set()
        self._ends_ms += spans * TOPIC_NAMES_MS
