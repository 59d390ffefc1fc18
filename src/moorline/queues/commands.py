"""Room: queues. Queues as clients meet them: commands in, answers and deliveries out.

Every handler gets a run of commands of one kind. A change is answered after its commit; a refusal at
once. Design and commands: docs/design/queues.md.
"""

import logging
from collections.abc import Callable, Generator, Iterable
from operator import attrgetter
from typing import TypeVar

from moorline.access.guard import (
    Check,
    Declarations,
    Declared,
    heavy,
    needs,
    own,
    owner_or,
    unless_denied,
)
from moorline.access.judging import Judging
from moorline.config.settings import Queues as Settings
from moorline.core.access.owner import owner_of
from moorline.core.access.right import ADMINISTER, LIST, PUBLISH, WRITE
from moorline.core.queue.queue import QUOTA_MARKER, RECORD_HEAD_BYTES, Queue
from moorline.errors import CallFailed, MoorlineError, NotFound, OverQuota, QuotaExceeded
from moorline.journal.disk_watch import FillsDisk
from moorline.journal.queues.store import Store
from moorline.journal.queues.wal import Batch
from moorline.net.group_commit import GroupCommit
from moorline.net.session import Handler, Session, each
from moorline.net.slices import in_slices
from moorline.net.trusted_clock import TrustedClock
from moorline.net.turns import HandleOne, Turns
from moorline.queues.checkpoints import Checkpoints
from moorline.queues.descriptions import QueueDescriptions
from moorline.queues.homes import NOT_HERE
from moorline.queues.owners import (
    LOOKS,
    OWNERS_CALLS,
    QUEUES,
    QueueOwners,
    all_queues,
    path_of,
    path_of_call,
    paths_of_call,
)
from moorline.queues.parking import Parking
from moorline.queues.purging import Purging
from moorline.queues.quotas import QueueQuotas, has_room
from moorline.queues.refusals import Refusals, check_readable, why_shut
from moorline.queues.subscription import Subscriptions, TracedSubscriptions
from moorline.queues.traces import Acknowledging, QueueTraces
from moorline.wire.message import Answer, Call, Failed, Message
from moorline.wire.queue import (
    Acknowledge,
    Acknowledged,
    BlockQueue,
    CloseQueue,
    DeleteQueue,
    DescribeQueue,
    Done,
    Get,
    Got,
    ListQueues,
    NewQueue,
    PurgeQueue,
    QueueMade,
    Send,
    Sent,
    Subscribe,
    Subscribed,
    Suspend,
    Unsubscribe,
)

log = logging.getLogger("moorline.queues")

