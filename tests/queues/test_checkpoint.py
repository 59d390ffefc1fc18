"""A checkpoint while others work: nobody waits for it, whatever it is at and however slow its disk is."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.queues.queue_server import ROOMY, WITHIN_S, QueueServer, queue_server, take
from tests.waiting import until

from moorline.client.moor import Moor
from moorline.client.queue import Queue
from moorline.config.settings import Queues as Settings
from moorline.journal.queues.folder import path_of
from moorline.limits import (
    CHECKPOINT_GROUP_QUEUES,
    DISCARDS_PER_TURN,
    LOG_PACE_BYTES_PER_S_MIN,
    LOG_PACE_OWED_MS,
    MIB,
)
from moorline.queues.pacing import Pace


class Gate:
    """Holds up whatever thread calls a function of the disk, until it is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, disk: object, name: str) -> None:
        self._opened = threading.Event()
        self.waiting = threading.Event()
        real: Callable[..., object] = getattr(disk, name)

        def held(*arguments: object, **more: object) -> object:
            if threading.current_thread().name.startswith("moorline-checkpoint"):
                self.waiting.set()
                assert self._opened.wait(4 * WITHIN_S), "the gate was never opened"
            return real(*arguments, **more)

        monkeypatch.setattr(disk, name, held)

    def open(self) -> None:
        self._opened.set()

    def __enter__(self) -> "Gate":
        return self

    def __exit__(self, *_: object) -> None:
        self.open()


async def begun(node: QueueServer, gate: Gate) -> "asyncio.Task[None]":
    """A checkpoint that stands at the gate."""
    task = asyncio.create_task(node.broker.checkpoints.checkpoint())
    await until(gate.waiting.is_set)
    return task


async def filled(moor: Moor, count: int) -> list[Queue]:
    queues = await moor.create_queues(count)
    await moor.send_all([(queue.id, b"1") for queue in queues])
    return queues


@pytest.mark.slow
@pytest.mark.parametrize("step", ["make_folders", "sync_all", "remove", "rename"])
async def test_senders_and_readers_go_on_whatever_the_disk_does_in_a_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """At the first folder of many queues, at the sync, at a removal, at the index."""
    async with queue_server(tmp_path, ROOMY) as node, node.connect() as moor:
        queues = await filled(moor, 2 * CHECKPOINT_GROUP_QUEUES)
        await node.broker.checkpoints.checkpoint()
        for queue in queues[:3]:
            message = await queue.get()
            assert message is not None
            await message.ack()
        fresh = await filled(moor, 3)
        with Gate(monkeypatch, node.disk, step) as gate:
            checkpoint = await begun(node, gate)
            async with asyncio.timeout(WITHIN_S):
                await moor.send(queues[0].id, b"2")
                await moor.send(fresh[0].id, b"2")
                (made,) = await filled(moor, 1)
                message = await take(made.read())
                assert message.body == b"1"
                await message.ack()
            assert not checkpoint.done()
            gate.open()
            await checkpoint
            assert not node.broker.commits.failed.done()
            assert [one.body for one in [await queues[0].get()] if one] == [b"2"]
    async with queue_server(tmp_path, ROOMY) as node, node.connect() as moor:
        bodies = []
        for one in (queues[0], fresh[0], made):
            found = node.store.find(one.id)
            assert found is not None
            entries = [node.store.peek(found, place) for place in range(found.size)]
            bodies.append([entry.body for entry in entries if entry is not None])
        assert bodies == [[b"2"], [b"1", b"2"], []]


async def test_a_log_that_is_full_slows_senders_down_and_stops_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checkpoint that would empty it hangs: everybody is answered all the same, in turn."""
    settings = Settings(max_queue_messages=5_000, max_file_messages=5_001, log_bytes_max=MIB)
    async with (
        queue_server(tmp_path, settings) as node,
        node.connect() as one,
        node.connect() as two,
    ):
        queues = await filled(one, 4)
        with Gate(monkeypatch, node.disk, "sync_all") as gate:
            checkpoint = await begun(node, gate)
            async with asyncio.timeout(4 * WITHIN_S):
                for moor in (one, two, one, two):
                    sent = await moor.send_all([(queue.id, bytes(16_000)) for queue in queues * 8])
                    assert all(isinstance(message, int) for message in sent)
            assert node.store.log.size_bytes > settings.log_bytes_max
            assert not checkpoint.done()
            gate.open()
            await checkpoint
            assert node.store.log.size_bytes < 2 * settings.log_bytes_max


async def test_a_queue_that_is_read_and_deleted_on_its_way_to_the_files_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files are needed while the group that it is in waits for a slow disk."""
    async with queue_server(tmp_path, ROOMY) as node, node.connect() as moor:
        # What has changed last is written first.
        deleted, read, first = await filled(moor, 3)
        await node.broker.checkpoints.checkpoint()
        for queue in (deleted, read, first):
            await moor.send(queue.id, b"2")
            found = node.store.find(queue.id)
            assert found is not None
            node.store.files.close_queue(found)  # what is at the head must be read from the file
        with Gate(monkeypatch, node.disk, "list_folder") as gate:
            checkpoint = await begun(node, gate)
            async with asyncio.timeout(WITHIN_S):
                message = await read.get()
                assert message is not None
                assert message.body == b"1"
                await message.ack()
                await deleted.delete()
                assert not node.disk.exists(path_of(deleted.id, node.settings.folder_levels))
            gate.open()
            await checkpoint
            assert node.store.find(deleted.id) is None
            assert not node.disk.exists(path_of(deleted.id, node.settings.folder_levels))
    async with queue_server(tmp_path, ROOMY) as node, node.connect() as moor:
        assert (await moor.list_queues()).total == 2
        bodies = [
            [message.body for message in [await moor.queue(one.id).get()] if message is not None]
            for one in (first, read)
        ]
        assert bodies == [[b"1"], [b"2"]]


