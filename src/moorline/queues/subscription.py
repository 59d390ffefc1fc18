"""Room: queues. Subscriptions: which session gets a queue's messages, and how many at once.

A queue has one subscriber. Its messages are delivered in order, at most `window` unacknowledged; a
session that does not read is not written to: its queues wait until there is room again.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Generator, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from moorline.core.queue.queue import QUOTA_MARKER, Queue
from moorline.journal.queues.store import Store
from moorline.limits import QUEUES_FREED_AT_ONCE_MAX
from moorline.net.session import Session
from moorline.net.slices import in_slices
from moorline.queues.traces import QueueTraces
from moorline.wire.queue import Delivery, Ended

if TYPE_CHECKING:
    from moorline.queues.commands import Counts


class Subscriber:
    """Whoever gets the messages of one queue, or of all queues of a service."""

    __slots__ = ("_waiters", "in_flight", "in_flight_max", "session", "waiting", "window")

    def __init__(self, session: Session, window: int, in_flight_max: int = 0) -> None:
        self.session = session
        self.window = window
        self.in_flight = 0
        self.in_flight_max = in_flight_max
        """Messages of all its queues that may be unacknowledged; 0 where the window is bound enough."""
        self.waiting: dict[Queue, None] = {}
        self._waiters: list[asyncio.Future[None]] = []

    @property
    def is_full(self) -> bool:
        return 0 < self.in_flight_max <= self.in_flight

    async def room(self) -> None:
        """Waits until something is acknowledged."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        await waiter

    def acknowledged(self, count: int) -> None:
        self.in_flight -= count
        if self._waiters and not self.is_full:
            self.end()

    def end(self) -> None:
        """Wakes whoever waits for room: there is some, or there never will be."""
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._waiters.clear()


