"""Room: core/access. How much came lately, by one address, of what outlives whoever brought it.

A queue has an owner, and a listener owns nothing. What can be said of an address is how much was made by it
within one to two spans of RECENT_MS; what is older is given back by the time, whatever has become of it.

    now      what came in this span            before   in the one before

Invariant, looked at by `check`:

    RE1  nothing is below 0
"""

from moorline.core.access.quota import OverBound, Quota
from moorline.limits import RECENT_MS


class Recent:
    """Of one listener and one quota."""

    __slots__ = ("_before", "_ends_ms", "_now", "_quota")

    def __init__(self, quota: Quota, now_ms: int) -> None:
        self._quota = quota
        self._now = 0
        self._before = 0
        self._ends_ms = now_ms + RECENT_MS

    def count(self, now_ms: int) -> int:
        self._turn(now_ms)
        return self._now + self._before

    def add(self, amount: int, bound: int, now_ms: int) -> OverBound | None:
        """All of it, or none and why not."""
        self._turn(now_ms)
        if self._now + self._before + amount > bound:
            is_too_much = amount > bound
            retry_ms = None if is_too_much else max(1, self._ends_ms - now_ms)
            return OverBound(self._quota, bound, retry_ms, is_too_much_at_once=is_too_much)
        self._now += amount
        return None

    def check(self) -> None:
        """Asserts the invariant."""
        assert self._now >= 0 <= self._before, "RE1: less than nothing"

    def _turn(self, now_ms: int) -> None:
        if now_ms < self._ends_ms:
            return
        spans = 1 + (now_ms - self._ends_ms) // RECENT_MS
        self._before = self._now if spans == 1 else 0
        self._now = 0
        self._ends_ms += spans * RECENT_MS
