"""Room: core/group. How many messages a second come to each shard, from how far its streams have come.

What is looked at is what is stored, and not what members do with it: a member that is slow must not look as
if it had little to do. Each look counts half, and all before it the other half, so that a moment in which
much comes moves nothing.
"""

from collections.abc import Mapping

from moorline.core.stream import Shard


class Loads:
    """Of the shards that were seen in the last two looks."""

    def __init__(self) -> None:
        self.per_s: dict[Shard, float] = {}
        self._ends: Mapping[Shard, int] = {}
        self._seen_ms: int | None = None

    def saw(self, ends: Mapping[Shard, int], now_ms: int) -> None:
        """So far each shard has come. One that is not told, its node being away, is not known any more."""
        before_ms, before = self._seen_ms, self._ends
        if before_ms is not None and now_ms <= before_ms:
            return
        if before_ms is not None:
            passed_s = (now_ms - before_ms) / 1_000
            self.per_s = {
                shard: (self.per_s.get(shard, 0) + max(0, end - before[shard]) / passed_s) / 2
                for shard, end in ends.items()
                if shard in before
            }
        self._ends, self._seen_ms = dict(ends), now_ms
