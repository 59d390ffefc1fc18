"""Room: catalog. What is kept of a service against what is there: every id hashed anew, bucket by bucket.

Two things can be wrong, each by itself: a row whose stored hash is not that of its id, and a bucket whose
digest is not that of its rows. A digest over stored hashes proves nothing about the first: such a row counts
as the queue that it was, and the messages of that queue find nobody. So the ids are what is proven.
"""

import logging
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from moorline.catalog.outcome import HARMLESS, unsure
from moorline.catalog.services import Part, Services, signed
from moorline.catalog.statements import statement
from moorline.core.sets.digest import Digest
from moorline.core.sets.hashing import hash_ids, misfits
from moorline.core.sets.id_set import digest_of
from moorline.core.sets.prefix import RangeDigest
from moorline.ids import ID_BYTES
from moorline.limits import REHASH_BATCH, SERVICE_CHECK_QUEUES, WRONG_QUEUES_TOLD_MAX

log = logging.getLogger("moorline.catalog")

CHECKED = statement("service_checked")
LOCK = statement("association_lock")
REHASH = statement("service_rehash")
RECOMPUTE = "select moorline.recompute($1, $2)"

BUCKETS = 256
HALF = BUCKETS // 2
"""The signed order of the catalog wraps here: a range of buckets ends at it."""

BUCKETS_TOGETHER = 16
"""Buckets that are read with one statement, where they are small; a power of two."""


Lacking = Callable[[list[bytes]], int]


class Checked(msgspec.Struct, frozen=True):
    """The digest that is kept of a part, and that of the ids that are there; in all and by bucket.

    `buckets` are the rows as they are stored, `wrong_buckets` those whose kept digest is not that of their
    ids. Of rows whose stored hash is not that of the id, all are counted and the first ones are named.
    """

    kept: Digest
    true: Digest
    buckets: list[RangeDigest]
    wrong_buckets: list[int]
    wrong_hashes: int
    wrong_queues: list[bytes]
    absent: int
    """Queues that the node which asks does not have."""

    @property
    def is_right(self) -> bool:
        return not (self.wrong_buckets or self.wrong_hashes)

    @property
    def told(self) -> tuple[bytes, ...]:
        """So many of the wrong rows as a message may name."""
        return tuple(self.wrong_queues[:WRONG_QUEUES_TOLD_MAX])

    def merge(self, other: "Checked") -> "Checked":
        """Both parts together; a bucket is wrong if it is in one of them."""
        pairs = zip(self.buckets, other.buckets, strict=True)
        return Checked(
            self.kept.merge(other.kept),
            self.true.merge(other.true),
            [RangeDigest(one.count + two.count, one.hash ^ two.hash) for one, two in pairs],
            sorted({*self.wrong_buckets, *other.wrong_buckets}),
            self.wrong_hashes + other.wrong_hashes,
            (self.wrong_queues + other.wrong_queues)[:REHASH_BATCH],
            self.absent + other.absent,
        )

    @staticmethod
    def nothing() -> "Checked":
        none = Digest.empty()
        return Checked(none, none, [RangeDigest(0, 0)] * BUCKETS, [], 0, [], 0)


class CheckedServices(Services):
    """The part of the catalog that knows services, and can prove what it keeps of them."""

    async def checked(self, part: Part, lacking: Lacking = lambda _: 0) -> Checked:
        """Reads all associations of a part. What is compared is of one moment for each bucket.

        `lacking` says how many of some queues are not at the node.
        """
        sums = _Sums(lacking)
        expected = (await self.digest(part)).count
        width = _narrowed(BUCKETS_TOGETHER, expected * BUCKETS_TOGETHER // BUCKETS)
        first = 0
        while first < BUCKETS:
            low = first - (BUCKETS if first >= HALF else 0)
            bounds = low << 56, ((low + width) << 56) - 1
            rows = await self._catalog.fetch(CHECKED, *part, *bounds, first, first + width - 1)
            found = sum(sums.add(row) for row in rows)
            first += width
            # The kept count may be what is wrong: what is there says how much is read at once.
            width = _narrowed(width, found)
        return sums.result()

    async def recomputed(self, part: Part) -> Digest:
        """What the digest should be."""
        return (await self.checked(part)).true

    async def put_right(self, part: Part) -> Checked:
        """Checks, and mends what is wrong: first the hashes of rows, then the digests over them.

        No row is removed: an id that was changed stays, under its own hash. Which of the two sides lacks it
        is for the reconciliation to find. Returns what was found.
        """
        found = rest = await self.checked(part)
        with unsure("what is kept of the service was put right", HARMLESS):
            while not rest.is_right:
                if rest.wrong_queues:
                    log.warning(
                        "associations whose hash is not that of their id: hashed anew",
                        extra={"service": part.service, "queues": [one.hex() for one in rest.told]},
                    )
                await self._mend(part, rest.wrong_queues)
                if rest.wrong_hashes <= len(rest.wrong_queues):
                    break
                rest = await self.checked(part)
        return found

    async def _mend(self, part: Part, queues: list[bytes]) -> None:
        hashes = hash_ids(queues)
        halves = signed(hashes[:, 0]), signed(hashes[:, 1])
        await self._catalog.execute_together(
            [(LOCK, ()), (REHASH, (part.service, queues, *halves)), (RECOMPUTE, part)]
        )


class _Sums:
    """What the rows of a check add up to."""

    def __init__(self, lacking: Lacking) -> None:
        self._lacking = lacking
        self._absent = 0
        self._kept = self._true = Digest.empty()
        self._buckets = [RangeDigest(0, 0)] * BUCKETS
        self._wrong_buckets: list[int] = []
        self._wrong_hashes = 0
        self._wrong_queues: list[bytes] = []

    def add(self, row: Any) -> int:
        """Returns how many queues it has."""
        bucket, count, high, low, queues, lengths, hashes = tuple(row.values())
        stored = np.frombuffer(hashes, ">u8").astype(np.uint64).reshape(-1, 2)
        ids = _cut(queues, np.frombuffer(lengths, ">i4"))
        true, wrong = misfits(ids, stored)
        kept = Digest(count, b"".join(half.to_bytes(8, "big", signed=True) for half in (high, low)))
        there = digest_of(true[:, 0], true[:, 1])
        if kept != there:
            self._wrong_buckets.append(bucket)
        self._kept, self._true = self._kept.merge(kept), self._true.merge(there)
        if len(ids):
            self._buckets[bucket] = RangeDigest(len(ids), int(np.bitwise_xor.reduce(stored[:, 1])))
        self._wrong_hashes += len(wrong)
        whole = [one for one in ids if len(one) == ID_BYTES]
        self._absent += len(ids) - len(whole) + self._lacking(whole)
        room = REHASH_BATCH - len(self._wrong_queues)
        self._wrong_queues += [ids[place] for place in wrong[:room].tolist()]
        return len(ids)

    def result(self) -> Checked:
        return Checked(
            self._kept,
            self._true,
            self._buckets,
            sorted(self._wrong_buckets),
            self._wrong_hashes,
            self._wrong_queues,
            self._absent,
        )


def _narrowed(width: int, count: int) -> int:
    """How many buckets to read at once, after so many that had `count` queues."""
    while width > 1 and count > SERVICE_CHECK_QUEUES:
        width, count = width // 2, count // 2
    return width


def _cut(data: bytes, lengths: npt.NDArray[np.int32]) -> list[bytes]:
    ends = np.cumsum(lengths, dtype=np.int64).tolist()
    starts = [0, *ends[:-1]] if ends else []
    return [data[start:end] for start, end in zip(starts, ends, strict=True)]
