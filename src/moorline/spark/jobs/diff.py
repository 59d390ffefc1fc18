"""Room: spark. `diff`: what is missing on either side of two sets of ids, of any size.

First 65,536 bucket digests of each side are compared; only the ids of buckets that differ are compared one
by one. Equal sets cost one pass and nothing else. Nobody has taken repeats out of either side: a bucket has
sums beside its XOR.
"""

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from moorline.core.sets.digest import Digest
from moorline.errors import DriftFound
from moorline.limits import PIPELINE_TASKS_MIN
from moorline.spark.id_sets import BUCKETS, SUMS, WITHOUT, Side, check_sides, read_side
from moorline.spark.jobs.archive_location import check_new
from moorline.spark.jobs.watching import Seen, nobody, watched

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Comparison(msgspec.Struct, frozen=True):
    """Both sides' digests, how many buckets differ, and how many rows of each side have no id."""

    left: Digest
    right: Digest
    buckets_differing: int
    without_left: int = 0
    without_right: int = 0

    @property
    def is_equal(self) -> bool:
        return self.left == self.right and not self.buckets_differing


class Found(msgspec.Struct, frozen=True):
    """The result: how many ids only one side has, and the first of them as (id, side)."""

    comparison: Comparison
    only_left: int = 0
    only_right: int = 0
    ids: list[tuple[bytes, str]] = []

    @property
    def is_equal(self) -> bool:
        return self.comparison.is_equal

    @property
    def has_repeats(self) -> bool:
        """The sides are the same sets, and one of them has an id more than once."""
        return not self.is_equal and not self.only_left and not self.only_right


def check_before(left: Side, right: Side, out: str) -> None:
    """Refuses what could only fail: a side that has no ids, an `out` that is there or cannot be made."""
    check_sides(left, right)
    if out:
        check_new(out)


def diff(
    spark: "SparkSession",
    left: Side,
    right: Side,
    *,
    tasks: int,
    limit: int,
    out: str = "",
    seen: Seen = nobody,
) -> Found:
    """Compares two sets; the ids that differ are counted, the first `limit` are named, all go to `out`."""
    from pyspark.sql import functions

    comparison, buckets = compare(spark, left, right, tasks=tasks, seen=seen)
    if comparison.is_equal:
        return Found(comparison)
    frame = differences(spark, left, right, buckets, tasks=tasks).persist()
    try:
        grouped = frame.groupBy("only").agg(functions.count("*").alias("count"))
        counts = {row.only: row["count"] for row in watched(spark, grouped.collect, seen)}
        first = frame.orderBy("only", "id").limit(limit).collect() if limit else []
        if out:
            frame.write.mode("errorifexists").parquet(out)
    finally:
        frame.unpersist()
    return Found(
        comparison,
        counts.get("left", 0),
        counts.get("right", 0),
        [(bytes(row.id), row.only) for row in first],
    )


def check(found: Found) -> None:
    """Raises if the sets differ, or if there was nothing to compare."""
    if not (found.comparison.left.count or found.comparison.right.count):
        raise DriftFound("nothing was compared: neither side has an id")
    if found.has_repeats:
        raise DriftFound(
            "the same ids are on both sides, and one side has some of them twice: compare distinct ids"
        )
    if not found.is_equal:
        raise DriftFound(
            f"{found.only_left} ids are only left, {found.only_right} only right: --out stores them all"
        )


def compare(
    spark: "SparkSession", left: Side, right: Side, *, tasks: int, seen: Seen = nobody
) -> tuple[Comparison, bytes]:
    """Compares by digest; the buckets that differ, as bits."""
    one, without_left = _collected(spark, read_side(spark, left, tasks=tasks), seen)
    other, without_right = _collected(spark, read_side(spark, right, tasks=tasks), seen)
    differing = (one != other).any(axis=1)
    totals = _total(one), _total(other)
    return (
        Comparison(*totals, int(differing.sum()), without_left, without_right),
        np.packbits(differing).tobytes(),
    )


def digest_of(
    spark: "SparkSession", side: Side, seen: Seen = nobody, *, tasks: int = PIPELINE_TASKS_MIN
) -> Digest:
    """The digest of one side."""
    buckets, _ = _collected(spark, read_side(spark, side, tasks=tasks, yields="total"), seen)
    return _total(buckets)


def differences(
    spark: "SparkSession", left: Side, right: Side, buckets: bytes, *, tasks: int
) -> "DataFrame":
    """(id, side): what only `left` or only `right` has, among the buckets that differ."""
    from pyspark.sql import functions

    one = read_side(spark, left, tasks=tasks, buckets=buckets, yields="ids")
    other = read_side(spark, right, tasks=tasks, buckets=buckets, yields="ids")
    marked = one.withColumn("side", functions.lit(1)).unionAll(
        other.withColumn("side", functions.lit(2))
    )
    sides = marked.groupBy("id").agg(functions.bit_or("side").alias("side"))
    return sides.where("side < 3").select(
        "id", functions.when(sides.side == 1, "left").otherwise("right").alias("only")
    )


def _collected(
    spark: "SparkSession", frame: "DataFrame", seen: Seen
) -> tuple["np.ndarray[tuple[int, int], np.dtype[np.int64]]", int]:
    """The SUMS of every bucket, and how many rows have no id."""
    from pyspark.sql import functions

    summed = frame.groupBy("bucket").agg(
        *(functions.sum(name).alias(name) for name in ("count", "upper", "lower")),
        *(functions.bit_xor(name).alias(name) for name in ("high", "low")),
    )
    table = watched(spark, summed.toArrow, seen)
    kept = np.zeros((BUCKETS + 1, len(SUMS)), np.int64)
    places = table.column("bucket").to_numpy()
    for at, name in enumerate(SUMS):
        kept[places, at] = table.column(name).to_numpy()
    return kept[:BUCKETS], int(kept[WITHOUT, 0])


def _total(buckets: "np.ndarray[tuple[int, int], np.dtype[np.int64]]") -> Digest:
    words = buckets.view(np.uint64)
    high = int(np.bitwise_xor.reduce(words[:, 1]))
    low = int(np.bitwise_xor.reduce(words[:, 2]))
    return Digest(int(buckets[:, 0].sum()), high.to_bytes(8, "big") + low.to_bytes(8, "big"))