Change = TypeVar("Change", Suspend, DeleteQueue, BlockQueue, CloseQueue)


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

    def __init__(
        self,
        store: Store,
        settings: Settings,
        clock: TrustedClock | None = None,
        traces: QueueTraces | None = None,
    ) -> None:
        """With `traces` where a collector is set."""
        super().__init__()
        self.store = store
        self.traces = traces
        self.clock = clock or TrustedClock()
        self.settings = settings
        self.counts = Counts()
        self.owners = QueueOwners(store)
        self.refusals = Refusals(store, self.owners, settings.message_bytes_max)
        self.quotas = QueueQuotas(store, self.owners, self.refusals)
        self.descriptions = QueueDescriptions(store, self.owners, self.found)
        self.parking = Parking(store, self.refusal_now)
        self._checks: dict[type[Message], Check] = {}
        self._turns = Turns()
        self._judging = Judging(self._judge_all, self._turns.spawn)
        self.subscriptions = Subscriptions(store, self.counts)
        if traces is not None:
            self.subscriptions = TracedSubscriptions(store, self.counts, traces)
        answered = self._answered if traces is None else self._answered_traced
        self.commits = GroupCommit(
            store, "queues", answered=answered, waits_for_room=True, begin=store.begin
        )
        self.checkpoints = Checkpoints(store, self.commits, settings.log_bytes_max)

    async def close(self) -> None:
        """Ends the looks that are under way, then what goes to the disk; the store is about to close."""
        self._turns.close()
        await self.checkpoints.close()
        await self.commits.close()

    def spawned(self, handle: HandleOne) -> Handler:
        """For looks that are answered later, and end with this."""
        return self._turns.spawned(handle)

    async def paced(self) -> None:
        """Returns when the node itself may send more: as a session that is held and goes on in its turn."""
        await self.checkpoints.paced()

    def declared(self) -> Declarations:
        acknowledge: Acknowledging = self._acknowledge
        get: Callable[[Session, Get], Answer] = self._get
        if self.traces is not None:
            acknowledge = self.traces.acknowledging(acknowledge, self.store.live.get)
            get = self._get_traced
        of_one_queue = self.parking.guard(
            {
                Send: self._send,
                Acknowledge: acknowledge,
                Subscribe: each(self._subscribe),
                Unsubscribe: each(self._unsubscribe),
                Get: each(get),
                Suspend: self._change(self._suspend),
                DeleteQueue: self._change(self._delete),
                BlockQueue: self._change(self._block),
                CloseQueue: self._change(self._close),
            }
        )
        of_one_queue[PurgeQueue] = self._turns.spawned(Purging(self).purge)
        of_one_queue[DescribeQueue] = self._turns.spawned(self.descriptions.describe)
        at, owner, redirecting = path_of_call, self.owners.of_call, self.refusals.redirecting
        declared: dict[type[Message], Declared] = {
            kind: redirecting(
                owner_or(right, at, owner, of_one_queue[kind], below=QUEUES, is_look=kind in LOOKS),
                asks_catalog=kind is DescribeQueue,
            )
            for kind, right in OWNERS_CALLS.items()
        }
        declared[DescribeQueue] = heavy(declared[DescribeQueue])  # it reads files
        declared |= {
            Send: unless_denied(
                WRITE, attrgetter("queue"), path_of, owner, of_one_queue[Send], below=QUEUES
            ),
            # Its handler has the queue in hand anyway, and looks whose it is.
            Acknowledge: own(of_one_queue[Acknowledge]),
            BlockQueue: redirecting(
                needs(ADMINISTER, paths_of_call, of_one_queue[BlockQueue], below=QUEUES)
            ),
            NewQueue: needs(PUBLISH, all_queues, self._new),
            ListQueues: heavy(needs(LIST, all_queues, self._turns.spawned(self.descriptions.list))),
        }
        self._checks = {kind: one.check for kind, one in declared.items() if one.check is not None}
        return declared

    # --- the hot ones -----------------------------------------------------------------------------

    def _new(self, session: Session, calls: list[NewQueue]) -> Iterable[Answer]:
        store = self.store
        if self.is_disk_full:
            text = "the node's disk is nearly full; it takes acknowledgements, but nothing new"
            return [Failed(call.call, "NODE_DISK_FULL", text) for call in calls]
        owner, refusals, made = owner_of(session.rights.principal), list[Answer](), list[Answer]()
        for call in self.quotas.may_make(session, calls, refusals):
            queue = store.create(owner)
            self.quotas.made(queue)
            made.append(QueueMade(call.call, queue.id))
        self._changed(session, made)
        return refusals

    def _send(self, session: Session, calls: list[Send]) -> Iterable[Answer]:
        store, live, settings = self.store, self.store.live, self.settings
        woken, send = store.batch.woken, store.send
        now_ms = self.clock.stamp_ms()
        expires = settings.expire_on_send and settings.ttl_s
        expire_before = self.expired_before_ms() if expires else 0
        routed = self.subscriptions.route is not None
        body_bytes_max, is_disk_full = settings.message_bytes_max, self.is_disk_full
        answers: list[Answer] = []
        refusals: list[Answer] = []
        if session.allowance is not None and session.allowance.is_rate_bounded:
            calls = self.quotas.may_send(session, calls, refusals)
        for call in calls:
            queue = live.get(call.queue) or store.find(call.queue)
            body = call.body
            size = len(body)
            if (
                queue is None
                or queue.blocked
                or queue.suspended
                or queue.damaged
                or queue.closed
                or is_disk_full
                or size > body_bytes_max
            ):
                if queue is None and self.refusals.waits(self._send, session, call):
                    continue
                refusal = self.refusals.of_send(session, queue, call, is_disk_full=is_disk_full)
                if refusal is not None:
                    refusals.append(refusal)
                    continue
                assert queue is not None
            if expire_before and queue.maybe_expired(expire_before):
                self.expire(queue, expire_before)
            owned = queue.owned
            if owned.bytes + size + RECORD_HEAD_BYTES > owned.bytes_max:
                refusals.append(self.quotas.stored_too_much(session, call))
                continue
            message = send(queue, body, now_ms)
            if message:
                answers.append(Sent(call.call, message))
            else:
                self.counts.refused_by_quota += 1
                refusals.append(self.refusals.full(call))
            if routed or queue.is_subscribed:
                woken.append(queue)
        self.counts.stored += len(answers)
        self._changed(session, answers)
        return refusals

    def send_row(self, queue_id: bytes, body: bytes, *, is_decided: bool) -> str:
        """As `Send`, with nobody to be answered: into the batch under way, or the code of why not."""
        queue = self.store.find(queue_id)
        shut = why_shut(queue)
        if shut is not None:
            return shut.code
        assert queue is not None
        if not is_decided and not has_room(queue, body):
            return OverQuota.code
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
        # Nobody who proved nothing owns a queue: without this each of theirs would be judged by itself.
        reads_all = self.owners.reads_all(session.rights)
        answers: list[Answer] = []
        at_once: list[Answer] = []
        served: list[Queue] = []
        for call in calls:
            queue = live.get(call.queue) or store.find(call.queue)
            if (
                queue is None
                or queue.blocked
                or queue.damaged
                or not (reads_all or owners[queue.owner] == reader)
            ):
                if queue is None and self.refusals.waits(self._acknowledge, session, call):
                    continue
                refusal = self.refusals.of_reader(session, queue, call)
                if refusal:
                    at_once.append(refusal)
                    continue
                assert queue is not None
            if store.acknowledge(queue, call.message):
                waiting = queue.size
                answers.append(Acknowledged(call.call, waiting))
                if queue.is_subscribed:
                    self.subscriptions.acknowledged(queue, 1)
                    if waiting > queue.delivered:
                        served.append(queue)
                acknowledged += 1
            elif store.is_gone(queue, call.message):
                gone = Acknowledged(call.call, queue.size, is_gone=True)
                # Whatever took the message may be on its way to the disk: it is gone when that is durable.
                (at_once if store.last_batch is None else answers).append(gone)
            else:
                at_once.append(self.refusals.not_the_head(queue, call))
        self.counts.acknowledged += acknowledged
        self.subscriptions.serve(served)
        self._changed(session, answers)
        return at_once

    # --- subscriptions and single messages --------------------------------------------------------

    def _subscribe(self, session: Session, call: Subscribe) -> Answer:
        # The call may have waited, for a repair or the catalog, while rights changed.
        denied = self.owners.why_not_read(session.rights, call.queue, self.store.glance(call.queue))
        if denied is not None:
            path = path_of(call.queue)
            self.refusals.tell(session, Subscribe.__name__, path, denied.code)
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
        check_readable(queue)
        if entry is None or entry.lsn > self.store.committed_lsn:
            return Got(call.call, 0)
        return Got(call.call, entry.lsn, entry.time_ms, entry.kind == QUOTA_MARKER, entry.body)

    def _get_traced(self, session: Session, call: Get) -> Answer:
        answer = self._get(session, call)
        queue = self.store.live.get(call.queue)
        if self.traces is not None and queue is not None and isinstance(answer, Got):
            entry = self.store.head(queue)
            if entry is not None and entry.lsn == answer.message:
                self.traces.delivered(queue, entry)
        return answer

    # --- rare changes -----------------------------------------------------------------------------

    def _suspend(self, call: Suspend) -> None:
        self.store.suspend(self._readable(call.queue))

    def _delete(self, call: DeleteQueue) -> None:
        queue = self.found(call.queue)
        self.subscriptions.end(queue, "DELETED")
        self.store.delete(queue)
        self.owners.deleted(queue)

    def _block(self, call: BlockQueue) -> None:
        queue = self.found(call.queue)
        if call.blocked:
            self.subscriptions.end(queue, "BLOCKED")
        self.store.block(queue, blocked=call.blocked)

    def _close(self, call: CloseQueue) -> None:
        self.store.close_to_strangers(self.found(call.queue), closed=call.closed)

    # --- who may do what --------------------------------------------------------------------------

    def claim(self, fingerprint: bytes, principal: str) -> bool:
        """A certificate is there: what it made before there were principals is its principal's.

        True if there was something; it is durable with the checkpoint that begins now.
        """
        if not self.owners.claim(fingerprint, principal):
            return False
        self.bound_again()
        self._turns.spawn(self._keep_claims())
        return True

    async def _keep_claims(self) -> None:
        try:
            await self.checkpoints.checkpoint_anew()
        except MoorlineError as error:
            # Until the next checkpoint the certificate itself has to come again.
            log.warning("whose queues are is not durable yet", extra={"why": str(error)})

    def bound_again(self) -> None:
        """Quotas have changed, or whose queues are."""
        self._turns.spawn(in_slices(self.quotas.bound_all()))

    def judge_soon(self) -> None:
        """Rights have changed: who may not read a queue any more gets nothing of it from now on."""
        self._judging.soon()

    def _judge_all(self) -> Generator[None, None, None]:
        for queue, held in self.subscriptions.each():
            refusal = self.owners.why_not_read(held.session.rights, queue.id, queue)
            if refusal is not None:
                self.refusals.tell(
                    held.session, Subscribe.__name__, path_of(queue.id), refusal.code
                )
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
        self.refusals.tell(session, type(call).__name__, refusal.path, refusal.code)
        return Failed(call.call, refusal.code, refusal.text)

    def found(self, queue_id: bytes) -> Queue:
        """Of somebody who may know whether it is here."""
        queue = self.store.find(queue_id)
        if queue is None:
            raise NotFound(NOT_HERE)
        return queue

    def _readable(self, queue_id: bytes) -> Queue:
        queue = self.found(queue_id)
        check_readable(queue)
        return queue

    # --- inside -----------------------------------------------------------------------------------

    def expired_before_ms(self) -> int:
        """What came to a queue before then has expired: it is older than `ttl_s`."""
        return self.clock.expiry_ms() - self.settings.ttl_s * 1_000

    def expire(self, queue: Queue, before_ms: int) -> int:
        """Removes what is older; deliveries that were on their way for it are forgotten."""
        expired = self.store.expire(queue, before_ms)
        if expired:
            self.subscriptions.acknowledged(queue, expired)
            self.counts.expired += expired
            self.commits.changed()
        return expired

    def purged(self, queue: Queue, count: int) -> None:
        """So many are gone from its head, and with them deliveries that were on their way."""
        self.subscriptions.acknowledged(queue, count)
        if queue.is_subscribed:
            self.store.batch.woken.append(queue)
        self.commits.changed()

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

    def _answered_traced(self, batch: Batch) -> None:
        self._answered(batch)
        if self.traces is not None:
            self.traces.committed(batch, self.commits.took_s)

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
                    refusals.append(Failed.of(call.call, error))
                else:
                    done.append(Done(call.call))
            self._changed(session, done)
            return refusals

        return handle
