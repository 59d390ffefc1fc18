"""Room: client. Queues as a user of the library sees them.

queue = await moor.create_queue()
await moor.send(queue.id, b"ahoy")
async for message in queue:
    print(message.body)
    await message.ack()
"""

import asyncio
import contextlib
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Protocol

from moorline.client.deadline import deadline
from moorline.client.queue_homes import Coming, QueueCallers
from moorline.errors import (
    CallFailed,
    ConnectionLost,
    Malformed,
    NotFound,
    Refused,
    Stale,
    SubscriptionEnded,
)
from moorline.ids import text_of
from moorline.net.caller import Caller
from moorline.wire.message import Answer, Failed
from moorline.wire.message import Message as WireMessage
from moorline.wire.queue import (
    Acknowledge,
    Acknowledged,
    BlockQueue,
    CheckQueue,
    CloseQueue,
    DeleteQueue,
    Delivery,
    DescribeQueue,
    Done,
    Ended,
    Get,
    Got,
    PurgeQueue,
    QueueChecked,
    QueueDescribed,
    QueuePurged,
    Subscribe,
    Subscribed,
    Suspend,
    Unsubscribe,
)

WINDOW = 16
"""Messages on their way to a reader at once, unless it says otherwise."""


class Message:
    """One message of a queue. It stays the queue's head until it is acknowledged."""

    __slots__ = (
        "_caller",
        "_settled",
        "_stays",
        "body",
        "id",
        "is_gone",
        "is_quota_marker",
        "queue",
        "time_ms",
    )

    def __init__(
        self,
        caller: Caller,
        delivery: Delivery,
        settled: asyncio.Event | None = None,
        *,
        stays: bool = False,
    ) -> None:
        self._caller = caller
        self._settled = settled
        self._stays = stays
        """Whether its client goes on over other connections, by which it comes again."""
        self.queue = delivery.queue
        self.id = delivery.message
        self.time_ms = delivery.time_ms
        self.is_quota_marker = delivery.is_quota_marker
        """Senders were refused here; they may go on when this is acknowledged too."""
        self.body = delivery.body
        self.is_gone = False
        """Whether it had left the queue before it was acknowledged: expired, acknowledged before, or
        deleted with its queue. Known after `ack`."""

    async def ack(self) -> int:
        """Done with: the node forgets it. Returns how many are left.

        One that is gone already is done with too: `is_gone` tells, and nothing is raised. `Stale` says that
        the connection it came by is gone: it comes again, unless the node has heard this.
        """
        if self._settled is not None:
            await self.settled()
        self.check_stale()
        try:
            (answer,) = await self._caller.call_all([self.acknowledge])
        except (ConnectionLost, Refused):
            self.check_stale()
            raise
        refusal, waiting = self.acknowledged(answer)
        if refusal is not None:
            raise refusal
        return waiting

    def check_stale(self) -> None:
        if self._stays and self._caller.lost.done():
            raise Stale(
                f"message {self.id} of {text_of(self.queue)} was delivered over a connection that is gone: "
                "it comes again"
            )

    async def settled(self) -> None:
        """Waits while the service of its connection has no agreement with the node."""
        self._caller.check_loop()
        if self._settled is not None:
            await self._settled.wait()

    def acknowledge(self, call: int) -> Acknowledge:
        """The ACK of this message, as a call of that number."""
        return Acknowledge(call, self.queue, self.id)

    def acknowledged(self, answer: Answer) -> tuple[CallFailed | None, int]:
        """Takes the answer to an ACK: why it was refused, if it was, and how many are left."""
        if isinstance(answer, Acknowledged):
            self.is_gone = answer.is_gone
            return None, answer.waiting
        if not isinstance(answer, Failed):
            raise Malformed(f"{type(answer).__name__} is no {Acknowledged.__name__}")
        if answer.code == NotFound.code:
            # The node gave it to us: the queue was there, and was deleted with all that was in it.
            self.is_gone = True
            return None, 0
        return answer.error(), 0

    def __repr__(self) -> str:
        kind = "quota marker" if self.is_quota_marker else f"{len(self.body)} bytes"
        return f"<Message {self.id} of {text_of(self.queue)}: {kind}>"


