"""Room: queues. Calls about a queue that is being mended: they wait here, and are handled when it is done.

Whoever sends or acknowledges notices nothing but the time that it takes. What waits is bounded; beyond it a
call is refused by name.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable

from moorline.errors import QueueInRepair
from moorline.journal.queues.store import Store
from moorline.limits import PARKED_BYTES_MAX, PARKED_CALLS_MAX
from moorline.net.session import Handler, Handlers, Session, mistaken
from moorline.wire.message import Answer, Call, Failed
from moorline.wire.queue import Send

log = logging.getLogger("moorline.queues")


RefusalNow = Callable[[Session, Call], Failed | None]
"""Why a call that waited is not granted any more; None if it is."""


class Parking:
    """Stands before the handlers of all calls that name a queue."""

    def __init__(self, store: Store, refusal_now: RefusalNow) -> None:
        self._mending = store.mending
        self._refusal_now = refusal_now
        self._parked: dict[bytes, list[tuple[Handler, Session, Call]]] = {}
        self._bytes = 0
        self._waiters: list[asyncio.Future[None]] = []

    def __len__(self) -> int:
        """Calls that wait."""
        return sum(len(parked) for parked in self._parked.values())

    def guard(self, handlers: Handlers) -> Handlers:
        """The same handlers, which do not see calls about a queue while it is being mended."""
        return {kind: self._guarded(handler) for kind, handler in handlers.items()}

    def _guarded(self, handler: Handler) -> Handler:
        def handle(session: Session, calls: list[Call]) -> Iterable[Answer]:
            if not self._mending:
                return handler(session, calls)
            return self._sorted(handler, session, calls)

        return handle

    def _sorted(self, handler: Handler, session: Session, calls: list[Call]) -> list[Answer]:
        passing, refused = [], []
        for call in calls:
            queue = getattr(call, "queue", b"")
            if queue not in self._mending:
                passing.append(call)
            elif not self._park(queue, handler, session, call):
                text = "the queue is being checked or repaired: try again in a moment"
                refused.append(Failed(call.call, QueueInRepair.code, text))
        return [*(handler(session, passing) if passing else ()), *refused]

    def _park(self, queue: bytes, handler: Handler, session: Session, call: Call) -> bool:
        parked = self._parked.setdefault(queue, [])
        size = bytes_of(call)
        if len(parked) >= PARKED_CALLS_MAX or self._bytes + size > PARKED_BYTES_MAX:
            return False
        parked.append((handler, session, call))
        self._bytes += size
        return True

    def release(self, queue: bytes) -> None:
        """Handles what waited for that queue, in its order, before anything that comes later."""
        assert queue not in self._mending, "they would have to wait again"
        for handler, session, call in self._parked.pop(queue, ()):
            self._bytes -= bytes_of(call)
            answers: list[Answer]
            try:
                refusal = self._refusal_now(session, call)
                answers = [refusal] if refusal else list(handler(session, [call]))
            except Exception as error:
                log.exception("a handler failed", extra={"call": type(call).__name__})
                answers = [mistaken(call, error)]
            if answers:
                session.answer(answers)
        if not self._mending:
            for waiter in self._waiters:
                if not waiter.done():
                    waiter.set_result(None)
            self._waiters.clear()

    async def emptied(self) -> None:
        """Returns when no queue is being mended."""
        while self._mending:
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter


def bytes_of(call: Call) -> int:
    return len(call.body) if isinstance(call, Send) else 0
