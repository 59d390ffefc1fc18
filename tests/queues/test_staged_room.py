"""Staged commits to queues while the disk is full or fails: they wait with a bound, and are told."""

import asyncio
from pathlib import Path

import pytest
from tests.queues.queue_server import ROOMY, WITHIN_S, queue_server
from tests.waiting import until

from moorline.errors import OutcomeUnknown
from moorline.staging.queue_commits import durable


async def test_a_decided_commit_waits_for_room_and_not_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with queue_server(tmp_path, ROOMY) as node, node.connect() as moor:
        queue = await moor.create_queue()
        node.broker.fill_disk(is_full=True)
        assert node.broker.send_row(queue.id, b"1", is_decided=True) == ""
        waiting = asyncio.create_task(durable(node.broker))
        await until(lambda: bool(node.broker._has_room._waiters))
        with monkeypatch.context() as patch:
            patch.setattr("moorline.staging.queue_commits.STAGED_ROOM_MS_MAX", 1)
            assert node.broker.send_row(queue.id, b"2", is_decided=True) == ""
            with pytest.raises(OutcomeUnknown, match="when there is room, and it goes on"):
                await asyncio.wait_for(durable(node.broker), WITHIN_S)
        assert not waiting.done()
        node.broker.fill_disk(is_full=False)
        await asyncio.wait_for(waiting, WITHIN_S)
        assert (await queue.info()).waiting == 2


async def test_a_commit_is_told_when_the_disk_of_the_queues_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with queue_server(tmp_path, ROOMY) as node, node.connect() as moor:
        queue = await moor.create_queue()

        def broken(_: object) -> None:
            raise OSError(5, "the disk is broken")

        monkeypatch.setattr(node.store, "write", broken)
        assert node.broker.send_row(queue.id, b"promised?", is_decided=True) == ""
        with pytest.raises(OutcomeUnknown, match="failed"):
            await asyncio.wait_for(durable(node.broker), WITHIN_S)
        assert node.broker.commits.failed.done()
