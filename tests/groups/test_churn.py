"""Members come, go and die in every order while messages are published."""

import asyncio
import random
from collections import Counter, defaultdict
from itertools import pairwise

import pytest
from tests.topics.real_node import Connect
from tests.topics.scenes import Reader, all_there, described, die, is_done
from tests.waiting import until

import moorline
from moorline.client.moor import Moor

pytestmark = pytest.mark.process

MESSAGES, KEYS, STEPS = 2_000, 24, 40


class Crowd:
    """Members of one group, and everything that any of them ever got, in the order in which they did."""

    def __init__(self, connect: Connect, group: str, chance: random.Random) -> None:
        self._connect = connect
        self._group = group
        self._chance = chance
        self.here: list[tuple[Moor, Reader]] = []
        self.readers: list[Reader] = []
        self.suspects: set[bytes] = set()
        """What members had when they died: these may come twice."""

    async def join(self) -> None:
        moor = await self._connect()
        reader = Reader(await moor.subscribe(self._group, window=self._chance.choice((1, 7, 200))))
        self.here.append((moor, reader))
        self.readers.append(reader)

    async def leave(self) -> None:
        moor, reader = self._pick()
        if self._chance.random() < 0.5:
            await reader.subscription.close()
            if self._chance.random() < 0.5:
                # Back at once, on the same connection, while the first membership may not be over.
                again = Reader(await moor.subscribe(self._group))
                self.here.append((moor, again))
                self.readers.append(again)
                return
        await reader.stop()
        await moor.close()

    async def die(self) -> None:
        moor, reader = self._pick()
        await die(moor)
        await reader.stop()
        self.suspects.update(reader.bodies)

    def _pick(self) -> tuple[Moor, Reader]:
        return self.here.pop(self._chance.randrange(len(self.here)))


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("mode", ["shared", "queue"])
async def test_churn_nothing_is_lost_and_only_the_dead_cause_repeats(
    connect: Connect, name: str, mode: str, seed: int
) -> None:
    group = f"${mode}/{name}/{name}"
    chance = random.Random(seed)
    moor = await connect()
    await moor.group(group).create(deliveries_max=0)
    crowd = Crowd(connect, group, chance)
    bodies = [b"%d %d" % (number % KEYS, number) for number in range(MESSAGES)]

    async def publish() -> None:
        for start in range(0, MESSAGES, 20):
            await moor.publish_all(
                [
                    moorline.record(name, body, key=body.split()[0])
                    for body in bodies[start : start + 20]
                ]
            )
            await asyncio.sleep(0)

    publishing = asyncio.create_task(publish())
    await crowd.join()
    for _ in range(STEPS):
        step = chance.choice((crowd.join, crowd.join, crowd.leave, crowd.die))
        if crowd.here or step == crowd.join:
            await step()
    await crowd.join()
    await publishing
    await until(lambda: all_there(crowd.readers, bodies))
    await described(moor, group, is_done)
    twice = Counter(body for reader in crowd.readers for body in reader.bodies)
    assert {body for body, count in twice.items() if count > 1} <= crowd.suspects
    if mode == "shared":
        check_order(crowd.readers)


def check_order(readers: list[Reader]) -> None:
    """In one reader a key's messages come in order, as long as its stream stays with it."""
    for reader in readers:
        orders: dict[bytes, list[int]] = defaultdict(list)
        for body in reader.bodies:
            key, number = body.split()
            orders[key].append(int(number))
        for order in orders.values():
            falls = sum(later < sooner for sooner, later in pairwise(order))
            assert falls == 0 or len(set(order)) < len(order), order
