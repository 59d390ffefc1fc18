"""Room: catalog. Services, their associations, and the digests that are changed in the same transaction.

The catalog speaks signed 64-bit halves of hashes; everything above speaks `Digest` and unsigned numbers.
"""

from collections.abc import AsyncIterator, Sequence
from datetime import datetime

import msgspec
import numpy as np

from moorline.catalog.catalog import Catalog
from moorline.catalog.statements import statement
from moorline.core.sets.digest import Digest
from moorline.core.sets.prefix import Prefix, RangeDigest
from moorline.core.sets.sketch import Words

CLAIM = statement("service_claim")
MAKE = statement("service_make")
OPEN = statement("service_open")
DIGEST = statement("service_digest")
BUCKETS = statement("service_buckets")
RANGES = statement("service_ranges")
LISTS = statement("service_lists")
HIGHS = statement("service_highs")
QUEUES_IN = statement("service_queues_in")
PAGE = statement("service_page")
SERVICES = statement("services")
OF_QUEUES = statement("service_of_queues")
DISABLE = statement("service_disable")

SCAN_SLICES = 64
"""Slices of a scan over all hashes: a million ids are 125 KB at a time."""

FIRST, LAST = -(1 << 63), (1 << 63) - 1


class ServiceRow(msgspec.Struct, frozen=True):
    number: int
    id: bytes
    fingerprint: bytes
    """Of the certificate that opened it last; empty if none did, or if another service has it."""
    principal: str
    """Whose it is; empty for one whose certificate has not come since there are principals."""
    name: str
    is_disabled: bool
    created_at: datetime
    digest: Digest


class OpenedService(msgspec.Struct, frozen=True):
    number: int
    id: bytes
    name: str
    salt: bytes
    is_disabled: bool


class Services:
    """The part of the catalog that knows services."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    async def open(
        self, principal: str, fingerprint: bytes, fresh_id: bytes, fresh_salt: bytes
    ) -> OpenedService:
        """The principal's own, or the one that its certificate had before, or a new one."""
        await self._catalog.execute(CLAIM, principal, fingerprint)
        await self._catalog.execute(MAKE, fresh_id, principal, fresh_salt)
        row = await self._catalog.fetchrow(OPEN, principal, fingerprint)
        return OpenedService(**row)

    async def all(self) -> list[ServiceRow]:
        rows = await self._catalog.fetch(SERVICES)
        return [
            ServiceRow(
                number=row["number"],
                id=row["id"],
                fingerprint=row["fingerprint"],
                principal=row["principal"],
                name=row["name"],
                is_disabled=row["is_disabled"],
                created_at=row["created_at"],
                digest=_digest(row["count"], row["high"], row["low"]),
            )
            for row in rows
        ]

    async def digest(self, service: int) -> Digest:
        row = await self._catalog.fetchrow(DIGEST, service)
        return _digest(row["count"], row["high"], row["low"])

    async def recompute(self, service: int) -> None:
        """Puts the digests right, whatever they were."""
        await self._catalog.execute("select moorline.recompute($1)", service)

    async def disable(self, service: int, *, is_disabled: bool) -> None:
        await self._catalog.execute(DISABLE, service, is_disabled)

    # --- changes ----------------------------------------------------------------------------------

    async def associate(self, service: int, queues: Sequence[bytes], hashes: Words) -> Words:
        """Associates queues, given with the halves of their hashes; the high halves of what is new."""
        changed = await self._catalog.fetchval(
            "select moorline.associate($1, $2, $3, $4)",
            service,
            list(queues),
            signed(hashes[:, 0]),
            signed(hashes[:, 1]),
        )
        return _unsigned(changed)

    async def dissociate(self, queues: Sequence[bytes]) -> dict[int, Words]:
        """Removes associations, whosever they were; the high halves of what is gone, by service."""
        if not queues:
            return {}
        rows = await self._catalog.fetch("select * from moorline.dissociate($1)", list(queues))
        return {row["service"]: _unsigned(row["highs"]) for row in rows}

    # --- what a reconciliation asks ---------------------------------------------------------------

    async def ranges(self, service: int, prefixes: Sequence[Prefix]) -> list[RangeDigest]:
        if all(prefix.bits == 8 for prefix in prefixes):
            kept = {row["bucket"]: row for row in await self._catalog.fetch(BUCKETS, service)}
            return [_range(kept.get(prefix.value)) for prefix in prefixes]
        rows = await self._catalog.fetch(RANGES, service, *_bounds(prefixes))
        return [RangeDigest(row["count"], row["hash"] & (1 << 64) - 1) for row in rows]

    async def lists(self, service: int, prefixes: Sequence[Prefix]) -> list[bytes]:
        rows = await self._catalog.fetch(LISTS, service, *_bounds(prefixes))
        return [row["highs"] for row in rows]

    async def highs(self, service: int) -> AsyncIterator[Words]:
        """All hashes of a service, a slice at a time."""
        step = (1 << 64) // SCAN_SLICES
        for number in range(SCAN_SLICES):
            first = FIRST + number * step
            data = await self._catalog.fetchval(HIGHS, service, first, first + step - 1)
            yield np.frombuffer(data, ">u8").astype(np.uint64)

    async def queues_in(self, service: int, prefixes: Sequence[Prefix]) -> list[bytes]:
        """The queues that prefixes name; one that names several is passed over."""
        rows = await self._catalog.fetch(QUEUES_IN, service, *_bounds(prefixes))
        return [row["queue"] for row in rows]

    async def pages(self, service: int, size: int) -> AsyncIterator[list[bytes]]:
        """All queues of a service, a page at a time, in the order of their hashes."""
        high, queue = FIRST, b""
        while True:
            rows = await self._catalog.fetch(PAGE, service, high, queue, size)
            if not rows:
                return
            yield [row["queue"] for row in rows]
            high, queue = rows[-1]["hash_high"], rows[-1]["queue"]

    async def any(self) -> bool:
        """Whether a single queue is associated with anyone."""
        return bool(
            await self._catalog.fetchval("select exists (select 1 from moorline.association)")
        )

    async def of_queues(self, queues: Sequence[bytes]) -> dict[bytes, int]:
        rows = await self._catalog.fetch(OF_QUEUES, list(queues))
        return {row["queue"]: row["service"] for row in rows}


def _digest(count: int, high: int, low: int) -> Digest:
    return Digest(count, high.to_bytes(8, "big", signed=True) + low.to_bytes(8, "big", signed=True))


def _range(row: object) -> RangeDigest:
    if row is None:
        return RangeDigest(0, 0)
    return RangeDigest(row["count"], row["hash_low"] & (1 << 64) - 1)  # type: ignore[index]


def signed(words: Words) -> list[int]:
    """As the catalog stores them."""
    numbers: list[int] = words.view(np.int64).tolist()
    return numbers


def _unsigned(numbers: Sequence[int]) -> Words:
    return np.array(numbers, np.int64).view(np.uint64)


def _bounds(prefixes: Sequence[Prefix]) -> tuple[list[int], list[int]]:
    """The ranges of prefixes in the signed order of the catalog, which wraps at the first bit."""
    firsts, lasts = [], []
    for prefix in prefixes:
        if prefix.bits == 0:
            firsts.append(FIRST)
            lasts.append(LAST)
        else:
            wrap = 1 << 64 if prefix.first >> 63 else 0
            firsts.append(prefix.first - wrap)
            lasts.append(prefix.last - wrap)
    return firsts, lasts
