"""Room: core/values. Which publisher of several a subscriber goes to.

Those of the best priority first, among them by chance. Who failed of late comes last, whatever its priority:
so with n publishers, n tries in a row reach all n, and one that is dead for good costs one try a minute.
"""

from collections.abc import Sequence
from typing import NamedTuple

from moorline.core.chance import Chance
from moorline.limits import FAILED_PUBLISHERS_MAX, PUBLISHER_FAILED_MS


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


def choose(
    candidates: Sequence[Candidate], failures: Failures, chance: Chance, now_ms: int
) -> Candidate:
    """The one to try now."""
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
