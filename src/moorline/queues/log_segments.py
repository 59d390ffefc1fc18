"""Room: queues. Segments of the log, prepared in a thread of their own before they are needed.

A node that sends little has none: the log grows as it is written. Where the disk has no room for one, or
fails at it, that is no harm either.
"""

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor

from moorline.errors import DiskFull
from moorline.journal.queues.store import Store
from moorline.limits import (
    DISK_FREE_BYTES_MIN,
    LOG_PREPARE_PAUSE_MS,
    LOG_SEGMENT_BYTES_MAX,
    LOG_SEGMENT_BYTES_MIN,
    LOG_SEGMENTS_READY_MAX,
)
from moorline.net.clock import monotonic_ms

log = logging.getLogger("moorline.queues")


class LogSegments:
    """Keeps some ready for the log of one store."""

    def __init__(self, store: Store, log_bytes_max: int) -> None:
        self.segment_bytes = min(
            max(log_bytes_max // 4, LOG_SEGMENT_BYTES_MIN), LOG_SEGMENT_BYTES_MAX
        )
        self._store = store
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="moorline-log")
        self._under_way: asyncio.Future[None] | None = None
        self._earliest_ms = 0
        self._has_room = True
        self._is_tight = False
        self._is_told = False

    def after_commit(self) -> None:
        """Prepares a segment, if the log has grown so far that one will be needed."""
        queue_log = self._store.log
        # What a node writes into segments that it does not fill is never much more than what it sends.
        wanted = min(LOG_SEGMENTS_READY_MAX, 2 * queue_log.size_bytes // self.segment_bytes)
        if (
            queue_log.ready < wanted
            and self._under_way is None
            and self._store.options.sync
            and self._has_room
            and monotonic_ms() >= self._earliest_ms
        ):
            self._under_way = self._loop.run_in_executor(self._thread, self._prepare)
            self._under_way.add_done_callback(self._done)

    def _prepare(self) -> None:
        """In the thread. What a segment takes is not to be what messages are refused for."""
        free_bytes = self._store.disk.free_bytes("")
        if free_bytes < DISK_FREE_BYTES_MIN + 2 * self.segment_bytes:
            raise DiskFull("the disk is nearly full")
        self._store.log.prepare(self.segment_bytes)

    def look_for_room(self, room_bytes: int) -> None:
        """What the disk has beside its reserve and the next checkpoint. With none, what is prepared goes.

        Far more than that is wanted before more is prepared: or what it takes would be what makes the room
        small, again and again.
        """
        self._has_room = room_bytes >= 2 * LOG_SEGMENTS_READY_MAX * self.segment_bytes
        self._is_tight = room_bytes < 0
        self._give_back()

    def _give_back(self) -> None:
        if self._is_tight and self._store.log.ready and self._under_way is None:
            self._under_way = self._loop.run_in_executor(self._thread, self._store.log.give_back)
            self._under_way.add_done_callback(self._done)

    async def close(self) -> None:
        """Nothing more is prepared; what is ready goes with the log."""
        self._has_room = self._is_tight = False
        await asyncio.to_thread(self._thread.shutdown)

    def _done(self, done: "asyncio.Future[None]") -> None:
        self._under_way = None
        # What was prepared while the disk ran full.
        self._give_back()
        error = None if done.cancelled() else done.exception()
        if error is None:
            self._is_told = False
            return
        self._earliest_ms = monotonic_ms() + LOG_PREPARE_PAUSE_MS
        if not isinstance(error, DiskFull | OSError):
            # A mistake of ours; the log goes on without.
            log.error("a segment of the log could not be prepared", exc_info=error)
        elif not self._is_told:
            self._is_told = True
            log.warning("no segment of the log is prepared: it grows", extra={"why": str(error)})
