"""Room: catalog. What operators ask about services: who is meant, what is kept, and what is true."""

import logging
from datetime import datetime

import msgspec
import numpy as np

from moorline.catalog.catalog import Catalog
from moorline.catalog.service_check import Checked, CheckedServices, Lacking
from moorline.catalog.services import FIRST, PAGE, OpenedService
from moorline.catalog.statements import statement
from moorline.core.sets.hashing import hash_ids
from moorline.errors import Malformed
from moorline.ids import home_number, id_of, text_of

log = logging.getLogger("moorline.catalog")

MEANT = statement("service_meant")
HIGH = statement("service_high")


class Meant(msgspec.Struct, frozen=True):
    """The row of a service that somebody named."""

    number: int
    id: bytes
    fingerprint: bytes
    principal: str
    name: str
    salt: bytes
    is_disabled: bool
    epoch: int
    created_at: datetime

    def opened(self) -> OpenedService:
        return OpenedService(
            self.number, self.id, self.name, self.salt, self.is_disabled, self.epoch
        )


class OperatorServices(CheckedServices):
    """The part of the catalog that knows services, with what only operators ask."""

    async def meant(self, text: str) -> list[Meant]:
        """An id or a name that fits exactly is meant; else the fingerprints that begin so."""
        rows = [Meant(**row) for row in await self._catalog.fetch(MEANT, text, _id(text))]
        exact = [row for row in rows if text in (row.name, text_of(row.id))]
        return exact or rows

    async def page(self, service: int, after: bytes, size: int, home: bytes = b"") -> list[bytes]:
        """A page of the queues of a service behind that one, part by part; or of its part at one home."""
        first, high = b"", FIRST
        if after:
            # Where it stands, which is not where its id belongs if its hash is wrong; or would stand.
            stored = await self._catalog.fetchrow(HIGH, service, after)
            first = home or home_number(after)
            high = int(hash_ids([after])[:, 0].view(np.int64)[0])
            if stored is not None:
                first, high = stored["home"], stored["hash_high"]
        if home:
            rows = await self._catalog.fetch(PAGE, service, home, high, after, size)
            return [row["queue"] for row in rows]
        found: list[bytes] = []
        for part in await self.parts_of(service):
            if part.home < first:
                continue
            begin = (high, after) if part.home == first else (FIRST, b"")
            rows = await self._catalog.fetch(PAGE, *part, *begin, size - len(found))
            found += [row["queue"] for row in rows]
            if len(found) == size:
                break
        return found

    async def checked_all(
        self, service: int, here: bytes, lacking: Lacking = lambda _: 0
    ) -> Checked:
        """All parts; `lacking` is asked about that at the node's own home."""
        found = Checked.nothing()
        for part in await self.parts_of(service):
            asked = lacking if part.home == here else _none_lacks
            found = found.merge(await self.checked(part, asked))
        return found

    async def put_all_right(self, service: int) -> Checked:
        """Part by part; what was found."""
        found = Checked.nothing()
        for part in await self.parts_of(service):
            found = found.merge(await self.put_right(part))
        return found


def _none_lacks(_: list[bytes]) -> int:
    return 0


async def recompute_all(catalog: Catalog) -> int:
    """Puts all kept digests right, one service after the other; returns how many were wrong."""
    services = OperatorServices(catalog)
    everyone = await services.all()
    log.info("recomputing the digests of services", extra={"services": len(everyone)})
    wrong = 0
    for place, service in enumerate(everyone, 1):
        found = await services.put_all_right(service.number)
        extra = {
            "service": service.name,
            "place": f"{place}/{len(everyone)}",
            "queues": found.true.count,
        }
        if not found.is_right:
            wrong += 1
            extra |= {
                "kept": found.kept.count,
                "wrong_buckets": len(found.wrong_buckets),
                "wrong_hashes": found.wrong_hashes,
            }
            log.warning("the digest of a service was wrong, and is put right", extra=extra)
        else:
            log.info("the digest of a service is right", extra=extra)
    log.info("digests recomputed", extra={"services": len(everyone), "wrong": wrong})
    return wrong


def _id(text: str) -> bytes:
    try:
        return id_of(text)
    except Malformed:
        return b""
