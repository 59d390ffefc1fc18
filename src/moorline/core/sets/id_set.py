"""Room: core/sets. A set of ids in memory, by their hashes: what one side of a reconciliation holds.

The hashes are two arrays of 64-bit halves, sorted by the high one. A *prefix* is the first bits of a
hash: ranges of it are slices of the arrays, so that no boundary has to be agreed on.

Nothing of it ever changes: an asker compares one state with another, and a set that moves under it would be
repaired towards what it is no more (Z1 of core/sets/asker.py).
"""

from collections.abc import Sequence

import numpy as np

from moorline.core.sets.digest import Digest
from moorline.core.sets.estimate import Estimate
from moorline.core.sets.prefix import Prefix, RangeDigest
from moorline.core.sets.sketch import CELLS_FULL, Salt, Sketch, Words, short_ids


class IdSet:
    """The hashes of a set, sorted."""

    def __init__(self, high: Words, low: Words) -> None:
        # The order is kept: by it whoever gave the ids finds their names again.
        order = np.argsort(high, kind="stable")
        self.high: Words = high[order]
        self.low: Words = low[order]
        self.order = order

    @staticmethod
    def empty() -> "IdSet":
        return IdSet(np.empty(0, np.uint64), np.empty(0, np.uint64))

    def __len__(self) -> int:
        return len(self.high)

    def digest(self) -> Digest:
        return digest_of(self.high, self.low)

    def slice_of(self, prefix: Prefix) -> slice:
        # Both ends are hashes that belong to it, since the one behind the last prefix of all has no 64
        # bits.
        start = int(np.searchsorted(self.high, np.uint64(prefix.first)))
        end = int(np.searchsorted(self.high, np.uint64(prefix.last), "right"))
        return slice(start, end)

    def ranges(self, prefixes: Sequence[Prefix]) -> list[RangeDigest]:
        found = []
        for prefix in prefixes:
            # The low halves: the high ones begin alike within a range, and the prefix has said those bits
            # already.
            part = self.low[self.slice_of(prefix)]
            found.append(
                RangeDigest(len(part), int(np.bitwise_xor.reduce(part)) if len(part) else 0)
            )
        return found

    def highs(self, prefix: Prefix) -> Words:
        return self.high[self.slice_of(prefix)]

    def sketch(self, salt: Salt, cells: int) -> Sketch:
        # By way of the full size, where it folds: so both sides come to the same cells, kept up or made
        # anew.
        sketch = Sketch(salt, cells if CELLS_FULL % cells else CELLS_FULL)
        sketch.toggle(self.high)
        return sketch if sketch.cells == cells else sketch.folded(cells)

    def estimate(self, salt: Salt) -> Estimate:
        estimate = Estimate(salt)
        estimate.toggle(self.high)
        return estimate

    def of_shorts(self, shorts: Words) -> tuple[Words, Words]:
        """The high halves of the hashes with these short ids; and the short ids of no hash."""
        # Sorted still: short ids are the first bits of what it is sorted by.
        own = short_ids(self.high)
        start = np.searchsorted(own, shorts)
        end = np.searchsorted(own, shorts, "right")
        # Several hashes may have one short id. All of them are told: which one is meant shows in the next
        # digest.
        parts = [self.high[a:b] for a, b in zip(start, end, strict=True) if b > a]
        found = np.concatenate(parts) if parts else np.empty(0, np.uint64)
        return found, shorts[start == end]


def digest_of(high: Words, low: Words) -> Digest:
    """That of `Digest.of` over the same ids, from their hashes."""
    if not len(high):
        return Digest.empty()
    halves = int(np.bitwise_xor.reduce(high)), int(np.bitwise_xor.reduce(low))
    return Digest(len(high), halves[0].to_bytes(8, "big") + halves[1].to_bytes(8, "big"))
