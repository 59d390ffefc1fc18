"""Room: services. Sketches and estimates of services in use, each stamped with the digest it belongs to: of
the part at this node's home.

One scan builds them; changes that pass through this node are put in as they happen. If the stamp is not the
catalog's digest, something changed elsewhere, and the next use scans again: never wrong, at worst slow.
"""

from collections import OrderedDict

import numpy as np

from moorline.catalog.services import OpenedService, Services
from moorline.core.sets.digest import Digest
from moorline.core.sets.estimate import Estimate
from moorline.core.sets.sketch import CELLS_FULL, Salt, Sketch, Words
from moorline.limits import SERVICE_SKETCHES_MAX

SCANS_MAX = 3
"""Scans in a row that found the set changed meanwhile; then the last one is used as it is."""


class Kept:
    """What is kept of one service."""

    def __init__(self, salt: Salt, digest: Digest) -> None:
        self.digest = digest
        self.salt = salt
        self.sketch = Sketch(salt, CELLS_FULL)
        self.estimate = Estimate(salt)

    def toggle(self, highs: Words) -> None:
        self.sketch.toggle(highs)
        self.estimate.toggle(highs)


class Sketches:
    """Those that were used last."""

    def __init__(self, services: Services, home: bytes) -> None:
        self.home = home
        self._services = services
        self._kept: OrderedDict[int, Kept] = OrderedDict()
        self.scans = 0

    async def get(self, service: OpenedService, digest: Digest) -> Kept:
        """The sketch for that digest, from memory or by a scan."""
        kept = self._kept.get(service.number)
        if kept is not None and kept.digest == digest:
            self._kept.move_to_end(service.number)
            return kept
        for _ in range(SCANS_MAX):
            kept = Kept(Salt(service.salt), digest)
            self.scans += 1
            async for highs in self._services.highs(service.at(self.home)):
                kept.toggle(highs)
            digest = await self._services.digest(service.at(self.home))
            if digest == kept.digest:
                break
        assert kept is not None
        self._kept[service.number] = kept
        if len(self._kept) > SERVICE_SKETCHES_MAX:
            self._kept.popitem(last=False)
        return kept

    async def of_size(self, service: OpenedService, kept: Kept, cells: int) -> Sketch:
        """A fold of the kept one; beyond its size, one that is made for the purpose."""
        if CELLS_FULL % cells == 0:
            return kept.sketch.folded(cells)
        sketch = Sketch(kept.salt, cells)
        async for highs in self._services.highs(service.at(self.home)):
            sketch.toggle(highs)
        return sketch

    def changed(self, number: int, highs: Words, digest: Digest) -> None:
        """A change through this node; `digest` is the catalog's right after it."""
        kept = self._kept.get(number)
        if kept is None:
            return
        expected = int.from_bytes(kept.digest.hash[:8], "big") ^ int(np.bitwise_xor.reduce(highs))
        if expected.to_bytes(8, "big") != digest.hash[:8]:
            # Something changed elsewhere too: what is kept is not what the catalog has.
            del self._kept[number]
            return
        kept.toggle(highs)
        kept.digest = digest