class Inbox:
    """What a node has pushed for one queue and nobody has taken yet."""

    def __init__(self) -> None:
        self._waiting: deque[Delivery] = deque()
        self._ended = ""
        self._news = asyncio.Event()

    def put(self, pushed: Delivery | Ended) -> None:
        if isinstance(pushed, Ended):
            self._ended = pushed.code
        else:
            self._waiting.append(pushed)
        self._news.set()

    def lost(self) -> None:
        """The connection is gone: nothing more will come."""
        self._news.set()

    def forget(self) -> None:
        """What nobody has taken of a connection that is gone comes again on the next."""
        self._waiting.clear()

    async def take(self, caller: Caller) -> Delivery:
        caller.check_loop()
        while not self._waiting:
            if self._ended:
                raise SubscriptionEnded(self._ended)
            if caller.lost.done():
                raise caller.lost.result()
            self._news.clear()
            await self._news.wait()
        return self._waiting.popleft()

    async def take_fresh(self, caller: Caller) -> Delivery:
        """The same, and nothing of a connection that is gone: it comes again."""
        if caller.lost.done():
            raise caller.lost.result()
        return await self.take(caller)


class Gate(Protocol):
    """The service that a connection acts for: what changes its queues goes through it."""

    settled: asyncio.Event

    def subscribing(self, queue: bytes) -> AbstractAsyncContextManager[None]: ...

    def freeing(self, queue: bytes) -> AbstractAsyncContextManager[None]: ...


class Inboxes:
    """Sorts what a node pushes by queue."""

    def __init__(self) -> None:
        self.gate: Gate | None = None
        self._by_queue: dict[bytes, Inbox] = {}
        self._leaving: Counter[bytes] = Counter()
        """Unsubscribed from, and not answered: what comes is for the reader that has left."""

    def open(self, queue: bytes) -> Inbox:
        earlier = self._by_queue.get(queue)
        if earlier is not None:
            earlier.put(Ended(queue, "TAKEN_OVER"))
        inbox = self._by_queue[queue] = Inbox()
        return inbox

    def close(self, queue: bytes, inbox: Inbox, caller: Caller) -> None:
        """Its reader has left, cancelled or not: deliveries end, unless another reader has followed."""
        if self._by_queue.get(queue) is not inbox:
            return
        del self._by_queue[queue]
        if caller.is_open:
            self._leaving[queue] += 1
            caller.cast(lambda call: Unsubscribe(call, queue), lambda _: self._left(queue))

    def drop(self, queue: bytes, inbox: Inbox) -> None:
        """Its reader was never subscribed on any connection."""
        if self._by_queue.get(queue) is inbox:
            del self._by_queue[queue]

    def _left(self, queue: bytes) -> None:
        self._leaving[queue] -= 1
        if self._leaving[queue] <= 0:
            del self._leaving[queue]

    def lost(self) -> None:
        # Nobody answers an unsubscribe that was on its way.
        self._leaving.clear()
        for inbox in self._by_queue.values():
            inbox.lost()

    def sort(self, message: WireMessage) -> bool:
        """Gives a push to the reader of its queue; False if nobody reads it here."""
        if not isinstance(message, Delivery | Ended):
            return False
        inbox = self._by_queue.get(message.queue)
        if inbox is None:
            # A delivery to a reader that is gone comes again to the next one.
            return False
        if message.queue not in self._leaving:
            inbox.put(message)
        return True


