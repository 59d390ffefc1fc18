"""Room: services. Routes: to which service a queue's new messages go, asked of the catalog in batches.

Asked only while some service is subscribed. An answer is remembered for a few seconds, so that a busy queue
is not asked about for each of its messages; what changes through this node is forgotten at once.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable

from moorline.catalog.services import Services
from moorline.core.queue.queue import Queue
from moorline.errors import MoorlineError
from moorline.journal.queues.store import Store
from moorline.limits import ROUTE_MS_MAX, ROUTE_RETRY_MS, ROUTES_MAX
from moorline.net.clock import monotonic_ms

log = logging.getLogger("moorline.queues")

NOBODY = 0


class Routes:
    """Queues to services."""

    def __init__(
        self, services: Services, store: Store, attach: Callable[[int, Queue], None]
    ) -> None:
        self._services = services
        self._store = store
        self._attach = attach
        self._known: OrderedDict[bytes, tuple[int, int]] = OrderedDict()
        self._asked: dict[bytes, None] = {}
        self._asking: asyncio.Task[None] | None = None

    def find(self, queue: Queue) -> None:
        """A queue without a subscriber has a message: find out whose it is."""
        known = self._known.get(queue.id)
        if known is not None and monotonic_ms() - known[1] < ROUTE_MS_MAX:
            if known[0] != NOBODY:
                self._attach(known[0], queue)
            return
        self._asked[queue.id] = None
        if self._asking is None:
            self._asking = asyncio.create_task(self._ask())

    def forget(self, queues: Iterable[bytes]) -> None:
        for queue_id in queues:
            self._known.pop(queue_id, None)

    def close(self) -> None:
        if self._asking is not None:
            self._asking.cancel()

    async def _ask(self) -> None:
        try:
            while self._asked:
                asked, self._asked = list(self._asked), {}
                try:
                    found = await self._services.of_queues(asked)
                except MoorlineError as error:
                    # Their messages are stored; whose they are is asked again.
                    log.warning("routes unknown for now", extra={"why": str(error)})
                    self._asked |= dict.fromkeys(asked)
                    await asyncio.sleep(ROUTE_RETRY_MS / 1_000)
                    continue
                now_ms = monotonic_ms()
                for queue_id in asked:
                    number = found.get(queue_id, NOBODY)
                    self._known[queue_id] = (number, now_ms)
                    queue = self._store.live.get(queue_id)
                    if number != NOBODY and queue is not None and not queue.is_subscribed:
                        self._attach(number, queue)
                while len(self._known) > ROUTES_MAX:
                    self._known.popitem(last=False)
        finally:
            self._asking = None
