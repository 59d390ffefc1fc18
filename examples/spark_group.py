"""A Spark query as a member of a shared group, beside a consumer that is no query.

Each order goes to one of both. The query acknowledges a batch when it is complete, and gives streams up
between two batches when somebody else joins.
"""

import asyncio
import tempfile
from collections.abc import Callable
from pathlib import Path

import moorline
import moorline.spark
from moorline.client.group import Group
from moorline.wire.group import GroupDescribed

ADDRESS = "tcp://127.0.0.1:7411"
GROUP = "$shared/billing/orders/#"
COUNT = 1_000


async def consume(count: list[int]) -> None:
    async with moorline.connect(ADDRESS) as moor:
        async for message in moor.subscribe(GROUP):
            await message.ack()
            count[0] += 1


async def until(group: Group, condition: Callable[[GroupDescribed], bool]) -> None:
    while True:
        if condition(await group.info()):
            return
        await asyncio.sleep(0.1)


async def main() -> None:
    spark = moorline.spark.session()
    orders = (
        spark.readStream.format("moorline")
        .option("address", ADDRESS)
        .option("group", GROUP)
        .option("maxOffsetsPerTrigger", 10_000)
        .load()
    )
    async with moorline.connect(ADDRESS) as moor:
        group = moor.group(GROUP)
        await group.create()  # from now on nothing is missed
        with tempfile.TemporaryDirectory() as folder:
            query = (
                orders.writeStream.format("parquet")
                .option("path", f"{folder}/orders")
                .option("checkpointLocation", f"{folder}/state")
                .start()
            )
            count = [0]
            consumer = asyncio.create_task(consume(count))
            # The first start of a query takes a while.
            await until(group, lambda found: len(found.members) == 2)
            await moor.publish_all(
                [
                    moorline.record("orders/eu", b"an order", key=f"customer {n}")
                    for n in range(COUNT)
                ]
            )
            await until(group, lambda found: not any(place.lag for place in found.places))
            await asyncio.to_thread(query.stop)
            written = spark.read.parquet(str(Path(folder) / "orders")).count()
            print(f"{COUNT} orders: {count[0]} to the consumer, {written} to the query")
            consumer.cancel()
            await asyncio.wait([consumer])
        await group.delete()
    spark.stop()


asyncio.run(main())
