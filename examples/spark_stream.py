"""A streaming read: each run takes what is new since the last one, and ends (AvailableNow).

.venv/bin/python examples/spark_stream.py
"""

import asyncio
import tempfile
import time

from pyspark.sql import DataFrame

import moorline
import moorline.spark

ADDRESS = "tcp://127.0.0.1:7411"


async def publish(count: int) -> None:
    async with moorline.connect(ADDRESS) as moor:
        await moor.publish_all([moorline.record(f"sensor/{n % 10}", b"ok") for n in range(count)])


def catch_up(readings: DataFrame, folder: str) -> int:
    query = (
        readings.writeStream.format("parquet")
        .option("path", f"{folder}/readings")
        .option("checkpointLocation", f"{folder}/state")  # the place of the query is here
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return sum(progress["numInputRows"] for progress in query.recentProgress)


spark = moorline.spark.session()
readings = (
    spark.readStream.format("moorline")
    .option("address", ADDRESS)
    .option("topics", "sensor/#")
    .option(
        "startingTimestamp", int(time.time() * 1_000)
    )  # counts where there is no checkpoint yet
    .load()
)
with tempfile.TemporaryDirectory() as folder:
    asyncio.run(publish(1_000))
    print("first run:", catch_up(readings, folder), "messages")
    asyncio.run(publish(50))
    print("second run:", catch_up(readings, folder), "messages")
    print("in the table:", spark.read.parquet(f"{folder}/readings").count())
spark.stop()
