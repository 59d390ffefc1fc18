"""Room: topics. The streams of this node: what is published is committed, readers read and are woken.

Readers see a message when its publisher is answered, not before (`net/group_commit.py`). What the streams
need besides, sealing and retention, is in `topics/upkeep.py`.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable

from moorline.core.frames.block import Block
from moorline.core.frames.picked import Picked
from moorline.core.stream import Extent, Gap, Shard, Stream
from moorline.journal.disk_watch import FillsDisk
from moorline.journal.streams.store import StreamBatch, StreamStore
from moorline.journal.streams.topic_picks import Wish
from moorline.limits import (
    STREAM_BUSY_MESSAGES,
    STREAM_BUSY_MS,
    STREAM_LOG_PAUSE_MS,
    STREAM_READ_BYTES_MAX,
)
from moorline.net.group_commit import GroupCommit
from moorline.net.trusted_clock import TrustedClock
from moorline.topics.filtered_news import FilteredNews
from moorline.topics.traces import MessageTraces

log = logging.getLogger("moorline.topics")


class LocalStreams(FillsDisk):
    """The streams in the store of this node, as the event loop meets them."""

    def __init__(self, store: StreamStore, node: str, clock: TrustedClock | None = None) -> None:
        super().__init__()
        self.store = store
        self.clock = clock or TrustedClock()
        self.node = node
        self.commits = GroupCommit(
            store,
            "streams",
            answered=self._answered,
            pause_ms=self._pause_ms,
            begin=store.begin,
        )
        self.files_at_rest = asyncio.Lock()
        """Held by whoever ends, seals and drops generations; and by a backup, so that nobody does."""
        self._loop = asyncio.get_running_loop()
        self._log_work: asyncio.Future[bool] | None = None
        self._log_pause_ends_s = 0.0
        self.dropped_messages = 0
        self.moved: list[Callable[[list[int]], None]] = []
        """Called with the shards that have new messages."""
        self.reshaped: list[Callable[[list[int]], None]] = []
        """Called with the shards whose generations have changed."""
        self.traces: MessageTraces | None = None
        """Where a collector is set."""
        self.news = FilteredNews()
        """For readers of some topics."""
        self._waiting: dict[int, list[Callable[[], None]]] = {}
        self._generations = store.newest_generations()

    # --- commits ----------------------------------------------------------------------------------

    def _pause_ms(self, batch: StreamBatch) -> int:
        """Where a crowd publishes, fewer and larger commits carry more; who publishes alone never waits."""
        is_crowd = batch.message_count >= STREAM_BUSY_MESSAGES and self.store.is_synced
        return STREAM_BUSY_MS if is_crowd else 0

    def _answered(self, batch: StreamBatch) -> None:
        shards = [part.shard.number for part in batch.parts]
        for shard in shards:
            for wake in self._waiting.pop(shard, ()):
                wake()
        # Before the news of what is in it: nobody sleeps through the end of a generation.
        if any(part.ended is not None for part in batch.parts):
            self.look_for_new_generations()
        for part in batch.parts:
            block = part.block
            self.news.moved(part.shard.number, block.first, block.upto, block.names)
        for moved in self.moved:
            moved(shards)
        if self._log_work is None and self.store.log.wants_work:
            self._look_after_log()
        if self.traces is not None:
            self.traces.committed(batch, self.commits.took_s)

    def _look_after_log(self) -> None:
        """In a thread, beside the commits: what is full is synced where it belongs, and the next is made."""
        loop = self._loop
        may_prepare = not self.is_disk_full and loop.time() >= self._log_pause_ends_s
        if not self.store.log.has_work(may_prepare=may_prepare):
            return
        self._log_work = loop.run_in_executor(
            None, lambda: self.store.log.work(may_prepare=may_prepare)
        )
        self._log_work.add_done_callback(self._looked_after_log)

    def _looked_after_log(self, done: "asyncio.Future[bool]") -> None:
        self._log_work = None
        if done.cancelled():
            return
        error = done.exception()
        if error is not None:
            # What a sync could not store is in the log yet, for the next start.
            self.commits.fail(error)
        elif not done.result():
            log.warning("no room for the log of small commits: they are synced shard by shard")
            pause_s = STREAM_LOG_PAUSE_MS / 1_000
            self._log_pause_ends_s = self._loop.time() + pause_s

    def look_for_new_generations(self) -> None:
        newest = self.store.newest_generations()
        if newest != self._generations:
            shards = [shard for shard in newest if newest[shard] != self._generations.get(shard)]
            self._generations = newest
            self.tell_reshaped(shards)

    def tell_reshaped(self, shards: list[int]) -> None:
        """The generations of these shards have changed."""
        for reshaped in self.reshaped:
            reshaped(shards)
        for shard in shards:  # a reader at the end of a sealed generation must look again
            for wake in self._waiting.pop(shard, ()):
                wake()
            self.news.reshaped(shard)

    # --- reading ----------------------------------------------------------------------------------

    async def read(
        self, stream: Stream, offset: int, bytes_max: int = STREAM_READ_BYTES_MAX
    ) -> Block | Gap | None:
        """What follows the offset in that stream of ours, None at its end; from the disk in a thread."""
        _, shard, generation = stream
        now = self.store.read_now(shard, generation, offset, bytes_max)
        if now is not None:
            return now.found
        return await asyncio.to_thread(self.store.read, shard, generation, offset, bytes_max)

    async def pick(
        self, stream: Stream, offset: int, wish: Wish, bytes_max: int = STREAM_READ_BYTES_MAX
    ) -> Block | Picked | Gap | None:
        """As `read`, and of a sealed stream only what may match, where that is little."""
        _, shard, generation = stream
        now = self.store.read_now(shard, generation, offset, bytes_max)
        if now is not None:
            return now.found
        return await asyncio.to_thread(self._picked, stream, offset, wish, bytes_max)

    def _picked(
        self, stream: Stream, offset: int, wish: Wish, bytes_max: int
    ) -> Block | Picked | Gap | None:
        _, shard, generation = stream
        picked = self.store.pick(shard, generation, offset, bytes_max, wish)
        return picked or self.store.read(shard, generation, offset, bytes_max)

    async def offsets_at(self, time_us: int) -> dict[int, int]:
        """The first offset at or after a time, in each shard; its end where all are older."""
        shards = sorted(self.store.shard_numbers)
        return {
            shard: await asyncio.to_thread(self.store.offset_at, shard, time_us) for shard in shards
        }

    def when_moved(self, shard: int, wake: Callable[[], None]) -> None:
        """Calls back once, when the shard has something new."""
        self._waiting.setdefault(shard, []).append(wake)

    def forget(self, shard: int, wake: Callable[[], None]) -> None:
        waiting = self._waiting.get(shard)
        if waiting is not None and wake in waiting:
            waiting.remove(wake)
            if not waiting:
                del self._waiting[shard]

    def shard_extents(self, shards: Iterable[int] | None = None) -> dict[Shard, tuple[Extent, ...]]:
        """All streams of these shards, oldest first."""
        wanted = self.store.shard_numbers if shards is None else shards
        found = [self.store.extents_of(number) for number in wanted]
        return {extents[0].stream.shard: extents for extents in found if extents}

    async def close(self) -> None:
        """Commits what is left and says how far it came, if it may still be answered."""
        await self.commits.close()
        if self._log_work is not None:
            await asyncio.wait([self._log_work])
        if not self.commits.failed.done() and self.commits.is_idle:
            await asyncio.to_thread(self.store.leave)
