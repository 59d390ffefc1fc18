"""Room: staging. Staged rows on their way into queues: asked before the decision, sent with a note after it.

The note says how far the sends of a commit came. It is a message in a queue of the node's own, and goes
into the same batch of the write-ahead log as the sends; a batch is whole or it is not there.
"""

import asyncio
from collections import Counter
from typing import Any, Protocol

import msgspec

from moorline.config.settings import Queues as Settings
from moorline.core.queue.queue import MESSAGE, Entry, Queue
from moorline.errors import (
    CallFailed,
    MoorlineError,
    NodeDiskFull,
    NotFound,
    OutcomeUnknown,
    QueueBlocked,
    QueueDamaged,
    QueueOff,
    QuotaExceeded,
)
from moorline.ids import text_of
from moorline.journal.queues.store import Store
from moorline.journal.queues.wal import Kind
from moorline.journal.staging.commit_log import Decided
from moorline.journal.staging.store import StagePosition
from moorline.limits import STAGED_MENDING_MS_MAX, STAGED_QUEUES_NAMED_MAX, STAGED_ROOM_MS_MAX


class QueueCommits(Protocol):
    @property
    def failed(self) -> "asyncio.Future[MoorlineError]": ...
    def changed(self) -> None: ...
    async def paced(self) -> None: ...


class QueueParking(Protocol):
    async def emptied(self) -> None: ...


class StoredCount(Protocol):
    stored: int


class NodeQueues(Protocol):
    """What a commit to queues needs of them; the broker of queues is one."""

    @property
    def store(self) -> Store: ...
    @property
    def settings(self) -> Settings: ...
    @property
    def commits(self) -> QueueCommits: ...
    @property
    def parking(self) -> QueueParking: ...
    @property
    def counts(self) -> StoredCount: ...
    @property
    def is_disk_full(self) -> bool: ...
    async def has_room_within(self, wait_ms: int) -> bool: ...


def check_queues(queues: NodeQueues, counts: Counter[bytes]) -> None:
    """Refuses a commit that a queue would refuse a part of, before anything is decided."""
    if queues.is_disk_full:
        raise NodeDiskFull("the node's disk is nearly full: no messages are taken")
    full: list[str] = []
    for queue_id, count in counts.items():
        queue = queues.store.find(queue_id)
        code = closed(queue)
        if code:
            raise CLOSED[code](f"the queue {text_of(queue_id)} takes no messages: {code}")
        assert queue is not None
        room = queues.settings.max_queue_messages - queue.size
        if count > room or (queue.size and not queue.can_write):
            full.append(f"{text_of(queue_id)} ({count} more, {queue.size} waiting)")
    if full:
        unnamed = len(full) - STAGED_QUEUES_NAMED_MAX
        more = f" and {unnamed} more" if unnamed > 0 else ""
        raise QuotaExceeded(
            f"nothing was sent: these queues have no room ({queues.settings.max_queue_messages} "
            f"messages at most): {', '.join(full[:STAGED_QUEUES_NAMED_MAX])}{more}"
        )


CLOSED: dict[str, type[CallFailed]] = {
    kind.code: kind for kind in (NotFound, QueueBlocked, QueueDamaged, QueueOff)
}


def closed(queue: Queue | None) -> str:
    """The code of why a queue takes nothing, whatever its quota; empty if it does."""
    if queue is None:
        return NotFound.code
    if not queue.is_shut:
        return ""
    if queue.blocked:
        return QueueBlocked.code
    return QueueDamaged.code if queue.damaged else QueueOff.code


def send_row(store: Store, queue_id: bytes, body: bytes) -> str:
    """Into the batch under way, or the code of why not. The quota was asked at the decision: what came
    from others since then does not undo it."""
    queue = store.find(queue_id)
    code = closed(queue)
    if code:
        return code
    assert queue is not None
    send_beyond_quota(store, queue, body)
    store.batch.woken.append(queue)
    return ""


def send_beyond_quota(store: Store, queue: Queue, body: bytes) -> None:
    """Into the batch under way, whatever is in the queue already."""
    now_ms = store.now_ms()
    store.next_lsn += 1
    lsn = store.batch.add(int(Kind.SEND), queue.id, now_ms, body)
    queue.push(Entry(lsn, now_ms, MESSAGE, body))
    store.dirty[queue.id] = queue


def noted(store: Store, notes: Queue, decided: Decided) -> StagePosition:
    """How far the sends of this decision came, by the note; the beginning if it speaks of another."""
    entry = store.head(notes)
    if entry is None:
        return StagePosition()
    query, batch, stage, row = msgspec.msgpack.decode(entry.body, type=tuple[str, int, int, int])
    return (
        StagePosition(stage, row)
        if (query, batch) == (decided.query, decided.batch)
        else StagePosition()
    )


def leave_note(store: Store, notes: Queue, decided: Decided, position: StagePosition) -> None:
    entry = store.head(notes)
    if entry is not None:
        store.acknowledge(notes, entry.lsn)
    note = (decided.query, decided.batch, position.stage, position.row)
    message = store.send(notes, msgspec.msgpack.encode(note), store.now_ms())
    assert message, "a queue that is empty takes a message"


class _Waiting:
    """Stands where a session would: told when a batch of the write-ahead log is durable."""

    def __init__(self, durable: "asyncio.Future[None]") -> None:
        self._durable = durable

    def answer(self, answers: list[Any]) -> None:  # noqa: ARG002
        if not self._durable.done():
            self._durable.set_result(None)


async def undisturbed(queues: NodeQueues) -> None:
    """Returns when no queue is being mended: a row for it would be refused, and it comes back in a moment.

    The batch is decided by now. So whoever has waited too long is not told that it failed.
    """
    try:
        async with asyncio.timeout(STAGED_MENDING_MS_MAX / 1_000):
            await queues.parking.emptied()
    except TimeoutError:
        raise OutcomeUnknown(
            "queues are being checked or repaired for too long: the batch is decided, and a part of it may "
            "be sent; commit it again, and it goes on where it was"
        ) from None


async def durable(queues: NodeQueues) -> None:
    """Returns when what is in the batch now is durable, and there is room for more."""
    durable = asyncio.get_running_loop().create_future()
    queues.store.batch.answers.append((_Waiting(durable), None))
    queues.commits.changed()
    awaited: list[asyncio.Future[Any]] = [durable, queues.commits.failed]
    await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
    if not durable.done():
        raise OutcomeUnknown(
            "the disk of the queues failed: a part of the batch may be sent; commit it again when the node "
            "is back, and it goes on where it was"
        )
    await queues.commits.paced()
    if not await queues.has_room_within(STAGED_ROOM_MS_MAX):
        raise no_room()


def no_room() -> OutcomeUnknown:
    """What a commit is told that was decided, and finds the disk full for too long."""
    return OutcomeUnknown(
        "the node's disk is nearly full: the batch is decided, and a part of it may be sent; commit it again "
        "when there is room, and it goes on where it was"
    )
