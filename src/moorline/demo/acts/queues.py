"""Act: durable queues. Messages are sent, the node is killed with SIGKILL, and none of them is missing."""

import time

import moorline
from moorline.demo.stage import Stage

TITLE = "durable queues"

QUEUES = 1_000
ROUNDS = 40


async def play(stage: Stage) -> None:
    async with moorline.connect(stage.address) as moor:
        queues = await moor.create_queues(QUEUES)
        started = time.perf_counter()
        for round_number in range(ROUNDS):
            body = f"round {round_number}".encode()
            answers = await moor.send_all([(queue.id, body) for queue in queues])
            refused = [answer for answer in answers if isinstance(answer, moorline.CallFailed)]
            assert not refused, refused[0]
        rate = QUEUES * ROUNDS / (time.perf_counter() - started)
    total = QUEUES * ROUNDS
    stage.tell(TITLE, f"{total:,} messages to {QUEUES:,} queues, fsynced", f"{rate:,.0f} a second")
    started = time.perf_counter()
    await stage.kill()
    await stage.start()
    stage.tell(TITLE, "kill -9, and back in", f"{time.perf_counter() - started:.1f} s")
    started = time.perf_counter()
    read = await _read(stage, [queue.id for queue in queues])
    rate = read / (time.perf_counter() - started)
    stage.tell(
        TITLE,
        "read again in order and acknowledged",
        f"{read:,} of {total:,}, {rate:,.0f} a second",
    )
    assert read == total, "an acknowledged message was lost"
    stage.claim(
        TITLE,
        "what is acknowledged is on disk: the node is killed, and nothing is lost",
        f"0 of {total:,} lost",
    )


async def _read(stage: Stage, ids: list[bytes]) -> int:
    """Reads every queue to its end, a round of all queues at a time; order is checked."""
    read = 0
    async with moorline.connect(stage.address) as moor:
        queues = [moor.queue(queue_id) for queue_id in ids]
        for round_number in range(ROUNDS):
            messages = await moor.get_all(queues)
            for message in messages:
                assert message is not None, "a queue ended early"
                assert message.body == f"round {round_number}".encode(), "out of order"
            found = [message for message in messages if message is not None]
            assert not any(await moor.ack_all(found))
            read += len(found)
    return read
