"""Queues over real sockets: what senders, readers and operators see."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from pathlib import Path
from typing import cast

import pytest
import trustme

from moorline.broker.queues import QueueBroker
from moorline.client.moor import Connecting, Moor, connect
from moorline.client.queue import Message
from moorline.client.queue import Queue as ClientQueue
from moorline.config.addresses import Address
from moorline.config.settings import Queues as Settings
from moorline.errors import (
    CallFailed,
    ConnectionLost,
    NodeDiskFull,
    NoMessage,
    NotAuthorized,
    NotFound,
    QueueBlocked,
    QueueDamaged,
    QueueOff,
    QuotaExceeded,
    Refused,
    SubscriptionEnded,
    TooLarge,
)
from moorline.journal.disk import FileDisk
from moorline.journal.folder import path_of
from moorline.journal.rebuild import rebuilt_index
from moorline.journal.store import Store
from moorline.limits import FRAME_BYTES_MAX, QUEUE_WINDOW_MAX, WRITE_BUFFER_BYTES_MAX
from moorline.net.clock import wall_ms
from moorline.net.listener import Admission, Listeners
from moorline.net.tls import server_context
from moorline.node.queues import options
from moorline.wire.link import Welcome

SMALL = Settings(max_queue_messages=3, max_file_messages=4)
ROOMY = Settings(max_queue_messages=5_000, max_file_messages=5_001)
WITHIN_S = 10


class Harbour:
    """A broker on files behind a listener: a node without its catalog."""

    def __init__(self, folder: Path, settings: Settings, tls: ssl.SSLContext | None) -> None:
        self.settings = settings
        self.disk = FileDisk(folder)
        self.store = Store(self.disk, options(settings), wall_ms)
        self.store.open(rebuilt_index)
        self.broker = QueueBroker(self.store, settings)
        self.listeners = Listeners(
            self.broker.handlers(),
            lambda version, keepalive_ms: Welcome(version, "n", keepalive_ms=keepalive_ms),
            Admission(
                anonymous="never" if tls else "loopback",
                connections_max=200,
                hello_timeout_ms=5_000,
                keepalive_ms=15_000,
            ),
        )
        self.address = Address("tls" if tls else "tcp", "127.0.0.1", 0)
        self.tls = tls

    def connect(self) -> Connecting:
        return connect(str(self.address))

    async def open(self) -> None:
        (self.address,) = await self.listeners.open(self.address, self.tls)

    async def close(self) -> None:
        await self.listeners.close()
        await self.broker.commits.close()
        self.store.close()
        assert self.disk.open_handles == 0


@contextlib.asynccontextmanager
async def harbour(
    folder: Path, settings: Settings = SMALL, tls: ssl.SSLContext | None = None
) -> AsyncIterator[Harbour]:
    made = Harbour(folder / "queues", settings, tls)
    await made.open()
    try:
        yield made
    finally:
        await made.close()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WITHIN_S):
        while not condition():
            await asyncio.sleep(0.001)


async def take(messages: AsyncIterator[Message]) -> Message:
    async with asyncio.timeout(WITHIN_S):
        return await anext(messages)


async def refusal(call: "asyncio.Future[object] | asyncio.Task[object]") -> str:
    try:
        await call
    except CallFailed as error:
        return error.code
    return "OK"


async def tried(moor: Moor, queue: ClientQueue, body: bytes) -> str:
    """How a send ends: OK or the code of its refusal."""
    return await refusal(asyncio.ensure_future(moor.send(queue.id, body)))


# --- quota, order, acknowledgement ----------------------------------------------------------------


@pytest.mark.parametrize("sync", ["power", "process"])
async def test_j04_quota_as_the_sender_sees_it(tmp_path: Path, sync: str) -> None:
    """J04: OK, OK, OK, QUOTA; QUOTA while partly drained; OK after the marker's ack."""
    settings = Settings(
        max_queue_messages=3, max_file_messages=4, sync="power" if sync == "power" else "process"
    )
    async with harbour(tmp_path, settings) as node, node.connect() as moor:
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
    async with harbour(tmp_path) as node, node.connect() as moor:
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
    async with harbour(tmp_path) as node, node.connect() as moor:
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
    async with harbour(tmp_path) as node, node.connect() as moor:
        queue = await moor.create_queue()
        head = await moor.send(queue.id, b"1")
        second = await moor.send(queue.id, b"2")
        messages = queue.read(window=2)
        first, following = await take(messages), await take(messages)
        with pytest.raises(NoMessage, match=f"{second} is not the head: the head is {head}"):
            await following.ack()
        assert (await queue.info()).waiting == 2
        await first.ack()
        with pytest.raises(NoMessage, match=f"the head is {second}"):
            await first.ack()
        assert await following.ack() == 0
        with pytest.raises(NoMessage, match="the queue is empty"):
            await following.ack()


