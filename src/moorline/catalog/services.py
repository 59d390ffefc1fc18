"""Room: catalog. Services, their associations, and the digests that are changed in the same transaction.

The queues of a service are in *parts*, one for each home that has some of them: a digest is of a part,
and the sum of all parts is the service's. A change names the epoch of the subscriber that asks for it,
and the process that makes it; who was taken over changes nothing (`associate` in migration 0017).

The catalog speaks signed 64-bit halves of hashes; everything above speaks `Digest` and unsigned numbers.
"""

from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import NamedTuple

import msgspec
import numpy as np

from moorline.catalog.catalog import Catalog
from moorline.catalog.statements import statement
from moorline.core.sets.digest import Digest
from moorline.core.sets.prefix import Prefix, RangeDigest
from moorline.core.sets.sketch import Words
from moorline.errors import IdentityTaken, ServiceTaken
from moorline.limits import NODE_GONE_MS, SERVICE_PARTS_PER_PAGE

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
SUM = statement("service_sum")
PARTS = statement("service_parts")
HOMES = statement("service_homes")
TAKE = statement("service_take")
EPOCHS = statement("service_epochs")

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
    epoch: int = 0
    """Of whoever subscribed last; 0 before anybody did."""

    def at(self, home: bytes) -> "Part":
        return Part(self.number, home)


class Part(NamedTuple):
    """The queues that a service has at one home."""

    service: int
    home: bytes


class PartRow(msgspec.Struct, frozen=True):
    """A home as a service sees it: where it is, and what is kept of the part there."""

    home: bytes
    name: str
    """Empty where no node ever had a home of that number."""
    node_id: bytes
    node: str
    addresses: list[str]
    is_alive: bool
    digest: Digest


class Epoch(NamedTuple):
    epoch: int
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

    async def digest(self, part: Part) -> Digest:
        row = await self._catalog.fetchrow(DIGEST, *part)
        return _digest(row["count"], row["high"], row["low"])

    async def sum(self, service: int) -> Digest:
        """Of all parts."""
        row = await self._catalog.fetchrow(SUM, service)
        return _digest(row["count"], row["high"], row["low"])

    async def parts(self, service: int, after: bytes) -> list[PartRow]:
        """A page of all homes behind that one, with what the service has there; by their numbers."""
        rows = await self._catalog.fetch(
            PARTS, service, after, NODE_GONE_MS, SERVICE_PARTS_PER_PAGE
        )
        return [
            PartRow(
                home=row["home"],
                name=row["name"],
                node_id=row["node_id"],
                node=row["node"],
                addresses=list(row["addresses"]),
                is_alive=row["is_alive"],
                digest=_digest(row["count"], row["high"], row["low"]),
            )
            for row in rows
        ]

    async def parts_of(self, service: int) -> list[Part]:
        """Those that have queues, or a digest that says so."""
        rows = await self._catalog.fetch(HOMES, service)
        return [Part(service, row["home"]) for row in rows]

    async def take(self, service: int) -> int:
        """The epoch of a new subscriber: all older ones are fenced, at every node."""
        return int(await self._catalog.fetchval(TAKE, service))

    async def epochs(self, services: Sequence[int]) -> dict[int, Epoch]:
        rows = await self._catalog.fetch(EPOCHS, list(services))
        return {row["number"]: Epoch(row["epoch"], row["is_disabled"]) for row in rows}

    async def recompute(self, service: int) -> None:
        """Puts the digests of all parts right, whatever they were."""
        await self._catalog.execute("select moorline.recompute($1)", service)

    async def disable(self, service: int, *, is_disabled: bool) -> None:
        await self._catalog.execute(DISABLE, service, is_disabled)

    # --- changes ----------------------------------------------------------------------------------

    async def associate(
        self, part: Part, queues: Sequence[bytes], hashes: Words, *, epoch: int = 0
    ) -> Words:
        """Associates queues, given with the halves of their hashes; the high halves of what is new.

        `epoch` is the subscriber's for whom it is done; 0 asks nobody. Raises `ServiceTaken`, and changes
        nothing, if another one has subscribed since.
        """
        changed = await self._catalog.fetchval(
            "select moorline.associate($1, $2, $3, $4, $5, $6, $7, $8)",
            *part,
            epoch,
            *self._catalog.acting_as,
            list(queues),
            signed(hashes[:, 0]),
            signed(hashes[:, 1]),
        )
        if changed is None:
            raise await self._fenced()
        return _unsigned(changed)

    async def dissociate(self, queues: Sequence[bytes]) -> dict[int, Words]:
        """Removes associations, whosever they were; the high halves of what is gone, by service."""
        if not queues:
            return {}
        rows = await self._catalog.fetch("select * from moorline.dissociate($1)", list(queues))
        gone: dict[int, list[Words]] = {}
        for row in rows:
            gone.setdefault(row["service"], []).append(_unsigned(row["highs"]))
        return {service: np.concatenate(highs) for service, highs in gone.items()}

    async def dissociate_from(self, part: Part, queues: Sequence[bytes], *, epoch: int) -> Words:
        """Those that are of the part leave it; as `associate`."""
        if not queues:
            return _unsigned([])
        changed = await self._catalog.fetchval(
            "select moorline.dissociate_from($1, $2, $3, $4, $5, $6)",
            *part,
            epoch,
            *self._catalog.acting_as,
            list(queues),
        )
        if changed is None:
            raise await self._fenced()
        return _unsigned(changed)

    async def _fenced(self) -> ServiceTaken | IdentityTaken:
        if not await self._catalog.is_ours():
            return self._catalog.identity_taken()
        return ServiceTaken("another session of this service took over: nothing was changed")

    # --- what a reconciliation asks ---------------------------------------------------------------

    async def ranges(self, part: Part, prefixes: Sequence[Prefix]) -> list[RangeDigest]:
        if all(prefix.bits == 8 for prefix in prefixes):
            kept = {row["bucket"]: row for row in await self._catalog.fetch(BUCKETS, *part)}
            return [_range(kept.get(prefix.value)) for prefix in prefixes]
        rows = await self._catalog.fetch(RANGES, *part, *_bounds(prefixes))
        return [RangeDigest(row["count"], row["hash"] & (1 << 64) - 1) for row in rows]

    async def lists(self, part: Part, prefixes: Sequence[Prefix]) -> list[bytes]:
        rows = await self._catalog.fetch(LISTS, *part, *_bounds(prefixes))
        return [row["highs"] for row in rows]

    async def highs(self, part: Part) -> AsyncIterator[Words]:
        """All hashes of a part, a slice at a time."""
        step = (1 << 64) // SCAN_SLICES
        for number in range(SCAN_SLICES):
            first = FIRST + number * step
            data = await self._catalog.fetchval(HIGHS, *part, first, first + step - 1)
            yield np.frombuffer(data, ">u8").astype(np.uint64)

    async def queues_in(self, part: Part, prefixes: Sequence[Prefix]) -> list[bytes]:
        """The queues that prefixes name; one that names several is passed over."""
        rows = await self._catalog.fetch(QUEUES_IN, *part, *_bounds(prefixes))
        return [row["queue"] for row in rows]

    async def pages(self, part: Part, size: int) -> AsyncIterator[list[bytes]]:
        """All queues of a part, a page at a time, in the order of their hashes."""
        high, queue = FIRST, b""
        while True:
            rows = await self._catalog.fetch(PAGE, *part, high, queue, size)
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
