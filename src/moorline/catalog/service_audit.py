"""Room: catalog. What operators ask about services: who is meant, what is kept, and what is true."""

import logging
from datetime import datetime

import msgspec
import numpy as np

from moorline.catalog.catalog import Catalog
from moorline.catalog.services import FIRST, PAGE, OpenedService, Services
from moorline.catalog.statements import statement
from moorline.core.digest import Digest
from moorline.core.hashing import hash_ids
from moorline.core.prefix import RangeDigest
from moorline.errors import Malformed
from moorline.ids import id_of, text_of

log = logging.getLogger("moorline.catalog")

MEANT = statement("service_meant")
COMPARED = statement("service_compared")

BUCKETS = 256


class Meant(msgspec.Struct, frozen=True):
    """The row of a service that somebody named."""

    number: int
    id: bytes
    fingerprint: bytes
    name: str
    salt: bytes
    is_disabled: bool
    created_at: datetime

    def opened(self) -> OpenedService:
        return OpenedService(self.number, self.id, self.name, self.salt, self.is_disabled)


class Compared(msgspec.Struct, frozen=True):
    """The digest that is kept of a service, and what it should be; in all and by bucket."""

    kept: Digest
    true: Digest
    buckets: list[RangeDigest]
    wrong: list[int]


class OperatorServices(Services):
    """The part of the catalog that knows services, with what only operators ask."""

    async def meant(self, text: str) -> list[Meant]:
        """An id or a name that fits exactly is meant; else the fingerprints that begin so."""
        rows = [Meant(**row) for row in await self._catalog.fetch(MEANT, text, _id(text))]
        exact = [row for row in rows if text in (row.name, text_of(row.id))]
        return exact or rows

    async def compared(self, service: int) -> Compared:
        kept, true = _Sum(), _Sum()
        buckets = [RangeDigest(0, 0)] * BUCKETS
        wrong: list[int] = []
        for row in await self._catalog.fetch(COMPARED, service):
            bucket, *numbers = row
            kept.add(*numbers[:3])
            true.add(*numbers[3:])
            buckets[bucket] = RangeDigest(numbers[3], numbers[5] & (1 << 64) - 1)
            if numbers[:3] != numbers[3:]:
                wrong.append(bucket)
        return Compared(kept.digest(), true.digest(), buckets, sorted(wrong))

    async def put_right(self, service: int) -> Compared:
        """Compares, and recomputes what is kept if it is wrong; returns what was found."""
        found = await self.compared(service)
        if found.wrong:
            await self.recompute(service)
        return found

    async def page(self, service: int, after: bytes, size: int) -> list[bytes]:
        high = int(hash_ids([after])[:, 0].view(np.int64)[0]) if after else FIRST
        rows = await self._catalog.fetch(PAGE, service, high, after, size)
        return [row["queue"] for row in rows]


async def recompute_all(catalog: Catalog) -> int:
    """Puts all kept digests right, one service after the other; returns how many were wrong."""
    services = OperatorServices(catalog)
    everyone = await services.all()
    log.info("recomputing the digests of services", extra={"services": len(everyone)})
    wrong = 0
    for place, service in enumerate(everyone, 1):
        found = await services.put_right(service.number)
        extra = {
            "service": service.name,
            "place": f"{place}/{len(everyone)}",
            "queues": found.true.count,
        }
        if found.wrong:
            wrong += 1
            extra |= {"kept": found.kept.count, "wrong_buckets": len(found.wrong)}
            log.warning("the digest of a service was wrong, and is put right", extra=extra)
        else:
            log.info("the digest of a service is right", extra=extra)
    log.info("digests recomputed", extra={"services": len(everyone), "wrong": wrong})
    return wrong


class _Sum:
    """A digest as a sum over rows of the catalog."""

    def __init__(self) -> None:
        self.count = self.high = self.low = 0

    def add(self, count: int, high: int, low: int) -> None:
        self.count += count
        self.high ^= high
        self.low ^= low

    def digest(self) -> Digest:
        high, low = (half.to_bytes(8, "big", signed=True) for half in (self.high, self.low))
        return Digest(self.count, high + low)


def _id(text: str) -> bytes:
    try:
        return id_of(text)
    except Malformed:
        return b""
