"""Room: client. A service as a user of the library sees it: all its queues in one subscription, and no drift.

    async with moor.service("service.sqlite") as service:
        await service.associate([queue.id])
        async for message in service:
            await message.ack()

Its queues are in parts, one for each home that has some; `client/service_part.py` is one of them, and
`client/service_parts.py` brings them to agreement. Entering verifies with the node of each home that this
side and the node mean the same queues, and repairs whatever differs, before any other command of the service
is sent
there. `service.report` says what was found, what it cost, and which homes were away. These are tried again
until they are proven too.
"""

import asyncio
import contextlib
import random
from collections import deque
from collections.abc import AsyncIterator, Sequence
from types import TracebackType
from typing import Protocol

from moorline.client.associations import Associations
from moorline.client.own_list import OwnList, check_ids
from moorline.client.queue import Message
from moorline.client.queue_homes import PASSING
from moorline.client.service_exchange import (
    TAKEN_OVER,
    Asking,
    Report,
    ServiceExchange,
    as_service,
)
from moorline.client.service_part import Connect, PartState, ServicePart
from moorline.client.service_parts import ServiceParts, grouped
from moorline.client.service_repair import Seen, unseen
from moorline.core.backoff import pause_ms
from moorline.core.sets.digest import Digest
from moorline.core.sets.hashing import hash_ids
from moorline.core.sets.prefix import Prefix
from moorline.errors import (
    CallFailed,
    ConnectionLost,
    HomeAway,
    MoorlineError,
    OutcomeUnknown,
    Refused,
    Stale,
    SubscriptionEnded,
)
from moorline.limits import (
    CLIENT_RETURN_MS,
    CLIENT_RETURN_MS_MAX,
    CLIENT_SERVICE_TRIES,
    HOME_ADDRESSES_MAX,
    REDIRECT_HOPS_MAX,
)
from moorline.net.caller import Caller
from moorline.wire.bounds import cut
from moorline.wire.message import Message as WireMessage
from moorline.wire.queue import Delivery
from moorline.wire.service import (
    Agreement,
    AgreementTold,
    AgreementWanted,
    AllDelivered,
    CloseService,
    PayloadBlock,
    ServiceEnded,
)


class Callers(Protocol):
    """The connection of a client, and those to other homes."""

    @property
    def here(self) -> Caller: ...

    @property
    def at_home(self) -> Connect: ...


