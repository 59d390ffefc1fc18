"""Room: core/group. What of a group's progress is not stored yet, and the one commit that is on its way.

    idle ──next()──► under way ──answered()──► pausing ──go_on()──► idle

Whoever ends says `hurry`: nothing more will come that a pause could gather. Behind a failure there is one all
the same, since that commit may still be stored.

Invariants, looked at by `check`:

    C1  one commit is under way at most, and none during a pause: two at once might be stored in either order,
        and the older one would take the newer one back (I4)
    C2  what changed is of a shard that the group knows
"""

from collections.abc import Mapping

from moorline.core.effects import Effect, SetTimer
from moorline.core.group.events import Commit, CommitFailed, Committed, LeaderOptions
from moorline.core.group.views import ShardView
from moorline.core.stream import Shard


class Commits:
    """One at a time, then a pause: acknowledgements come in crowds. What failed is stored with the next."""

    def __init__(self, options: LeaderOptions) -> None:
        self._options = options
        self._number = 0
        self._changed: set[Shard] = set()
        self._under_way: Commit | None = None
        self._is_pausing = False
        self._is_hurried = False
        self._has_failed = False
        """The last one that was answered."""

    def note(self, shard: Shard) -> None:
        """The progress there has changed."""
        self._changed.add(shard)

    @property
    def is_busy(self) -> bool:
        return self._under_way is not None or self._is_pausing

    def next(self, shards: Mapping[Shard, ShardView]) -> Commit | None:
        """All that has changed, if nothing is on its way."""
        if self.is_busy or not self._changed:
            return None
        self._number += 1
        # The cursors of now, not of when they changed: whatever is stored is true, and newer is better.
        cursors = tuple((shard, shards[shard].cursor()) for shard in sorted(self._changed))
        self._under_way = Commit(self._number, cursors)
        self._changed.clear()
        return self._under_way

    def answered(self, answer: Committed | CommitFailed) -> list[Effect]:
        commit = self._under_way
        if commit is None or answer.number != commit.number:
            # Of an earlier one that was given up: it says nothing of this one.
            return []
        wait_ms = self._options.commit_ms
        self._has_failed = isinstance(answer, CommitFailed)
        if self._has_failed:
            # It may be stored all the same. Progress only grows, so to store it again harms nothing.
            self._changed.update(shard for shard, _ in commit.cursors)
            wait_ms = self._options.commit_retry_ms
        self._under_way = None
        if self._is_hurried and not self._has_failed:
            return []
        self._is_pausing = True
        return [SetTimer("commit", wait_ms)]

    def hurry(self) -> None:
        """No pause follows any more, and the one that there is, is over."""
        self._is_hurried = True
        self._is_pausing = self._is_pausing and self._has_failed

    def go_on(self) -> None:
        """The pause is over."""
        self._is_pausing = False

    def check(self, shards: Mapping[Shard, ShardView]) -> None:
        assert not (self._under_way and self._is_pausing), "C1: a commit is under way in a pause"
        assert self._changed <= shards.keys(), f"C2: {self._changed - shards.keys()} are unknown"