async def test_acks_of_a_batch_are_answered_one_by_one(tmp_path: Path) -> None:
    async with harbour(tmp_path) as node, node.connect() as moor:
        queue = await moor.create_queue()
        for n in range(3):
            await moor.send(queue.id, b"%d" % n)
        messages = queue.read(window=3)
        one, two, three = [await take(messages) for _ in range(3)]
        answers = await moor.ack_all([one, three, two, two, three])
        assert [answer is None for answer in answers] == [True, False, True, False, True]
        assert (await queue.info()).waiting == 0
        assert node.broker.counts.acknowledged == 3


async def test_get_is_the_head_and_changes_nothing(tmp_path: Path) -> None:
    async with harbour(tmp_path) as node, node.connect() as moor:
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
        await node.broker.commits.checkpoint()
        second = await queue.get()
        assert second is not None
        assert second.body == b"2"


async def test_sizes_and_unknown_queues(tmp_path: Path) -> None:
    settings = Settings(max_queue_messages=3, max_file_messages=4, message_bytes_max=1_000)
    async with harbour(tmp_path, settings) as node, node.connect() as moor:
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
        with pytest.raises(NotFound):
            await head.ack()


# --- subscriptions --------------------------------------------------------------------------------


async def test_the_window_bounds_what_is_on_its_way(tmp_path: Path) -> None:
    async with harbour(tmp_path, ROOMY) as node, node.connect() as moor:
        queue = await moor.create_queue()
        await moor.send_all([(queue.id, b"%d" % n) for n in range(50)])
        messages = queue.read(window=4)
        delivered = node.broker.counts
        taken = [await take(messages) for _ in range(4)]
        for n in range(46):
            await queue.info()
            assert delivered.delivered == 4 + n, "no more than four are on their way"
            await taken.pop(0).ack()
            taken.append(await take(messages))
        assert [message.body for message in taken] == [b"%d" % n for n in range(46, 50)]


@pytest.mark.parametrize("window", [0, -1, QUEUE_WINDOW_MAX + 1])
async def test_a_window_out_of_bounds_is_refused(tmp_path: Path, window: int) -> None:
    async with harbour(tmp_path) as node, node.connect() as moor:
        queue = await moor.create_queue()
        async with asyncio.timeout(WITHIN_S):
            with pytest.raises((Refused, ConnectionLost), match="MALFORMED"):
                await anext(queue.read(window=window))
        async with node.connect() as other:
            assert (await other.queue(queue.id).info()).waiting == 0


async def test_another_reader_takes_over_and_gets_what_was_not_acknowledged(
    tmp_path: Path,
) -> None:
    async with harbour(tmp_path) as node, node.connect() as one, node.connect() as two:
        queue = await one.create_queue()
        for n in range(3):
            await one.send(queue.id, b"%d" % n)
        old, new = queue.read(window=2), two.queue(queue.id).read(window=2)
        first = await take(old)
        await first.ack()
        assert (await take(old)).body == b"1"
        assert (await take(new)).body == b"1"
        # What was on its way to the old one is still there; then it learns that it is over.
        assert (await take(old)).body == b"2"
        with pytest.raises(SubscriptionEnded, match="TAKEN_OVER"):
            await take(old)
        # The one who lost it, leaving, takes nothing from the new one.
        second = await take(new)
        assert second.body == b"2"
        assert (await queue.info()).is_subscribed
        assert len(node.broker.subscriptions) == 1


async def test_whoever_reconnects_gets_it_again(tmp_path: Path) -> None:
    """J12 at the protocol: delivered but not acknowledged is delivered again."""
    async with harbour(tmp_path) as node:
        async with node.connect() as moor:
            queue = await moor.create_queue()
            sent = [await moor.send(queue.id, b"%d" % n) for n in range(3)]
            messages = queue.read(window=3)
            assert [(await take(messages)).id for _ in range(3)] == sent
        await until(lambda: len(node.broker.subscriptions) == 0)
        async with node.connect() as moor:
            messages = moor.queue(queue.id).read(window=3)
            again = [await take(messages) for _ in range(3)]
            assert [message.id for message in again] == sent
            assert await moor.ack_all(again) == [None] * 3


