"""Room: spark. `diff`: what is missing on either side of two sets of ids, of any size.

First 65,536 bucket digests of each side are compared; only the ids of buckets that differ are compared one by one.
Equal sets cost one pass and nothing else.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from moorline.core.digest import Digest
from moorline.spark.id_sets import BUCKETS, Side, read_side

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Comparison(msgspec.Struct, frozen=True):
    """Both sides' digests, and how many buckets differ."""

    left: Digest
    right: Digest
    buckets_differing: int

    @property
    def is_equal(self) -> bool:
        return self.left == self.right and not self.buckets_differing


def compare(
    spark: "SparkSession", left: Side, right: Side, *, tasks: int, said: Callable[[str], None]
) -> tuple[Comparison, bytes]:
    """Compares by digest; the buckets that differ, as bits."""
    said("digests of the left side")
    one = _collected(read_side(spark, left, tasks=tasks))
    said("digests of the right side")
    other = _collected(read_side(spark, right, tasks=tasks))
    differing = (one != other).any(axis=1)
    return (
        Comparison(_total(one), _total(other), int(differing.sum())),
        np.packbits(differing).tobytes(),
    )


def differences(
    spark: "SparkSession", left: Side, right: Side, buckets: bytes, *, tasks: int
) -> "DataFrame":
    """(id, side): what only `left` or only `right` has, among the buckets that differ."""
    from pyspark.sql import functions

    one = read_side(spark, left, tasks=tasks, buckets=buckets, ids=True)
    other = read_side(spark, right, tasks=tasks, buckets=buckets, ids=True)
    marked = one.withColumn("side", functions.lit(1)).unionAll(
        other.withColumn("side", functions.lit(2))
    )
    sides = marked.groupBy("id").agg(functions.bit_or("side").alias("side"))
    return sides.where("side < 3").select(
        "id", functions.when(sides.side == 1, "left").otherwise("right").alias("only")
    )


def _collected(frame: "DataFrame") -> "np.ndarray[tuple[int, int], np.dtype[np.int64]]":
    """(count, high, low) of every bucket."""
    from pyspark.sql import functions

    table = (
        frame.groupBy("bucket")
        .agg(
            functions.sum("count").alias("count"),
            functions.bit_xor("high").alias("high"),
            functions.bit_xor("low").alias("low"),
        )
        .toArrow()
    )
    kept = np.zeros((BUCKETS, 3), np.int64)
    places = table.column("bucket").to_numpy()
    for at, name in enumerate(("count", "high", "low")):
        kept[places, at] = table.column(name).to_numpy()
    return kept


def _total(buckets: "np.ndarray[tuple[int, int], np.dtype[np.int64]]") -> Digest:
    words = buckets.view(np.uint64)
    high = int(np.bitwise_xor.reduce(words[:, 1]))
    low = int(np.bitwise_xor.reduce(words[:, 2]))
    return Digest(int(buckets[:, 0].sum()), high.to_bytes(8, "big") + low.to_bytes(8, "big"))
