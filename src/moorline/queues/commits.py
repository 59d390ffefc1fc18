"""Room: queues. Group commit and checkpoints: the store's disk work, fitted into the event loop.

A commit begins as soon as the one before it is done; what arrives meanwhile is the next one. Nobody
waits for a timer: a lone client is answered after one fsync, a crowd shares it.
"""

import asyncio
import logging
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec

from moorline.errors import MoorlineError, NodeDiskFull, StartError
from moorline.journal.queues import checkpoint
from moorline.journal.queues.store import Store
from moorline.journal.queues.wal import Batch
from moorline.limits import (
    CHECKPOINT_INTERVAL_MS,
    CHECKPOINT_TURN_S,
    COMMIT_BYTES_MAX,
    DISK_FREE_BYTES_MIN,
    DISK_LOOK_MS,
    QUEUES_DIRTY_MAX,
    QUEUES_UNINDEXED_MAX,
    STOP_CHECKPOINT_MS_MAX,
)
from moorline.net.clock import monotonic_ms, wall_ms
from moorline.net.session import Session
from moorline.queues.paced_senders import PacedSenders
from moorline.queues.pacing import Pace
from moorline.wire.message import Answer

log = logging.getLogger("moorline.queues")

HOLD = "commit"
"""Why sessions are held: changes wait for the disk."""

_TURN_S = sys.getswitchinterval()
"""What it is between checkpoints: not asked for when one begins, for another node's may be under way here."""


class CheckpointDone(msgspec.Struct, frozen=True):
    """What a checkpoint did."""

    queues: int = 0
    log_bytes: int = 0
    log_bytes_left: int = 0
    took_ms: int = 0