class Subscriptions:
    """All subscriptions of a node."""

    def __init__(self, store: Store, counts: "Counts") -> None:
        self.route: Callable[[Queue], None] | None = None
        """Asked about a queue that has a message and no subscriber: a service may want it."""
        self._store = store
        self._counts = counts
        self._subscribers: dict[Queue, Subscriber] = {}
        self._queues: dict[Session, set[Queue]] = {}
        self._stalled: dict[Session, OrderedDict[Queue, None]] = {}
        self._leaving: set[Session | Subscriber] = set()
        """Who is gone, and whose queues are freed slice by slice: until then they seem to be its own."""
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return sum(len(queues) for queues in self._queues.values())

    def each(self) -> Iterator[tuple[Queue, Subscriber]]:
        """Those of this moment that are still there when they have their turn: for a walk in slices."""
        for queue in list(self._subscribers):
            held = self._subscribers.get(queue)
            if held is not None:
                yield queue, held

    def add(self, session: Session, queue: Queue, window: int) -> None:
        """The session gets the queue's messages from its head on; whoever had it is told.

        A call may have waited, for a repair or the catalog, until its client was gone: that one gets nothing,
        since its end has been told already and nobody would ever free the queue.
        """
        if not session.is_open:
            self.serve([queue])
            return
        held = self._subscribers.get(queue)
        if held is not None and held.session is not session:
            self.end(queue, "TAKEN_OVER")
        self._free(queue)
        self._give(queue, Subscriber(session, window))
        # After the answer to the subscription, which leaves when the handler is done.
        asyncio.get_running_loop().call_soon(self.serve, [queue])

    def attach(self, queue: Queue, subscriber: Subscriber) -> None:
        """Gives a queue to the subscriber of a service, and what waits in it."""
        if self._subscribers.get(queue) is not subscriber:
            self.yield_to_service(queue)
            self.detach(queue)
            self._give(queue, subscriber)
        self._serve(queue, subscriber)

    def _give(self, queue: Queue, subscriber: Subscriber) -> None:
        self._subscribers[queue] = subscriber
        queue.is_subscribed = True
        self._of(subscriber.session).add(queue)

    def yield_to_service(self, queue: Queue) -> None:
        """A service has the queue from now on: a plain subscriber is told that it has not."""
        held = self._subscribers.get(queue)
        if held is not None and not held.in_flight_max:
            self.end(queue, "TAKEN_OVER")

    def detach(self, queue: Queue) -> None:
        """The queue is no service's any more; a plain subscriber keeps it."""
        held = self._subscribers.get(queue)
        if held is not None and held.in_flight_max:
            self.remove(held.session, queue)

    def remove(self, session: Session, queue: Queue) -> None:
        held = self._subscribers.get(queue)
        if held is not None and held.session is session:
            self._free(queue)
            self._of(session).discard(queue)

    def leave(self, subscriber: Subscriber) -> None:
        """It gets nothing more; what it did not acknowledge comes again to another."""
        subscriber.waiting.clear()
        queues = list(self._queues.get(subscriber.session, ()))
        self._free_all(subscriber, self._leave_each(subscriber, queues), len(queues))

    def _leave_each(self, subscriber: Subscriber, queues: Iterable[Queue]) -> Iterator[None]:
        for queue in queues:
            if self._subscribers.get(queue) is subscriber:
                self.remove(subscriber.session, queue)
            yield

    def _free_all(self, who: "Session | Subscriber", each: Iterator[None], queues: int) -> None:
        """At once where there are few. A client may have hundreds of thousands, and nobody waits for it."""
        if queues <= QUEUES_FREED_AT_ONCE_MAX:
            for _ in each:
                pass
            return
        self._leaving.add(who)
        self._begin(self._free_in_slices(who, each))

    async def _free_in_slices(self, who: "Session | Subscriber", each: Iterator[None]) -> None:
        try:
            await in_slices(_steps(each))
        finally:
            self._leaving.discard(who)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _free(self, queue: Queue) -> None:
        held = self._subscribers.pop(queue, None)
        queue.is_subscribed = False
        delivered, queue.delivered = queue.delivered, 0
        if held is not None:
            held.waiting.pop(queue, None)
            held.acknowledged(delivered)
            self._serve_next(held)

    def acknowledged(self, queue: Queue, count: int) -> None:
        """So many of the delivered messages are done with."""
        done = min(count, queue.delivered)
        queue.delivered -= done
        held = self._subscribers.get(queue)
        if held is not None:
            held.acknowledged(done)
            if held.waiting:
                self._serve_next(held)

    def _serve_next(self, held: Subscriber) -> None:
        """Room has come: the queues that waited for it get it in their order."""
        while held.waiting and not held.is_full and held.session.writable:
            queue = next(iter(held.waiting))
            del held.waiting[queue]
            self._serve(queue, held)

    def end(self, queue: Queue, code: str) -> None:
        """Takes a queue from its subscriber and says why."""
        held = self._subscribers.get(queue)
        if held is not None:
            held.session.send(Ended(queue.id, code))
            self.remove(held.session, queue)

    def serve(self, queues: Iterable[Queue]) -> None:
        """Delivers what may be delivered; only what is committed."""
        subscribers, leaving = self._subscribers, self._leaving
        for queue in queues:
            held = subscribers.get(queue)
            if leaving and held is not None and (held in leaving or held.session in leaving):
                # Its turn to be freed has not come; nobody would be told of the message later.
                self._free(queue)
                held = None
            if held is not None:
                self._serve(queue, held)
            elif self.route is not None:
                self.route(queue)

    def _serve(self, queue: Queue, held: Subscriber) -> None:
        store, session = self._store, held.session
        size = queue.size
        upto = size if size < held.window else held.window
        while (place := queue.delivered) < upto:
            if not session.writable:
                self._stall(session, queue)
                return
            if held.in_flight_max and held.is_full:
                held.waiting[queue] = None
                return
            entry = queue.peek(place) or store.peek(queue, place)
            if entry is None:
                break
            if entry.lsn > store.committed_lsn:
                # Not durable yet: the commit that carries it wakes the queue again.
                store.batch_of(entry.lsn).woken.append(queue)
                break
            session.push(
                Delivery(
                    queue.id, entry.lsn, entry.time_ms, entry.kind == QUOTA_MARKER, entry.body
                ),
                len(entry.body),
            )
            queue.delivered = place + 1
            held.in_flight += 1
            self._counts.delivered += 1
        if queue.damaged:
            self.end(queue, "DAMAGED")

    def _of(self, session: Session) -> set[Queue]:
        queues = self._queues.get(session)
        if queues is None:
            queues = self._queues[session] = set()
            session.at_end(lambda: self._left(session))
        return queues

    def _left(self, session: Session) -> None:
        """The session is gone: its queues are free, what it did not acknowledge comes again."""
        self._stalled.pop(session, None)
        queues = self._queues.pop(session, None)
        if queues:
            self._free_all(session, self._left_each(session, queues), len(queues))

    def _left_each(self, session: Session, queues: Iterable[Queue]) -> Iterator[None]:
        for queue in queues:
            held = self._subscribers.get(queue)
            # Somebody else may have it by now.
            if held is not None and held.session is session:
                self._free(queue)
            yield

    def _stall(self, session: Session, queue: Queue) -> None:
        stalled = self._stalled.get(session)
        if stalled is not None:
            stalled[queue] = None
            return
        self._stalled[session] = OrderedDict({queue: None})
        self._begin(self._resume(session))

    async def _resume(self, session: Session) -> None:
        """Goes on with what waits for a slow client whenever it has room, until nothing waits."""
        while stalled := self._stalled.get(session):
            await session.room_to_write()
            await in_slices(self._serve_stalled(session, stalled))
        self._stalled.pop(session, None)

    def _serve_stalled(
        self, session: Session, stalled: OrderedDict[Queue, None]
    ) -> Generator[None, None, None]:
        """As far as there is room, and no further: to pass over all that wait would take long each time."""
        while stalled and session.writable:
            self.serve([stalled.popitem(last=False)[0]])
            yield


class TracedSubscriptions(Subscriptions):
    """The same where a collector is set: it hears of what leaves."""

    def __init__(self, store: Store, counts: "Counts", traces: QueueTraces) -> None:
        super().__init__(store, counts)
        self._traces = traces

    def _serve(self, queue: Queue, held: Subscriber) -> None:
        first = queue.delivered
        super()._serve(queue, held)
        for place in range(first, queue.delivered):
            entry = queue.peek(place) or self._store.peek(queue, place)
            if entry is not None:
                self._traces.delivered(queue, entry)


def _steps(each: Iterator[None]) -> Generator[None, None, None]:
    yield from each
