"""Streaming queries from JSON files, whose driver is killed at a given point; run as a program.

    python -m tests.spark.killed_driver ADDRESS INPUT CHECKPOINT QUEUE POINT OF_QUEUE

The first query goes to a topic, and when it is through a second one to a queue; each has its point. That is
`STEP:BATCH`, where the step is one of

    fails    a task of the batch stages its rows and then fails, once; it is tried again
    begun    the driver is killed before a task has staged anything
    before   … when all is staged, before the commit
    sent     … when the commit is on its way to the node, and not answered
    after    … after the commit, which the driver's checkpoint does not know of yet
    never

Who comes to the point leaves a file `STEP-BATCH` in the folder of the query's checkpoint.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

import moorline.spark
from moorline.spark import writer as writing
from moorline.spark.node_link import Links
from moorline.spark.options import Endpoint
from moorline.spark.session import SHORT_JOB
from moorline.spark.source import MoorlineSource
from moorline.spark.writer import StreamWriter, stream_writer
from moorline.wire.message import Answer, Message
from moorline.wire.stream_file import ClusterDescribed, DescribeCluster


class KilledWriter(DataSourceStreamArrowWriter):
    def __init__(self, writer: DataSourceStreamArrowWriter, point: str, checkpoint: str) -> None:
        self._writer = writer
        self._step, _, batch = point.partition(":")
        self._batch = int(batch or -1)
        self._mark = Path(checkpoint) / point.replace(":", "-")

    def _die(self) -> None:
        self._mark.touch()
        kill_driver()

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        context = TaskContext.get()
        assert context is not None
        is_here = int(context.getLocalProperty("streaming.sql.batchId") or -1) == self._batch
        if is_here and self._step == "begun":
            self._die()
        message = self._writer.write(iterator)
        if is_here and self._step == "fails" and context.attemptNumber() == 0:
            self._mark.touch()
            raise RuntimeError("this attempt fails when all is staged")
        return message

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        if (self._step, self._batch) == ("before", batchId):
            self._die()
        if (self._step, self._batch) == ("sent", batchId):
            writing._once = partial(send_and_die, self._die)  # type: ignore[assignment]
        self._writer.commit(list(messages), batchId)
        if (self._step, self._batch) == ("after", batchId):
            self._die()

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
        return KilledWriter(writer, self.options["point"], self.options["checkpointLocation"])


def send_and_die(
    die: Callable[[], None], endpoint: Endpoint, make: Callable[[int], Message], reply: type[Answer]
) -> None:
    """The driver is gone when the node has heard all of a call, and nobody hears the answer."""
    links = Links(endpoint)
    # An open link sends what it is told in the same turn of its loop.
    links.call((endpoint.address,), DescribeCluster, ClusterDescribed)
    links.begin(links.ask((endpoint.address,), make, reply))
    for _ in range(3):
        links.run(_one_turn())
    die()


async def _one_turn() -> None:
    await asyncio.sleep(0)


def kill_driver() -> None:
    """The Java process above this one is the driver."""
    process = os.getpid()
    while Path(f"/proc/{process}/comm").read_text().strip() != "java":
        process = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(process, signal.SIGKILL)
    os._exit(1)  # else whoever waits for the end of the driver's output waits for us


def main(
    address: str, folder: str, checkpoint: str, queue: str, point: str, point_of_queue: str
) -> None:
    spark = moorline.spark.session(master="local[2,3]", config=SHORT_JOB)
    spark.dataSource.register(KilledSource)
    rows = (
        spark.readStream.schema("key string, value string")
        .option("maxFilesPerTrigger", 1)
        .json(folder)
        .repartition(2, "key")
    )
    few = rows.where("int(value) % 20 = 0").select("value")
    for frame, target, where in (
        (rows, {"topic": "streamed", "point": point}, "topic"),
        (few, {"queue": queue, "point": point_of_queue}, "queue"),
    ):
        query = (
            frame.writeStream.format("killed")
            .option("address", address)
            .options(**target)
            .option("checkpointLocation", f"{checkpoint}/{where}")
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
