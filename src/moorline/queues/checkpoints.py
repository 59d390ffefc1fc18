"""Room: queues. Checkpoints: what waits in the log moves into the files of the queues, beside the event loop.

One begins when the log has grown, when the last was long ago, or when an operator asks. While it is under way
senders share what is left of the log, so that it never overflows, and commits go on (`net/group_commit.py`).
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor

import msgspec

from moorline.errors import DiskFull, NodeDiskFull
from moorline.journal.queues import checkpoint
from moorline.journal.queues.store import Store
from moorline.journal.queues.wal import Batch
from moorline.limits import (
    CHECKPOINT_INTERVAL_MS,
    DISK_FREE_BYTES_MIN,
    DISK_LOOK_MS,
    QUEUES_DIRTY_MAX,
    QUEUES_UNINDEXED_MAX,
    STOP_CHECKPOINT_MS_MAX,
)
from moorline.net.clock import monotonic_ms, wall_ms
from moorline.net.group_commit import GroupCommit
from moorline.net.session import Session
from moorline.net.slices import in_slices
from moorline.net.thread_turns import hold_quick_turns, release_quick_turns
from moorline.queues.log_segments import LogSegments
from moorline.queues.paced_senders import PacedSenders
from moorline.queues.pacing import Pace

log = logging.getLogger("moorline.queues")


class CheckpointDone(msgspec.Struct, frozen=True):
    """What a checkpoint did."""

    queues: int = 0
    log_bytes: int = 0
    log_bytes_left: int = 0
    took_ms: int = 0


class Checkpoints:
    """Checkpoints the log of one store, between the commits of what changes."""

    def __init__(self, store: Store, commits: GroupCommit[Batch], log_bytes_max: int) -> None:
        self.count = 0
        self.last = CheckpointDone()
        self.lacks_room = False
        """Whether the disk has less room than a checkpoint takes before it gives any back."""
        self._store = store
        self._commits = commits
        self._log_bytes_max = log_bytes_max
        self._loop = asyncio.get_running_loop()
        self._disk_thread = ThreadPoolExecutor(1, thread_name_prefix="moorline-checkpoint")
        self._pace = Pace(log_bytes_max)
        self._paced = PacedSenders(self._is_ahead)
        self._segments = LogSegments(store, log_bytes_max)
        self._under_way: checkpoint.Checkpoint | None = None
        self._began_ms = 0
        self._checkpointing: asyncio.Task[None] | None = None
        self._checkpointed_ms = monotonic_ms()
        self._may_begin = asyncio.Event()
        self._may_begin.set()
        self._looked_ms = 0
        self._looking: asyncio.Task[None] | None = None
        """Whether there is room is looked at, before a checkpoint begins that nobody has asked for."""
        self._is_stuck = False
        """The disk ran full under a checkpoint, which waits and goes on when there is room."""

    def hold_if_ahead(self, session: Session) -> None:
        """Stops reading from a sender while a checkpoint empties the log slower than it fills."""
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

    async def look_for_room(self, free_bytes: int) -> bool:
        """Whether messages must be refused: with what a checkpoint takes, the reserve would not be left.

        Then a checkpoint is begun, if there is room for one: it frees the log, and what was acknowledged.
        """
        wanted = await self._wanted(free_bytes - DISK_FREE_BYTES_MIN)
        is_tight = free_bytes < DISK_FREE_BYTES_MIN + wanted
        self._note_room(free_bytes, wanted)
        # Somebody else may have filled the disk: what is under way could not be written.
        is_tight = is_tight or self._is_stuck or self._commits.lacks_room
        self._segments.look_for_room(-1 if is_tight else free_bytes - DISK_FREE_BYTES_MIN - wanted)
        if is_tight and self._store.log.size_bytes and not self.lacks_room:
            self._begin()
        return is_tight

    def _note_room(self, free_bytes: int, wanted_bytes: int) -> None:
        lacks, self.lacks_room = self.lacks_room, self._is_stuck or free_bytes < wanted_bytes
        self._looked_ms = monotonic_ms()
        if self.lacks_room and not lacks:
            extra = {"free_bytes": free_bytes, "wanted_bytes": wanted_bytes}
            log.warning("the disk has no room for a checkpoint: it waits", extra=extra)

    async def _wanted(self, free_bytes: int) -> int:
        return await in_slices(checkpoint.wanted(self._store, free_bytes))

    async def _has_room(self) -> bool:
        """Whether a checkpoint would find room; asks the disk at most once a second while there is none."""
        if self._may_look:
            try:
                free = await asyncio.to_thread(self._store.disk.free_bytes, "")
            except OSError:
                return True  # the checkpoint itself will tell what is wrong with the disk
            self._note_room(free, await self._wanted(free))
        return not self.lacks_room

    @property
    def _may_look(self) -> bool:
        return not self.lacks_room or monotonic_ms() - self._looked_ms >= DISK_LOOK_MS

    async def checkpoint(self) -> None:
        """A whole checkpoint; joins the one that is under way."""
        await asyncio.shield(self._begin())

    def _begin(self) -> "asyncio.Task[None]":
        if self._checkpointing is None:
            self._checkpointing = asyncio.create_task(self._checkpoint())
        return self._checkpointing

    async def checkpoint_anew(self) -> CheckpointDone:
        """A checkpoint that begins now, with all that has changed so far."""
        if self._checkpointing is not None and not self._is_stuck:
            await asyncio.shield(self._checkpointing)
        if not await self._has_room():
            raise NodeDiskFull("the node's disk has no room for a checkpoint: free some")
        await self.checkpoint()
        if self._commits.failed.done():
            raise self._commits.failed.result()
        return self.last

    async def close(self) -> None:
        """Ends; the log is checkpointed, if all is committed and that is done within a few seconds.

        A checkpoint that is cut short is like one that a crash cut short: the log has everything, and
        the next start replays it.
        """
        await self._commits.drained()
        if not self._commits.failed.done() and self._store.last_batch is None:
            try:
                async with asyncio.timeout(STOP_CHECKPOINT_MS_MAX / 1_000):
                    if await self._has_room():
                        await self.checkpoint()
            except TimeoutError:
                log.info("the last checkpoint is left to the next start")
        await self._end_checkpoint()

    async def _end_checkpoint(self) -> None:
        """One that is cut short: its thread is done with the files before they are closed."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
        under_way, task = self._under_way, self._checkpointing
        if under_way is not None:
            under_way.stop()
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await asyncio.to_thread(self._disk_thread.shutdown)
        await self._segments.close()
        if under_way is not None:
            under_way.close()

    @contextlib.asynccontextmanager
    async def held_off(self) -> AsyncIterator[None]:
        """None is under way meanwhile, and none begins: nothing moves from the log into files of queues."""
        assert self._may_begin.is_set(), "one at a time"
        self._may_begin.clear()
        try:
            if self._under_way is not None and self._checkpointing is not None:
                await asyncio.shield(self._checkpointing)
            yield
        finally:
            self._may_begin.set()

    # --- after a commit ---------------------------------------------------------------------------

    def after_commit(self) -> None:
        """Begins what a commit makes possible, or has made necessary."""
        self._discard_soon()
        self._maybe_checkpoint()
        self._segments.after_commit()

    def _discard_soon(self) -> None:
        if self._store.has_discards and not self._commits.failed.done():
            self._loop.call_soon(self._discard)

    def _discard(self) -> None:
        """More folders of deleted queues: those of thousands are not removed in one turn of the loop."""
        try:
            self._store.after_commit()
        except Exception as error:
            self._commits.fail(error)
        self._discard_soon()

    # --- checkpoints ------------------------------------------------------------------------------

    def _maybe_checkpoint(self) -> None:
        store = self._store
        grown = store.log.size_bytes > self._log_bytes_max // 2
        late = monotonic_ms() - self._checkpointed_ms > CHECKPOINT_INTERVAL_MS
        # A queue at work is an object; a checkpoint makes those that have come to rest rows again.
        crowded = len(store.unindexed) > QUEUES_UNINDEXED_MAX or len(store.dirty) > QUEUES_DIRTY_MAX
        is_idle = self._checkpointing is None and self._looking is None
        if (grown or late or crowded) and is_idle and self._may_look:
            self._looking = asyncio.create_task(self._begin_if_room())

    async def _begin_if_room(self) -> None:
        try:
            if await self._has_room() and not self._commits.is_over:
                self._begin()
        finally:
            self._looking = None

    async def _checkpoint(self) -> None:
        try:
            await self._may_begin.wait()
        except asyncio.CancelledError:
            self._checkpointing = None
            raise
        store, started = self._store, monotonic_ms()
        # Its thread and the loop take turns; with Python's own 5 ms each would wait long for the other.
        hold_quick_turns()
        try:
            changed, log_bytes = len(store.dirty), store.log.size_bytes
            under_way = checkpoint.Checkpoint(store, wall_ms, monotonic_ms)
            self._began_ms = started
            self._pace.begin(log_bytes, started)
            self._under_way = under_way
            for disk_work in under_way.steps():
                if disk_work is None:
                    await self._turn()
                elif disk_work is checkpoint.turn:
                    await asyncio.sleep(0)
                else:
                    await self._do_on_disk(disk_work)
                if self._commits.failed.done():
                    raise OSError("the disk of the queues failed")
            self.count += 1
            took_ms = monotonic_ms() - started
            self.last = CheckpointDone(changed, log_bytes, store.log.size_bytes, took_ms)
            log.info("checkpoint", extra={"queues": len(store), "in_ms": took_ms})
        except Exception as error:  # what it took over from the log may be in no file
            self._commits.fail(error)
        finally:
            release_quick_turns()
            self._checkpointed_ms = monotonic_ms()
            self._checkpointing = None
            self._under_way = None
            self._is_stuck = False
            self._paced.release_all()

    async def _do_on_disk(self, disk_work: Callable[[], None]) -> None:
        """On a disk that somebody filled it is done when there is room; until then no message is taken."""
        store = self._store
        while not self._commits.failed.done():
            try:
                if disk_work == store.begin_segment:
                    await self._begin_segment()
                else:
                    await self._loop.run_in_executor(self._disk_thread, disk_work)
                if self._is_stuck:
                    log.warning("the checkpoint goes on")
                self._is_stuck = False
                return
            except DiskFull as error:
                if disk_work == store.disk.sync_all:
                    raise  # nobody knows what it has not stored
                if not self._is_stuck:
                    log.error("a checkpoint waits for room on the disk", extra={"why": str(error)})
                self._is_stuck = self.lacks_room = True
            # Whoever waits for its pace would wait for room.
            self._paced.release_all()
            await asyncio.sleep(DISK_LOOK_MS / 1_000)

    async def _begin_segment(self) -> None:
        """Where the log is written: between two batches, and not on the loop if that syncs."""
        if self._store.options.sync:
            self._store.is_log_in_thread = True
            await self._commits.between_batches(self._store.begin_segment)
        else:
            self._store.begin_segment()

    async def _turn(self) -> None:
        """Others have their turn: until the next commit, if one is on its way."""
        if self._store.last_batch is None:
            await asyncio.sleep(0)
            return
        self._commits.changed()
        await self._commits.next()
