"""The messages of a queue as senders and readers see them: quota, order, acknowledgement, sizes."""

import asyncio
from pathlib import Path

import pytest
from tests.queues.queue_server import queue_server, take, tried

from moorline.client.moor import Moor
from moorline.config.settings import Queues as Settings
from moorline.errors import NoMessage, NotFound, QuotaExceeded, TooLarge
from moorline.limits import QUEUE_WINDOW_MAX
from moorline.net.clock import wall_ms


@pytest.mark.parametrize("sync", ["power", "process"])
async def test_j04_quota_as_the_sender_sees_it(tmp_path: Path, sync: str) -> None:
    """J04: OK, OK, OK, QUOTA; QUOTA while partly drained; OK after the marker's ack."""
    settings = Settings(
        max_queue_messages=3, max_file_messages=4, sync="power" if sync == "power" else "process"
    )
    async with queue_server(tmp_path, settings) as node, node.connect() as moor:
        queue = await moor.create_queue()
        assert [await tried(moor, queue, b"%d" % n) for n in range(5)] == ["OK"] * 3 + ["QUOTA"] * 2
        seen = []
        for left in (3, 2, 1, 0):
            assert await tried(moor, queue, b"refused") == "QUOTA"
            head = await queue.get()
            assert head is not None
            seen.append((head.is_quota_marker, head.body))
            assert await head.ack() == left
        assert seen == [(False, b"0"), (False, b"1"), (False, b"2"), (True, b"")]
        assert await tried(moor, queue, b"taken") == "OK"
        assert node.broker.counts.refused_by_quota == 6
        assert node.broker.counts.stored == 4


async def test_j04_many_sends_at_once_meet_the_quota_in_order(tmp_path: Path) -> None:
    """J04: in one frame; those refused are told apart from those stored."""
    async with queue_server(tmp_path) as node, node.connect() as moor:
        first, second = await moor.create_queues(2)
        answers = await moor.send_all(
            [(queue.id, b"%d" % n) for n in range(5) for queue in (first, second)]
        )
        kinds = [isinstance(answer, QuotaExceeded) for answer in answers]
        assert kinds == [False] * 6 + [True] * 4
        for queue in (first, second):
            assert (await queue.info()).waiting == 4
            assert (await queue.info()).is_over_quota


async def test_the_next_message_follows_an_ack_by_itself(tmp_path: Path) -> None:
    async with queue_server(tmp_path) as node, node.connect() as moor:
        queue = await moor.create_queue()
        for n in range(3):
            await moor.send(queue.id, b"%d" % n)
        messages = queue.read(window=1)
        for n in range(3):
            message = await take(messages)
            assert (message.body, message.queue) == (b"%d" % n, queue.id)
            assert node.broker.counts.delivered == n + 1
            assert await message.ack() == 2 - n
        # And one that is sent while the reader waits.
        waiting = asyncio.create_task(take(messages))
        sent = await moor.send(queue.id, b"awaited")
        assert (await waiting).id == sent


async def test_a_wrong_ack_deletes_nothing_and_names_the_head(tmp_path: Path) -> None:
    async with queue_server(tmp_path) as node, node.connect() as moor:
        queue = await moor.create_queue()
        head = await moor.send(queue.id, b"1")
        second = await moor.send(queue.id, b"2")
        messages = queue.read(window=2)
        first, following = await take(messages), await take(messages)
        with pytest.raises(NoMessage, match=f"{second} is not the head: the head is {head}"):
            await following.ack()
        assert (await queue.info()).waiting == 2
        never = await moor.send(queue.id, b"3") + 1_000
        first.id, head = never, first.id
        with pytest.raises(NoMessage, match=f"{never} is not the head: the head is {head}"):
            await first.ack()
        assert (await queue.info()).waiting == 3


async def test_an_ack_of_what_is_gone_deletes_nothing_and_is_no_error(tmp_path: Path) -> None:
    """It is done with, as its caller wished: by an earlier acknowledgement, or with its whole queue."""
    async with queue_server(tmp_path) as node, node.connect() as moor:
        queue = await moor.create_queue()
        for n in range(2):
            await moor.send(queue.id, b"%d" % n)
        messages = queue.read(window=2)
        first, second = await take(messages), await take(messages)
        assert await first.ack() == 1
        assert not first.is_gone
        assert await first.ack() == 1
        assert first.is_gone
        assert await second.ack() == 0
        assert not second.is_gone
        assert await second.ack() == 0, "also where the queue is empty now"
        assert second.is_gone
        assert node.broker.counts.acknowledged == 2
        last = await moor.send(queue.id, b"goes with its queue")
        deleted = await take(messages)
        assert deleted.id == last
        await queue.delete()
        assert await deleted.ack() == 0
        assert deleted.is_gone
        assert await moor.ack_all([deleted, first]) == [None, None]


async def test_acks_of_a_batch_are_answered_one_by_one(tmp_path: Path) -> None:
    async with queue_server(tmp_path) as node, node.connect() as moor:
        queue = await moor.create_queue()
        for n in range(3):
            await moor.send(queue.id, b"%d" % n)
        messages = queue.read(window=3)
        one, two, three = [await take(messages) for _ in range(3)]
        answers = await moor.ack_all([one, three, two, two, three])
        assert [answer is None for answer in answers] == [True, False, True, True, True]
        assert [message.is_gone for message in (one, two, three)] == [False, True, False]
        assert (await queue.info()).waiting == 0
        assert node.broker.counts.acknowledged == 3


