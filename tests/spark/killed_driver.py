"""A streaming query from JSON files to a topic, whose driver is killed at a given point; run as a program.

    python -m tests.spark.killed_driver ADDRESS INPUT CHECKPOINT POINT

The point is `STEP:BATCH`, where the step is one of

    fails    a task of the batch stages its rows and then fails, once; it is tried again
    staged   the driver is killed when a task has staged its rows
    before   … before the commit
    after    … after the commit, which the driver's checkpoint does not know of yet
"""

import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

import moorline.spark
from moorline.spark.session import SHORT_JOB
from moorline.spark.source import MoorlineSource
from moorline.spark.writer import StreamWriter, stream_writer


class KilledWriter(DataSourceStreamArrowWriter):
    def __init__(self, writer: DataSourceStreamArrowWriter, point: str) -> None:
        self._writer = writer
        self._step, _, batch = point.partition(":")
        self._batch = int(batch or -1)

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        message = self._writer.write(iterator)
        context = TaskContext.get()
        assert context is not None
        if int(context.getLocalProperty("streaming.sql.batchId") or -1) == self._batch:
            if self._step == "staged":
                kill_driver()
            if self._step == "fails" and context.attemptNumber() == 0:
                raise RuntimeError("this attempt fails when all is staged")
        return message

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        if (self._step, self._batch) == ("before", batchId):
            kill_driver()
        self._writer.commit(list(messages), batchId)
        if (self._step, self._batch) == ("after", batchId):
            kill_driver()

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        self._writer.abort(list(messages), batchId)


class KilledSource(MoorlineSource):
    @classmethod
    def name(cls) -> str:
        return "killed"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802
        options: Mapping[str, str] = {
            name: value for name, value in self.options.items() if name != "point"
        }
        writer = stream_writer(options, schema, overwrite)
        assert isinstance(writer, StreamWriter)
        return KilledWriter(writer, self.options["point"])


def kill_driver() -> None:
    """The Java process above this one is the driver."""
    process = os.getpid()
    while Path(f"/proc/{process}/comm").read_text().strip() != "java":
        process = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(process, signal.SIGKILL)
    os._exit(1)  # else whoever waits for the end of the driver's output waits for us


def main(address: str, folder: str, checkpoint: str, point: str) -> None:
    spark = moorline.spark.session(master="local[2,3]", config=SHORT_JOB)
    spark.dataSource.register(KilledSource)
    rows = (
        spark.readStream.schema("key string, value string")
        .option("maxFilesPerTrigger", 1)
        .json(folder)
        .repartition(2, "key")
    )
    query = (
        rows.writeStream.format("killed")
        .option("address", address)
        .option("topic", "streamed")
        .option("point", point)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
