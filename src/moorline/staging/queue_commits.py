"""Room: staging. Staged rows on their way into queues: asked before the decision, sent with a note after it.

The note says how far the sends of a commit came. It is a message in a queue of the node's own, and goes
into the same batch of the write-ahead log as the sends; a batch is whole or it is not there.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable
from typing import Protocol

import msgspec

from moorline.config.settings import Queues as Settings
from moorline.core.queue.owned import Owned
from moorline.core.queue.queue import Queue
from moorline.errors import NodeDiskFull, OutcomeUnknown, QuotaExceeded
from moorline.ids import text_of
from moorline.journal.queues.store import Store
from moorline.journal.queues.wal import Batch
from moorline.journal.staging.commit_log import Decided
from moorline.journal.staging.store import StagePosition
from moorline.limits import STAGED_MENDING_MS_MAX, STAGED_QUEUES_NAMED_MAX, STAGED_ROOM_MS_MAX
from moorline.net.group_commit import GroupCommit
from moorline.net.session_rights import SessionRights
from moorline.queues.quotas import stored_too_much
from moorline.queues.refusals import why_shut


class QueueParking(Protocol):
    async def emptied(self) -> None: ...


class SendRule(Protocol):
    def demand_send(self, rights: SessionRights, queue_ids: Iterable[bytes]) -> None: ...
    def demand_send_somewhere(self, rights: SessionRights) -> None: ...


class NodeQueues(Protocol):
    """What a commit to queues needs of them; the broker of queues is one."""

    @property
    def store(self) -> Store: ...
    @property
    def settings(self) -> Settings: ...
    @property
    def commits(self) -> GroupCommit[Batch]: ...
    @property
    def parking(self) -> QueueParking: ...
    @property
    def owners(self) -> SendRule: ...
    @property
    def is_disk_full(self) -> bool: ...
    def send_row(self, queue_id: bytes, body: bytes, *, is_decided: bool) -> str: ...
    async def paced(self) -> None: ...
    async def has_room_within(self, wait_ms: int) -> bool: ...


def check_queues(queues: NodeQueues, counts: Counter[bytes]) -> None:
    """Refuses a commit that a queue would refuse a part of, before anything is decided."""
    if queues.is_disk_full:
        raise NodeDiskFull("the node's disk is nearly full: no messages are taken")
    full: list[str] = []
    for queue_id, count in counts.items():
        queue = queues.store.find(queue_id)
        shut = why_shut(queue)
        if shut is not None:
            raise type(shut)(f"the queue {text_of(queue_id)} takes no messages: {shut.code}")
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


def check_stored(queues: NodeQueues, sizes: Counter[bytes]) -> None:
    """The same for owners: what may wait in all queues of one."""
    by_owner: Counter[Owned] = Counter()
    for queue_id, size in sizes.items():
        queue = queues.store.find(queue_id)
        if queue is not None:
            by_owner[queue.owned] += size
    if any(owned.bytes + size > owned.bytes_max for owned, size in by_owner.items()):
        raise stored_too_much()


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
    try:
        await queues.commits.durable()
    except OutcomeUnknown as error:
        raise OutcomeUnknown(
            f"{error}. A part of the batch may be sent: commit it again when the node is back, and it goes "
            "on where it was"
        ) from error
    await queues.paced()
    if not await queues.has_room_within(STAGED_ROOM_MS_MAX):
        raise no_room()


def no_room() -> OutcomeUnknown:
    """What a commit is told that was decided, and finds the disk full for too long."""
    return OutcomeUnknown(
        "the node's disk is nearly full: the batch is decided, and a part of it may be sent; commit it again "
        "when there is room, and it goes on where it was"
    )
