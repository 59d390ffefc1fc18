"""What tests of staged writes share: rows, stages, commits, and nodes that kill themselves in a commit."""

import asyncio
import signal
from collections import defaultdict
from pathlib import Path

import xxhash
from tests.process.nodes import NodeProcess, clean_environment
from tests.process.template import copy_catalog
from tests.process.warm import SERVE, WarmProcess

from moorline.client.moor import Moor
from moorline.wire.packed_rows import packed
from moorline.wire.staging import (
    QUEUES,
    TOPICS,
    AbortStaged,
    CloseStage,
    CommitStaged,
    OpenStage,
    QueueRow,
    RowsStaged,
    StageClosed,
    StageOpened,
    StageRows,
    StagesAborted,
    StagesCommitted,
    encode_queue_rows,
)
from moorline.wire.topic import Record

Stage = tuple[bytes, int, bytes]
Rows = list[Record] | list[QueueRow]

PARTITIONS, CHUNKS, CHUNK_ROWS = 3, 6, 20
ROWS = PARTITIONS * CHUNKS * CHUNK_ROWS
QUEUES_MADE = 4


def encoded_rows(rows: Rows, shards: int) -> bytes:
    for_queues = [row for row in rows if isinstance(row, QueueRow)]
    if for_queues:
        return encode_queue_rows(for_queues)
    return packed([row for row in rows if isinstance(row, Record)], shards).encoded()


async def staged(
    moor: Moor,
    query: str,
    batch: int,
    partition: int,
    chunks: list[Rows],
    *,
    target: int = TOPICS,
) -> Stage:
    """What a task does."""
    call = moor._caller.call
    opened = await call(lambda n: OpenStage(n, query, batch, partition, 0, target), StageOpened)
    name = opened.stage
    encoded = [encoded_rows(rows, opened.shards) for rows in chunks]
    for rows in encoded:
        await call(lambda n, rows=rows: StageRows(n, name, rows), RowsStaged)  # type: ignore[misc]
    stage = name, sum(map(len, chunks)), xxhash.xxh3_128_digest(b"".join(encoded))
    await call(lambda n: CloseStage(n, *stage), StageClosed)
    return stage


async def committed(
    moor: Moor, query: str, batch: int, stages: list[Stage], aside: str = ""
) -> StagesCommitted:
    return await moor._caller.call(
        lambda n: CommitStaged(n, query, batch, stages, aside), StagesCommitted
    )


async def aborted(moor: Moor, query: str, batch: int, stages: list[Stage]) -> int:
    names = [name for name, _, _ in stages]
    answer = await moor._caller.call(lambda n: AbortStaged(n, query, batch, names), StagesAborted)
    return answer.removed


async def published(moor: Moor, topic: str) -> list[tuple[bytes | None, bytes]]:
    """Everything in a topic, in the order of its shards: (key, body)."""
    counts = await moor.topics(topic)
    count = sum(dict(counts).values())
    got: list[tuple[bytes | None, bytes]] = []
    if count:
        subscription = await moor.subscribe(topic, start="beginning")
        async with asyncio.timeout(20):
            async for message in subscription:
                got.append((message.key, message.body))
                if len(got) == count:
                    break
        await subscription.close()
    return got


def by_key(messages: list[tuple[bytes | None, bytes]]) -> dict[bytes | None, list[bytes]]:
    found: dict[bytes | None, list[bytes]] = defaultdict(list)
    for key, body in messages:
        found[key].append(body)
    return found


def keyed_rows(topic: str) -> list[list[Rows]]:
    """Of each partition its chunks; a key is in one partition, as after a shuffle by key."""
    return [
        [
            [
                Record(
                    topic,
                    b"%d/%04d" % (partition, chunk * CHUNK_ROWS + row) + b"." * 80,
                    b"key-%d-%d" % (partition, row % 3),
                )
                for row in range(CHUNK_ROWS)
            ]
            for chunk in range(CHUNKS)
        ]
        for partition in range(PARTITIONS)
    ]


def expected(partitions: list[list[Rows]]) -> dict[bytes | None, list[bytes]]:
    rows = [row for chunks in partitions for chunk in chunks for row in chunk]
    return by_key([(row.key, row.body) for row in rows if isinstance(row, Record)])


class KilledNode(NodeProcess):
    """A node that kills itself at a point of a commit."""

    def __init__(self, data: Path, point: str, *flags: str) -> None:
        self.data = data
        if not data.exists():
            copy_catalog(data / "catalog")
        arguments = [SERVE, f"--data={data}", "--listen=tcp://127.0.0.1:0", "--http=off", *flags]
        with (data.parent / f"{data.name}.stderr").open("ab") as errors:
            self.process = WarmProcess(
                arguments, clean_environment(), errors, ("tests.staging.killed_node", point)
            )
        self.ready_line = self._wait_ready()


def was_killed(node: NodeProcess) -> bool:
    return node.process.wait(30) == -signal.SIGKILL


async def queue_stages(moor: Moor, query: str, ids: list[bytes]) -> list[Stage]:
    """Two partitions, 20 rows for each queue."""
    stages = []
    for partition in range(2):
        rows: Rows = [
            QueueRow(ids[row % len(ids)], b"%d/%03d" % (partition, row))
            for row in range(10 * len(ids))
        ]
        chunks = [rows[:15], rows[15:]]
        stages.append(await staged(moor, query, 0, partition, chunks, target=QUEUES))
    return stages


def queue_contents(ids: list[bytes]) -> dict[bytes, list[bytes]]:
    found: dict[bytes, list[bytes]] = defaultdict(list)
    for partition in range(2):
        for row in range(10 * len(ids)):
            found[ids[row % len(ids)]].append(b"%d/%03d" % (partition, row))
    return found


async def waiting_in(moor: Moor, queue_id: bytes) -> list[bytes]:
    queue = moor.queue(queue_id)
    bodies = []
    for _ in range((await queue.info()).waiting):
        message = await queue.get()
        assert message is not None
        bodies.append(message.body)
        await message.ack()
    return bodies


async def queues_of(moor: Moor, count: int) -> list[bytes]:
    return [queue.id for queue in await moor.create_queues(count)]