async def test_j12_a_restart_delivers_again_and_keeps_the_marker(tmp_path: Path) -> None:
    """J12: after a clean stop, which checkpoints."""
    async with harbour(tmp_path) as node, node.connect() as moor:
        queue = await moor.create_queue()
        sent = [await moor.send(queue.id, b"%d" % n) for n in range(3)]
        assert await tried(moor, queue, b"refused") == "QUOTA"
        assert (await take(queue.read())).id == sent[0]
    async with harbour(tmp_path) as node, node.connect() as moor:
        assert node.store.replayed == 0
        queue = moor.queue(queue.id)
        assert await tried(moor, queue, b"refused") == "QUOTA"
        messages = queue.read()
        found = [await take(messages) for _ in range(4)]
        assert [message.id for message in found[:3]] == sent
        assert found[3].is_quota_marker


async def test_a_reader_that_stops_leaves_the_queue_to_the_next(tmp_path: Path) -> None:
    async with harbour(tmp_path) as node, node.connect() as moor:
        queue = await moor.create_queue()
        await moor.send(queue.id, b"1")
        messages = queue.read()
        assert (await take(messages)).body == b"1"
        await cast("AsyncGenerator[Message]", messages).aclose()
        await until(lambda: len(node.broker.subscriptions) == 0)
        assert not (await queue.info()).is_subscribed
        assert (await take(queue.read())).body == b"1"


async def test_reading_again_after_a_break_goes_on(tmp_path: Path) -> None:
    async with harbour(tmp_path) as node, node.connect() as moor:
        queue = await moor.create_queue()
        await moor.send(queue.id, b"1")
        async for message in queue:
            assert message.body == b"1"
            break
        again = queue.read()
        first = await take(again)
        await first.ack()
        # A whole round trip later the subscription of this reader must be alive.
        assert (await queue.info()).is_subscribed
        await moor.send(queue.id, b"2")
        assert (await take(again)).body == b"2"


async def filled(moor: Moor, count: int) -> ClientQueue:
    """A queue with so many numbered messages of 16 KB."""
    queue = await moor.create_queue()
    bodies = [b"%06d" % n + b"x" * 16_000 for n in range(count)]
    for start in range(0, count, 50):
        await moor.send_all([(queue.id, body) for body in bodies[start : start + 50]])
    return queue


async def test_a_slow_reader_with_a_full_buffer_loses_nothing(tmp_path: Path) -> None:
    """Others are served meanwhile; all comes in order when it reads again."""
    count, more = 1_000, 20
    async with harbour(tmp_path, ROOMY) as node, node.connect() as slow, node.connect() as other:
        queue = await filled(other, count)
        slow._caller.hold_reading("a slow test")
        messages = slow.queue(queue.id).read(window=QUEUE_WINDOW_MAX)
        first = asyncio.create_task(take(messages))
        await until(lambda: any(not session.writable for session in node.listeners.sessions))
        # While it stalls its queue takes messages, and they wait; others are served.
        before = node.broker.counts.delivered
        for n in range(count, count + more):
            assert await other.send(queue.id, b"%06d" % n)
        await until(lambda: bool(node.broker.subscriptions._stalled))
        elsewhere = await other.create_queue()
        await other.send(elsewhere.id, b"quick")
        assert (await take(elsewhere.read())).body == b"quick"
        assert node.broker.counts.delivered == before + 1
        slow._caller.release_reading("a slow test")
        found = [await first] + [await take(messages) for _ in range(count + more - 1)]
        assert [message.body[:6] for message in found] == [b"%06d" % n for n in range(count + more)]
        assert await slow.ack_all(found) == [None] * (count + more)
        assert (await other.queue(queue.id).info()).waiting == 0


async def test_a_slow_reader_that_leaves_leaves_everything(tmp_path: Path) -> None:
    async with harbour(tmp_path, ROOMY) as node, node.connect() as other:
        queue = await filled(other, 1_000)
        async with node.connect() as slow:
            slow._caller.hold_reading("a slow test")
            first = asyncio.create_task(take(slow.queue(queue.id).read(QUEUE_WINDOW_MAX)))
            await until(lambda: any(not session.writable for session in node.listeners.sessions))
            await other.send(queue.id, b"stalled")
            await until(lambda: bool(node.broker.subscriptions._stalled))
            slow._caller.abort()
            with pytest.raises(ConnectionLost):
                await first
        await until(lambda: len(node.broker.subscriptions) == 0)
        assert not node.broker.subscriptions._stalled
        messages = other.queue(queue.id).read(window=QUEUE_WINDOW_MAX)
        assert [(await take(messages)).body[:6] for _ in range(1_000)][-1] == b"000999"
        assert (await take(messages)).body == b"stalled"


