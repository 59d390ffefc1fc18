"""Topics as a table: a batch read in Spark.

.venv/bin/python examples/spark_read.py
"""

import asyncio
import time

import moorline
import moorline.spark

ADDRESS = "tcp://127.0.0.1:7411"
SALES = {"sales/oslo": 120, "sales/bergen": 80, "sales/tromso": 15}


async def publish() -> None:
    async with moorline.connect(ADDRESS) as moor:
        await moor.publish_all(
            [
                moorline.record(topic, b"%d" % n)
                for topic, count in SALES.items()
                for n in range(count)
            ]
        )


began_ms = int(time.time() * 1_000)
asyncio.run(publish())
spark = moorline.spark.session()
sales = (
    spark.read.format("moorline")
    .option("address", ADDRESS)
    .option("topics", "sales/#")
    .option("startingTimestamp", began_ms)  # without it: all that the node still has
    .load()
)
for row in sales.groupBy("topic").count().orderBy("topic").collect():
    print(row["topic"], row["count"])
spark.stop()
