"""Room: core/values. Which publisher of several a subscriber goes to.

Those of the best priority first, among them by chance. Who failed of late comes last, whatever its priority:
one that is dead for good costs one try a minute. Before all of that each has its turn at a path: who was
tried for it comes behind all who were not, and of those who were the one that was tried longest ago comes
first. So with n publishers, n tries in a row reach all n, however long each of them takes.
"""

from collections.abc import Sequence
from typing import NamedTuple

from moorline.core.chance import Chance
from moorline.limits import (
    FAILED_PUBLISHERS_MAX,
    PUBLISHER_FAILED_MS,
    TRIED_PATHS_MAX,
    TRIED_PUBLISHERS_MAX,
)


class Candidate(NamedTuple):
    """A publisher of a path. A smaller priority is the better one."""

    instance: bytes
    priority: int


class Failures:
    """Who failed when, for a while."""

    def __init__(self, remembered_ms: int = PUBLISHER_FAILED_MS) -> None:
        self._remembered_ms = remembered_ms
        self._failed_ms: dict[bytes, int] = {}

    def note(self, instance: bytes, now_ms: int) -> None:
        # In the order of their times: the first is the oldest.
        self._failed_ms.pop(instance, None)
        self._failed_ms[instance] = now_ms
        while len(self._failed_ms) > FAILED_PUBLISHERS_MAX:
            del self._failed_ms[next(iter(self._failed_ms))]

    def forgive(self, instance: bytes) -> None:
        self._failed_ms.pop(instance, None)

    def when(self, instance: bytes, now_ms: int) -> int | None:
        """None if it did not, or too long ago to matter."""
        failed_ms = self._failed_ms.get(instance)
        if failed_ms is None or now_ms - failed_ms >= self._remembered_ms:
            return None
        return failed_ms


Tried = tuple[bytes, ...]
"""Publishers that were tried for a path since it last had a value, in the order of their last tries."""


class Turns:
    """Who was tried for which path, for those who try by themselves, once and perhaps once more.

    Tries are in a row if each begins within the memory of the one before it.
    """

    def __init__(self, remembered_ms: int = PUBLISHER_FAILED_MS) -> None:
        self._remembered_ms = remembered_ms
        self._tried: dict[str, tuple[Tried, int]] = {}

    def __len__(self) -> int:
        return len(self._tried)

    def of(self, path: str, now_ms: int) -> Tried:
        tried, last_ms = self._tried.get(path, ((), now_ms))
        return tried if now_ms - last_ms < self._remembered_ms else ()

    def failed(self, path: str, instance: bytes, now_ms: int) -> None:
        tried = with_last(self.of(path, now_ms), instance)
        # In the order of their times: the first is the oldest.
        self._tried.pop(path, None)
        self._tried[path] = (tried[-TRIED_PUBLISHERS_MAX:], now_ms)
        while len(self._tried) > TRIED_PATHS_MAX:
            del self._tried[next(iter(self._tried))]

    def found(self, path: str) -> None:
        """It has a value: the next try is the first one again."""
        self._tried.pop(path, None)


def with_last(tried: Tried, instance: bytes) -> Tried:
    return (*(one for one in tried if one != instance), instance)


def choose_in_turn(
    candidates: Sequence[Candidate], tried: Tried, failures: Failures, chance: Chance, now_ms: int
) -> Candidate:
    """The one to try now for a path, by who was tried for it."""
    if not tried:
        return choose(candidates, failures, chance, now_ms)
    had = set(tried)
    if left := [one for one in candidates if one.instance not in had]:
        return choose(left, failures, chance, now_ms)
    return min(candidates, key=lambda one: tried.index(one.instance))


def choose(
    candidates: Sequence[Candidate], failures: Failures, chance: Chance, now_ms: int
) -> Candidate:
    """The one to try first."""
    assert candidates, "nobody to choose from"
    fresh: list[Candidate] = []
    for candidate in candidates:
        if failures.when(candidate.instance, now_ms) is not None:
            continue
        if fresh and candidate.priority < fresh[0].priority:
            fresh.clear()
        if not fresh or candidate.priority == fresh[0].priority:
            fresh.append(candidate)
    if fresh:
        return chance.choice(fresh)
    # All have failed: whoever was left alone for longest, so that each has its turn.
    return min(candidates, key=lambda one: failures.when(one.instance, now_ms) or 0)
