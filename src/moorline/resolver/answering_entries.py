"""Room: resolver. The entries of a publisher as an answerer asks for them: made in slices, when asked for."""

import asyncio
from collections.abc import Generator, Sequence

from moorline.core.directory.entry_set import EntrySet
from moorline.core.sets.asker import listed_of
from moorline.core.sets.digest import Digest
from moorline.core.sets.estimate import Estimate
from moorline.core.sets.id_set import IdSet
from moorline.core.sets.prefix import Prefix, RangeDigest
from moorline.core.sets.sketch import CELLS_FULL, Sketch
from moorline.errors import CallFailed
from moorline.net.slices import in_slices

RANGES_AT_ONCE = 16
"""Ranges between two of which others have their turn."""

FREEZES_MAX = 3
"""Tries to see a set that does not change meanwhile."""


class AnsweringEntries:
    """Of one registration. Whoever uses it sees to it that one question is asked at a time."""

    def __init__(self, entries: EntrySet, principal: str) -> None:
        """`principal` is who asks: its slices are shared out by that."""
        self._entries = entries
        self._principal = principal
        self.salt = entries.salt

    async def digest(self) -> Digest:
        return self._entries.digest()

    async def digests(self, prefixes: Sequence[Prefix]) -> list[RangeDigest]:
        frozen = await self.frozen()
        return await in_slices(_digests(frozen, prefixes), self._principal)

    async def estimate(self, digest: Digest) -> Estimate:  # noqa: ARG002
        await in_slices(self._entries.summing(), self._principal)
        return self._entries.estimate()

    async def sketch(self, digest: Digest, cells: int) -> Sketch:  # noqa: ARG002
        if CELLS_FULL % cells:
            # Larger than the kept one; made for the purpose, in a thread.
            frozen = await self.frozen()
            return await asyncio.to_thread(frozen.sketch, self.salt, cells)
        await in_slices(self._entries.summing(), self._principal)
        return self._entries.sketch(cells)

    async def ids(self, prefixes: Sequence[Prefix]) -> list[bytes]:
        frozen = await self.frozen()
        return [listed_of(frozen.highs(prefix)) for prefix in prefixes]

    async def frozen(self) -> IdSet:
        """The hashes, sorted; kept until the next change."""
        for _ in range(FREEZES_MAX):
            frozen = self._entries.frozen
            if frozen is not None:
                return frozen
            before = self._entries.digest()
            names, hashes = await in_slices(self._entries.hashing(), self._principal)
            frozen = await asyncio.to_thread(IdSet, hashes[:, 0], hashes[:, 1])
            if self._entries.digest() == before:
                self._entries.freeze(names, frozen)
                return frozen
        raise CallFailed("the entries change all the time: compare again when they are at rest")


def _digests(frozen: IdSet, prefixes: Sequence[Prefix]) -> Generator[None, None, list[RangeDigest]]:
    told: list[RangeDigest] = []
    for start in range(0, len(prefixes), RANGES_AT_ONCE):
        if start:
            yield
        told += frozen.ranges(prefixes[start : start + RANGES_AT_ONCE])
    return told
