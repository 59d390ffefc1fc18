"""Room: spark. `audit`: the digests of all services recomputed from their associations, ids hashed anew.

Three things must agree: what the associations' ids hash to, the hashes stored beside them, and the 256
bucket digests that are kept for each service. Where a client's own list is given, it must agree too.
"""

import asyncio
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from moorline.catalog.address import OPEN_ERRORS, unreachable
from moorline.catalog.location import CatalogLocation
from moorline.core.sets.digest import Digest
from moorline.errors import ConfigError, DriftFound
from moorline.limits import AUDIT_PIECE_ROWS, AUDIT_PREFIXES_PER_TASK, PIPELINE_TASKS_MIN
from moorline.spark.id_sets import Side, hashed
from moorline.spark.jobs.diff import diff, digest_of
from moorline.spark.jobs.watching import Seen, nobody, watched

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ASSOCIATIONS = """
select a.service, a.queue, a.hash_high, a.hash_low from moorline.association a
where ((a.hash_high >> 56) & 255) between $1 and $2
"""

ONE_BUCKET = """
select a.queue from moorline.association a
where a.service = $1 and ((a.hash_high >> 56) & 255) = $2
"""

SERVICES = "select number, name from moorline.service order by name"

KEPT = """
select * from (
    select service, bucket, sum(count)::bigint as count, bit_xor(hash_high) as high, bit_xor(hash_low) as low
    from moorline.service_bucket group by service, bucket
) as kept
"""


class Audited(msgspec.Struct, frozen=True):
    """One service: its kept digest, the recomputed one, and stored hashes that are not their ids'.

    `wrong_buckets` are the first bytes of hashes whose kept digest is wrong. Where a client's list is
    given, `client` is its digest; where that differs, it is known how many ids only one of the two has.
    """

    service: str
    kept: Digest
    recomputed: Digest
    wrong_hashes: int
    wrong_buckets: list[int] = []
    client: Digest | None = None
    only_client: int = 0
    only_node: int = 0

    @property
    def is_kept_right(self) -> bool:
        """What the node keeps is what its associations say."""
        return self.kept == self.recomputed and not (self.wrong_hashes or self.wrong_buckets)

    @property
    def is_client_right(self) -> bool:
        """The client has the same list, if one was given."""
        return self.client is None or self.client == self.recomputed

    @property
    def is_right(self) -> bool:
        return self.is_kept_right and self.is_client_right


def check(found: list[Audited]) -> None:
    """Raises if something differs, or if there was nothing that could."""
    if not any(one.recomputed.count or one.kept.count or one.client for one in found):
        raise DriftFound(
            "nothing was proven: there is no service in this catalog, or none has a queue"
        )
    parts = []
    hashes = [one for one in found if one.wrong_hashes]
    if hashes:
        wrong = sum(one.wrong_hashes for one in hashes)
        parts.append(
            f"{wrong:,} ids are stored beside a hash that is not theirs, of {_count(hashes, found)}, the "
            f"first is {hashes[0].service}: `moor service recompute` hashes them anew; then the client's "
            "next start, or `moor service repair` with its list, brings back the queues that were meant"
        )
    kept = [one for one in found if not one.is_kept_right and not one.wrong_hashes]
    if kept:
        parts.append(
            f"what is kept is wrong for {_count(kept, found)}, the first is {kept[0].service}: "
            "`moor service recompute` makes it true; then the client's next start, or `moor service repair` "
            "with its list, brings back associations that are gone"
        )
    clients = [one for one in found if not one.is_client_right]
    if clients:
        first = clients[0]
        parts.append(
            f"client and node differ for {_count(clients, found)}, the first is {first.service} "
            f"({first.only_client:,} ids only at the client, {first.only_node:,} only at the node): "
            "decide first which of the two is right; `moor service verify` shows the difference, "
            "`moor service repair` makes the node equal to the client's list"
        )
    if parts:
        raise DriftFound("; ".join(parts))


def _count(some: list[Audited], found: list[Audited]) -> str:
    return f"{len(some)} of {len(found)} {'service' if len(found) == 1 else 'services'}"