async def test_what_waits_for_one_slow_reader_is_bounded(tmp_path: Path) -> None:
    async with harbour(tmp_path, ROOMY) as node, node.connect() as slow, node.connect() as other:
        queue = await filled(other, 1_000)
        slow._caller.hold_reading("a slow test")
        first = asyncio.create_task(take(slow.queue(queue.id).read(QUEUE_WINDOW_MAX)))
        await until(lambda: any(not session.writable for session in node.listeners.sessions))
        await other.create_queue()
        waiting = [
            session._transport.get_write_buffer_size()
            for session in node.listeners.sessions
            if session._transport is not None
        ]
        first.cancel()
        # The bound, and at most one frame more.
        assert max(waiting) <= WRITE_BUFFER_BYTES_MAX + FRAME_BYTES_MAX


async def test_a_reader_that_comes_during_the_commit_gets_the_message(tmp_path: Path) -> None:
    """SEND and SUB in one frame: the message is not committed yet when the reader is served."""
    async with harbour(tmp_path) as node, node.connect() as moor:
        queue = await moor.create_queue()
        sending = asyncio.create_task(moor.send(queue.id, b"just now"))
        reading = asyncio.create_task(anext_of(queue))
        sent = await sending
        # Round trips later it must have come: nothing else will happen on this queue.
        for _ in range(20):
            assert (await queue.info()).waiting == 1
        is_delivered = reading.done()
        reading.cancel()
        assert is_delivered
        assert (await reading).id == sent


async def anext_of(queue: ClientQueue) -> Message:
    return await anext(queue.read())


