"""What waits in queues, as a table. Nothing is taken: the recipient still gets it.

.venv/bin/python examples/spark_queues.py
"""

import asyncio

import moorline
import moorline.spark

ADDRESS = "tcp://127.0.0.1:7411"


async def send() -> list[str]:
    """Makes three queues, and sends one, two and three messages to them."""
    async with moorline.connect(ADDRESS) as moor:
        queues = await moor.create_queues(3)
        await moor.send_all(
            [(queue.id, b"ahoy") for count, queue in enumerate(queues, 1) for _ in range(count)]
        )
        return [str(queue) for queue in queues]


queues = asyncio.run(send())
spark = moorline.spark.session()
waiting = (
    spark.read.format("moorline")
    .option("address", ADDRESS)
    .option("queues", ",".join(queues))  # or * for all queues of the node
    .load()
)
for row in waiting.groupBy("queue").count().orderBy("count").collect():
    print(f"{row['count']} in a queue")
print(f"{waiting.count()} in all, and still there: {waiting.count()}")
spark.stop()
