"""Follows a value. It knows its resolvers, and nothing of faults."""

# ruff: noqa: T201
import asyncio
import sys

import moorline


async def main() -> None:
    async with moorline.Subscriber(sys.argv[2:]) as subscriber:
        async for event in subscriber.durable_subscribe(sys.argv[1]):
            if event.value is not None:
                print(event.value, flush=True)


asyncio.run(main())
