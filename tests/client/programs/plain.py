"""Reads a topic. It knows its addresses, and nothing of faults."""

# ruff: noqa: T201
import asyncio
import sys

import moorline


async def main() -> None:
    async with moorline.connect(sys.argv[2:]) as moor:
        async for message in moor.subscribe(sys.argv[1], start="beginning").acking():
            print(message.body.decode(), flush=True)
            await asyncio.sleep(0.002)


asyncio.run(main())