async def test_only_what_is_committed_is_delivered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message is on disk before its sender is answered and before its reader gets it."""
    async with harbour(tmp_path) as node, node.connect() as moor:
        queue = await moor.create_queue()
        waiting = asyncio.create_task(take(queue.read()))
        await until(lambda: len(node.broker.subscriptions) == 1)
        write, held = node.store.write, asyncio.Event()
        loop = asyncio.get_running_loop()

        def slow_write(batch: object) -> None:
            asyncio.run_coroutine_threadsafe(held.wait(), loop).result(WITHIN_S)
            write(batch)  # type: ignore[arg-type]

        monkeypatch.setattr(node.store, "write", slow_write)
        sending = asyncio.create_task(moor.send(queue.id, b"slow"))
        await until(lambda: node.store.writing is not None)
        # The queue has it in memory, and a whole round trip later nobody has heard of it.
        assert await queue.get() is None
        assert node.broker.counts.delivered == 0
        assert not sending.done()
        held.set()
        assert (await waiting).id == await sending


# --- off, deleted, blocked, damaged, full ---------------------------------------------------------


async def test_off_takes_no_more_but_can_be_read(tmp_path: Path) -> None:
    async with harbour(tmp_path) as node, node.connect() as moor:
        queue = await moor.create_queue()
        await moor.send(queue.id, b"before")
        await queue.off()
        with pytest.raises(QueueOff):
            await moor.send(queue.id, b"after")
        assert (await queue.info()).is_suspended
        message = await take(queue.read())
        assert (message.body, await message.ack()) == (b"before", 0)
    async with harbour(tmp_path) as node, node.connect() as moor:
        assert await tried(moor, moor.queue(queue.id), b"after a restart") == "OFF"


async def test_j18_deleting_while_subscribed_tells_the_reader(tmp_path: Path) -> None:
    """J18: the subscriber gets END; afterwards there is nothing of that id."""
    async with harbour(tmp_path) as node, node.connect() as reader, node.connect() as owner:
        queue = await reader.create_queue()
        await reader.send(queue.id, b"1")
        await node.broker.commits.checkpoint()
        folder = path_of(queue.id, node.settings.folder_levels)
        assert node.disk.exists(folder)
        messages = queue.read()
        message = await take(messages)
        await owner.queue(queue.id).delete()
        with pytest.raises(SubscriptionEnded, match="DELETED"):
            await take(messages)
        with pytest.raises(NotFound):
            await message.ack()
        assert await tried(reader, queue, b"2") == "NOT_FOUND"
        assert not node.disk.exists(folder)


async def test_j18_deleting_while_others_write_read_and_expire(tmp_path: Path) -> None:
    """J18: they get "not found", and no orphan files are left."""
    settings = Settings(max_queue_messages=50, max_file_messages=51, sync="process")
    async with harbour(tmp_path, settings) as node, node.connect() as owner:
        codes: set[str] = set()

        async def write(moor: Moor, queue: ClientQueue) -> None:
            code = "OK"
            while code != "NOT_FOUND":
                code = await tried(moor, queue, b"x" * 500)
                codes.add(code)

        async def read(queue: ClientQueue) -> str:
            try:
                async for message in queue.read():
                    with contextlib.suppress(NoMessage):  # it has expired on its way
                        await message.ack()
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
                await node.broker.commits.checkpoint()
                checkpointing = asyncio.create_task(node.broker.commits.checkpoint())
                await queue.delete()
                async with asyncio.timeout(WITHIN_S):
                    await asyncio.gather(*work, checkpointing)
                    assert await reading in {"NOT_FOUND", "SUBSCRIPTION_ENDED"}
        assert codes <= {"OK", "QUOTA", "NOT_FOUND"}
        await node.broker.commits.checkpoint()
        assert (await owner.list_queues()).total == 0
    files = [path for path in (tmp_path / "queues").rglob("*") if path.is_file()]
    assert [path.name for path in files if "messages" in str(path)] == []


async def test_blocked_is_the_operators_and_stops_everything(tmp_path: Path) -> None:
    async with harbour(tmp_path) as node, node.connect() as moor, node.connect() as operator:
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
    async with harbour(tmp_path) as node, node.connect() as moor:
        bad, good = await moor.create_queues(2)
        for queue in (bad, good):
            await moor.send(queue.id, b"1")
    state = tmp_path / "queues" / path_of(bad.id, SMALL.folder_levels) / "queue.log"
    state.write_text("bad\nworse\n")
    async with harbour(tmp_path) as node, node.connect() as moor:
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


async def test_a_nearly_full_disk_refuses_messages_but_no_acks(tmp_path: Path) -> None:
    async with harbour(tmp_path) as node, node.connect() as moor:
        queue = await moor.create_queue()
        await moor.send(queue.id, b"1")
        node.broker.is_disk_full = True
        with pytest.raises(NodeDiskFull):
            await moor.send(queue.id, b"2")
        head = await queue.get()
        assert head is not None
        assert await head.ack() == 0
        node.broker.is_disk_full = False
        await moor.send(queue.id, b"3")


async def test_a_failed_write_answers_nobody_and_fails_the_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a failed fsync nothing may be promised."""
    async with harbour(tmp_path) as node, node.connect() as moor:
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
    async with harbour(tmp_path) as node, node.connect() as moor:
        queue = await moor.create_queue()
        held = asyncio.Event()
        loop = asyncio.get_running_loop()

        def broken(_: object) -> None:
            asyncio.run_coroutine_threadsafe(held.wait(), loop).result(WITHIN_S)
            raise OSError(5, "the disk is broken")

        monkeypatch.setattr(node.store, "write", broken)
        sending = asyncio.create_task(moor.send(queue.id, b"promised?"))
        await until(lambda: node.store.writing is not None)
        checkpoint = asyncio.create_task(node.broker.commits.checkpoint())
        await asyncio.sleep(0)
        held.set()
        try:
            await checkpoint
        finally:
            sending.cancel()
        assert node.broker.commits.failed.done()


# --- who may do what ------------------------------------------------------------------------------


class Papers:
    """One authority, one server, and clients by name."""

    def __init__(self, folder: Path, *names: str) -> None:
        self.folder = folder
        authority = trustme.CA()
        self.ca = folder / "ca.pem"
        authority.cert_pem.write_to_path(str(self.ca))
        authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(
            str(folder / "server.pem")
        )
        for name in names:
            cert = authority.issue_cert(f"{name}@example.org", common_name=name)
            cert.private_key_and_cert_chain_pem.write_to_path(str(folder / f"{name}.pem"))

    def context(self) -> ssl.SSLContext:
        server = str(self.folder / "server.pem")
        return server_context(server, server, str(self.ca))

    def connect(self, node: Harbour, name: str) -> Connecting:
        mine = self.folder / f"{name}.pem"
        return connect(str(node.address), ca=self.ca, certificate=mine, key=mine)


@pytest.fixture(scope="module")
def papers(tmp_path_factory: pytest.TempPathFactory) -> Papers:
    return Papers(tmp_path_factory.mktemp("papers"), "billing", "shipping", "captain")


