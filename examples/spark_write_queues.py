"""A table sent to queues: a row for each message, with the id of its queue.

.venv/bin/python examples/spark_write_queues.py
"""

import asyncio

import moorline
import moorline.spark

ADDRESS = "tcp://127.0.0.1:7411"


async def create() -> list[bytes]:
    async with moorline.connect(ADDRESS) as moor:
        return [queue.id for queue in await moor.create_queues(3)]


async def read(queue_id: bytes) -> list[bytes]:
    async with moorline.connect(ADDRESS) as moor:
        queue, bodies = moor.queue(queue_id), []
        async for message in queue:
            bodies.append(message.body)
            if await message.ack() == 0:
                break
        await queue.delete()
        return bodies


queues = asyncio.run(create())
spark = moorline.spark.session()
letters = [(queue, b"letter %d" % n) for n in range(100) for queue in queues]
(
    spark.createDataFrame(letters, "queue binary, value binary")
    .coalesce(1)  # the order of a partition is the order in the queue
    .write.format("moorline")
    .option("address", ADDRESS)
    .mode("append")
    .save()
)
spark.stop()
for queue in queues:
    bodies = asyncio.run(read(queue))
    print(len(bodies), "letters, from", bodies[0], "to", bodies[-1])
