"""The queues of a service as a table of ids and hashes: the XOR of these is in its digest.

It needs certificates and a node with a TLS port: docs/services.md begins with both.

    .venv/bin/python examples/spark_associations.py
"""

import asyncio
from pathlib import Path

import moorline
import moorline.spark

PAPERS = Path("billing.pem")


async def associate() -> None:
    async with moorline.connect(
        "tls://127.0.0.1:7413", ca=Path("ca.pem"), certificate=PAPERS, key=PAPERS
    ) as moor:
        queues = await moor.create_queues(1_000)
        async with moor.service("spark.sqlite") as service:
            await service.associate([queue.id for queue in queues])
            digest = (await service.agree()).digest
            print(f"the service: {digest.count} queues, hash {digest.hash.hex()}")


asyncio.run(associate())
spark = moorline.spark.session()
rows = (
    spark.read.format("moorline")
    .option("address", "tcp://127.0.0.1:7411")
    .option("associations", "billing")
    .load()
    .collect()
)
xor = 0
for row in rows:
    xor ^= int.from_bytes(row["hash"], "big")
print(f"in Spark:    {len(rows)} queues, hash {xor:032x}")
spark.stop()
