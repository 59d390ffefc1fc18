"""Room: broker. Subscriptions: which session gets a queue's messages, and how many at once.

A queue has one subscriber. Its messages are delivered in order, at most `window` unacknowledged; a
session that does not read is not written to: its queues wait until there is room again.
"""

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING

from moorline.core.queue import QUOTA_MARKER, Queue
from moorline.journal.store import Store
from moorline.net.session import Session
from moorline.wire.queue import Delivery, Ended

if TYPE_CHECKING:
    from moorline.broker.queues import Counts


class Subscriber:
    """One session's hold on one queue."""

    __slots__ = ("session", "window")

    def __init__(self, session: Session, window: int) -> None:
        self.session = session
        self.window = window


class Subscriptions:
    """All subscriptions of a node."""

    def __init__(self, store: Store, counts: "Counts") -> None:
        self._store = store
        self._counts = counts
        self._queues: dict[Session, set[Queue]] = {}
        self._stalled: dict[Session, dict[Queue, None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return sum(len(queues) for queues in self._queues.values())

    def add(self, session: Session, queue: Queue, window: int) -> None:
        """The session gets the queue's messages from its head on; whoever had it is told."""
        held = queue.subscriber
        if isinstance(held, Subscriber) and held.session is not session:
            self.end(queue, "TAKEN_OVER")
        queue.subscriber = Subscriber(session, window)
        queue.delivered = 0
        self._of(session).add(queue)
        # After the answer to the subscription, which leaves when the handler is done.
        asyncio.get_running_loop().call_soon(self.serve, [queue])

    def remove(self, session: Session, queue: Queue) -> None:
        held = queue.subscriber
        if isinstance(held, Subscriber) and held.session is session:
            queue.subscriber = None
            queue.delivered = 0
            self._of(session).discard(queue)

    def end(self, queue: Queue, code: str) -> None:
        """Takes a queue from its subscriber and says why."""
        held = queue.subscriber
        if isinstance(held, Subscriber):
            held.session.send(Ended(queue.id, code))
            self.remove(held.session, queue)

    def serve(self, queues: Iterable[Queue]) -> None:
        """Delivers what may be delivered; only what is committed."""
        for queue in queues:
            held = queue.subscriber
            if isinstance(held, Subscriber):
                self._serve(queue, held)

    def _serve(self, queue: Queue, held: Subscriber) -> None:
        store, session = self._store, held.session
        while queue.delivered < held.window and queue.delivered < queue.size:
            if not session.writable:
                self._stall(session, queue)
                return
            entry = store.peek(queue, queue.delivered)
            if entry is None or entry.lsn > store.committed_lsn:
                break
            session.send(
                Delivery(queue.id, entry.lsn, entry.time_ms, entry.kind == QUOTA_MARKER, entry.body)
            )
            queue.delivered += 1
            self._counts.delivered += 1
        if queue.damaged:
            self.end(queue, "DAMAGED")

    def _of(self, session: Session) -> set[Queue]:
        queues = self._queues.get(session)
        if queues is None:
            queues = self._queues[session] = set()
            session.on_end.append(lambda: self._left(session))
        return queues

    def _left(self, session: Session) -> None:
        """The session is gone: its queues are free, what it did not acknowledge comes again."""
        for queue in self._queues.pop(session, ()):
            queue.subscriber = None
            queue.delivered = 0
        self._stalled.pop(session, None)

    def _stall(self, session: Session, queue: Queue) -> None:
        stalled = self._stalled.get(session)
        if stalled is not None:
            stalled[queue] = None
            return
        self._stalled[session] = {queue: None}
        task = asyncio.create_task(self._resume(session))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _resume(self, session: Session) -> None:
        await session.room_to_write()
        self.serve(self._stalled.pop(session, {}))
