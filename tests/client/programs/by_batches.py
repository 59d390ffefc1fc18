"""Reads a topic as fast as it goes, without acknowledgements. It knows nothing of faults."""

# ruff: noqa: T201
import asyncio
import sys

import moorline


async def main() -> None:
    async with moorline.connect(sys.argv[2:]) as moor:
        subscription = await moor.subscribe(sys.argv[1], start="beginning", qos=0)
        async for batch in subscription.batches():
            for message in batch.messages:
                print(message.body.decode(), flush=True)


asyncio.run(main())
