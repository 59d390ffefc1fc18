"""Room: core/sets. The answering side of a reconciliation, over a small interface that any store can give.

It keeps no state: what goes with its digest is decided by cost in bytes, from what the asker has sent along.
Postgres answers for the queues of a service (services/service_set.py), memory for anything else.

    answerer = Answerer(InMemory(paths))
    answered = await answerer.verify(digest, estimate, cells_min)

Its functions wait for the store alone; over memory they never wait.
"""

from collections.abc import Sequence
from typing import Protocol

from moorline.core.sets.asker import LISTED_BYTES, Answered, Mode, listed_of, sketch_bytes
from moorline.core.sets.digest import Digest
from moorline.core.sets.estimate import ESTIMATE_BYTES, Estimate
from moorline.core.sets.memory_set import MemorySet
from moorline.core.sets.prefix import ALL, Prefix, RangeDigest, are_apart
from moorline.core.sets.sketch import Salt, Sketch, cells_for, size_at_least
from moorline.errors import Malformed

FIRST_CELLS = 630
"""Sketch for an asker that sent no estimate: one block, good for about 1,300 differences."""


class AnsweringSet(Protocol):
    """What a store must be able to tell of a set. Salt and store are its own affair."""

    @property
    def salt(self) -> Salt: ...

    async def digest(self) -> Digest: ...

    async def digests(self, prefixes: Sequence[Prefix]) -> list[RangeDigest]: ...

    async def estimate(self, digest: Digest) -> Estimate:
        """Of the set that has this digest; of a newer one, if it changes all the time."""

    async def sketch(self, digest: Digest, cells: int) -> Sketch:
        """As above."""

    async def ids(self, prefixes: Sequence[Prefix]) -> list[bytes]:
        """Below each prefix the high halves of the hashes, eight bytes each."""


class InMemory:
    """A set in memory as an answerer asks for it: nothing is between its digest and its sketch."""

    def __init__(self, own: MemorySet) -> None:
        self._own = own
        self.salt = own.salt

    async def digest(self) -> Digest:
        return self._own.digest()

    async def digests(self, prefixes: Sequence[Prefix]) -> list[RangeDigest]:
        return self._own.digests(prefixes)

    async def estimate(self, digest: Digest) -> Estimate:  # noqa: ARG002
        return self._own.estimate()

    async def sketch(self, digest: Digest, cells: int) -> Sketch:  # noqa: ARG002
        return self._own.sketch(cells)

    async def ids(self, prefixes: Sequence[Prefix]) -> list[bytes]:
        return [listed_of(self._own.ids(prefix)) for prefix in prefixes]


class Answerer:
    """Answers for one set."""

    def __init__(self, own: AnsweringSet) -> None:
        self._own = own

    async def verify(self, theirs: Digest, estimate: bytes = b"", cells_min: int = 0) -> Answered:
        """Our digest; if theirs is another one, with it what helps them to find out."""
        # The digest first, and what goes along is asked for by it: a set that changes in between would else
        # be told with a sketch of another one, and the asker would peel what nobody has.
        own = await self._own.digest()
        # An estimate may cost the store a look at all ids, so it is made only where sizes depend on it.
        differences = None
        if own not in (theirs, Digest.empty()) and len(estimate) == ESTIMATE_BYTES:
            ours = await self._own.estimate(own)
            differences = ours.differences(Estimate.parse(self._own.salt, estimate))
        mode, cells = sketch_or_list(own, theirs, differences, cells_min)
        payload = b""
        if mode is Mode.SKETCH:
            payload = bytes(await self._own.sketch(own, cells))
        elif mode is Mode.LIST:
            (payload,) = await self._own.ids([ALL])
        return Answered(own, mode, cells, payload)

    async def ranges(self, prefixes: Sequence[Prefix]) -> list[RangeDigest]:
        check_apart(prefixes)
        return await self._own.digests(prefixes)

    async def lists(self, prefixes: Sequence[Prefix]) -> list[bytes]:
        check_apart(prefixes)
        return await self._own.ids(prefixes)


def check_apart(prefixes: Sequence[Prefix]) -> None:
    """Malformed where one is below another."""
    # Those of an asker are (Z3 there). A thousand times the whole set would be a thousand times its work.
    if not are_apart(prefixes):
        raise Malformed(
            "the prefixes of one question overlap: what is below them would be told twice"
        )


def sketch_or_list(
    own: Digest, theirs: Digest, differences: int | None, cells_min: int
) -> tuple[Mode, int]:
    """What goes with the answer, by cost in bytes: a sketch of so many cells, the list, or nothing.

    `differences` is the estimate, or None where the asker sent none.
    """
    # From the cheapest to the dearest; the first three cost nothing but the digest.
    if own == theirs:
        return Mode.EQUAL, 0
    if not own.count:
        return Mode.EMPTY, 0
    if not theirs.count:
        return Mode.SURPLUS, 0
    if differences is None:
        cells = FIRST_CELLS
    else:
        # The difference of the counts is certain, the estimate is not; a fifth more, because a sketch that
        # is too small costs a whole round trip, and one that is too large some bytes.
        apart = max(differences, abs(own.count - theirs.count), 1)
        cells = cells_for(apart * 6 // 5 + 1)
    # What failed before must not be answered by the same size again.
    cells = size_at_least(max(cells, cells_min))
    # The rule of the seed (more than half differs: the full list) put as what it is for: the list is sent
    # where it is the cheaper.
    if sketch_bytes(cells) < own.count * LISTED_BYTES:
        return Mode.SKETCH, cells
    return Mode.LIST, 0
