"""Queues that do not serve as usual: off, deleted, blocked, damaged; disks that are full or fail."""

import asyncio
from pathlib import Path

import pytest
from tests.queues.queue_server import SMALL, WITHIN_S, queue_server, take, tried
from tests.waiting import until

from moorline.client.moor import Moor
from moorline.client.queue import Queue as ClientQueue
from moorline.config.settings import Queues as Settings
from moorline.errors import (
    NodeDiskFull,
    NotFound,
    QueueBlocked,
    QueueDamaged,
    QueueOff,
    SubscriptionEnded,
)
from moorline.journal.queues.folder import path_of
from moorline.net.clock import wall_ms


async def test_off_takes_no_more_but_can_be_read(tmp_path: Path) -> None:
    async with queue_server(tmp_path) as node, node.connect() as moor:
        queue = await moor.create_queue()
        await moor.send(queue.id, b"before")
        await queue.off()
        with pytest.raises(QueueOff):
            await moor.send(queue.id, b"after")
        assert (await queue.info()).is_suspended
        message = await take(queue.read())
        assert (message.body, await message.ack()) == (b"before", 0)
    async with queue_server(tmp_path) as node, node.connect() as moor:
        assert await tried(moor, moor.queue(queue.id), b"after a restart") == "OFF"


async def test_j18_deleting_while_subscribed_tells_the_reader(tmp_path: Path) -> None:
    """J18: the subscriber gets END; afterwards there is nothing of that id."""
    async with queue_server(tmp_path) as node, node.connect() as reader, node.connect() as owner:
        queue = await reader.create_queue()
        await reader.send(queue.id, b"1")
        await node.broker.checkpoints.checkpoint()
        folder = path_of(queue.id, node.settings.folder_levels)
        assert node.disk.exists(folder)
        messages = queue.read()
        message = await take(messages)
        await owner.queue(queue.id).delete()
        with pytest.raises(SubscriptionEnded, match="DELETED"):
            await take(messages)
        assert await message.ack() == 0
        assert message.is_gone
        with pytest.raises(NotFound):
            await queue.get()
        assert await tried(reader, queue, b"2") == "NOT_FOUND"
        assert not node.disk.exists(folder)


async def test_j18_deleting_while_others_write_read_and_expire(tmp_path: Path) -> None:
    """J18: they get "not found", and no orphan files are left."""
    settings = Settings(max_queue_messages=50, max_file_messages=51, sync="process")
    async with queue_server(tmp_path, settings) as node, node.connect() as owner:
        codes: set[str] = set()

        async def write(moor: Moor, queue: ClientQueue) -> None:
            code = "OK"
            while code != "NOT_FOUND":
                code = await tried(moor, queue, b"x" * 500)
                codes.add(code)

        async def read(queue: ClientQueue) -> str:
            try:
                async for message in queue.read():
                    await message.ack()  # also of one that has expired on its way
            except (NotFound, SubscriptionEnded) as error:
                return error.code
            return "never"

        async def expire(queue: ClientQueue) -> None:
            while (found := node.store.find(queue.id)) is not None:
                node.broker.expire(found, wall_ms())
                await asyncio.sleep(0)

        for _ in range(5):
            async with node.connect() as one, node.connect() as two:
                queue = await owner.create_queue()
                work = [
                    asyncio.create_task(write(one, one.queue(queue.id))),
                    asyncio.create_task(write(two, two.queue(queue.id))),
                    asyncio.create_task(expire(queue)),
                ]
                reading = asyncio.create_task(read(two.queue(queue.id)))
                stored = node.broker.counts.stored
                await until(lambda now=stored: node.broker.counts.stored > now + 50)  # type: ignore[misc]
                await node.broker.checkpoints.checkpoint()
                checkpointing = asyncio.create_task(node.broker.checkpoints.checkpoint())
                await queue.delete()
                async with asyncio.timeout(WITHIN_S):
                    await asyncio.gather(*work, checkpointing)
                    assert await reading in {"NOT_FOUND", "SUBSCRIPTION_ENDED"}
        assert codes <= {"OK", "QUOTA", "NOT_FOUND"}
        await node.broker.checkpoints.checkpoint()
        assert (await owner.list_queues()).total == 0
    files = [path for path in (tmp_path / "queues").rglob("*") if path.is_file()]
    assert [path.name for path in files if "messages" in str(path)] == []


async def test_blocked_is_the_operators_and_stops_everything(tmp_path: Path) -> None:
    async with queue_server(tmp_path) as node, node.connect() as moor, node.connect() as operator:
        queue = await moor.create_queue()
        await moor.send(queue.id, b"1")
        messages = queue.read()
        message = await take(messages)
        await operator.queue(queue.id).block()
        with pytest.raises(SubscriptionEnded, match="BLOCKED"):
            await take(messages)
        assert await tried(moor, queue, b"2") == "BLOCKED"
        with pytest.raises(QueueBlocked):
            await message.ack()
        for call in (queue.get, queue.off):
            with pytest.raises(QueueBlocked):
                await call()
        with pytest.raises(QueueBlocked):
            await take(queue.read())
        assert (await queue.info()).is_blocked
        await operator.queue(queue.id).block(blocked=False)
        await moor.send(queue.id, b"2")
        assert await message.ack() == 1