GUARDED = Settings(max_queue_messages=3, max_file_messages=4, operators=["captain"])


async def test_only_the_owner_reads_and_changes_a_queue(tmp_path: Path, papers: Papers) -> None:
    """AUTH between two identities: anyone who knows the id may send, the owner alone may read."""
    async with (
        harbour(tmp_path, GUARDED, papers.context()) as node,
        papers.connect(node, "billing") as owner,
        papers.connect(node, "shipping") as stranger,
    ):
        queue = await owner.create_queue()
        theirs = stranger.queue(queue.id)
        sent = await stranger.send(queue.id, b"anyone may send")
        for call in (theirs.get, theirs.off, theirs.delete, theirs.info, theirs.block):
            with pytest.raises(NotAuthorized):
                await call()
        with pytest.raises(NotAuthorized):
            await take(theirs.read())
        with pytest.raises(NotAuthorized):
            await stranger.list_queues()
        mine = await queue.get()
        assert mine is not None
        (refused,) = await stranger.ack_all([mine])
        assert isinstance(refused, NotAuthorized)
        info = await queue.info()
        assert (info.waiting, info.is_suspended, info.is_blocked) == (1, False, False)
        message = await take(queue.read())
        assert message.id == sent
        # The owner is no operator.
        with pytest.raises(NotAuthorized):
            await queue.block()
        assert await message.ack() == 0


async def test_operators_see_block_and_delete_but_do_not_read(
    tmp_path: Path, papers: Papers
) -> None:
    async with (
        harbour(tmp_path, GUARDED, papers.context()) as node,
        papers.connect(node, "billing") as owner,
        papers.connect(node, "captain") as operator,
    ):
        queue = await owner.create_queue()
        await owner.send(queue.id, b"private")
        seen = operator.queue(queue.id)
        assert (await operator.list_queues()).queues == [(queue.id, 1)]
        assert (await seen.info()).waiting == 1
        for call in (seen.get, seen.off):
            with pytest.raises(NotAuthorized):
                await call()
        await seen.block()
        await seen.delete()
        with pytest.raises(NotFound):
            await queue.info()


async def test_ownership_survives_restarts(tmp_path: Path, papers: Papers) -> None:
    """From the log, and from the index after a checkpoint."""
    queue_id = b""
    for turn in range(3):
        async with (
            harbour(tmp_path, GUARDED, papers.context()) as node,
            papers.connect(node, "billing") as owner,
            papers.connect(node, "shipping") as stranger,
        ):
            if not turn:
                # An owner with a smaller number, so that numbers cannot be right by chance.
                await stranger.create_queue()
                queue_id = (await owner.create_queue()).id
            await stranger.send(queue_id, b"%d" % turn)
            with pytest.raises(NotAuthorized):
                await stranger.queue(queue_id).get()
            head = await owner.queue(queue_id).get()
            assert head is not None
            assert head.body == b"%d" % turn
            await head.ack()


async def test_the_operator_pages_through_all_queues(tmp_path: Path) -> None:
    async with harbour(tmp_path) as node, node.connect() as moor:
        queues = await moor.create_queues(25)
        await node.broker.commits.checkpoint()
        queues += await moor.create_queues(25)
        doomed = [queues.pop(3), queues.pop(-3)]
        for queue in doomed:
            await queue.delete()
        found: list[bytes] = []
        while page := (await moor.list_queues(found[-1] if found else b"", 7)).queues:
            found += [queue_id for queue_id, _ in page]
        assert found == sorted(queue.id for queue in queues)
        assert (await moor.list_queues()).total == 48


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

    async with harbour(tmp_path, settings) as node, node.connect() as owner:
        queues = [queue.id for queue in await owner.create_queues(2)]

        async def send(sender: int) -> None:
            async with node.connect() as moor:
                for n in range(each):
                    await moor.send(queues[n % 2], body(sender, n))
                    if sender == 0 and n % 4 == 3:
                        await node.broker.commits.checkpoint()

        await asyncio.gather(*(send(sender) for sender in range(senders)))
        assert node.broker.commits.checkpoints == each // 4
        live = owner.queue(queues[0]).read(window=QUEUE_WINDOW_MAX)
        check([(await take(live)).body for _ in range(senders * each // 2)])
    async with harbour(tmp_path, settings) as node, node.connect() as owner:
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
        harbour(tmp_path, settings) as node,
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
        assert node.broker.commits.checkpoints >= 1
        assert node.store.log.size_bytes <= settings.log_bytes_max * 2
