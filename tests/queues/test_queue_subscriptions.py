"""Readers of a queue: windows, takeovers, restarts, slow ones, and those that come during a commit."""

import asyncio
from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from typing import cast

import pytest
from tests.queues.queue_server import ROOMY, WITHIN_S, queue_server, take, tried
from tests.waiting import until

from moorline.client.moor import Moor
from moorline.client.queue import Message
from moorline.client.queue import Queue as ClientQueue
from moorline.core.queue.queue import Queue as StoredQueue
from moorline.errors import CallFailed, ConnectionLost, SubscriptionEnded
from moorline.limits import FRAME_BYTES_MAX, QUEUE_WINDOW_MAX, WRITE_BUFFER_BYTES_MAX
from moorline.net import slices
from moorline.net.slices import in_slices
from moorline.queues import subscription
from moorline.queues.subscription import Subscriber, Subscriptions
from moorline.wire.queue import Subscribe

# --- windows, and who has the queue ---------------------------------------------------------------


async def test_the_window_bounds_what_is_on_its_way(tmp_path: Path) -> None:
    async with queue_server(tmp_path, ROOMY) as node, node.connect() as moor:
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
    async with queue_server(tmp_path) as node, node.connect() as moor:
        queue = await moor.create_queue()
        async with asyncio.timeout(WITHIN_S):
            with pytest.raises(
                CallFailed, match=r"MALFORMED: Subscribe\.window: expected `int` [<>]= "
            ):
                await anext(queue.read(window=window))
        assert (await queue.info()).waiting == 0, "the link is as it was"


async def test_another_reader_takes_over_and_gets_what_was_not_acknowledged(
    tmp_path: Path,
) -> None:
    async with queue_server(tmp_path) as node, node.connect() as one, node.connect() as two:
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


async def test_a_reader_that_is_cancelled_leaves_nothing_on_its_way_to_the_next(
    tmp_path: Path,
) -> None:
    """Whatever the first one was delivered and did not take comes to the second, and comes once."""
    async with queue_server(tmp_path, ROOMY) as node, node.connect() as moor:
        for turns in range(25):
            queue = await moor.create_queue()
            sent = [await moor.send(queue.id, b"%d" % n) for n in range(8)]
            cancelled = cast("AsyncGenerator[Message, None]", queue.read(window=8))
            reading = asyncio.create_task(_next_of(cancelled))
            for _ in range(turns):
                await asyncio.sleep(0)
            reading.cancel()
            await asyncio.wait([reading])
            await cancelled.aclose()
            messages = queue.read(window=32)
            first = [await take(messages)]
            sent.append(await moor.send(queue.id, b"the last"))
            while first[-1].body != b"the last":
                first.append(await take(messages))
            assert [message.id for message in first] == sent


async def _next_of(messages: AsyncGenerator[Message, None]) -> Message:
    return await anext(messages)


async def test_whoever_reconnects_gets_it_again(tmp_path: Path) -> None:
    """J12 at the protocol: delivered but not acknowledged is delivered again."""
    async with queue_server(tmp_path) as node:
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
    async with queue_server(tmp_path) as node, node.connect() as moor:
        queue = await moor.create_queue()
        sent = [await moor.send(queue.id, b"%d" % n) for n in range(3)]
        assert await tried(moor, queue, b"refused") == "QUOTA"
        assert (await take(queue.read())).id == sent[0]
    async with queue_server(tmp_path) as node, node.connect() as moor:
        assert node.store.replay.count == 0
        queue = moor.queue(queue.id)
        assert await tried(moor, queue, b"refused") == "QUOTA"
        messages = queue.read()
        found = [await take(messages) for _ in range(4)]
        assert [message.id for message in found[:3]] == sent
        assert found[3].is_quota_marker


async def test_a_reader_that_stops_leaves_the_queue_to_the_next(tmp_path: Path) -> None:
    async with queue_server(tmp_path) as node, node.connect() as moor:
        queue = await moor.create_queue()
        await moor.send(queue.id, b"1")
        messages = queue.read()
        assert (await take(messages)).body == b"1"
        await cast("AsyncGenerator[Message]", messages).aclose()
        await until(lambda: len(node.broker.subscriptions) == 0)
        assert not (await queue.info()).is_subscribed
        assert (await take(queue.read())).body == b"1"


async def test_reading_again_after_a_break_goes_on(tmp_path: Path) -> None:
    async with queue_server(tmp_path) as node, node.connect() as moor:
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


# --- slow readers ---------------------------------------------------------------------------------


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
    async with (
        queue_server(tmp_path, ROOMY) as node,
        node.connect() as slow,
        node.connect() as other,
    ):
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
    async with queue_server(tmp_path, ROOMY) as node, node.connect() as other:
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
    async with (
        queue_server(tmp_path, ROOMY) as node,
        node.connect() as slow,
        node.connect() as other,
    ):
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


