"""Room: queues. What a broker does by itself: expiry at intervals."""

import asyncio
import itertools
import logging

from moorline.core.queue.queue import Queue
from moorline.errors import MoorlineError
from moorline.limits import CHECKPOINT_SLICE_MS
from moorline.net.clock import monotonic_ms
from moorline.queues.commands import QueueBroker

log = logging.getLogger("moorline.queues")


class Upkeep:
    """Runs until it is cancelled."""

    def __init__(self, broker: QueueBroker) -> None:
        self._broker = broker

    async def expire_forever(self) -> None:
        """At the start, and then at intervals."""
        settings = self._broker.settings
        while settings.ttl_s:
            try:
                expired = await self.expire(self._broker.expired_before_ms())
                log.debug("looked for expired messages", extra={"expired": expired})
            except (OSError, MoorlineError):
                # The next look comes; what needs the disk to work says so by itself.
                log.exception("expiry was interrupted")
            await asyncio.sleep(settings.expire_interval_s)

    async def expire(self, before_ms: int) -> int:
        """One pass over the queues that may hold something so old; the others are not touched."""
        store = self._broker.store
        # An index is never changed, only replaced; a million rows are not looked through on the loop.
        in_files = await asyncio.to_thread(store.index.expirable, before_ms // 1_000)
        expired, slice_end = 0, monotonic_ms() + CHECKPOINT_SLICE_MS
        for queue_id in itertools.chain(in_files, list(store.dirty)):
            queue = store.find(queue_id)
            if queue is not None and not queue.damaged and queue.maybe_expired(before_ms):
                expired += self._expire(queue, before_ms)
            if monotonic_ms() >= slice_end:
                await asyncio.sleep(0)
                slice_end = monotonic_ms() + CHECKPOINT_SLICE_MS
        return expired

    def _expire(self, queue: Queue, before_ms: int) -> int:
        expired = self._broker.expire(queue, before_ms)
        if expired and queue.is_subscribed:
            self._broker.store.batch.woken.append(queue)
        return expired
