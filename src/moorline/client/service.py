"""Room: client. A service as a user of the library sees it: all its queues in one subscription, and no drift.

    async with moor.service("service.sqlite") as service:
        await service.associate([queue.id])
        async for message in service:
            await message.ack()

Entering verifies that this side and the node mean the same queues, and repairs whatever differs, before any
other command of the service is sent. `service.report` says what was found and what it cost.
"""

import asyncio
import contextlib
import random
from collections import deque
from collections.abc import AsyncIterator, Sequence
from types import TracebackType

from moorline.client.associations import Associations
from moorline.client.queue import Message
from moorline.client.queue_homes import PASSING
from moorline.client.service_exchange import TAKEN_OVER, Report, ServiceExchange, as_service
from moorline.client.service_repair import ServiceRepair
from moorline.core.backoff import pause_ms
from moorline.core.sets.hashing import hash_ids
from moorline.core.sets.prefix import Prefix
from moorline.errors import (
    ConnectionLost,
    MoorlineError,
    OutcomeUnknown,
    Refused,
    Stale,
    SubscriptionEnded,
)
from moorline.limits import CLIENT_RETURN_MS, CLIENT_RETURN_MS_MAX, CLIENT_SERVICE_TRIES
from moorline.net.caller import Caller
from moorline.wire.message import Message as WireMessage
from moorline.wire.queue import Delivery
from moorline.wire.service import AllDelivered, CloseService


