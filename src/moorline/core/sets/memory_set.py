"""Room: core/sets. A set of ids in memory that changes, and whose digest and sketch change with it.

    paths = MemorySet(salt)
    paths.add([b"/oslo/fjord/temperature"])
    paths.digest()                           # at once, however many there are

Membership decides before XOR does: what is added twice is there once, and what is not there is not removed.
A sketch has 121 KB, and of most sets nobody ever asks one: it is made when it is first asked for, and kept
up from then on. So is the estimate. What a walk needs is sorted when it is asked for, and good until the next
change.

Invariant, looked at by `check`:

    MS1  digest, sketch, estimate and the sorted set are those of the ids that are there
"""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from moorline.core.sets.digest import Digest
from moorline.core.sets.estimate import Estimate
from moorline.core.sets.hashing import hash_ids
from moorline.core.sets.id_set import IdSet, digest_of
from moorline.core.sets.prefix import Prefix, RangeDigest
from moorline.core.sets.sketch import CELLS_FULL, Salt, Sketch, Words


class MemorySet:
    """Ids, and what a reconciliation asks of them."""

    def __init__(self, salt: Salt, ids: Iterable[bytes] = ()) -> None:
        self.salt = salt
        self._ids: dict[bytes, None] = {}
        self._digest = Digest.empty()
        self._sketch: Sketch | None = None
        self._estimate: Estimate | None = None
        self._frozen: IdSet | None = None
        self._names: list[bytes] = []
        """The ids in the order in which the frozen set was given them."""
        self.add(ids)

    def __len__(self) -> int:
        return len(self._ids)

    def __contains__(self, one: bytes) -> bool:
        return one in self._ids

    def __iter__(self) -> Iterator[bytes]:
        """Those that have been there longest come first."""
        return iter(self._ids)

    # --- changes ----------------------------------------------------------------------------------

    def add(self, ids: Iterable[bytes]) -> list[bytes]:
        """Adds those that are not there; returns them."""
        # A dict, since one may be named twice in one call.
        new = [one for one in dict.fromkeys(ids) if one not in self._ids]
        self._ids.update(dict.fromkeys(new))
        # Behind the membership: XOR alone cannot tell a second addition from a removal.
        self._toggle(new, 1)
        return new

    def remove(self, ids: Iterable[bytes]) -> list[bytes]:
        """Removes those that are there; returns them."""
        gone = [one for one in dict.fromkeys(ids) if one in self._ids]
        for one in gone:
            del self._ids[one]
        self._toggle(gone, -1)
        return gone

    def _toggle(self, ids: list[bytes], sign: int) -> None:
        if not ids:
            return
        hashes = hash_ids(ids)
        high = hashes[:, 0]
        # Both directions are the same XOR; only the count knows which it was.
        mixed = self._digest.merge(digest_of(high, hashes[:, 1])).hash
        self._digest = Digest(self._digest.count + sign * len(ids), mixed)
        if self._sketch is not None:
            self._sketch.toggle(high)
        if self._estimate is not None:
            self._estimate.toggle(high)
        # Dropped and not changed: an asker may be at work on it.
        self._frozen = None

    def check(self) -> None:
        """Asserts the invariant; costs as much as to make all of it anew."""
        hashes = hash_ids(list(self._ids))
        anew = IdSet(hashes[:, 0], hashes[:, 1])
        assert self._digest == anew.digest(), f"MS1: a digest of {self._digest.count} ids"
        if self._sketch is not None:
            sketch = anew.sketch(self.salt, CELLS_FULL)
            assert bytes(self._sketch) == bytes(sketch), "MS1: the sketch is of other ids"
        if self._estimate is not None:
            estimate = anew.estimate(self.salt)
            assert bytes(self._estimate) == bytes(estimate), "MS1: the estimate is of other ids"
        if self._frozen is not None:
            assert self._frozen.digest() == self._digest, "MS1: what is sorted is of other ids"
            assert len(self._names) == len(self._frozen), "MS1: hashes without names"

    # --- what a reconciliation asks ---------------------------------------------------------------

    def digest(self) -> Digest:
        return self._digest

    def digests(self, prefixes: Sequence[Prefix]) -> list[RangeDigest]:
        return self.frozen().ranges(prefixes)

    def sketch(self, cells: int) -> Sketch:
        """A fold of the kept one; beyond its size, one that is made for the purpose."""
        if CELLS_FULL % cells:
            return self.frozen().sketch(self.salt, cells)
        if self._sketch is None:
            self._sketch = self.frozen().sketch(self.salt, CELLS_FULL)
        return self._sketch.folded(cells)

    def estimate(self) -> Estimate:
        if self._estimate is None:
            self._estimate = self.frozen().estimate(self.salt)
        # A copy: whoever asked must not see it change.
        return Estimate(self.salt, self._estimate.bits.copy())

    def ids(self, prefix: Prefix) -> Words:
        """The high halves of the hashes below a prefix."""
        return self.frozen().highs(prefix)

    def frozen(self) -> IdSet:
        """The set as it is now: an asker's own, whatever changes here meanwhile."""
        if self._frozen is None:
            self._names = list(self._ids)
            hashes = hash_ids(self._names)
            self._frozen = IdSet(hashes[:, 0], hashes[:, 1])
        return self._frozen

    # --- ids by their hashes ----------------------------------------------------------------------

    def named(self, prefixes: Iterable[Prefix]) -> list[bytes]:
        """The ids below prefixes; a prefix that names several where one was meant is passed over.

        A short id may be that of two: then nobody knows which is meant, and a walk finds out.
        """
        frozen = self.frozen()
        found: list[bytes] = []
        for prefix in prefixes:
            part = frozen.slice_of(prefix)
            if prefix.bits == 0 or part.stop - part.start == 1:
                found += [self._names[place] for place in frozen.order[part].tolist()]
        return found

    def having(self, highs: Words) -> list[bytes]:
        """The ids with these high halves of their hashes."""
        frozen = self.frozen()
        # All at once: one by one each would be a search of its own.
        places = np.flatnonzero(np.isin(frozen.high, highs))
        return [self._names[place] for place in frozen.order[places].tolist()]
