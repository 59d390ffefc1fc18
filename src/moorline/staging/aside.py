"""Room: staging. Rows that a queue refuses, of a commit that sends such rows to a topic in place of failing.

Queues and topics are two logs, and a crash may come between them. So a row goes aside in two steps: with the
rows of its turn, and with their note, it goes into a queue of the node's own, the outbox; all of that is in
one batch of the write-ahead log, which is whole or not there. From the outbox it is published, and taken off
when it is stored. A start that finds rows in the outbox publishes them again, and those that were stored are
passed over: a row has a producer and a sequence of its own.
"""

from collections import Counter

import msgspec

from moorline.core.frames.frame import encode_headers
from moorline.core.queue.queue import Queue
from moorline.errors import TooLarge
from moorline.ids import text_of
from moorline.journal.queues.store import Store
from moorline.journal.staging.commit_log import Decided
from moorline.limits import STAGED_REFUSED_NAMED_MAX, STAGED_ROOM_MS_MAX
from moorline.staging.queue_commits import NodeQueues, durable, no_room
from moorline.topics.streams import LocalStreams
from moorline.wire.staging import QueueRow, aside_producer_of, query_name

Refused = Counter[tuple[bytes, str]]
"""Rows by queue and code."""


class AsideRow(msgspec.Struct, frozen=True, array_like=True):
    """What is in the outbox: all that its message needs."""

    topic: str
    query: str
    batch: int
    partition: int
    row: int
    queue: bytes
    code: str
    body: bytes


def check_bodies(largest_bytes: int, bytes_max: int) -> None:
    """A queue may take what a topic does not."""
    if largest_bytes > bytes_max:
        raise TooLarge(
            f"a row of {largest_bytes} bytes could not go aside: topics take {bytes_max} "
            "(streams.message_bytes_max)"
        )


def put_aside(store: Store, outbox: Queue, row: AsideRow) -> None:
    """Into the batch under way; the node's own queue has no quota."""
    store.send(outbox, msgspec.msgpack.encode(row), store.now_ms(), is_decided=True)


def aside_of(decided: Decided, partition: int, number: int, row: QueueRow, code: str) -> AsideRow:
    return AsideRow(
        decided.aside, decided.query, decided.batch, partition, number, row.queue, code, row.body
    )


async def publish_aside(
    queues: NodeQueues, outbox: Queue, streams: LocalStreams, rows: list[AsideRow]
) -> None:
    """These rows are all that is in the outbox: when they are stored, it is emptied; for good with the next
    batch of the log."""
    if not rows:
        return
    await _stored(streams, rows)
    while (entry := queues.store.head(outbox)) is not None:
        queues.store.acknowledge(outbox, entry.lsn)


async def publish_leftovers(queues: NodeQueues, outbox: Queue, streams: LocalStreams) -> None:
    """What a start before this one had put aside, one by one: there is at most a turn of it. What was taken
    off the outbox is so for good when this returns."""
    if not outbox.size:
        return
    while (entry := queues.store.head(outbox)) is not None:
        await _stored(streams, [msgspec.msgpack.decode(entry.body, type=AsideRow)])
        queues.store.acknowledge(outbox, entry.lsn)
    await durable(queues)


async def _stored(streams: LocalStreams, rows: list[AsideRow]) -> None:
    if not await streams.has_room_within(STAGED_ROOM_MS_MAX):
        # They stay in the outbox: whoever commits the batch again publishes them first.
        raise no_room()
    for row in rows:
        _append(streams, row)
    await streams.commits.durable()


def _append(streams: LocalStreams, row: AsideRow) -> None:
    """By the id of its queue: the rows of one queue stay in their order."""
    headers = encode_headers(
        [
            ("dead-reason", row.code.encode()),
            ("dead-queue", text_of(row.queue).encode()),
            ("dead-query", query_name(row.query).encode()),
            ("dead-batch", str(row.batch).encode()),
        ]
    )
    producer = aside_producer_of(row.query, row.partition)
    sequence = row.batch << 32 | row.row
    streams.store.append(row.topic, row.body, row.queue, headers, 0, 0, producer, sequence)


def named(refused: Refused) -> list[tuple[str, str, int]]:
    """The queues that refused most, as an answer names them."""
    return [
        (text_of(queue), code, count)
        for (queue, code), count in refused.most_common(STAGED_REFUSED_NAMED_MAX)
    ]
