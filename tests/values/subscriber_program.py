"""A subscriber in a process of its own, to be stopped: says what it has whenever all of it is alive anew.

    python -m tests.values.subscriber_program RESOLVER COUNT [DEAD_MS]

It keeps COUNT durable subscriptions below /s. `alive N` follows each time that all are alive behind a loss,
and `last N` when each of them is N, the number that the first line of its input names. Its loop is the one
that nodes have, which looks at the clock before it reads.
"""

import asyncio
import sys

import uvloop

from moorline.client.values.subscriber import Subscriber, SubscriberSettings
from moorline.client.values.subscription import Kind, ValueSubscription


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


async def follow(one: ValueSubscription, all_of_them: list[ValueSubscription]) -> None:
    async for event in one:
        if event.kind is Kind.ALIVE and all(other.is_alive for other in all_of_them):
            say("alive")


async def main(resolver: str, count: int, dead_ms: int = 100_000) -> None:
    settings = SubscriberSettings(dead_ms=dead_ms)
    async with Subscriber(resolver, settings=settings) as subscriber:
        handles = subscriber.durable_subscribe_all([f"/s/{place}" for place in range(count)])
        following = [asyncio.create_task(follow(one, handles)) for one in handles]
        wanted = int(await asyncio.to_thread(sys.stdin.readline))
        while {one.value if one.is_alive else None for one in handles} != {wanted}:
            await asyncio.sleep(0.01)
        say(f"last {wanted}")
        for task in following:
            task.cancel()


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], *map(int, sys.argv[2:])))
