"""What waits in a queue is looked at in slices, while senders and its reader go on."""

import asyncio
from pathlib import Path

from tests.queues.queue_server import ROOMY, queue_server

from moorline.client.moor import Moor
from moorline.journal.queues import checkpoint
from moorline.limits import PEEK_BYTES, PEEK_BYTES_PER_STEP
from moorline.net.clock import wall_ms
from moorline.wire.queue_contents import PeekQueue, QueuePeeked

BODY = bytes(1_000)
MANY = 3 * PEEK_BYTES // len(BODY)


async def peek(moor: Moor, queue_id: bytes, after: int) -> QueuePeeked:
    return await moor._caller.call(lambda call: PeekQueue(call, queue_id, after), QueuePeeked)


async def all_of(moor: Moor, queue_id: bytes) -> list[int]:
    found: list[int] = []
    while True:
        page = await peek(moor, queue_id, found[-1] if found else 0)
        found += [one.message for one in page.messages]
        if page.is_all:
            return found
        assert page.messages, "whoever asks must come further"


async def test_a_look_gives_the_loop_back_all_the_way(tmp_path: Path) -> None:
    """What is passed over, too: a look behind the last message walks over all of them."""
    async with queue_server(tmp_path, ROOMY) as node, node.connect() as moor:
        queue = await moor.create_queue()
        sent = await asyncio.gather(*(moor.send(queue.id, BODY) for _ in range(MANY)))
        checkpoint.run(node.store, wall_ms)
        steps = 0
        looking = node.contents._looking(PeekQueue(1, queue.id, max(sent)))
        for _ in looking:
            steps += 1
        assert steps >= MANY * len(BODY) // (2 * PEEK_BYTES_PER_STEP)
        assert await all_of(moor, queue.id) == sorted(sent)


async def test_messages_that_go_into_files_between_two_slices_are_not_passed_over(
    tmp_path: Path,
) -> None:
    async with queue_server(tmp_path, ROOMY) as node, node.connect() as moor:
        queue = await moor.create_queue()
        sent = list(await asyncio.gather(*(moor.send(queue.id, BODY) for _ in range(100))))
        checkpoint.run(node.store, wall_ms)
        sent += await asyncio.gather(*(moor.send(queue.id, BODY) for _ in range(100)))
        looking = node.contents._looking(PeekQueue(1, queue.id, 0))
        next(looking)
        # Now the second hundred is behind what the look began with, and not in the log any more.
        checkpoint.run(node.store, wall_ms)
        page = _answer_of(looking)
        found = [one.message for one in page.messages]
        assert not page.is_all
        while not page.is_all:
            page = await peek(moor, queue.id, found[-1])
            found += [one.message for one in page.messages]
        assert found == sorted(sent)


async def test_a_queue_that_is_deleted_meanwhile_is_not_there(tmp_path: Path) -> None:
    async with queue_server(tmp_path, ROOMY) as node, node.connect() as moor:
        queue = await moor.create_queue()
        await asyncio.gather(*(moor.send(queue.id, BODY) for _ in range(MANY)))
        checkpoint.run(node.store, wall_ms)
        looks = [asyncio.create_task(peek(moor, queue.id, 0)) for _ in range(20)]
        await queue.delete()
        for look in looks:
            found = (await asyncio.gather(look, return_exceptions=True))[0]
            assert isinstance(found, QueuePeeked) or getattr(found, "code", "") == "NOT_FOUND"


def _answer_of(looking: "object") -> QueuePeeked:
    try:
        while True:
            next(looking)  # type: ignore[call-overload]
    except StopIteration as end:
        answer = end.value
        assert isinstance(answer, QueuePeeked)
        return answer
