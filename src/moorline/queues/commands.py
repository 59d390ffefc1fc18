"""Room: queues. Queues as clients meet them: commands in, answers and deliveries out.

Every handler gets a run of commands of one kind. A change is answered after its commit; a refusal at
once. Design and commands: docs/design/queues.md.
"""

import asyncio
import logging
from collections.abc import Callable, Generator, Iterable
from typing import TypeVar

from moorline.access.guard import Check, Declarations, Declared, needs, own, owner_or, unless_denied
from moorline.config.settings import Queues as Settings
from moorline.core.access.owner import owner_of
from moorline.core.access.principal import ANONYMOUS
from moorline.core.access.right import ADMINISTER, LIST, PUBLISH, WRITE
from moorline.core.queue.queue import QUOTA_MARKER, Queue
from moorline.errors import CallFailed, MoorlineError, NotFound, QuotaExceeded
from moorline.journal.disk_watch import FillsDisk
from moorline.journal.queues.store import Store
from moorline.journal.queues.wal import Batch
from moorline.net.group_commit import GroupCommit
from moorline.net.session import Session, each
from moorline.net.slices import in_slices
from moorline.net.trusted_clock import TrustedClock
from moorline.net.turns import Turns
from moorline.queues.checkpoints import Checkpoints
from moorline.queues.homes import NOT_HERE
from moorline.queues.judging import Judging
from moorline.queues.owners import (
    OWNERS_CALLS,
    QUEUES,
    QueueOwners,
    all_queues,
    nobody_hears,
    path_of,
    path_of_call,
    paths_of_call,
)
from moorline.queues.parking import Parking
from moorline.queues.queue_list import listed
from moorline.queues.refusals import why_closed, why_unreadable
from moorline.queues.subscription import Subscriptions
from moorline.wire.message import Answer, Call, Failed, Message
from moorline.wire.queue import (
    Acknowledge,
    Acknowledged,
    BlockQueue,
    DeleteQueue,
    DescribeQueue,
    Done,
    Get,
    Got,
    ListQueues,
    NewQueue,
    QueueDescribed,
    QueueMade,
    QueuesListed,
    Send,
    Sent,
    Subscribe,
    Subscribed,
    Suspend,
    Unsubscribe,
)

log = logging.getLogger("moorline.queues")

Change = TypeVar("Change", Suspend, DeleteQueue, BlockQueue)


class Counts:
    """What has happened since the start, for /metrics."""

    __slots__ = ("acknowledged", "delivered", "expired", "refused_by_quota", "stored")

    def __init__(self) -> None:
        self.stored = 0
        self.delivered = 0
        self.acknowledged = 0
        self.expired = 0
        self.refused_by_quota = 0


