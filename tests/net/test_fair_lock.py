"""A lock that is shared among principals."""

import asyncio
import random

import pytest

from moorline.core.access.principal_turns import TURNS_PER_ROUND_MAX
from moorline.net.fair_lock import FairLock


async def hold(lock: FairLock, principal: str, told: list[str]) -> None:
    async with lock.held_by(principal):
        told.append(principal)
        await asyncio.sleep(0)


async def test_one_at_a_time_in_the_order_they_came() -> None:
    lock, told = FairLock(), list[str]()
    await asyncio.gather(*(hold(lock, "alice", told) for _ in range(5)))
    assert told == ["alice"] * 5


@pytest.mark.slow
async def test_who_waits_a_thousand_times_is_one_in_the_line() -> None:
    lock, told = FairLock(), list[str]()
    flood = [asyncio.create_task(hold(lock, "flood", told)) for _ in range(1_000)]
    await asyncio.sleep(0)
    await hold(lock, "single", told)
    assert told.index("single") <= TURNS_PER_ROUND_MAX + 1
    await asyncio.gather(*flood)


@pytest.mark.parametrize("seed", range(20))
async def test_whoever_gives_up_keeps_nobody_waiting(seed: int) -> None:
    lock, told, chance = FairLock(), list[str](), random.Random(seed)
    tasks: list[asyncio.Task[None]] = []
    for _ in range(200):
        match chance.randrange(3):
            case 0:
                tasks.append(asyncio.create_task(hold(lock, f"p{chance.randrange(3)}", told)))
            case 1 if tasks:
                chance.choice(tasks).cancel()
            case _:
                await asyncio.sleep(0)
    async with asyncio.timeout(10):
        done = await asyncio.gather(*tasks, return_exceptions=True)
        await hold(lock, "last", told)
    assert sum(one is None for one in done) < len(told)
    assert told[-1] == "last"


async def test_all_that_wait_are_cancelled_at_once() -> None:
    lock, told = FairLock(), list[str]()
    async with lock.held_by("alice"):
        tasks = [asyncio.create_task(hold(lock, "bob", told)) for _ in range(5)]
        await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await hold(lock, "carol", told)
    assert told == ["carol"]