class Commits:
    """Commits the changes of one store and checkpoints its log."""

    def __init__(
        self, store: Store, *, log_bytes_max: int, woken: Callable[[list[Any]], None]
    ) -> None:
        self.failed: asyncio.Future[MoorlineError] = asyncio.get_running_loop().create_future()
        self.commits = 0
        self.checkpoints = 0
        self.last = CheckpointDone()
        self.commit_seconds: Callable[[float], None] = lambda _: None
        self.may_answer: Callable[[], bool] = lambda: True
        """Whether this process is still the one that holds the node's identity: asked at every commit."""
        self._unanswered: list[Batch] = []
        """Stored, and held back because our identity may be another's."""
        self._store = store
        self._log_bytes_max = log_bytes_max
        self._woken = woken
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="moorline-log")
        self._disk_thread = ThreadPoolExecutor(1, thread_name_prefix="moorline-checkpoint")
        self._due = False
        self._idle = asyncio.Event()
        self._idle.set()
        self._next_commit: asyncio.Future[None] = self._loop.create_future()
        self._pace = Pace(log_bytes_max)
        self._paced = PacedSenders(self._is_ahead)
        self._under_way: checkpoint.Checkpoint | None = None
        self._began_ms = 0
        self._checkpointing: asyncio.Task[None] | None = None
        self._checkpointed_ms = monotonic_ms()
        self._held: set[Session] = set()
        self.lacks_room = False
        """Whether the disk has less room than a checkpoint takes before it gives any back."""
        self._looked_ms = 0

    def changed(self) -> None:
        """Something is in the batch: commit it as soon as can be."""
        if not self._due:
            self._due = True
            self._loop.call_soon(self._commit)

    def hold_if_behind(self, session: Session) -> None:
        """Stops reading from a sender while the disk does not keep up."""
        if self._store.batch.size > COMMIT_BYTES_MAX or not self.may_answer():
            self._held.add(session)
            session.hold_reading(HOLD)
        self._paced.hold_if_ahead(session)

    async def paced(self) -> None:
        """Returns when the node itself may send more: as a session that is held and goes on in its turn."""
        await self._paced.turn()

    def _is_ahead(self) -> bool | None:
        """Whether senders fill the log faster than the checkpoint that is under way will empty it.

        None: nobody has to wait. Where the disk has no room for a checkpoint, sends are refused and only
        acknowledgements come: they are what makes room, and must not wait for it.
        """
        under_way = self._under_way
        if under_way is None or self.lacks_room:
            return None
        # What follows the queues, the index above all, is taken for an eighth of the whole.
        done = under_way.flushed / (under_way.queues * 8 / 7 + 1)
        size = self._store.log.size_bytes + self._store.batch.size
        return self._pace.look(size, done, self._began_ms, monotonic_ms())

    def look_for_room(self, free_bytes: int) -> bool:
        """Whether messages must be refused: with what a checkpoint takes, the reserve would not be left.

        Then a checkpoint is begun, if there is room for one: it frees the log, and what was acknowledged.
        """
        wanted = checkpoint.wanted_bytes(self._store, free_bytes - DISK_FREE_BYTES_MIN)
        is_tight = free_bytes < DISK_FREE_BYTES_MIN + wanted
        self._note_room(free_bytes, wanted)
        if is_tight and self._store.log.size_bytes and not self.lacks_room:
            self._begin_checkpoint()
        return is_tight

    def _note_room(self, free_bytes: int, wanted_bytes: int) -> None:
        lacks, self.lacks_room = self.lacks_room, free_bytes < wanted_bytes
        self._looked_ms = monotonic_ms()
        if self.lacks_room and not lacks:
            extra = {"free_bytes": free_bytes, "wanted_bytes": wanted_bytes}
            log.warning("the disk has no room for a checkpoint: it waits", extra=extra)
        self._release()

    def _has_room(self) -> bool:
        """Whether a checkpoint would find room; asks the disk at most once a second while there is none."""
        if not self.lacks_room or monotonic_ms() - self._looked_ms >= DISK_LOOK_MS:
            try:
                free = self._store.disk.free_bytes("")
            except OSError:
                return True  # the checkpoint itself will tell what is wrong with the disk
            self._note_room(free, checkpoint.wanted_bytes(self._store, free))
        return not self.lacks_room

    async def checkpoint(self) -> None:
        """A whole checkpoint; joins the one that is under way."""
        await asyncio.shield(self._begin_checkpoint())

    def _begin_checkpoint(self) -> "asyncio.Task[None]":
        if self._checkpointing is None:
            self._checkpointing = asyncio.create_task(self._checkpoint())
        return self._checkpointing

    async def checkpoint_anew(self) -> CheckpointDone:
        """A checkpoint that begins now, with all that has changed so far."""
        if self._checkpointing is not None:
            await asyncio.shield(self._checkpointing)
        if not self._has_room():
            raise NodeDiskFull("the node's disk has no room for a checkpoint: free some")
        await self.checkpoint()
        if self.failed.done():
            raise self.failed.result()
        return self.last

    async def close(self) -> None:
        """Commits what is left and ends; the log is checkpointed, if that is done within a few seconds.

        A checkpoint that is cut short is like one that a crash cut short: the log has everything, and
        the next start replays it.
        """
        if not self.failed.done():
            await self.quiet()
            try:
                async with asyncio.timeout(STOP_CHECKPOINT_MS_MAX / 1_000):
                    if self._has_room():
                        await self.checkpoint()
            except TimeoutError:
                log.info("the last checkpoint is left to the next start")
        await self._end_checkpoint()
        self._thread.shutdown()

    async def _end_checkpoint(self) -> None:
        """One that is cut short: its thread is done with the files before they are closed."""
        under_way, task = self._under_way, self._checkpointing
        if under_way is not None:
            under_way.stop()
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await asyncio.to_thread(self._disk_thread.shutdown)
        if under_way is not None:
            under_way.close()

    # --- commits ----------------------------------------------------------------------------------

    def _commit(self) -> None:
        self._due = False
        if not self._idle.is_set() or self.failed.done():
            return
        batch = self._store.take_batch()
        if batch is None:
            return
        if not self._store.options.sync:
            self._commit_here(batch)
            return
        # Always in the thread, although a lone client would be answered sooner without the way there
        # and back: a disk that hangs must not take the loop with it.
        self._idle.clear()
        started = self._loop.time()
        written = self._loop.run_in_executor(self._thread, self._store.write, batch)
        written.add_done_callback(lambda done: self._written(batch, done, started))

    def _commit_here(self, batch: Batch) -> None:
        try:
            self._store.write(batch)
        except Exception as error:  # whatever it was, nothing may be promised any more
            self._fail(error)
        else:
            self._finish(batch)

    def _written(self, batch: Batch, done: "asyncio.Future[None]", started_s: float) -> None:
        self._idle.set()
        error = None if done.cancelled() else done.exception()
        if error is not None:
            self._fail(error)
            return
        self.commit_seconds(self._loop.time() - started_s)
        self._finish(batch)
        if self._store.batch.count:
            self._commit()

    def _finish(self, batch: Batch) -> None:
        self._store.committed(batch)
        self.commits += 1
        self._next_commit.set_result(None)
        self._next_commit = self._loop.create_future()
        self._discard_soon()
        if self._unanswered or not self.may_answer():
            # Stored in this folder; but the node may be another process by now, on a copy that lacks it.
            self._unanswered.append(batch)
        else:
            self._answer(batch)
        self._maybe_checkpoint()

    def _discard_soon(self) -> None:
        if self._store.has_discards and not self.failed.done():
            self._loop.call_soon(self._discard)

    def _discard(self) -> None:
        """More folders of deleted queues: those of thousands are not removed in one turn of the loop."""
        try:
            self._store.after_commit()
        except Exception as error:
            self._fail(error)
        self._discard_soon()

    def go_on(self) -> None:
        """The identity is ours again: what was held back is answered."""
        batches, self._unanswered = self._unanswered, []
        for batch in batches:
            self._answer(batch)
        self._release()

    def _answer(self, batch: Batch) -> None:
        answers: dict[Session, list[Answer]] = {}
        for session, answer in batch.answers:
            found = answers.get(session)
            if found is None:
                answers[session] = [answer]
            else:
                found.append(answer)
        for session, ready in answers.items():
            session.answer(ready)
        if batch.woken:
            self._woken(batch.woken)
        self._release()

    def _release(self) -> None:
        if self._held and self.may_answer():
            for session in self._held:
                session.release_reading(HOLD)
            self._held.clear()

    def _fail(self, error: BaseException) -> None:
        """After a failed write nothing may be promised any more: the node must end."""
        if self.failed.done():
            return
        if not isinstance(error, MoorlineError):
            error = StartError(f"the disk of the queues failed: {error}")
        self.failed.set_result(error)

    # --- checkpoints ------------------------------------------------------------------------------

    def _maybe_checkpoint(self) -> None:
        store = self._store
        grown = store.log.size_bytes > self._log_bytes_max // 2
        late = monotonic_ms() - self._checkpointed_ms > CHECKPOINT_INTERVAL_MS
        # A queue at work is an object; a checkpoint makes those that have come to rest rows again.
        crowded = len(store.unindexed) > QUEUES_UNINDEXED_MAX or len(store.dirty) > QUEUES_DIRTY_MAX
        if (grown or late or crowded) and self._checkpointing is None and self._has_room():
            self._begin_checkpoint()

    async def _checkpoint(self) -> None:
        store, started = self._store, monotonic_ms()
        try:
            changed, log_bytes = len(store.dirty), store.log.size_bytes
            under_way = checkpoint.Checkpoint(store, wall_ms, monotonic_ms)
            self._began_ms = started
            self._pace.begin(log_bytes, started)
            self._under_way = under_way
            # Its thread and the loop take turns; with Python's own 5 ms each would wait long for the other.
            sys.setswitchinterval(CHECKPOINT_TURN_S)
            for disk_work in under_way.steps():
                if disk_work is None:
                    await self._turn()
                elif disk_work == store.begin_segment:
                    await self._begin_segment()
                else:
                    await self._loop.run_in_executor(self._disk_thread, disk_work)
                if self.failed.done():
                    raise OSError("the disk of the queues failed")
            self.checkpoints += 1
            took_ms = monotonic_ms() - started
            self.last = CheckpointDone(changed, log_bytes, store.log.size_bytes, took_ms)
            log.info("checkpoint", extra={"queues": len(store), "in_ms": took_ms})
        except Exception as error:  # what it took over from the log may be in no file
            self._fail(error)
        finally:
            sys.setswitchinterval(_TURN_S)
            self._checkpointed_ms = monotonic_ms()
            self._checkpointing = None
            self._under_way = None
            self._paced.release_all()
            self._release()

    async def _begin_segment(self) -> None:
        """Where the log is written: between two batches, and not on the loop if that syncs."""
        if self._store.options.sync:
            await self._loop.run_in_executor(self._thread, self._store.begin_segment)
        else:
            self._store.begin_segment()

    async def _turn(self) -> None:
        """Others have their turn: until the next commit, if one is on its way."""
        if self._store.last_batch is None:
            await asyncio.sleep(0)
            return
        self.changed()
        awaited: list[asyncio.Future[Any]] = [self._next_commit, self.failed]
        await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)

    async def committed(self, lsn: int) -> None:
        """Returns when that change is committed."""
        while self._store.committed_lsn < lsn and not self.failed.done():
            await self._turn()
        if self.failed.done():
            raise OSError("the disk of the queues failed")

    async def quiet(self) -> None:
        """Returns when every change that was made so far is committed."""
        await self.committed(self._store.next_lsn - 1)
