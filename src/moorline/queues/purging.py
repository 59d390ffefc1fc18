"""Room: queues. Purging: what waits in a queue is removed, and the queue stays.

It is what expiry does, of everything up to the number that was given last when the call came: what is sent
meanwhile stays. A queue may hold a million messages, so some are done at a time, and others have their turn.
Whoever gave the call up, or was cut off, may have removed a part: to purge again does the rest.
"""

import asyncio
from typing import TYPE_CHECKING

from moorline.errors import QueueInRepair
from moorline.limits import PURGED_PER_SLICE
from moorline.net.session import Session
from moorline.queues.refusals import check_readable
from moorline.wire.queue import PurgeQueue, QueuePurged

if TYPE_CHECKING:
    from moorline.queues.commands import QueueBroker


class Purging:
    """Answers `PurgeQueue`."""

    def __init__(self, broker: "QueueBroker") -> None:
        self._broker = broker

    async def purge(self, session: Session, call: PurgeQueue) -> QueuePurged:  # noqa: ARG002
        broker, store = self._broker, self._broker.store
        upto, purged = store.next_lsn - 1, 0
        while True:
            # Anew each time: it may have been deleted, blocked or set aside meanwhile.
            queue = broker.found(call.queue)
            check_readable(queue)
            if queue.id in store.mending:
                raise QueueInRepair("the queue is being checked or repaired: try again")
            dropped = store.drop_some(queue, upto, PURGED_PER_SLICE)
            if not dropped:
                break
            purged += dropped
            broker.purged(queue, dropped)
            await broker.paced()
            await asyncio.sleep(0)
        await broker.commits.durable()
        return QueuePurged(call.call, purged)
