"""A streaming query that is a member of a group, and whose driver may be killed in a batch; run as a program.

    python -m tests.spark.group_driver ADDRESS GROUP FOLDER BATCH

The driver is killed when a task has read all its rows of that batch; -1 is never.
"""

import sys
from collections.abc import Iterator

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType
from tests.spark.killed_driver import kill_driver

import moorline.spark
from moorline.spark.group_reader import GroupStreamReader, stream_reader
from moorline.spark.session import SHORT_JOB
from moorline.spark.source import MoorlineSource


class KilledReader(GroupStreamReader):
    batch = -1

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield from super().read(partition)
        context = TaskContext.get()
        assert context is not None
        if int(context.getLocalProperty("streaming.sql.batchId") or -1) == self.batch:
            kill_driver()


class KilledSource(MoorlineSource):
    @classmethod
    def name(cls) -> str:
        return "killed"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        given = {name: value for name, value in self.options.items() if name != "batch"}
        reader = stream_reader(given, schema)
        reader.__class__ = KilledReader
        assert isinstance(reader, KilledReader)
        reader.batch = int(self.options["batch"])
        return reader


def main(address: str, group: str, folder: str, batch: str) -> None:
    spark = moorline.spark.session(master="local[2]", config=SHORT_JOB)
    spark.dataSource.register(KilledSource)
    rows = (
        spark.readStream.format("killed")
        .options(address=address, group=group, batch=batch, maxOffsetsPerTrigger="200")
        .load()
    )
    query = (
        rows.writeStream.format("parquet")
        .option("path", f"{folder}/out")
        .option("checkpointLocation", f"{folder}/state")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