class Service:
    """A service at all of its homes, and this side's list of its queues."""

    def __init__(
        self,
        callers: Callers,
        associations: Associations,
        *,
        window: int = 1,
        bind: bool = False,
        asking: Asking | None = None,
        seen: Seen = unseen,
        stays: bool = False,
    ) -> None:
        """With `stays` other connections follow the first one, and it goes on over them: `cut`, `resume`."""
        self.all_delivered = asyncio.Event()
        """Set when of every queue in which messages waited the first `window` have come (ALLS), from all
        homes that are not away."""
        self.whole = asyncio.Event()
        """Set while every part is proven: no home is away."""
        self.is_closed = False
        self._stays = stays
        self._list = OwnList(associations, is_bound=bind)
        self._parts = ServiceParts(
            callers.here,
            callers.at_home,
            self._list,
            asking or as_service(window),
            seen,
            self._look,
        )
        self._by_caller: dict[Caller, ServicePart] = {}
        self._deliveries: deque[tuple[ServicePart, Delivery]] = deque()
        self._news = asyncio.Event()
        self._entered_now = asyncio.Event()
        """Set while this connection acts for the service, or never will."""
        self._failure: MoorlineError | None = None
        """Why it cannot go on over another connection."""
        self._going_on: asyncio.Task[None] | None = None
        self._asked: asyncio.Task[None] | None = None
        """The agreement that an operator asked for."""
        self._is_over = False
        # The lock of the specification: no other command of the service until the two sides agree.
        self._agreement = asyncio.Lock()
        self.settled = asyncio.Event()
        """Set unless an agreement about all parts is under way; acknowledgements wait for it."""
        self.settled.set()

    @property
    def report(self) -> Report:
        """What the last agreement took."""
        return self._parts.report

    @property
    def away(self) -> list[str]:
        """The homes whose parts are not proven now: their node does not answer."""
        return self._parts.away

    @property
    def proven(self) -> dict[str, Digest]:
        """By home, what both sides have had since they agreed, as the node told last; not of homes that
        are away."""
        return self._parts.proven

    @property
    def _caller(self) -> Caller:
        return self._parts.caller

    @property
    def _exchange(self) -> ServiceExchange:
        return self._parts.exchange

    async def __aenter__(self) -> "Service":
        try:
            await self.agree()
        except BaseException:
            await self._leave()
            raise
        return self

    def close(self) -> None:
        """Closes our list, after what is under way. The connections are plain ones again.

        What was not acknowledged comes again, to whoever subscribes next.
        """
        self.stop_trying()
        if not self.is_closed:
            if self._exchange.is_opening and self._caller.is_open:
                self._caller.cast(CloseService)
            for part in self._parts.all():
                if part.caller not in (None, self._caller) and not part.is_lost:
                    assert part.caller is not None
                    part.caller.cast(CloseService)
        self.is_closed = self._parts.is_closed = True
        for task in (self._going_on, self._asked):
            if task is not None:
                task.cancel()
        self._list.thread.close()

    def stop_trying(self) -> None:
        """Homes that are away stay so."""
        self._parts.stop_trying()

    async def planned(self) -> tuple[int, int, Report]:
        """What an agreement would add and remove, at all homes that are there; changes nothing."""
        return await self._parts.planned()

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
        """These queues are the service's from now on; returns those that the nodes refused.

        They are in our list before any node is asked: if a reply is lost, or we are, or this is
        cancelled, the next agreement repeats it. So it is with the queues of a home that is away; then
        `HomeAway` is raised, when all others are done.
        """
        check_ids(queues)
        async with self._on_a_link(), self._agreement:
            self._exchange.check_ended()
            by_home = await self._parts.by_home(queues)
            for number, some in by_home.items():
                await self._list.part(self._parts.homes[number]).add(some)
            refused: list[bytes] = []
            away: HomeAway | None = None
            for hop in range(REDIRECT_HOPS_MAX + 1):
                led: set[bytes] = set()
                for number, some in by_home.items():
                    part = await self._parts.ready(number)
                    async with part.lock:
                        try:
                            refused += await part.associate(some)
                        except HomeAway as error:
                            away = error
                        led |= part.take_sent_home()
                if not led or hop == REDIRECT_HOPS_MAX:
                    break
                moved = await self._list.homes_of(
                    [one for some in by_home.values() for one in some]
                )
                by_home = grouped({one: home for one, home in moved.items() if home in led})
            if away is not None:
                raise away
            return refused

    async def dissociate(self, queues: Sequence[bytes]) -> None:
        """These queues are the service's no longer; those at a home that is away when it is back."""
        check_ids(queues)
        async with self._on_a_link(), self._agreement:
            self._exchange.check_ended()
            by_home = await self._parts.by_home(queues)
            await self._list.remove(queues)
            away: HomeAway | None = None
            for number, some in by_home.items():
                part = await self._parts.ready(number)
                async with part.lock:
                    try:
                        part.check_there()
                        assert part.exchange is not None
                        highs = await asyncio.to_thread(_highs, some)
                        await part.exchange.dissociate([Prefix(64, high) for high in highs])
                    except HomeAway as error:
                        away = error
            if away is not None:
                raise away

    async def agree(self) -> Report:
        """Verifies with every home that both sides mean the same queues; repairs what differs. Others wait
        meanwhile."""
        self._caller.check_loop()
        async with self._agreement:
            self.settled.clear()
            try:
                report = await self._parts.agree()
                self._entered_now.set()
                return report
            finally:
                # Also where it failed: whoever waits is to hear why from the node, not to hang.
                self.settled.set()

    @contextlib.asynccontextmanager
    async def subscribing(self, queue: bytes) -> AsyncIterator[None]:
        """A SUB of our connection: the node associates the queue, so our list has it first."""
        async with self._agreement, contextlib.AsyncExitStack() as stack:
            if self._is_acting:
                self._exchange.check_ended()
                part = await self._parts.part_of(queue)
                # The session at its home acts for the service too, or it would take the queue from it.
                await stack.enter_async_context(part.lock)
                part.check_there()
                await stack.enter_async_context(self._added(part, queue))
            yield

    @contextlib.asynccontextmanager
    async def _added(self, part: ServicePart, queue: bytes) -> AsyncIterator[None]:
        """The queue is in the list before the node is asked; if it refuses, it is not."""
        check_ids([queue])
        is_new = await self._list.part(part.home).add([queue])
        try:
            yield
        except OutcomeUnknown:
            # Both sides may have it: the next agreement finds out.
            raise
        except CallFailed:
            if is_new:
                await self._list.remove([queue])
            raise

    @contextlib.asynccontextmanager
    async def freeing(self, queue: bytes) -> AsyncIterator[None]:
        """A DEL or BLOCK of our connection takes the association away: when it is done, our list follows."""
        async with self._agreement, contextlib.AsyncExitStack() as stack:
            if self._is_acting:
                part = await self._parts.part_of(queue)
                await stack.enter_async_context(part.lock)
            yield
            if self._is_acting:
                await self._list.remove([queue])

    async def __aiter__(self) -> AsyncIterator[Message]:
        self._caller.check_loop()
        while True:
            while not self._deliveries:
                for exchange in self._parts.exchanges():
                    if exchange.ended_code == TAKEN_OVER:
                        raise SubscriptionEnded(TAKEN_OVER)
                    exchange.check_ended()
                if self._failure is not None:
                    raise self._failure
                if self._caller.lost.done() and not (self._stays and not self._is_over):
                    raise self._caller.lost.result()
                self._news.clear()
                await self._news.wait()
            part, delivery = self._deliveries.popleft()
            assert part.caller is not None
            yield Message(part.caller, delivery, part.settled, stays=self._stays)

    async def acking(self) -> AsyncIterator[Message]:
        """Each message, acknowledged when the next one is asked for; one that raised or broke out is not."""
        async for message in self:
            yield message
            with contextlib.suppress(Stale):
                await message.ack()

    # --- what the nodes push ----------------------------------------------------------------------

    @property
    def _is_acting(self) -> bool:
        return self._exchange.is_open and not self.is_closed

    def hear(self, caller: Caller, message: WireMessage) -> bool:
        """Takes what is meant for the service; False if it is not."""
        if isinstance(message, AgreementWanted):
            self._wanted(caller, message.number)
            return True
        part = self._by_caller.get(caller)
        if part is None or part.caller is not caller:
            part = self._parts.at(caller)
            if part is not None:
                self._by_caller[caller] = part
        if part is None:
            if caller is self._caller and self._exchange.hear(message):
                return True
            # Of a service that this connection has closed; it comes again.
            return isinstance(message, Delivery | AllDelivered | PayloadBlock | ServiceEnded)
        if not part.hear(message):
            if not isinstance(message, Delivery):
                return isinstance(message, AllDelivered)
            if part.exchange is not None and part.exchange.is_open:
                self._deliveries.append((part, message))
        self._look()
        return True

    def connection_lost(self, caller: Caller) -> None:
        self._by_caller.pop(caller, None)
        for part in self._parts.all():
            if part.caller is caller:
                part.lost()
                # What was delivered by it comes again, and cannot be acknowledged any more.
                kept = [one for one in self._deliveries if one[0] is not part]
                self._deliveries = deque(kept)
                if caller is not self._caller:
                    self._parts.retry(part)
        self._exchange.news.set()
        self._look()

    def _wanted(self, caller: Caller, number: int) -> None:
        """An operator asks for an agreement; one at a time, and a node asks again when it has heard of it."""
        if self._is_acting and (self._asked is None or self._asked.done()):
            self._asked = asyncio.create_task(self._agree_as_asked(caller, number))
        else:
            refusal = "it agrees for somebody else just now, or is leaving"
            _tell(caller, number, Agreement(code=Stale.code, text=refusal))

    async def _agree_as_asked(self, caller: Caller, number: int) -> None:
        try:
            report = await self.agree()
        except MoorlineError as error:
            _tell(caller, number, Agreement(code=error.code, text=cut(str(error))))
            return
        digest = report.digest
        _tell(
            caller,
            number,
            Agreement(
                *(digest.count, digest.hash, report.rounds),
                *(report.bytes_sent, report.bytes_received),
                *(report.associated, report.dissociated, len(report.lost)),
                tuple(report.away[:HOME_ADDRESSES_MAX]),
            ),
        )

    # --- from connection to connection ------------------------------------------------------------

    def cut(self, caller: Caller) -> None:
        """The first connection is gone, and another one will follow: what nobody has taken comes again."""
        self._entered_now.clear()
        if self._going_on is not None:
            self._going_on.cancel()
        self.connection_lost(caller)

    def over(self) -> None:
        """No other connection follows."""
        self._is_over = True
        self._entered_now.set()
        self._news.set()

    def resume(self, caller: Caller) -> None:
        """Enters again over this connection, beside what else is brought back; perhaps at another node."""
        if self.is_closed or self._failure is not None or self._exchange.ended is not None:
            return
        if not self._exchange.is_opening:
            return  # it was never entered
        before = self._exchange
        self._parts.go_on_over(caller)
        self.all_delivered.clear()
        self._going_on = asyncio.create_task(self._go_on(caller))
        before.news.set()
        self._news.set()

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
                    self._entered_now.set()
                    self._news.set()
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
            await self._entered_now.wait()
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

    def _look(self) -> None:
        """Something has changed that others may wait for."""
        there = [part for part in self._parts.all() if part.state is PartState.AGREED]
        if there and all(part.is_all_delivered for part in there):
            self.all_delivered.set()
        if len(there) == len(self._parts.all()):
            self.whole.set()
        else:
            self.whole.clear()
        self._news.set()


def _tell(caller: Caller, number: int, agreement: Agreement) -> None:
    if caller.is_open:
        caller.send(AgreementTold(number, agreement))


def _highs(queues: Sequence[bytes]) -> list[int]:
    highs: list[int] = hash_ids(queues)[:, 0].tolist()
    return highs