@pytest.mark.slow
async def test_folders_of_many_deleted_queues_go_in_turns(tmp_path: Path) -> None:
    """And all of them are gone before the log, which alone knows of them, is dropped."""
    async with queue_server(tmp_path, ROOMY) as node, node.connect() as moor:
        queues = await filled(moor, 3 * DISCARDS_PER_TURN)
        await node.broker.checkpoints.checkpoint()
        removed: list[int] = []
        real = node.store.after_commit

        def counted() -> None:
            before = len(list((tmp_path / "queues" / "messages").rglob("queue.log")))
            real()
            removed.append(
                before - len(list((tmp_path / "queues" / "messages").rglob("queue.log")))
            )

        node.store.after_commit = counted  # type: ignore[method-assign]
        await asyncio.gather(*(queue.delete() for queue in queues))
        await node.broker.checkpoints.checkpoint()
        assert sum(removed) == len(queues)
        assert max(removed) <= DISCARDS_PER_TURN


def test_the_room_of_the_log_is_shared_out_over_the_time_that_is_left() -> None:
    pace = Pace(100 * MIB)
    pace.begin(50 * MIB, 0)
    # A tenth took a second: nine more, for 50 MiB.
    assert not pace.look(50 * MIB, 0.1, 0, 1_000)
    assert not pace.look(55 * MIB, 0.1, 0, 1_000), "a second's worth may be used at once"
    assert pace.look(57 * MIB, 0.1, 0, 1_000)
    assert not pace.look(57 * MIB, 0.15, 0, 1_500), "time makes up for it"


def test_however_full_the_log_is_a_sender_waits_for_a_moment_only() -> None:
    pace = Pace(MIB)
    pace.begin(MIB, 0)
    now_ms, size, waited = 0, MIB, 0
    for _ in range(200):
        now_ms += 10
        if pace.look(size, 0.5, 0, now_ms):
            waited += 10
            assert waited <= LOG_PACE_OWED_MS + 10
        else:
            waited = 0
            size += 20 * MIB
    assert size > 20 * MIB, "somebody went on"
    idle = Pace(MIB)
    idle.begin(MIB, 0)
    assert not idle.look(MIB + LOG_PACE_BYTES_PER_S_MIN // 2, 0.5, 0, 1_000)


async def test_queues_that_are_sent_to_and_read_keep_their_order_over_checkpoints(
    tmp_path: Path,
) -> None:
    """One checkpoint behind the other, while every queue is sent to, read from its files, and read out."""
    settings = Settings(max_queue_messages=50, max_file_messages=3, sync="power")
    async with (
        queue_server(tmp_path, settings) as node,
        node.connect() as one,
        node.connect() as two,
    ):
        queues = await two.create_queues(20)
        is_done = False

        async def checkpoints() -> int:
            count = 0
            while not is_done:
                await node.broker.checkpoints.checkpoint()
                count += 1
            return count

        async def send(queue: Queue) -> None:
            for number in range(30):
                await one.send(queue.id, b"%d" % number)
                if number % 5 == 4:
                    await node.broker.checkpoints.checkpoint()  # joins the one that is under way

        async def read(queue: Queue) -> list[bytes]:
            bodies: list[bytes] = []
            while len(bodies) < 20:
                found = node.store.find(queue.id)
                assert found is not None
                if len(bodies) % 3 == 0:
                    node.store.files.close_queue(found)  # the next one comes from the files
                message = await queue.get()
                if message is not None:
                    bodies.append(message.body)
                    await message.ack()
            return bodies

        checkpointing = asyncio.create_task(checkpoints())
        async with asyncio.timeout(8 * WITHIN_S):
            sending = asyncio.gather(*(send(queue) for queue in queues))
            found = await asyncio.gather(*(read(queue) for queue in queues))
            await sending
        is_done = True
        assert await checkpointing > 2
        assert not node.broker.commits.failed.done()
        assert found == [[b"%d" % number for number in range(20)]] * len(queues)
        assert node.store.files.lost_messages == node.store.files.quarantined == 0
    async with queue_server(tmp_path, settings) as node:
        for queue in queues:
            left = node.store.find(queue.id)
            assert left is not None
            entries = [node.store.peek(left, place) for place in range(left.size)]
            assert [e.body for e in entries if e is not None] == [b"%d" % n for n in range(20, 30)]


async def test_a_checkpoint_that_is_cut_short_by_a_stop_leaves_everything_to_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread is done with the files before they are closed; the next start replays the log."""
    monkeypatch.setattr("moorline.queues.checkpoints.STOP_CHECKPOINT_MS_MAX", 1)
    async with queue_server(tmp_path, ROOMY) as node, node.connect() as moor:
        queues = await filled(moor, 2 * CHECKPOINT_GROUP_QUEUES)
        gate = Gate(monkeypatch, node.disk, "make_folders")
        checkpoint = await begun(node, gate)
        # Behind the moment at which the stop gives the checkpoint up.
        checkpoint.add_done_callback(lambda _: gate.open())
    assert checkpoint.cancelled() or checkpoint.done()
    async with queue_server(tmp_path, ROOMY) as node:
        for queue in queues:
            found = node.store.find(queue.id)
            assert found is not None
            entries = [node.store.peek(found, place) for place in range(found.size)]
            assert [entry.body for entry in entries if entry is not None] == [b"1"]
        assert node.store.files.lost_messages == node.store.files.quarantined == 0
