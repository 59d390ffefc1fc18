"""Room: core/values. A batch: what one commit made visible, seen whole or not at all.

Batch     updates in their order, encoded once for all who get them
Outlet    the batches that wait for one subscriber, within bounds
"""

from collections import deque
from collections.abc import Iterable
from typing import Any

from moorline.limits import OUTLET_BATCHES_MAX, OUTLET_BYTES_MAX


class Batch:
    """Updates: two lists of one length. Several commits may be folded into one."""

    __slots__ = ("frames", "ids", "size_bytes", "values")

    def __init__(self, ids: list[int], values: list[Any], size_bytes: int = 0) -> None:
        assert len(ids) == len(values), "a value for each id"
        self.ids = ids
        self.values = values
        self.size_bytes = size_bytes
        """About as many as it takes on the wire; known when it is first encoded."""
        self.frames: Any = None
        """Its bytes, kept by whoever encodes it: the same for all subscribers that get all of it."""


class Outlet:
    """What waits for one subscriber, oldest first. Plain calls, no states.

    Updates of one id leave in the order in which they were put (V1 of the design); without `is_conflating`
    every batch that was put leaves, whole and in order (V2). And always:

        V3  at most `batches_max` wait, of at most `bytes_max` together; a batch that is longer by itself
            waits alone
    """

    __slots__ = (
        "_batches",
        "_batches_max",
        "_bytes_max",
        "_waiting",
        "_waiting_bytes",
        "is_conflating",
    )

    def __init__(
        self,
        *,
        is_conflating: bool = False,
        batches_max: int = OUTLET_BATCHES_MAX,
        bytes_max: int = OUTLET_BYTES_MAX,
    ) -> None:
        self.is_conflating = is_conflating
        self._batches_max = batches_max
        self._bytes_max = bytes_max
        self._waiting: deque[tuple[Batch, int]] = deque()
        self._waiting_bytes = 0

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def waiting_bytes(self) -> int:
        return self._waiting_bytes

    @property
    def waits_since_ms(self) -> int | None:
        """When the oldest of what waits was put; None if nothing waits."""
        return self._waiting[0][1] if self._waiting else None

    def has_room_for(self, batch: Batch) -> bool:
        if not self._waiting:
            return True
        is_short = self._waiting_bytes + batch.size_bytes <= self._bytes_max
        return is_short and len(self._waiting) < self._batches_max

    def put(self, batch: Batch, now_ms: int) -> bool:
        """Whether it waits now. False: there is no room, and this subscriber wants every batch."""
        if self.has_room_for(batch):
            self._append(batch, now_ms)
            return True
        if not self.is_conflating:
            return False
        since_ms = self._waiting[0][1]
        folded = fold([*(waiting for waiting, _ in self._waiting), batch])
        if folded.size_bytes > max(self._bytes_max, batch.size_bytes):
            # One value of each id is too much already: it would never get there.
            return False
        self._waiting.clear()
        self._waiting_bytes = 0
        # As old as the oldest of its parts: who never reads is cut by that, however often it is folded.
        self._append(folded, since_ms)
        return True

    def take(self) -> Batch | None:
        """The oldest, which waits no longer."""
        if not self._waiting:
            return None
        batch, _ = self._waiting.popleft()
        self._waiting_bytes -= batch.size_bytes
        return batch

    def leave_out(self, ids: Iterable[int]) -> None:
        """What waits of these is not wanted: their values are told anew, and older ones must not come behind.

        A value that is given up and subscribed to again, while its batches wait, would go back in time.
        """
        unwanted = set(ids)
        if all(unwanted.isdisjoint(batch.ids) for batch, _ in self._waiting):
            return
        waiting, self._waiting, self._waiting_bytes = self._waiting, deque(), 0
        for batch, since_ms in waiting:
            kept = [place for place, one in enumerate(batch.ids) if one not in unwanted]
            if len(kept) == len(batch.ids):
                self._append(batch, since_ms)
            elif kept:
                size_bytes = batch.size_bytes * len(kept) // len(batch.ids)
                ids_left = [batch.ids[place] for place in kept]
                values_left = [batch.values[place] for place in kept]
                self._append(Batch(ids_left, values_left, size_bytes), since_ms)

    def check(self) -> None:
        assert self._waiting_bytes == sum(batch.size_bytes for batch, _ in self._waiting), (
            "V3: bytes"
        )
        assert len(self._waiting) <= self._batches_max, "V3: batches"
        assert len(self._waiting) <= 1 or self._waiting_bytes <= self._bytes_max, "V3: too long"

    def _append(self, batch: Batch, since_ms: int) -> None:
        self._waiting.append((batch, since_ms))
        self._waiting_bytes += batch.size_bytes


def fold(batches: list[Batch]) -> Batch:
    """The latest value of each id, in the order of their last change."""
    latest: dict[int, Any] = {}
    sizes: dict[int, float] = {}
    for batch in batches:
        size = batch.size_bytes / max(1, len(batch.ids))
        for one, value in zip(batch.ids, batch.values, strict=True):
            # Behind all that changed before: an id that changes all the time is not forever the first.
            latest.pop(one, None)
            latest[one] = value
            sizes[one] = size
    return Batch(list(latest), list(latest.values()), round(sum(sizes.values())))
