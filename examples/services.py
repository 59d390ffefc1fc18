"""A service: one subscription for a hundred queues."""

import asyncio
from pathlib import Path

import moorline

PAPERS = Path("billing.pem")  # the certificate of the service, and its key


async def main() -> None:
    async with moorline.connect(
        "tls://127.0.0.1:7413", ca=Path("ca.pem"), certificate=PAPERS, key=PAPERS
    ) as moor:
        queues = await moor.create_queues(100)
        async with moor.service("service.sqlite") as service:
            refused = await service.associate([queue.id for queue in queues])
            assert not refused
            await moor.send(queues[7].id, b"an invoice")
            async for message in service:
                print(message.body)
                await message.ack()
                break


asyncio.run(main())
