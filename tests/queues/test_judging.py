"""What runs by a right is judged again: in slices, one walk at a time, and once more if asked meanwhile."""

import asyncio
from collections.abc import Coroutine, Generator
from pathlib import Path
from typing import Any

import pytest
from tests.queues.queue_server import SMALL, Certificates, queue_server, until

from moorline.core.access.right import SUBSCRIBE
from moorline.core.access.row import Row
from moorline.net import slices
from moorline.queues.judging import Judging


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


async def test_others_have_their_turn_while_all_subscriptions_are_judged(
    tmp_path: Path, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each step is a slice here: between the first that ends and the last the loop turns."""
    monkeypatch.setattr(slices, "SLICE_MS", 0)
    async with (
        queue_server(tmp_path, SMALL, certificates.context()) as node,
        certificates.connect(str(node.address), "billing") as owner,
        certificates.connect(str(node.address), "shipping") as reader,
    ):
        await node.rights.change(Row("/queues", "shipping", grants=SUBSCRIBE))
        queues = await owner.create_queues(20)
        readings = [asyncio.ensure_future(anext(reader.queue(one.id).read())) for one in queues]
        await until(lambda: len(node.broker.subscriptions) == 20)
        await node.rights.change(Row("/queues", "shipping", denies=SUBSCRIBE))
        seen: set[int] = set()
        while len(node.broker.subscriptions):
            seen.add(len(node.broker.subscriptions))
            await asyncio.sleep(0)
        assert len(seen) == 20
        ended = await asyncio.gather(*readings, return_exceptions=True)
        assert {str(one) for one in ended} == {str(ended[0])}
        assert "DENIED" in str(ended[0])
