"""Room: spark. Work in Spark's workers that goes past the JVM: items in, small results out.

    run(spark, digest_files, [item, …], FileDigests, seen)

A task calls a function of the jobs with one item and sends back what it yields, as JSON. Built on a data
source, and not on RDDs or mapInArrow: so it runs through Spark Connect as well, and needs no pandas.
"""

import importlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

import msgspec
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from moorline.spark.jobs.watching import Seen, nobody, watched

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Result = TypeVar("Result")

Work = Callable[[bytes], Iterator[object]]
"""Takes an item as JSON; what it yields goes back as JSON."""


class TaskSource(DataSource):
    """`moorline_tasks`: internal to the jobs."""

    @classmethod
    def name(cls) -> str:
        return "moorline_tasks"

    def schema(self) -> str:
        return "result string"

    def reader(self, schema: StructType) -> "TaskReader":  # noqa: ARG002
        return TaskReader(self.options["work"], self.options["items"])


class _Item(InputPartition):
    def __init__(self, item: bytes) -> None:
        super().__init__(None)
        self.item = item


class TaskReader(DataSourceReader):
    def __init__(self, work: str, items: str) -> None:
        self._work = work
        self._items = items

    def partitions(self) -> list[InputPartition]:
        return [
            _Item(bytes(item)) for item in msgspec.json.decode(self._items, type=list[msgspec.Raw])
        ]

    def read(self, partition: InputPartition) -> Iterator[tuple[str]]:
        assert isinstance(partition, _Item)
        module, _, function = self._work.partition(":")
        work: Work = getattr(importlib.import_module(module), function)
        for result in work(partition.item):
            yield (msgspec.json.encode(result).decode(),)


def run(
    spark: "SparkSession",
    work: Work,
    items: Sequence[object],
    result: type[Result],
    seen: Seen = nobody,
) -> list[Result]:
    """Every item in a task of its own; all results, in no order."""
    if not items:
        return []
    spark.dataSource.register(TaskSource)
    frame = (
        spark.read.format("moorline_tasks")
        .option("work", f"{work.__module__}:{work.__qualname__}")
        .option("items", msgspec.json.encode(items).decode())
        .load()
    )
    rows = watched(spark, frame.collect, seen)
    return [msgspec.json.decode(row.result, type=result) for row in rows]
