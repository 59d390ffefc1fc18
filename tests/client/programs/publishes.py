"""Publishes a value that counts up from a number. It knows its resolvers, and nothing of faults."""

# ruff: noqa: T201
import asyncio
import sys

import moorline


async def main() -> None:
    path, _, first = sys.argv[1].partition("=")
    async with moorline.Publisher(sys.argv[2:]) as publisher:
        counted = publisher.publish(path, int(first))
        for number in range(int(first), sys.maxsize):
            counted.update(number)
            await publisher.commit()
            print(number, flush=True)
            await asyncio.sleep(0.02)


asyncio.run(main())
