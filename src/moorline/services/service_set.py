"""Room: services. The part of a service at this node's home as an answerer asks for it: Postgres answers.

For the service itself the kept digests answer, which were proven since it was opened. For an operator the
associations themselves do: what is kept may be what is wrong.
"""

from collections.abc import Sequence

from moorline.catalog.service_audit import OperatorServices
from moorline.catalog.services import OpenedService, Services
from moorline.core.sets.asker import FIRST_BITS
from moorline.core.sets.digest import Digest
from moorline.core.sets.estimate import Estimate
from moorline.core.sets.prefix import Prefix, RangeDigest
from moorline.core.sets.sketch import Salt, Sketch
from moorline.services.sketches import Sketches


class ServiceSet:
    """By what is kept."""

    def __init__(self, services: Services, sketches: Sketches, service: OpenedService) -> None:
        self.salt = Salt(service.salt)
        self._services = services
        self._sketches = sketches
        self._service = service
        self._part = service.at(sketches.home)

    async def digest(self) -> Digest:
        return await self._services.digest(self._part)

    async def digests(self, prefixes: Sequence[Prefix]) -> list[RangeDigest]:
        return await self._services.ranges(self._part, prefixes)

    async def estimate(self, digest: Digest) -> Estimate:
        return (await self._sketches.get(self._service, digest)).estimate

    async def sketch(self, digest: Digest, cells: int) -> Sketch:
        kept = await self._sketches.get(self._service, digest)
        return await self._sketches.of_size(self._service, kept, cells)

    async def ids(self, prefixes: Sequence[Prefix]) -> list[bytes]:
        return await self._services.lists(self._part, prefixes)


class AuditedServiceSet(ServiceSet):
    """By the associations, hashed anew."""

    def __init__(self, rows: OperatorServices, sketches: Sketches, service: OpenedService) -> None:
        super().__init__(rows, sketches, service)
        self._rows = rows

    async def digest(self) -> Digest:
        return await self._rows.recomputed(self._part)

    async def digests(self, prefixes: Sequence[Prefix]) -> list[RangeDigest]:
        if any(prefix.bits != FIRST_BITS for prefix in prefixes):
            return await super().digests(prefixes)
        found = await self._rows.checked(self._part)
        return [found.buckets[prefix.value] for prefix in prefixes]
