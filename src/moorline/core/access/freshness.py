"""Room: core/access. How long what a node knows of rights may still be used without a word of the catalog.

    heard ──► FRESH ──revocation_ms──► STALE ──stale_ms──► EXPIRED
      ▲          known rights go on        │  known rights go on, and that is told   nobody's are known
      └──────────────────── the catalog answered ────────────────────┘

What was heard is as old as the question: a change may have come right behind the answer.
"""

from enum import Enum


class Freshness(Enum):
    FRESH = "fresh"
    STALE = "stale"
    EXPIRED = "expired"


class Knowledge:
    """Of one table. Times are of a clock that also counts while the machine sleeps."""

    def __init__(self, *, revocation_ms: int, stale_ms: int, asked_ms: int) -> None:
        self._revocation_ms = revocation_ms
        self._stale_ms = stale_ms
        self._asked_ms = asked_ms

    def heard(self, asked_ms: int) -> None:
        """The catalog answered what it was asked then."""
        # The later: answers overtake each other, and one that was asked for earlier makes nothing older.
        self._asked_ms = max(self._asked_ms, asked_ms)

    def freshness(self, now_ms: int) -> Freshness:
        age_ms = now_ms - self._asked_ms
        # Neither is a part of the other: whoever wants no rights without the catalog sets a short one.
        if age_ms > max(self._stale_ms, self._revocation_ms):
            return Freshness.EXPIRED
        return Freshness.STALE if age_ms > self._revocation_ms else Freshness.FRESH