class QueueBroker(FillsDisk):
    """Answers the commands of queues for one node."""

    def __init__(self, store: Store, settings: Settings, clock: TrustedClock | None = None) -> None:
        super().__init__()
        self.store = store
        self.clock = clock or TrustedClock()
        self.settings = settings
        self.counts = Counts()
        self.absence: Callable[[bytes], str] = lambda _: NOT_HERE
        """What is said of a queue that is not here; it may be another node's."""
        self.refused: Callable[[Session, str, str, str], None] = nobody_hears
        """Told of a refusal that no guard made, as the audit is: the session, the act, its path, the code."""
        self.owners = QueueOwners(store)
        self.parking = Parking(store, self.refusal_now)
        self._checks: dict[type[Message], Check] = {}
        self._turns = Turns()
        self._judging = Judging(self._judge_all, self._turns.spawn)
        self.subscriptions = Subscriptions(store, self.counts)
        self.commits = GroupCommit(store, "queues", answered=self._answered)
        self.checkpoints = Checkpoints(store, self.commits, settings.log_bytes_max)

    async def close(self) -> None:
        """Ends the looks that are under way, then what goes to the disk; the store is about to close."""
        self._turns.close()
        await self.checkpoints.close()
        await self.commits.close()

    async def paced(self) -> None:
        """Returns when the node itself may send more: as a session that is held and goes on in its turn."""
        await self.checkpoints.paced()

    def why_closed(self, queue: Queue | None) -> CallFailed | None:
        """Why a queue takes no messages, whatever its quota; None if it does."""
        return why_closed(queue)

    def declared(self) -> Declarations:
        of_one_queue = self.parking.guard(
            {
                Send: self._send,
                Acknowledge: self._acknowledge,
                Subscribe: each(self._subscribe),
                Unsubscribe: each(self._unsubscribe),
                Get: each(self._get),
                Suspend: self._change(self._suspend),
                DeleteQueue: self._change(self._delete),
                BlockQueue: self._change(self._block),
            }
        )
        of_one_queue[DescribeQueue] = self._turns.spawned(self._describe)
        at, owner = path_of_call, self.owners.of_call
        declared: dict[type[Message], Declared] = {
            kind: owner_or(right, at, owner, of_one_queue[kind], below=QUEUES)
            for kind, right in OWNERS_CALLS.items()
        }
        declared |= {
            Send: unless_denied(WRITE, at, owner, of_one_queue[Send], below=QUEUES),
            # Its handler has the queue in hand anyway, and looks whose it is.
            Acknowledge: own(of_one_queue[Acknowledge]),
            BlockQueue: needs(ADMINISTER, paths_of_call, of_one_queue[BlockQueue], below=QUEUES),
            NewQueue: needs(PUBLISH, all_queues, self._new),
            ListQueues: needs(LIST, all_queues, self._turns.spawned(self._list)),
        }
        self._checks = {kind: one.check for kind, one in declared.items() if one.check is not None}
        return declared

    # --- the hot ones -----------------------------------------------------------------------------

    def _new(self, session: Session, calls: list[NewQueue]) -> Iterable[Answer]:
        store = self.store
        if self.is_disk_full:
            text = "the node's disk is nearly full; it takes acknowledgements, but nothing new"
            return [Failed(call.call, "NODE_DISK_FULL", text) for call in calls]
        owner = owner_of(session.rights.principal)
        self._changed(session, [QueueMade(call.call, store.create(owner).id) for call in calls])
        return ()

    def _send(self, session: Session, calls: list[Send]) -> Iterable[Answer]:
        store, live, settings = self.store, self.store.live, self.settings
        woken, send = store.batch.woken, store.send
        now_ms = self.clock.stamp_ms()
        expires = settings.expire_on_send and settings.ttl_s
        expire_before = self.clock.expiry_ms() - settings.ttl_s * 1_000 if expires else 0
        routed = self.subscriptions.route is not None
        body_bytes_max, is_disk_full = settings.message_bytes_max, self.is_disk_full
        answers: list[Answer] = []
        refusals: list[Answer] = []
        for call in calls:
            queue = live.get(call.queue) or store.find(call.queue)
            if queue is None or queue.is_shut or is_disk_full or len(call.body) > body_bytes_max:
                refusals.append(self._refusal_of_send(queue, call))
                continue
            if expire_before and queue.maybe_expired(expire_before):
                self.expire(queue, expire_before)
            message = send(queue, call.body, now_ms)
            if message:
                answers.append(Sent(call.call, message))
            else:
                self.counts.refused_by_quota += 1
                text = "the queue is full; its recipient must read it to the end"
                refusals.append(Failed(call.call, "QUOTA", text))
            if routed or queue.is_subscribed:
                woken.append(queue)
        self.counts.stored += len(answers)
        self._changed(session, answers)
        return refusals

    def _refusal_of_send(self, queue: Queue | None, call: Send) -> Answer:
        if queue is None:
            return Failed(call.call, "NOT_FOUND", self.absence(call.queue))
        closed = why_closed(queue)
        if closed is not None:
            return Failed(call.call, closed.code, str(closed))
        if len(call.body) > self.settings.message_bytes_max:
            text = f"{len(call.body)} bytes; at most {self.settings.message_bytes_max} are taken"
            return Failed(call.call, "TOO_LARGE", text)
        text = "the node's disk is nearly full; it takes acknowledgements, but no messages"
        return Failed(call.call, "NODE_DISK_FULL", text)

    def send_row(self, queue_id: bytes, body: bytes, *, is_decided: bool) -> str:
        """As `Send`, with nobody to be answered: into the batch under way, or the code of why not."""
        queue = self.store.find(queue_id)
        closed = why_closed(queue)
        if closed is not None:
            return closed.code
        assert queue is not None
        message = self.store.send(queue, body, self.clock.stamp_ms(), is_decided=is_decided)
        # Also where it is refused: its recipient is told by a mark.
        self.store.batch.woken.append(queue)
        if message:
            self.counts.stored += 1
            return ""
        self.counts.refused_by_quota += 1
        return QuotaExceeded.code

    def _acknowledge(self, session: Session, calls: list[Acknowledge]) -> Iterable[Answer]:
        store, live, acknowledged = self.store, self.store.live, 0
        owners, reader = store.owners, self.owners.reader(session.rights)
        answers: list[Answer] = []
        at_once: list[Answer] = []
        served: list[Queue] = []
        for call in calls:
            queue = live.get(call.queue) or store.find(call.queue)
            if queue is None or queue.blocked or queue.damaged or owners[queue.owner] != reader:
                refusal = self._refusal_of_reader(session, queue, call)
                if refusal:
                    at_once.append(refusal)
                    continue
                assert queue is not None
            if store.acknowledge(queue, call.message):
                answers.append(Acknowledged(call.call, queue.size))
                if queue.is_subscribed:
                    self.subscriptions.acknowledged(queue, 1)
                    served.append(queue)
                acknowledged += 1
            elif store.is_gone(queue, call.message):
                gone = Acknowledged(call.call, queue.size, is_gone=True)
                # Whatever took the message may be on its way to the disk: it is gone when that is durable.
                (at_once if store.last_batch is None else answers).append(gone)
            else:
                at_once.append(self._not_the_head(queue, call))
        self.counts.acknowledged += acknowledged
        self.subscriptions.serve(served)
        self._changed(session, answers)
        return at_once

    # --- subscriptions and single messages --------------------------------------------------------

    def _subscribe(self, session: Session, call: Subscribe) -> Answer:
        # The call may have waited, for a repair or the catalog, while rights changed.
        denied = self.owners.why_not_read(session.rights, call.queue, self.store.glance(call.queue))
        if denied is not None:
            raise denied
        queue = self._readable(call.queue)
        waiting = queue.size
        self.subscriptions.add(session, queue, call.window)
        return Subscribed(call.call, waiting)

    def _unsubscribe(self, session: Session, call: Unsubscribe) -> Answer:
        queue = self._readable(call.queue)
        self.subscriptions.remove(session, queue)
        return Done(call.call)

    def _get(self, _: Session, call: Get) -> Answer:
        queue = self._readable(call.queue)
        entry = self.store.head(queue)
        _check_readable(queue)
        if entry is None or entry.lsn > self.store.committed_lsn:
            return Got(call.call, 0)
        return Got(call.call, entry.lsn, entry.time_ms, entry.kind == QUOTA_MARKER, entry.body)

    # --- rare changes -----------------------------------------------------------------------------

    def _suspend(self, call: Suspend) -> None:
        self.store.suspend(self._readable(call.queue))

    def _delete(self, call: DeleteQueue) -> None:
        queue = self._found(call.queue)
        self.subscriptions.end(queue, "DELETED")
        self.store.delete(queue)
        self.owners.deleted(queue)

    def _block(self, call: BlockQueue) -> None:
        queue = self._found(call.queue)
        if call.blocked:
            self.subscriptions.end(queue, "BLOCKED")
        self.store.block(queue, blocked=call.blocked)

    # --- the operator's view ----------------------------------------------------------------------

    async def _describe(self, _: Session, call: DescribeQueue) -> Answer:
        queue = self._found(call.queue)
        # What the index counts may not be there any more: the files say what can be delivered.
        unreadable = await self._unreadable(queue)
        queue = self._found(call.queue)
        return QueueDescribed(
            call.call,
            queue=queue.id,
            waiting=queue.size - unreadable,
            stored=max(0, queue.stored - unreadable),
            is_subscribed=queue.is_subscribed,
            is_suspended=queue.suspended,
            is_blocked=queue.blocked,
            is_damaged=queue.damaged,
            is_over_quota=not queue.can_write,
            created_s=queue.created_s,
            owner=self.owners.name_of(queue) or ANONYMOUS,
            unreadable=unreadable,
        )

    async def _unreadable(self, queue: Queue) -> int:
        """Reads its files a slice at a time, as long as they are nobody else's."""
        look = self.store.files.unreadable(queue)
        while queue.id not in self.store.mending and self.store.find(queue.id) is queue:
            try:
                next(look)
            except StopIteration as done:
                return int(done.value)
            await asyncio.sleep(0)
        return 0

    async def _list(self, _: Session, call: ListQueues) -> Answer:
        rows = await in_slices(listed(self.store, call.after, call.count))
        return QueuesListed(call.call, len(self.store), rows)

    # --- who may do what --------------------------------------------------------------------------

    def claim(self, fingerprint: bytes, principal: str) -> bool:
        """A certificate is there: what it made before there were principals is its principal's.

        True if there was something; it is durable with the checkpoint that begins now.
        """
        if not self.owners.claim(fingerprint, principal):
            return False
        self._turns.spawn(self._keep_claims())
        return True

    async def _keep_claims(self) -> None:
        try:
            await self.checkpoints.checkpoint_anew()
        except MoorlineError as error:
            # Until the next checkpoint the certificate itself has to come again.
            log.warning("whose queues are is not durable yet", extra={"why": str(error)})

    def judge_soon(self) -> None:
        """Rights have changed: who may not read a queue any more gets nothing of it from now on."""
        self._judging.soon()

    def _judge_all(self) -> Generator[None, None, None]:
        for queue, held in self.subscriptions.each():
            refusal = self.owners.why_not_read(held.session.rights, queue.id, queue)
            if refusal is not None:
                self.refused(held.session, Subscribe.__name__, path_of(queue.id), refusal.code)
                if held.in_flight_max:
                    # One of a service's many: it goes on with the others.
                    self.subscriptions.detach(queue)
                else:
                    self.subscriptions.end(queue, refusal.code)
            yield

    def refusal_now(self, session: Session, call: Call) -> Failed | None:
        """Of a call that has waited since it was granted: rights may have changed."""
        check = self._checks.get(type(call))
        refusal = None if check is None else check(session.rights, call)
        if refusal is None:
            return None
        self.refused(session, type(call).__name__, refusal.path, refusal.code)
        return Failed(call.call, refusal.code, refusal.text)

    def _found(self, queue_id: bytes) -> Queue:
        queue = self.store.find(queue_id)
        if queue is None:
            raise NotFound(self.absence(queue_id))
        return queue

    def _readable(self, queue_id: bytes) -> Queue:
        queue = self._found(queue_id)
        _check_readable(queue)
        return queue

    def _refusal_of_reader(
        self, session: Session, queue: Queue | None, call: Acknowledge
    ) -> Answer | None:
        denied = self.owners.why_not_read(session.rights, call.queue, queue)
        if denied is not None:
            self.refused(session, Acknowledge.__name__, path_of(call.queue), denied.code)
            return Failed(call.call, denied.code, str(denied))
        if queue is None:
            return Failed(call.call, "NOT_FOUND", self.absence(call.queue))
        unreadable = why_unreadable(queue)
        return Failed(call.call, unreadable.code, str(unreadable)) if unreadable else None

    # --- inside -----------------------------------------------------------------------------------

    def expire(self, queue: Queue, before_ms: int) -> int:
        """Removes what is older; deliveries that were on their way for it are forgotten."""
        expired = self.store.expire(queue, before_ms)
        if expired:
            self.subscriptions.acknowledged(queue, expired)
            self.counts.expired += expired
            self.commits.changed()
        return expired

    def _changed(self, session: Session, answers: list[Answer]) -> None:
        """These answers leave when what is in the batch now is durable."""
        if answers:
            self.commits.answer_all(session, answers)
        if answers or self.store.batch.count:
            self.commits.changed()
            self.commits.hold_if_behind(session)
            self.checkpoints.hold_if_ahead(session)

    def _answered(self, batch: Batch) -> None:
        if batch.woken:
            self.subscriptions.serve(batch.woken)
        self.checkpoints.after_commit()

    def _change(
        self, change: Callable[[Change], None]
    ) -> Callable[[Session, list[Change]], Iterable[Answer]]:
        """A handler for changes that are answered by `Done` after their commit."""

        def handle(session: Session, calls: list[Change]) -> Iterable[Answer]:
            done: list[Answer] = []
            refusals: list[Answer] = []
            for call in calls:
                try:
                    change(call)
                except CallFailed as error:
                    refusals.append(Failed(call.call, error.code, str(error)))
                else:
                    done.append(Done(call.call))
            self._changed(session, done)
            return refusals

        return handle

    def _not_the_head(self, queue: Queue, call: Acknowledge) -> Answer:
        unreadable = why_unreadable(queue)
        if unreadable is not None:
            return Failed(call.call, unreadable.code, str(unreadable))
        head = self.store.head(queue)
        text = f"the head is {head.lsn}" if head else "the queue is empty"
        return Failed(call.call, "NO_MESSAGE", f"{call.message} is not the head: {text}")


def _check_readable(queue: Queue) -> None:
    unreadable = why_unreadable(queue)
    if unreadable is not None:
        raise unreadable
