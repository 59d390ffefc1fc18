"""Room: queues. Calls about queues of homes that are not known here: they wait for one look at the homes.

A home may be newer than what a node knows of all homes, and "there is no such queue" would be believed. So
such a call waits until the catalog was asked once more, and is then handled as if it came now. That takes
`HOMES_AGAIN_MS` at most and the catalog's answer; whoever invents an id waits as long. What waits is bounded;
beyond it a call is answered by what is known.
"""

import logging
from collections.abc import Iterable

from moorline.journal.queues.store import Store
from moorline.limits import PARKED_BYTES_MAX, PARKED_CALLS_MAX
from moorline.net.session import Handler, Session, mistaken
from moorline.net.tasks import Tasks
from moorline.queues.homes import QueueHomes
from moorline.queues.parking import RefusalNow, bytes_of
from moorline.wire.message import Answer, Call

log = logging.getLogger("moorline.queues")


class NewHomes:
    """What waits at one node."""

    def __init__(self, homes: QueueHomes, store: Store, refusal_now: RefusalNow) -> None:
        self._homes = homes
        self._store = store
        self._refusal_now = refusal_now
        self._calls = self._bytes = 0
        self._is_second = False
        """While a call is handled that has waited: it is answered now, whatever is known."""
        self._tasks = Tasks("a call about a queue of a new home failed")

    def close(self) -> None:
        self._tasks.cancel()

    def may_be(self, queue_id: bytes) -> bool:
        """Whether the queue is neither here nor of a home that is known."""
        return (
            not self._is_second
            and not self._homes.knows(queue_id)
            and self._store.glance(queue_id) is None
            and self._calls < PARKED_CALLS_MAX
        )

    def waits(self, handler: Handler, session: Session, call: Call) -> bool:
        """Whether this one does; then `handler` has it once more, and its answer comes later."""
        size = bytes_of(call)
        if not self.may_be(getattr(call, "queue", b"")) or self._bytes + size > PARKED_BYTES_MAX:
            return False
        self._calls += 1
        self._bytes += size
        session.wait_for_turn([call])
        self._tasks.spawn(self._again(handler, session, call, size))
        return True

    async def _again(self, handler: Handler, session: Session, call: Call, size: int) -> None:
        try:
            await self._homes.looked()
        finally:
            self._calls -= 1
            self._bytes -= size
        # Who gave it up, or is gone, has nothing done for it any more.
        if session.is_open and session.begin_turn(call):
            answers = list(self._handled(handler, session, call))
            if answers:
                session.answer(answers)

    def _handled(self, handler: Handler, session: Session, call: Call) -> Iterable[Answer]:
        self._is_second = True
        try:
            # It was let in without the look at its right that its home decides about.
            refusal = self._refusal_now(session, call)
            return [refusal] if refusal else list(handler(session, [call]))
        except Exception as error:
            log.exception("a handler failed", extra={"call": type(call).__name__})
            return [mistaken(call, error)]
        finally:
            self._is_second = False
