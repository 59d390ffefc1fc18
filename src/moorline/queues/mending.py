"""Room: queues. What an operator does to queues while they serve: checks or repairs one, checkpoints all.

One queue at a time is taken out of use: its changes go to its files, its files are closed, and calls about it
wait (`queues/parking.py`). The files are read and written in a thread. The procedure is that of
`moor journal check`.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from moorline.access.guard import Declarations, heavy, needs
from moorline.core.access.right import ADMINISTER
from moorline.core.queue.queue import Queue
from moorline.errors import (
    DiskFull,
    FolderUnusable,
    NodeDiskFull,
    QueueDamaged,
)
from moorline.ids import text_of
from moorline.journal.queues import checkpoint
from moorline.journal.queues.folder import path_of
from moorline.journal.queues.mending import QueueWork
from moorline.journal.queues.report import Report
from moorline.limits import QUEUE_PROBLEM_CHARACTERS_MAX, QUEUE_PROBLEMS_MAX
from moorline.net.clock import wall_ms
from moorline.net.session import Session
from moorline.net.turns import Turns
from moorline.queues.commands import QueueBroker
from moorline.queues.owners import all_queues, paths_of_call
from moorline.wire.message import Answer
from moorline.wire.queue import (
    CheckpointQueues,
    CheckQueue,
    QueueChecked,
    QueueProblem,
    QueuesCheckpointed,
)

log = logging.getLogger("moorline.queues")

Repaired = tuple[Report, Report]
"""What was wrong, and what is still found afterwards."""

MENDING = "mending"
"""The turn in which one queue is out of use: never two at a time."""


class QueueMending:
    """Answers from the broker of the queues."""

    def __init__(self, broker: QueueBroker) -> None:
        self._broker = broker
        self._store = broker.store
        self._turns = Turns()
        self._repairs: set[asyncio.Task[Repaired]] = set()

    def declared(self) -> Declarations:
        check = needs(ADMINISTER, paths_of_call, self._turns.later(self._check))
        return {
            CheckQueue: heavy(self._broker.refusals.redirecting(check)),
            CheckpointQueues: heavy(
                needs(ADMINISTER, all_queues, self._turns.later(self._checkpoint))
            ),
        }

    async def close(self) -> None:
        """A repair that has begun is ended first: half of one helps nobody."""
        self._turns.close()
        await asyncio.gather(*self._repairs, return_exceptions=True)

    async def _begun(self, repair: Coroutine[Any, Any, Repaired]) -> Repaired:
        """Goes on also when nobody waits for it any more."""
        task = asyncio.create_task(repair)
        self._repairs.add(task)
        task.add_done_callback(self._repairs.discard)
        return await asyncio.shield(task)

    async def _check(self, _: Session, call: CheckQueue) -> Answer:
        async with self._turns.turn(MENDING):
            queue = self._broker.found(call.queue)
            if call.is_repair:
                found, left = await self._begun(self._repaired(queue))
                is_clean = not left.problems
            else:
                found = await self._looked_at(queue)
                is_clean = not found.problems
        return _answer(call.call, found, is_clean=is_clean)

    async def _checkpoint(self, _: Session, call: CheckpointQueues) -> Answer:
        done = await self._broker.checkpoints.checkpoint_anew()
        return QueuesCheckpointed(
            call.call, done.queues, done.log_bytes, done.log_bytes_left, done.took_ms
        )

    # --- one queue --------------------------------------------------------------------------------

    async def _looked_at(self, queue: Queue) -> Report:
        async with self._out_of_use(queue):
            return await asyncio.to_thread(QueueWork(self._store, queue, wall_ms).check)

    async def _repaired(self, queue: Queue) -> Repaired:
        broker, store = self._broker, self._store
        if broker.is_disk_full:
            raise NodeDiskFull("a repair writes what it saves, and the node's disk is nearly full")
        async with self._out_of_use(queue):
            work = QueueWork(store, queue, wall_ms)
            try:
                found, left = await asyncio.to_thread(work.repair)
            except BaseException as error:
                if work.has_begun:
                    # How far it came is unknown: the next repair takes in whatever is there.
                    broker.subscriptions.end(queue, "DAMAGED")
                    queue.damaged = True
                    store.dirty[queue.id] = queue
                raise _refusal(error) from error
            if found.problems:
                # What is on its way to a reader may be of another head: it begins anew.
                broker.subscriptions.end(queue, "DAMAGED")
            work.take_over(store, queue)
            extra = {"queue": text_of(queue.id), "saved": found.saved, "lost": found.lost}
            log.warning("a queue was repaired", extra=extra)
        # The index should know that it is whole, before anybody is told so.
        try:
            await broker.checkpoints.checkpoint_anew()
        except NodeDiskFull:
            # It is repaired all the same. A crash before the next checkpoint sets it aside again, whole.
            log.warning("a repaired queue waits for a checkpoint", extra=extra)
        return found, left

    @asynccontextmanager
    async def _out_of_use(self, queue: Queue) -> AsyncIterator[None]:
        """Nobody but the caller touches the queue's files, which hold all that is known of it."""
        broker, store = self._broker, self._store
        store.live[queue.id] = queue
        store.mending.add(queue.id)
        try:
            await self._settle(queue)
            yield
        finally:
            store.mending.discard(queue.id)
            if store.live.get(queue.id) is queue:
                broker.subscriptions.serve([queue])
            broker.parking.release(queue.id)

    async def _settle(self, queue: Queue) -> None:
        """What is only in the log goes into the files, and what no state needs any more leaves them."""
        store = self._store
        await self._broker.commits.durable()
        while queue.touched_lsn > store.committed_lsn:
            # Calls about it wait, but what is in memory may have expired meanwhile.
            await self._broker.commits.durable()
        checkpoint.flush(store, queue, wall_ms())
        # At once: what is cached could expire, and that would be a change.
        store.files.close_queue(queue)
        folder = path_of(queue.id, store.options.levels)
        if store.files.removals.has(folder):
            if store.options.sync:
                await asyncio.to_thread(store.disk.sync_all)
            checkpoint.remove_superseded(store, folder)


def _refusal(error: BaseException) -> BaseException:
    """What the operator hears of a repair that failed."""
    match error:
        case DiskFull():
            return NodeDiskFull(f"{error} What was saved so far is kept: repair it again then")
        case FolderUnusable():
            return QueueDamaged(str(error))
    return error


def _answer(call: int, report: Report, *, is_clean: bool) -> QueueChecked:
    told = [
        QueueProblem(
            problem.kind,
            problem.text[:QUEUE_PROBLEM_CHARACTERS_MAX],
            problem.lost,
            problem.is_mended_by_a_start,
        )
        for problem in report.problems[:QUEUE_PROBLEMS_MAX]
    ]
    return QueueChecked(
        call, report.messages, report.saved, report.lost, is_clean, len(report.problems), told
    )
