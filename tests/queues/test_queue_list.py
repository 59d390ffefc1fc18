"""The queues of a node, page by page: complete, in slices, whatever a checkpoint does meanwhile."""

import asyncio
from pathlib import Path

import pytest
from tests.queues.queue_server import ROOMY, queue_server

from moorline.client.moor import Moor


async def everything(moor: Moor, count: int) -> list[bytes]:
    found: list[bytes] = []
    while page := (await moor.list_queues(found[-1] if found else b"", count)).queues:
        found += [queue for queue, _ in page]
    return found


async def test_pages_of_any_size_are_all_queues_those_of_the_index_and_new_ones(
    tmp_path: Path,
) -> None:
    async with queue_server(tmp_path, ROOMY) as node, node.connect() as moor:
        known = {queue.id for queue in await moor.create_queues(60)}
        await node.broker.checkpoints.checkpoint()
        fresh = await moor.create_queues(50)
        known |= {queue.id for queue in fresh}
        await moor.send(fresh[0].id, b"waits")
        gone = fresh[1]
        await gone.delete()
        known.discard(gone.id)
        for count in (1, 7, 64, 1_000):
            assert await everything(moor, count) == sorted(known)
        assert (fresh[0].id, 1) in (await moor.list_queues()).queues


@pytest.fixture
def _short_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moorline.net.slices.SLICE_MS", 0)


@pytest.mark.usefixtures("_short_slices")
async def test_others_are_served_and_a_checkpoint_is_made_while_a_page_is_listed(
    tmp_path: Path,
) -> None:
    async with (
        queue_server(tmp_path, ROOMY) as node,
        node.connect() as moor,
        node.connect() as other,
    ):
        known = sorted(queue.id for queue in await moor.create_queues(1_000))
        queue = await other.create_queue()
        known = sorted([*known, queue.id])
        listing = asyncio.create_task(moor.list_queues(count=4_096))
        served, checkpoint = 0, None
        while not listing.done():
            await other.get_all([queue])
            served += not listing.done()
            if checkpoint is None:
                checkpoint = asyncio.create_task(node.broker.checkpoints.checkpoint())
        assert served > 3
        assert [one for one, _ in (await listing).queues] == known
        assert checkpoint is not None
        await checkpoint