class AssociationAudit(DataSource):
    """`moorline_audit`: internal to the job. One row for each service and task."""

    @classmethod
    def name(cls) -> str:
        return "moorline_audit"

    def schema(self) -> str:
        return "service int, bucket int, count long, high long, low long, wrong long"

    def reader(self, schema: StructType) -> "AuditReader":  # noqa: ARG002
        return AuditReader(CatalogLocation(self.options["dsn"], self.options["file"]))


class _Partition(InputPartition):
    def __init__(self, first: int) -> None:
        super().__init__(None)
        self.first = first


class AuditReader(DataSourceReader):
    def __init__(self, catalog: CatalogLocation) -> None:
        self._catalog = catalog

    def partitions(self) -> list[InputPartition]:
        return [_Partition(first) for first in range(0, 256, AUDIT_PREFIXES_PER_TASK)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Partition)
        yield asyncio.run(_audited(self._catalog, partition.first))


async def _audited(catalog: CatalogLocation, first: int) -> pa.RecordBatch:
    """The associations whose hashes begin so: digests by service and first byte."""
    found: dict[tuple[int, int], _Sum] = {}
    connection = await _connected(catalog)
    try:
        async with connection.transaction(readonly=True):
            cursor = await connection.cursor(
                ASSOCIATIONS, first, first + AUDIT_PREFIXES_PER_TASK - 1
            )
            while rows := await cursor.fetch(AUDIT_PIECE_ROWS):
                _add(found, rows)
    finally:
        await connection.close()
    rows = [
        (service, bucket, one.count, *one.halves.view(np.int64).tolist(), one.wrong)
        for (service, bucket), one in found.items()
    ]
    columns = [pa.array([row[at] for row in rows], kind) for at, kind in enumerate(_KINDS)]
    return pa.record_batch(columns, names=["service", "bucket", "count", "high", "low", "wrong"])


_KINDS = [pa.int32(), pa.int32(), pa.int64(), pa.int64(), pa.int64(), pa.int64()]


class _Sum:
    def __init__(self) -> None:
        self.count = 0
        self.wrong = 0
        self.halves = np.zeros(2, np.uint64)


def _add(found: dict[tuple[int, int], _Sum], rows: list[Any]) -> None:
    ids = pa.array([row[1] for row in rows], pa.binary())
    stored = np.array([(row[2], row[3]) for row in rows], np.int64).view(np.uint64)
    hashes = hashed(ids)
    wrong = (stored != hashes).any(axis=1)
    services = np.array([row[0] for row in rows], np.int64)
    # By the stored hash: that is the bucket which keeps it.
    keys = (services << 8) | (stored[:, 0] >> np.uint64(56)).astype(np.int64)
    order = np.argsort(keys, kind="stable")
    starts = np.concatenate([[0], np.flatnonzero(np.diff(keys[order])) + 1])
    mixed = np.bitwise_xor.reduceat(hashes[order], starts, axis=0)
    counts = np.diff(np.append(starts, len(keys)))
    wrongs = np.add.reduceat(wrong[order].astype(np.int64), starts)
    for place, start in enumerate(starts):
        key = int(keys[order[start]])
        one = found.setdefault((key >> 8, key & 255), _Sum())
        one.count += int(counts[place])
        one.wrong += int(wrongs[place])
        one.halves ^= mixed[place]


async def _connected(catalog: CatalogLocation) -> Any:
    import asyncpg

    dsn = catalog.address()
    try:
        return await asyncpg.connect(dsn)
    except OPEN_ERRORS as error:
        raise unreachable(dsn, error) from None


async def _fetch(catalog: CatalogLocation, statement: str) -> list[Any]:
    import asyncpg

    connection = await _connected(catalog)
    try:
        return list(await connection.fetch(statement))
    except asyncpg.UndefinedTableError:
        raise ConfigError("this database holds no catalog of Moorline") from None
    finally:
        await connection.close()


