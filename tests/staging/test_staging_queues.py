"""Staged commits to queues: all rows or none, in the order of their partitions."""

from pathlib import Path

import pytest
from tests.staging.staged_writes import (
    QUEUES_MADE,
    KilledNode,
    committed,
    queue_contents,
    queue_stages,
    queues_of,
    waiting_in,
    was_killed,
)

import moorline
from moorline.client.moor import Moor
from moorline.errors import (
    ConnectionLost,
    NotFound,
    QuotaExceeded,
)

pytestmark = pytest.mark.process


async def test_rows_go_to_queues_in_the_order_of_their_partitions(moor: Moor, query: str) -> None:
    ids = await queues_of(moor, QUEUES_MADE)
    stages = await queue_stages(moor, query, ids)
    assert (await committed(moor, query, 0, stages)).published == 20 * QUEUES_MADE
    assert (await committed(moor, query, 0, stages)).already
    assert {one: await waiting_in(moor, one) for one in ids} == queue_contents(ids)


async def test_a_full_queue_refuses_the_commit_before_it_is_decided(moor: Moor, query: str) -> None:
    ids = await queues_of(moor, 2)
    stages = await queue_stages(moor, query, ids)
    for _ in range(128 - 19):
        await moor.send(ids[1], b"before")
    with pytest.raises(QuotaExceeded, match=r"20 more, 109 waiting"):
        await committed(moor, query, 0, stages)
    assert await waiting_in(moor, ids[0]) == []
    assert len(await waiting_in(moor, ids[1])) == 109
    # Read by its recipient, it has room: the same stages are still there.
    assert not (await committed(moor, query, 0, stages)).already
    assert {one: await waiting_in(moor, one) for one in ids} == queue_contents(ids)


async def test_a_queue_that_is_gone_refuses_the_commit(moor: Moor, query: str) -> None:
    ids = await queues_of(moor, 2)
    stages = await queue_stages(moor, query, ids)
    await moor.queue(ids[0]).delete()
    with pytest.raises(NotFound, match="takes no messages"):
        await committed(moor, query, 0, stages)
    assert await waiting_in(moor, ids[1]) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "point",
    [
        "before:decide:1",
        "after:decide:1",
        "before:log:1",
        "after:log:1",
        "before:log:3",
        "after:log:5",
        "before:complete:1",
        "after:complete:1",
    ],
)
async def test_queues_after_a_kill_at_every_point(tmp_path: Path, point: str) -> None:
    flags = ("--set=streams.shards=4",)
    with KilledNode(tmp_path / "data", point, *flags) as node:
        async with moorline.connect(node.address, reconnect=False) as moor:
            ids = await queues_of(moor, QUEUES_MADE)
            stages = await queue_stages(moor, "q", ids)
            with pytest.raises(ConnectionLost):
                await committed(moor, "q", 0, stages)
        assert was_killed(node)
    with KilledNode(tmp_path / "data", "never", *flags) as node:
        async with moorline.connect(node.address, reconnect=False) as moor:
            await committed(moor, "q", 0, stages)
            assert {one: await waiting_in(moor, one) for one in ids} == queue_contents(ids)