async def test_get_is_the_head_and_changes_nothing(tmp_path: Path) -> None:
    async with queue_server(tmp_path) as node, node.connect() as moor:
        queue = await moor.create_queue()
        assert await queue.get() is None
        sent = await moor.send(queue.id, b"1")
        await moor.send(queue.id, b"2")
        for _ in range(2):
            head = await queue.get()
            assert head is not None
            assert (head.id, head.body, head.is_quota_marker) == (sent, b"1", False)
            assert abs(head.time_ms - wall_ms()) < 60_000
            last = head
        assert await last.ack() == 1
        # From the files it is the same.
        await node.broker.checkpoints.checkpoint()
        second = await queue.get()
        assert second is not None
        assert second.body == b"2"


async def test_sizes_and_unknown_queues(tmp_path: Path) -> None:
    settings = Settings(max_queue_messages=3, max_file_messages=4, message_bytes_max=1_000)
    async with queue_server(tmp_path, settings) as node, node.connect() as moor:
        queue = await moor.create_queue()
        await moor.send(queue.id, b"x" * 1_000)
        with pytest.raises(TooLarge, match="1001 bytes; at most 1000"):
            await moor.send(queue.id, b"x" * 1_001)
        assert (await queue.info()).waiting == 1
        nowhere = moor.queue(b"n" * 24)
        assert await tried(moor, nowhere, b"x") == "NOT_FOUND"
        for call in (nowhere.get, nowhere.info, nowhere.off, nowhere.delete, nowhere.block):
            with pytest.raises(NotFound):
                await call()
        with pytest.raises(NotFound):
            await take(nowhere.read())
        head = await queue.get()
        assert head is not None
        head.queue = nowhere.id
        assert await head.ack() == 0
        assert head.is_gone, "a message was in its queue: one that is not there was deleted"


# --- many at once ---------------------------------------------------------------------------------


@pytest.mark.parametrize("sync", ["power", "process"])
async def test_j19_large_records_of_concurrent_senders_never_mix(tmp_path: Path, sync: str) -> None:
    """J19: over 1, 4 and 21 KiB from many senders into few queues, with checkpoints in between."""
    settings = Settings(
        max_queue_messages=5_000,
        max_file_messages=5_001,
        message_bytes_max=64 * 1_024,
        sync="power" if sync == "power" else "process",
    )
    senders, each = 8, 24
    sizes = [1_025, 4_097, 21 * 1_024 + 1, 10]

    def body(sender: int, n: int) -> bytes:
        size = sizes[(sender + n) % len(sizes)]
        return b"%02d:%04d:" % (sender, n) + bytes([65 + (sender * each + n) % 26]) * size

    def check(bodies: list[bytes]) -> None:
        assert len(bodies) == senders * each // 2
        for sender in range(senders):
            mine = [found for found in bodies if found.startswith(b"%02d:" % sender)]
            numbers = [int(found[3:7]) for found in mine]
            assert numbers == sorted(numbers), "the order of one sender is kept"
            assert mine == [body(sender, n) for n in numbers]

    async with queue_server(tmp_path, settings) as node, node.connect() as owner:
        queues = [queue.id for queue in await owner.create_queues(2)]

        async def send(sender: int) -> None:
            async with node.connect() as moor:
                for n in range(each):
                    await moor.send(queues[n % 2], body(sender, n))
                    if sender == 0 and n % 4 == 3:
                        await node.broker.checkpoints.checkpoint()

        await asyncio.gather(*(send(sender) for sender in range(senders)))
        assert node.broker.checkpoints.count == each // 4
        live = owner.queue(queues[0]).read(window=QUEUE_WINDOW_MAX)
        check([(await take(live)).body for _ in range(senders * each // 2)])
    async with queue_server(tmp_path, settings) as node, node.connect() as owner:
        for queue_id in queues:
            stored = owner.queue(queue_id).read(window=QUEUE_WINDOW_MAX)
            check([(await take(stored)).body for _ in range(senders * each // 2)])


@pytest.mark.parametrize("sync", ["power", "process"])
@pytest.mark.slow
async def test_senders_and_a_reader_at_full_speed_lose_and_repeat_nothing(
    tmp_path: Path, sync: str
) -> None:
    """Every answered send is delivered once, in the order of the ids, through many checkpoints."""
    settings = Settings(
        max_queue_messages=64,
        max_file_messages=65,
        log_bytes_max=1 << 20,
        sync="power" if sync == "power" else "process",
    )
    async with (
        queue_server(tmp_path, settings) as node,
        node.connect() as one,
        node.connect() as two,
        node.connect() as reader,
    ):
        queue = await reader.create_queue()
        sent: list[int] = []
        goal = 600

        async def send(moor: Moor) -> None:
            while len(sent) < goal:
                answers = await moor.send_all([(queue.id, b"x" * 1_000)] * 16)
                sent.extend(answer for answer in answers if isinstance(answer, int))

        sending = asyncio.gather(send(one), send(two))
        got: list[int] = []
        messages = queue.read(window=8)
        while not sending.done() or len(got) < len(sent):
            message = await take(messages)
            if not message.is_quota_marker:
                got.append(message.id)
            await message.ack()
        await sending
        assert got == sorted(sent)
        assert node.broker.checkpoints.count >= 1
        assert node.store.log.size_bytes <= settings.log_bytes_max * 2
