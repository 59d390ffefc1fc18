"""A subscriber in a process of its own, to be stopped: says what it has whenever all of it is alive anew.

    python -m tests.values.subscriber_program RESOLVER COUNT

It keeps COUNT durable subscriptions below /s. `alive N` follows each time that all are alive behind a loss,
and `last N` when each of them is N, the number that the first line of its input names.
"""

import asyncio
import sys

from moorline.client.values.subscriber import Subscriber
from moorline.client.values.subscription import Kind, ValueSubscription


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


async def follow(one: ValueSubscription, all_of_them: list[ValueSubscription]) -> None:
    async for event in one:
        if event.kind is Kind.ALIVE and all(other.is_alive for other in all_of_them):
            say("alive")


async def main(resolver: str, count: int) -> None:
    async with Subscriber(resolver) as subscriber:
        handles = subscriber.durable_subscribe_all([f"/s/{place}" for place in range(count)])
        following = [asyncio.create_task(follow(one, handles)) for one in handles]
        wanted = int(await asyncio.to_thread(sys.stdin.readline))
        while {one.value if one.is_alive else None for one in handles} != {wanted}:
            await asyncio.sleep(0.01)
        say(f"last {wanted}")
        for task in following:
            task.cancel()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