def audit(
    spark: "SparkSession",
    catalog: CatalogLocation,
    clients: Mapping[str, Side] | None = None,
    seen: Seen = nobody,
) -> list[Audited]:
    """All services, by name; those in `clients` also against the lists of their clients."""
    services = services_of(catalog, clients or {})
    recomputed, wrong_hashes = _recomputed(spark, catalog, seen)
    kept: dict[int, dict[int, Digest]] = {}
    for row in asyncio.run(_fetch(catalog, KEPT)):
        digest = _digest(row["count"], row["high"], row["low"])
        if digest != Digest.empty():
            kept.setdefault(row["service"], {})[row["bucket"]] = digest
    audited = []
    for row in services:
        number, name = row["number"], row["name"]
        mine, true = kept.setdefault(number, {}), recomputed.setdefault(number, {})
        # Services change while we read: what seems wrong is looked at again, both sides at one moment.
        for bucket in _wrong(mine, true):
            mine[bucket], true[bucket] = asyncio.run(_at_once(catalog, number, bucket))
        one = Audited(
            name, _total(mine), _total(true), wrong_hashes.get(number, 0), _wrong(mine, true)
        )
        side = (clients or {}).get(name)
        audited.append(one if side is None else _with_client(spark, catalog, one, side, seen))
    return audited


def _with_client(
    spark: "SparkSession", catalog: CatalogLocation, one: Audited, side: Side, seen: Seen
) -> Audited:
    """The client's list too; what it differs by is counted only where it does."""
    one = msgspec.structs.replace(one, client=digest_of(spark, side, seen))
    if one.is_client_right:
        return one
    node = Side.of_catalog(catalog, one.service)
    found = diff(spark, side, node, tasks=PIPELINE_TASKS_MIN, limit=0, seen=seen)
    return msgspec.structs.replace(one, only_client=found.only_left, only_node=found.only_right)


def services_of(catalog: CatalogLocation, clients: Mapping[str, Side]) -> list[Any]:
    """Those of the catalog, if it can be reached, and has those that clients are given for."""
    services = asyncio.run(_fetch(catalog, SERVICES))
    names = [row["name"] for row in services]
    for name in clients:
        if name not in names:
            known = ", ".join(names[:10]) or "none"
            raise ConfigError(f"there is no service {name!r} in the catalog; there are {known}")
    return services


def _recomputed(
    spark: "SparkSession", catalog: CatalogLocation, seen: Seen
) -> tuple[dict[int, dict[int, Digest]], dict[int, int]]:
    """The digests of all buckets from the ids themselves; and how many stored hashes are wrong."""
    spark.dataSource.register(AssociationAudit)
    place = {"dsn": catalog.dsn, "file": catalog.file}
    frame = spark.read.format("moorline_audit").options(**place).load()
    digests: dict[int, dict[int, Digest]] = {}
    wrong: dict[int, int] = {}
    for row in watched(spark, frame.collect, seen):
        buckets = digests.setdefault(row.service, {})
        buckets[row.bucket] = _digest(row["count"], row.high, row.low)
        wrong[row.service] = wrong.get(row.service, 0) + row.wrong
    return digests, wrong


def _wrong(kept: Mapping[int, Digest], true: Mapping[int, Digest]) -> list[int]:
    return [
        bucket
        for bucket in range(256)
        if kept.get(bucket, Digest.empty()) != true.get(bucket, Digest.empty())
    ]


async def _at_once(catalog: CatalogLocation, service: int, bucket: int) -> tuple[Digest, Digest]:
    """The kept and the true digest of one bucket, as they are together."""
    connection = await _connected(catalog)
    try:
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            row = await connection.fetchrow(
                KEPT + " where service = $1 and bucket = $2", service, bucket
            )
            ids = await connection.fetch(ONE_BUCKET, service, bucket)
    finally:
        await connection.close()
    kept = Digest.empty() if row is None else _digest(row["count"], row["high"], row["low"])
    return kept, Digest.of(one["queue"] for one in ids)


def _total(buckets: Mapping[int, Digest]) -> Digest:
    total = Digest.empty()
    for digest in buckets.values():
        total = total.merge(digest)
    return total


def _digest(count: int, high: int, low: int) -> Digest:
    half = 8
    return Digest(
        count,
        high.to_bytes(half, "big", signed=True) + low.to_bytes(half, "big", signed=True),
    )