class Queue:
    """A queue on the node. Iterate over it to read it; the node delivers, you acknowledge."""

    def __init__(self, callers: QueueCallers, inboxes: Inboxes, queue_id: bytes) -> None:
        self.id = queue_id
        self._callers = callers
        self._inboxes = inboxes

    def __str__(self) -> str:
        return text_of(self.id)

    @property
    def _gate(self) -> Gate | None:
        return self._inboxes.gate

    def __aiter__(self) -> AsyncIterator[Message]:
        return self.read()

    async def read(self, window: int = WINDOW) -> AsyncIterator[Message]:
        """Every message in order, for ever; at most `window` are on their way unacknowledged."""
        self._callers.first.check_loop()
        inbox = self._inboxes.open(self.id)
        caller = self._callers.link
        back = Coming(self._callers)
        try:
            while True:
                try:
                    caller = await self._subscribed(window)
                    back.here(caller)
                    settled = self._gate.settled if self._gate else None
                    stays = self._callers.stays
                    take = inbox.take_fresh if stays else inbox.take
                    while True:
                        yield Message(caller, await take(caller), settled, stays=stays)
                except (ConnectionLost, Refused, CallFailed) as error:
                    inbox.forget()
                    await back.after(error)
        finally:
            if caller is not None:
                self._inboxes.close(self.id, inbox, caller)
            else:
                self._inboxes.drop(self.id, inbox)

    async def _subscribed(self, window: int) -> Caller:
        # For ever: a reader has no deadline.
        async with self._gate.subscribing(self.id) if self._gate else nullcontext():
            with deadline(None):
                _, caller = await self._callers.call_and_where(
                    self.id, lambda call: Subscribe(call, self.id, window), Subscribed
                )
        return caller

    async def acking(self, window: int = WINDOW) -> AsyncIterator[Message]:
        """Each message, acknowledged when the next one is asked for; one that raised or broke out is not.

        With a client that stays, a program that reads so needs to know nothing of faults: what was in hand
        when a connection was lost comes again.
        """
        async for message in self.read(window):
            yield message
            with contextlib.suppress(Stale):
                await message.ack()

    async def get(self) -> Message | None:
        """The head of the queue, without subscribing; None if it is empty."""
        asked = self._callers.call_and_where(self.id, lambda call: Get(call, self.id), Got)
        return self.message(*await asked)

    def message(self, got: Got, caller: Caller) -> Message | None:
        """The message of an answer to GET, with the connection by which it came."""
        if not got.message:
            return None
        delivery = Delivery(self.id, got.message, got.time_ms, got.is_quota_marker, got.body)
        return Message(caller, delivery, stays=self._callers.stays)

    async def info(self) -> QueueDescribed:
        return await self._callers.call(
            self.id, lambda call: DescribeQueue(call, self.id), QueueDescribed
        )

    async def off(self) -> None:
        """Takes no more messages; those that are there can be read."""
        await self._callers.call(self.id, lambda call: Suspend(call, self.id), Done)

    async def close(self, *, closed: bool = True) -> None:
        """From now on to know its id is no right to send to it: we may, and who is granted w."""
        await self._callers.call(self.id, lambda call: CloseQueue(call, self.id, closed), Done)

    async def open(self) -> None:
        """Whoever knows its id may send to it again."""
        await self.close(closed=False)

    async def delete(self) -> None:
        async with self._gate.freeing(self.id) if self._gate else nullcontext():
            await self._callers.call(self.id, lambda call: DeleteQueue(call, self.id), Done)

    async def purge(self) -> int:
        """Removes all that waits in it now, for good; how many messages, marks of the quota included."""
        answer = await self._callers.call(
            self.id, lambda call: PurgeQueue(call, self.id), QueuePurged
        )
        return answer.messages

    async def check(self) -> QueueChecked:
        """The operator's: looks at all its files and says what is wrong; others wait for that moment."""
        return await self._callers.call(
            self.id, lambda call: CheckQueue(call, self.id), QueueChecked
        )

    async def repair(self) -> QueueChecked:
        """The operator's: puts right what is wrong, also if it was set aside; then it serves again."""
        return await self._callers.call(
            self.id, lambda call: CheckQueue(call, self.id, is_repair=True), QueueChecked
        )

    async def block(self, *, blocked: bool = True) -> None:
        """The operator's: nothing passes while it is blocked."""
        async with self._gate.freeing(self.id) if self._gate and blocked else nullcontext():
            await self._callers.call(self.id, lambda call: BlockQueue(call, self.id, blocked), Done)
