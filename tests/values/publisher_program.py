"""A publisher in a process of its own, to be stopped and killed: counts up in whole batches.

    python -m tests.values.publisher_program RESOLVER NAME COUNT [PRIORITY]

It publishes COUNT values below /count, each a list of its name and a number, the same for all of a batch.
"""

import asyncio
import sys

from moorline.client.values.publisher import Publisher, PublisherSettings


async def main(resolver: str, name: str, count: int, priority: int) -> None:
    settings = PublisherSettings(heartbeat_ms=100, priority=priority)
    async with Publisher(resolver, settings=settings) as publisher:
        made = publisher.publish_all((f"/count/{place}", [name, 0]) for place in range(count))
        await publisher.replicated(20)
        sys.stdout.write(f"ready {publisher.address}\n")
        sys.stdout.flush()
        number = 0
        while True:
            number += 1
            for value in made:
                value.update([name, number])
            await publisher.commit(5)
            await asyncio.sleep(0.002)


if __name__ == "__main__":
    asyncio.run(
        main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]) if sys.argv[4:] else 1)
    )
