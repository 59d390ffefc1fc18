"""Room: spark. `audit`: the digests of all services recomputed from their associations, ids hashed anew.

Three things must agree: what the associations' ids hash to, the hashes stored beside them, and the 256 bucket digests that are
kept for each service. Where a client's own list is given, it must agree too.
"""

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from moorline.core.digest import Digest
from moorline.spark.id_sets import hashed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PREFIXES_PER_TASK = 8
"""First bytes of the hash that one task reads: 32 tasks, each a range of the index."""

ASSOCIATIONS = """
select a.service, a.queue, a.hash_high, a.hash_low from moorline.association a
where ((a.hash_high >> 56) & 255) between $1 and $2
"""

KEPT = """
select s.number, s.name, coalesce(sum(b.count), 0)::bigint as count,
       coalesce(bit_xor(b.hash_high), 0) as high, coalesce(bit_xor(b.hash_low), 0) as low
from moorline.service s left join moorline.service_bucket b on b.service = s.number
group by s.number, s.name order by s.name
"""


class Audited(msgspec.Struct, frozen=True):
    """One service: its kept digest, the recomputed one, and stored hashes that are not their ids'."""

    service: str
    kept: Digest
    recomputed: Digest
    wrong_hashes: int

    @property
    def is_right(self) -> bool:
        return self.kept == self.recomputed and not self.wrong_hashes


class AssociationAudit(DataSource):
    """`moorline_audit`: internal to the job. One row for each service and task."""

    @classmethod
    def name(cls) -> str:
        return "moorline_audit"

    def schema(self) -> str:
        return "service int, count long, high long, low long, wrong long"

    def reader(self, schema: StructType) -> "AuditReader":  # noqa: ARG002
        return AuditReader(self.options["catalog"])


class _Partition(InputPartition):
    def __init__(self, first: int) -> None:
        super().__init__(None)
        self.first = first


class AuditReader(DataSourceReader):
    def __init__(self, catalog: str) -> None:
        self._catalog = catalog

    def partitions(self) -> list[InputPartition]:
        return [_Partition(first) for first in range(0, 256, PREFIXES_PER_TASK)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Partition)
        rows = asyncio.run(_fetch(self._catalog, ASSOCIATIONS, partition.first))
        if not rows:
            return
        services = np.array([row[0] for row in rows], np.int32)
        ids = pa.array([row[1] for row in rows], pa.binary())
        stored = np.array([(row[2], row[3]) for row in rows], np.int64).view(np.uint64)
        hashes = hashed(ids)
        wrong = (stored != hashes).any(axis=1)
        found = []
        for service in np.unique(services):
            own = services == service
            high, low = np.bitwise_xor.reduce(hashes[own], axis=0).view(np.int64)
            found.append((service, own.sum(), high, low, wrong[own].sum()))
        columns = [pa.array([int(row[at]) for row in found], kind) for at, kind in _COLUMNS]
        yield pa.record_batch(columns, names=["service", "count", "high", "low", "wrong"])


_COLUMNS = [(0, pa.int32()), *((at, pa.int64()) for at in range(1, 5))]


async def _fetch(catalog: str, statement: str, *values: int) -> list[Any]:
    import asyncpg

    connection = await asyncpg.connect(catalog)
    try:
        bounds = (values[0], values[0] + PREFIXES_PER_TASK - 1) if values else ()
        return list(await connection.fetch(statement, *bounds))
    finally:
        await connection.close()


def audit(spark: "SparkSession", catalog: str) -> list[Audited]:
    """All services, by name."""
    from pyspark.sql import functions

    spark.dataSource.register(AssociationAudit)
    rows = (
        spark.read.format("moorline_audit")
        .option("catalog", catalog)
        .load()
        .groupBy("service")
        .agg(
            functions.sum("count").alias("count"),
            functions.bit_xor("high").alias("high"),
            functions.bit_xor("low").alias("low"),
            functions.sum("wrong").alias("wrong"),
        )
        .collect()
    )
    found = {row.service: row for row in rows}
    audited = []
    for kept in asyncio.run(_fetch(catalog, KEPT)):
        row = found.get(kept["number"])
        recomputed = Digest.empty() if row is None else _digest(row["count"], row.high, row.low)
        audited.append(
            Audited(
                kept["name"],
                _digest(kept["count"], kept["high"], kept["low"]),
                recomputed,
                0 if row is None else row.wrong,
            )
        )
    return audited


def _digest(count: int, high: int, low: int) -> Digest:
    half = 8
    return Digest(
        count,
        high.to_bytes(half, "big", signed=True) + low.to_bytes(half, "big", signed=True),
    )