async def test_a_damaged_queue_says_so_and_harms_no_other(tmp_path: Path) -> None:
    """C12 at the protocol: DAMAGED to everybody, END to a subscriber, others are served."""
    async with queue_server(tmp_path) as node, node.connect() as moor:
        bad, good = await moor.create_queues(2)
        for queue in (bad, good):
            await moor.send(queue.id, b"1")
    (messages,) = folder_of(tmp_path, bad).glob("messages.*.log")
    messages.write_bytes(b"?" + messages.read_bytes()[1:])
    async with queue_server(tmp_path) as node, node.connect() as moor:
        bad, good = moor.queue(bad.id), moor.queue(good.id)
        with pytest.raises(SubscriptionEnded, match="DAMAGED"):
            await take(bad.read())
        for call in (bad.get, bad.off):
            with pytest.raises(QueueDamaged):
                await call()
        assert await tried(moor, bad, b"2") == "DAMAGED"
        assert (await bad.info()).is_damaged
        assert (await take(good.read())).body == b"1"
        await bad.delete()
        with pytest.raises(NotFound):
            await bad.info()
        assert list((tmp_path / "queues" / "quarantine").iterdir()) == []


async def test_info_counts_what_can_be_delivered(tmp_path: Path) -> None:
    """Whatever the index says: of 2 stored and 1 in the log the stored ones are gone, or cannot be read."""
    async with queue_server(tmp_path) as node, node.connect() as moor:
        gone, unreadable, good = await moor.create_queues(3)
        for queue in (gone, unreadable, good):
            await moor.send(queue.id, b"1")
            await moor.send(queue.id, b"2")
    (messages,) = folder_of(tmp_path, gone).glob("messages.*.log")
    messages.unlink()
    (messages,) = folder_of(tmp_path, unreadable).glob("messages.*.log")
    messages.write_bytes(messages.read_bytes()[:-1] + b"?")
    async with queue_server(tmp_path) as node, node.connect() as moor:
        found = []
        for queue in (gone, unreadable, good):
            await moor.send(queue.id, b"3")
            told = await moor.queue(queue.id).info()
            found.append((told.waiting, told.stored, told.unreadable, told.is_damaged))
        assert found == [(1, 0, 0, False), (0, 0, 3, False), (3, 2, 0, False)]
        with pytest.raises(SubscriptionEnded, match="DAMAGED"):
            await take(moor.queue(unreadable.id).read())
        told = await moor.queue(unreadable.id).info()
        assert (told.waiting, told.unreadable, told.is_damaged) == (0, 3, True)
        assert (await take(moor.queue(gone.id).read())).body == b"3"


def folder_of(data: Path, queue: ClientQueue) -> Path:
    return data / "queues" / path_of(queue.id, SMALL.folder_levels)


# --- the disk -------------------------------------------------------------------------------------


async def test_a_nearly_full_disk_refuses_messages_but_no_acks(tmp_path: Path) -> None:
    async with queue_server(tmp_path) as node, node.connect() as moor:
        queue = await moor.create_queue()
        await moor.send(queue.id, b"1")
        node.broker.fill_disk(is_full=True)
        with pytest.raises(NodeDiskFull):
            await moor.send(queue.id, b"2")
        head = await queue.get()
        assert head is not None
        assert await head.ack() == 0
        node.broker.fill_disk(is_full=False)
        await moor.send(queue.id, b"3")


async def test_a_failed_write_answers_nobody_and_fails_the_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a failed fsync nothing may be promised."""
    async with queue_server(tmp_path) as node, node.connect() as moor:
        queue = await moor.create_queue()

        def broken(_: object) -> None:
            raise OSError(5, "the disk is broken")

        monkeypatch.setattr(node.store, "write", broken)
        sending = asyncio.create_task(moor.send(queue.id, b"promised?"))
        error = await asyncio.wait_for(node.broker.commits.failed, WITHIN_S)
        assert "the disk is broken" in str(error)
        assert await queue.get() is None
        assert not sending.done()
        sending.cancel()


async def test_a_checkpoint_that_waits_for_a_failing_commit_ends_quietly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with queue_server(tmp_path) as node, node.connect() as moor:
        queue = await moor.create_queue()
        held = asyncio.Event()
        loop = asyncio.get_running_loop()

        def broken(_: object) -> None:
            asyncio.run_coroutine_threadsafe(held.wait(), loop).result(WITHIN_S)
            raise OSError(5, "the disk is broken")

        monkeypatch.setattr(node.store, "write", broken)
        sending = asyncio.create_task(moor.send(queue.id, b"promised?"))
        await until(lambda: node.store.writing is not None)
        checkpoint = asyncio.create_task(node.broker.checkpoints.checkpoint())
        await until(lambda: node.broker.checkpoints._checkpointing is not None)
        held.set()
        try:
            await checkpoint
        finally:
            sending.cancel()
        assert node.broker.commits.failed.done()
