"""A driver in a process of its own, on a cluster or connected to a server; prints what it found as JSON.

    python -m tests.spark.far_driver MASTER_OR_REMOTE ADDRESS FOLDER STEP…

In a process of its own because a process has one Spark only, and the other tests have theirs.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from tests.spark.publishing import COUNT, message, read

import moorline.spark
from moorline.spark.jobs.archive import ArchiveOptions, archive
from moorline.spark.jobs.node_side import ask
from moorline.spark.jobs.verify import VerifyOptions, verify
from moorline.spark.session import SHORT_JOB

COPIES = 500
QUICK = SHORT_JOB["spark.driver.extraJavaOptions"]
CLUSTER = {
    **SHORT_JOB,
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.executor.extraJavaOptions": QUICK,
    # Both workers have their part of the first job already.
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
}


class Steps:
    """What the tests ask for, by name."""

    def __init__(self, spark: SparkSession, address: str, folder: Path) -> None:
        self._spark = spark
        self._source = {"address": address}
        self._folder = folder

    def read(self) -> dict[str, Any]:
        """Every message as it was published."""
        frame = self._load(includeHeaders="true", minPartitions="6")
        rows = frame.collect()
        # Rows of Connect and of a session of its own differ in type, and not in what they hold.
        is_equal = read(rows) == [message(number) for number in range(COUNT)]
        return {"rows": len(rows), "is_equal": is_equal}

    def path(self, data: str) -> dict[str, Any]:
        """The folder of the node, without asking it."""
        frame = self._spark.read.format("moorline").options(topics="#", path=data).load()
        return {"rows": frame.count()}

    def write(self) -> dict[str, Any]:
        rows = self._spark.range(COPIES).selectExpr(
            "concat('far/', id % 3) as topic",
            "cast(cast(id % 5 as string) as binary) as key",
            "cast(cast(id as string) as binary) as value",
        )
        self._save(rows.repartition(4, "key").sortWithinPartitions("value"))
        return {"rows": COPIES}

    def stream(self) -> dict[str, Any]:
        """A query from topics to a topic, until it has caught up; and again, which finds nothing new."""
        batches = []
        for _ in range(2):
            query = (
                self._spark.readStream.format("moorline")
                .options(topics="orders/#", startingOffsets="earliest", maxOffsetsPerTrigger="1500")
                .options(**self._source)
                .load()
                .selectExpr("'streamed' as topic", "key", "value")
                .writeStream.format("moorline")
                .options(**self._source)
                .option("checkpointLocation", str(self._folder / "checkpoint"))
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination()
            last = query.lastProgress
            batches.append(int(last["batchId"]) if last is not None else -1)
        return {"batches": batches}

    def archive(self) -> dict[str, Any]:
        """The archive, its proof, and the proof of one from which a file was taken."""
        # From here: workers are in folders of their own, and must find it all the same.
        where = os.path.relpath(self._folder / "archive")
        options = ArchiveOptions(where, self._source, compact=False)
        done = archive(self._spark, options, lambda: ask(self._source).seals)
        report = verify(self._spark, VerifyOptions(where, self._source), ask(self._source))
        sealed = {file for file in Path(where).rglob("*.parquet") if "generation=1" in str(file)}
        min(sealed).unlink()
        broken = verify(self._spark, VerifyOptions(where, self._source), ask(self._source))
        repairing = VerifyOptions(where, self._source, repair=True)
        repaired = verify(self._spark, repairing, ask(self._source))
        return {
            "messages": done.messages,
            "seals": done.seals,
            "streams": len(report.streams),
            "is_equal": report.is_equal,
            "broken": [len(broken.differing), len(broken.files)],
            "fetched": repaired.fetched,
            "repaired": repaired.is_equal,
        }

    def _load(self, **options: str) -> DataFrame:
        wanted = {"topics": "orders/#,größe", **self._source, **options}
        return self._spark.read.format("moorline").options(**wanted).load()

    def _save(self, frame: DataFrame) -> None:
        frame.write.format("moorline").mode("append").options(**self._source).save()


def main(where: str, address: str, folder: str, *steps: str) -> None:
    if where.startswith("spark://"):
        spark = moorline.spark.session(master=where, app_name="far", config=CLUSTER)
    else:
        spark = moorline.spark.session(remote=where, app_name="far")
    made = Steps(spark, address, Path(folder))
    for step in steps:
        name, *arguments = step.split("=")
        print(json.dumps({"step": name, **getattr(made, name)(*arguments)}), flush=True)  # noqa: T201
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
