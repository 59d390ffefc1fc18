"""Room: core/records. From which snapshots on a log tells all that is behind them.

    reach.reaches(since, until)          whether a step between these snapshots misses nothing
    reach.pruned(xid, moment)            behind a pruning that took lines away up to this transaction

Lines are missing from a log for two reasons, and each has a bound of its own. Neither stalls behind a
transaction that stays open: what has not ended has not changed anything yet.

* It was *pruned*: lines went that had been visible at a moment. Whoever has seen what was visible then lacks
none.
* It was *cleared*: beyond its limit nobody wrote lines. Those of any transaction that began before may be
missing, and are missed when it ends, not before.

Invariant (`test_log_reach.py` orders all of it): where `reaches` says yes, each line of a transaction that is
behind `since` and not behind `until` was written, and is there.
"""

import msgspec

from moorline.core.records.snapshot import Snapshot


class LogReach(msgspec.Struct, frozen=True):
    cleared_below: int = 0
    """Lines of transactions below it may never have been written."""
    pruned_below: int = 0
    """All that were taken away are of transactions below it,"""
    pruned_at: Snapshot | None = None
    """and were visible here."""

    def reaches(self, since: Snapshot, until: Snapshot | None = None) -> bool:
        """Without `until`: whether it may, as far as can be said before the step is known."""
        if since.xmax < max(self.cleared_below, self.pruned_below):
            return False
        return not any(
            self._has_lost(xid) or (xid < self.cleared_below and _has_ended(xid, until))
            for xid in since.open
        )

    def _has_lost(self, xid: int) -> bool:
        return (
            xid < self.pruned_below
            and self.pruned_at is not None
            and not self.pruned_at.is_behind(xid)
        )

    def pruned(self, xid: int, moment: Snapshot) -> "LogReach":
        """Lines up to this transaction's are gone, all of them visible at that moment."""
        before = self.pruned_at
        later = moment if before is None else max(before, moment, key=_age)
        return LogReach(self.cleared_below, max(self.pruned_below, xid + 1), later)


def _has_ended(xid: int, until: Snapshot | None) -> bool:
    return until is not None and not until.is_behind(xid)


def _age(snapshot: Snapshot) -> tuple[int, int, int]:
    """Rises from one snapshot to the next: transactions begin, the oldest ends, others end."""
    return snapshot.xmax, snapshot.xmin, -len(snapshot.open)
