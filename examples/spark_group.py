"""A Spark query as a member of a shared group, beside a consumer that is no query.

Each parcel goes to one of the two. The query acknowledges a batch when it is complete.

    .venv/bin/python examples/spark_group.py
"""

import asyncio
import tempfile
from collections.abc import AsyncIterator
from typing import Any

import moorline
import moorline.spark

ADDRESS = "tcp://127.0.0.1:7411"
GROUP = "$shared/shipping/parcels/#"
COUNT = 1_000


async def consume(got: list[bytes]) -> None:
    async with moorline.connect(ADDRESS) as moor:
        async for message in moor.subscribe(GROUP):
            got.append(message.body)
            await message.ack()


async def looks_at(moor: moorline.Moor) -> AsyncIterator[Any]:
    """The group as it is now, again and again."""
    while True:
        yield await moor.group(GROUP).info()
        await asyncio.sleep(0.1)


async def main(folder: str) -> None:
    spark = moorline.spark.session()
    query = (
        spark.readStream.format("moorline")
        .option("address", ADDRESS)
        .option("group", GROUP)
        .load()
        .writeStream.format("parquet")
        .option("path", f"{folder}/parcels")
        .option("checkpointLocation", f"{folder}/state")
        .start()
    )
    got: list[bytes] = []
    async with moorline.connect(ADDRESS) as moor:
        await moor.group(GROUP).create()  # from now on nothing is missed
        consumer = asyncio.create_task(consume(got))
        async for group in looks_at(moor):  # the first start of a query takes a while
            if sum(bool(member.streams) for member in group.members) == 2:
                break
        await moor.publish_all(
            [moorline.record("parcels/eu", b"%d" % n, key=f"street {n}") for n in range(COUNT)]
        )
        async for group in looks_at(moor):
            if not any(cursor.lag for cursor in group.cursors):
                break
        await asyncio.to_thread(query.stop)
        consumer.cancel()
        await asyncio.wait([consumer])
        await moor.group(GROUP).delete()
    written = spark.read.parquet(f"{folder}/parcels").count()
    print(f"{COUNT} parcels: {len(got)} to the consumer, {written} to the query")
    spark.stop()


with tempfile.TemporaryDirectory() as folder:
    asyncio.run(main(folder))