class Service:
    """A service on one node, and this side's list of its queues."""

    def __init__(
        self,
        caller: Caller,
        associations: Associations,
        *,
        window: int,
        bind: bool = False,
        stays: bool = False,
    ) -> None:
        """With `stays` other connections follow this one, and it goes on over them: `cut`, `resume`."""
        self.all_delivered = asyncio.Event()
        """Set when of every queue in which messages waited the first `window` have come (ALLS)."""
        self.is_closed = False
        self._caller = caller
        self._window, self._stays = window, stays
        self._entered = asyncio.Event()
        """Set while this connection acts for the service, or never will."""
        self._failure: MoorlineError | None = None
        """Why it cannot go on over another connection."""
        self._going_on: asyncio.Task[None] | None = None
        self._exchange = ServiceExchange(caller, as_service(window))
        self._repair = ServiceRepair(caller, self._exchange, associations, bind=bind)
        self._list = self._repair.list
        self._deliveries: deque[Delivery] = deque()
        # The lock of the specification: no other command of the service until the two sides agree.
        self._agreement = asyncio.Lock()
        self._is_over = False
        self.settled = asyncio.Event()
        """Set unless an agreement is under way; acknowledgements wait for it."""
        self.settled.set()

    @property
    def report(self) -> Report:
        """What the last agreement took."""
        return self._exchange.report

    async def __aenter__(self) -> "Service":
        try:
            await self.agree()
        except BaseException:
            await self._leave()
            raise
        return self

    def close(self) -> None:
        """Closes our list, after what is under way. The connection is a plain one again.

        What was not acknowledged comes again, to whoever subscribes next.
        """
        if self._exchange.is_opening and not self.is_closed and self._caller.is_open:
            self._caller.cast(CloseService)
        self.is_closed = True
        if self._going_on is not None:
            self._going_on.cancel()
        self._list.thread.close()

    async def _leave(self) -> None:
        self._caller.check_loop()
        self.close()
        await self._list.thread.closed()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._leave()

    # --- what users do ----------------------------------------------------------------------------

    async def associate(self, queues: Sequence[bytes]) -> list[bytes]:
        """These queues are the service's from now on; returns those that the node refused.

        They are in our list before the node is asked: if the reply is lost, or we are, or this is
        cancelled, the next agreement repeats it.
        """
        async with self._on_a_link(), self._agreement:
            await self._list.add(queues)
            refused = [queue for queue, _ in await self._exchange.associate(queues)]
            if refused:
                await self._list.remove(refused)
            return refused

    async def dissociate(self, queues: Sequence[bytes]) -> None:
        """These queues are the service's no longer."""
        async with self._on_a_link(), self._agreement:
            await self._list.remove(queues)
            hashes = await asyncio.to_thread(_highs, queues)
            await self._exchange.dissociate([Prefix(64, high) for high in hashes])

    async def agree(self) -> Report:
        """Verifies that both sides mean the same queues; repairs what differs. Others wait meanwhile."""
        self._caller.check_loop()
        async with self._agreement:
            self.settled.clear()
            try:
                report = await self._repair.agree()
                self._entered.set()
                return report
            finally:
                # Also where it failed: whoever waits is to hear why from the node, not to hang.
                self.settled.set()

    @contextlib.asynccontextmanager
    async def subscribing(self, queue: bytes) -> AsyncIterator[None]:
        """A SUB of our connection: the node associates the queue, so our list has it first."""
        async with self._agreement, contextlib.AsyncExitStack() as stack:
            if self._exchange.is_open and not self.is_closed:
                self._exchange.check_ended()
                await stack.enter_async_context(self._list.added(queue))
            yield

    @contextlib.asynccontextmanager
    async def freeing(self, queue: bytes) -> AsyncIterator[None]:
        """A DEL or BLOCK of our connection takes the association away: when it is done, our list follows."""
        async with self._agreement:
            yield
            if self._exchange.is_open and not self.is_closed:
                await self._list.remove([queue])

    async def __aiter__(self) -> AsyncIterator[Message]:
        self._caller.check_loop()
        while True:
            while not self._deliveries:
                if self._exchange.ended_code == TAKEN_OVER:
                    raise SubscriptionEnded(TAKEN_OVER)
                self._exchange.check_ended()
                if self._failure is not None:
                    raise self._failure
                if self._caller.lost.done() and not (self._stays and not self._is_over):
                    raise self._caller.lost.result()
                news = self._exchange.news
                news.clear()
                await news.wait()
            delivery = self._deliveries.popleft()
            yield Message(self._caller, delivery, self.settled, stays=self._stays)

    async def acking(self) -> AsyncIterator[Message]:
        """Each message, acknowledged when the next one is asked for; one that raised or broke out is not."""
        async for message in self:
            yield message
            with contextlib.suppress(Stale):
                await message.ack()

    # --- what the node pushes ---------------------------------------------------------------------

    def hear(self, message: WireMessage) -> bool:
        """Takes what is meant for the service; False if it is not."""
        if self._exchange.hear(message):
            return True
        if not self._exchange.is_open:
            # Of a service that this connection has closed; it comes again.
            return isinstance(message, Delivery | AllDelivered)
        match message:
            case Delivery():
                self._deliveries.append(message)
            case AllDelivered():
                self.all_delivered.set()
            case _:
                return False
        self._exchange.news.set()
        return True

    def connection_lost(self) -> None:
        """For good."""
        self._is_over = True
        self._entered.set()
        self._exchange.news.set()

    # --- from connection to connection ------------------------------------------------------------

    def cut(self) -> None:
        """The connection is gone, and another one will follow: what nobody has taken comes again."""
        self._deliveries.clear()
        self._entered.clear()
        if self._going_on is not None:
            self._going_on.cancel()

    def resume(self, caller: Caller) -> None:
        """Enters again over this connection, beside what else is brought back."""
        if self.is_closed or self._failure is not None or self._exchange.ended is not None:
            return
        if not self._exchange.is_opening:
            return  # it was never entered
        before = self._exchange
        self._caller = caller
        self._exchange = ServiceExchange(caller, as_service(self._window))
        self._repair.go_on(caller, self._exchange)
        self.all_delivered.clear()
        self._going_on = asyncio.create_task(self._go_on(caller))
        before.news.set()

    async def _go_on(self, caller: Caller) -> None:
        tries = 0
        while caller.is_open:
            try:
                await self.agree()
            except (ConnectionLost, Refused):
                return  # the next connection brings it back
            except MoorlineError as error:
                if tries == CLIENT_SERVICE_TRIES or error.code not in PASSING:
                    self._failure = error
                    self._entered.set()
                    self._exchange.news.set()
                    return
            else:
                return
            wait_ms = pause_ms(
                tries, random.random(), first_ms=CLIENT_RETURN_MS, most_ms=CLIENT_RETURN_MS_MAX
            )
            tries += 1
            await asyncio.sleep(wait_ms / 1_000)

    @contextlib.asynccontextmanager
    async def _on_a_link(self) -> AsyncIterator[None]:
        """A change of the list, which a lost connection leaves in doubt until both sides have agreed anew."""
        if self._stays:
            await self._entered.wait()
            if self._failure is not None:
                raise self._failure
        try:
            yield
        except (ConnectionLost, Refused) as error:
            if not self._stays or self._is_over:
                raise
            raise OutcomeUnknown(
                f"{error}: our own list is changed, and the next agreement repeats it"
            ) from error


def _highs(queues: Sequence[bytes]) -> list[int]:
    highs: list[int] = hash_ids(queues)[:, 0].tolist()
    return highs
