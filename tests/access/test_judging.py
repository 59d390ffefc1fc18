"""What runs by a right is judged again: in slices, one walk at a time, and once more if asked meanwhile."""

import asyncio
from collections.abc import Coroutine, Generator
from typing import Any

from moorline.access.judging import Judging


async def test_what_is_asked_during_a_walk_has_one_more_walk_behind_it() -> None:
    walks: list[int] = []
    at_once = 0

    def walk() -> Generator[None, None, None]:
        nonlocal at_once
        at_once += 1
        walks.append(at_once)
        if len(walks) < 3:
            judging.soon()
            judging.soon()
        yield
        at_once -= 1

    tasks: set[asyncio.Task[None]] = set()

    def spawn(work: Coroutine[Any, Any, None]) -> None:
        tasks.add(asyncio.create_task(work))

    judging = Judging(walk, spawn)
    judging.soon()
    judging.soon()
    assert walks == [], "whoever changes rights does not wait for it"
    (first,) = tasks
    await first
    assert walks == [1, 1, 1]
    judging.soon()
    await asyncio.gather(*tasks)
    assert (len(walks), len(tasks)) == (4, 2)