# --- readers and commits --------------------------------------------------------------------------


async def test_a_reader_that_comes_during_the_commit_gets_the_message(tmp_path: Path) -> None:
    """SEND and SUB in one frame: the message is not committed yet when the reader is served."""
    async with queue_server(tmp_path) as node, node.connect() as moor:
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
    async with queue_server(tmp_path) as node, node.connect() as moor:
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


# --- readers of very many queues ------------------------------------------------------------------

MANY = 300


async def read_all(reader: Moor, queues: list[ClientQueue]) -> None:
    """As a client that wants the messages of all of them."""
    await reader._caller.call_all(
        [lambda call, queue=queue: Subscribe(call, queue.id, 8) for queue in queues]  # type: ignore[misc]
    )


class Freed:
    """How many queues were freed, and how many in one turn of the loop at most."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.all = self.now = self.most = 0
        free = Subscriptions._free

        def counted(subscriptions: Subscriptions, queue: StoredQueue) -> None:
            self.all += 1
            self.now += 1
            self.most = max(self.most, self.now)
            asyncio.get_running_loop().call_soon(self._next_turn)
            free(subscriptions, queue)

        monkeypatch.setattr(Subscriptions, "_free", counted)

    def _next_turn(self) -> None:
        self.now = 0


async def test_the_queues_of_whoever_goes_are_freed_in_slices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 100,000 it was one turn of the loop."""
    monkeypatch.setattr(subscription, "QUEUES_FREED_AT_ONCE_MAX", 10)
    monkeypatch.setattr(slices, "SLICE_MS", 0)
    async with queue_server(tmp_path, ROOMY) as node, node.connect() as reader:
        await read_all(reader, await reader.create_queues(MANY))
        assert len(node.broker.subscriptions) == MANY
        freed = Freed(monkeypatch)
        reader._caller.abort()
        await until(lambda: freed.all == MANY)
        assert freed.most == 1
        await until(lambda: not node.broker.subscriptions._leaving)


async def test_a_queue_that_is_not_freed_yet_goes_to_whoever_wants_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its next reader keeps it, and a message that comes meanwhile finds the service that waits for it."""
    monkeypatch.setattr(subscription, "QUEUES_FREED_AT_ONCE_MAX", 10)
    gate = asyncio.Event()

    async def gated(steps: Generator[None, None, None], principal: str = "") -> None:
        await gate.wait()
        await in_slices(steps, principal)

    monkeypatch.setattr(subscription, "in_slices", gated)
    async with (
        queue_server(tmp_path, ROOMY) as node,
        node.connect() as reader,
        node.connect() as other,
    ):
        queues = await other.create_queues(MANY)
        await read_all(reader, queues)
        reader._caller.abort()
        subscriptions, routed = node.broker.subscriptions, list[bytes]()
        await until(lambda: bool(subscriptions._leaving))
        subscriptions.route = lambda queue: routed.append(queue.id)
        await other.send(queues[0].id, b"1")
        await until(lambda: routed == [queues[0].id])
        messages = other.queue(queues[1].id).read()
        waiting = asyncio.create_task(take(messages))
        await until(lambda: len(subscriptions) == 1)
        gate.set()
        await until(lambda: not subscriptions._leaving)
        await other.send(queues[1].id, b"2")
        assert (await waiting).body == b"2"
        assert routed == [queues[0].id], "the one that is read goes to no service"


async def test_what_waits_for_a_slow_reader_is_not_passed_over_again_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 100,000 queues each pass took tens of milliseconds, and sent some messages."""
    async with (
        queue_server(tmp_path, ROOMY) as node,
        node.connect() as slow,
        node.connect() as other,
    ):
        queues = await other.create_queues(MANY)
        await read_all(slow, queues)
        slow._caller.hold_reading("a slow test")
        for _ in range(4):
            await other.send_all([(queue.id, b"x" * 16_000) for queue in queues])
        stalled = node.broker.subscriptions._stalled
        await until(lambda: bool(stalled))
        waited = max(map(len, stalled.values()))
        served = 0
        serve = Subscriptions._serve

        def counted(self: Subscriptions, queue: StoredQueue, held: Subscriber) -> None:
            nonlocal served
            served += 1
            serve(self, queue, held)

        monkeypatch.setattr(Subscriptions, "_serve", counted)
        slow._caller.release_reading("a slow test")
        await until(lambda: node.broker.counts.delivered == 4 * MANY)
        assert waited > MANY // 2
        assert served < 1.2 * waited
