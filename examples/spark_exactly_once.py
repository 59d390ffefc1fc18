"""A streaming write publishes each batch once, also when its driver dies at the worst moment.

A query copies a topic. Then Spark's note that the batch is complete is removed, as if the driver had been
killed before it was written: the next run does the batch again, and the node publishes none of it.

    .venv/bin/python examples/spark_exactly_once.py
"""

import asyncio
import secrets
import tempfile
from pathlib import Path

import moorline
import moorline.spark

ADDRESS = "tcp://127.0.0.1:7411"
RUN = secrets.token_hex(4)


async def publish() -> None:
    async with moorline.connect(ADDRESS) as moor:
        await moor.publish_all([moorline.record(f"drafts/{RUN}", b"%d" % n) for n in range(500)])


asyncio.run(publish())
spark = moorline.spark.session()
node = {"address": ADDRESS}
drafts = spark.readStream.format("moorline").options(
    **node, topics=f"drafts/{RUN}", startingOffsets="earliest"
)
with tempfile.TemporaryDirectory() as folder:
    for run in ("first", "second"):
        query = (
            drafts.load()
            .select("key", "value")
            .writeStream.format("moorline")
            .options(**node, topic=f"letters/{RUN}", checkpointLocation=folder)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        rows = sum(progress["numInputRows"] for progress in query.recentProgress)
        letters = spark.read.format("moorline").options(**node, topics=f"letters/{RUN}").load()
        print(f"{run} run: {rows} rows written, {letters.count()} messages in the topic")
        for note in Path(folder, "commits").glob("*0*"):
            note.unlink()
spark.stop()
