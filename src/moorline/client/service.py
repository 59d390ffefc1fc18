"""Room: client. A service as a user of the library sees it: all its queues in one subscription, and no drift.

    async with moor.service("service.sqlite") as service:
        await service.associate([queue.id])
        async for message in service:
            await message.ack()

Its queues are in parts, one for each home that has some; `client/service_part.py` is one of them. Entering
verifies with the node of each home that this side and the node mean the same queues, and repairs whatever
differs, before any other command of the service is sent there. `service.report` says what was found, what it
cost, and which homes were away. These are tried again until they are proven too.
"""

import asyncio
import contextlib
import random
from collections import deque
from collections.abc import AsyncIterator, Iterable, Sequence
from types import TracebackType
from typing import Protocol

from moorline.client.associations import Associations, ListCheck
from moorline.client.own_list import Home, OwnList, check_ids
from moorline.client.queue import Message
from moorline.client.queue_homes import PASSING
from moorline.client.service_exchange import (
    TAKEN_OVER,
    Asking,
    Report,
    ServiceExchange,
    as_service,
)
from moorline.client.service_part import Connect, PartState, ServicePart, is_away, keep_trying
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
from moorline.ids import home_number
from moorline.limits import (
    CLIENT_RETURN_MS,
    CLIENT_RETURN_MS_MAX,
    CLIENT_SERVICE_TRIES,
    REDIRECT_HOPS_MAX,
    SERVICE_PARTS_TOGETHER,
)
from moorline.net.caller import Caller
from moorline.wire.message import Message as WireMessage
from moorline.wire.queue import Delivery
from moorline.wire.service import AllDelivered, CloseService, PartFacts, PayloadBlock, ServiceEnded


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
        self.report = Report()
        """What the last agreement took."""
        self._callers = callers
        self._caller = callers.here
        self._stays = stays
        self._asking = asking or as_service(window)
        self._seen = seen
        self._list = OwnList(associations, is_bound=bind)
        self._exchange = ServiceExchange(self._caller, self._asking)
        self._by_caller: dict[Caller, ServicePart] = {}
        self._parts: dict[bytes, ServicePart] = {}
        self._homes: dict[bytes, Home] = {}
        self._retries: dict[bytes, asyncio.Task[None]] = {}
        self._deliveries: deque[tuple[ServicePart, Delivery]] = deque()
        self._news = asyncio.Event()
        self._entered_now = asyncio.Event()
        """Set while this connection acts for the service, or never will."""
        self._failure: MoorlineError | None = None
        """Why it cannot go on over another connection."""
        self._going_on: asyncio.Task[None] | None = None
        self._is_over = False
        # The lock of the specification: no other command of the service until the two sides agree.
        self._agreement = asyncio.Lock()
        self.settled = asyncio.Event()
        """Set unless an agreement about all parts is under way; acknowledgements wait for it."""
        self.settled.set()

    @property
    def away(self) -> list[str]:
        """The homes whose parts are not proven now: their node does not answer."""
        return sorted(
            part.name for part in self._parts.values() if part.state is not PartState.AGREED
        )

    @property
    def proven(self) -> dict[str, Digest]:
        """By home, what both sides have had since they agreed, as the node told last; not of homes that
        are away."""
        return {
            part.name: part.exchange.theirs
            for part in self._parts.values()
            if part.state is PartState.AGREED and part.exchange is not None
        }

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
            for part in self._parts.values():
                if part.caller not in (None, self._caller) and not part.is_lost:
                    assert part.caller is not None
                    part.caller.cast(CloseService)
        self.is_closed = True
        if self._going_on is not None:
            self._going_on.cancel()
        self._list.thread.close()

    def stop_trying(self) -> None:
        """Homes that are away stay so."""
        for task in self._retries.values():
            task.cancel()
        self._retries.clear()

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
            by_home = await self._by_home(queues)
            for number, some in by_home.items():
                await self._list.part(self._homes[number]).add(some)
            refused: list[bytes] = []
            away: HomeAway | None = None
            for hop in range(REDIRECT_HOPS_MAX + 1):
                led: set[bytes] = set()
                for number, some in by_home.items():
                    part = await self._ready(number)
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
                by_home = _grouped({one: home for one, home in moved.items() if home in led})
            if away is not None:
                raise away
            return refused

    async def dissociate(self, queues: Sequence[bytes]) -> None:
        """These queues are the service's no longer; those at a home that is away when it is back."""
        check_ids(queues)
        async with self._on_a_link(), self._agreement:
            self._exchange.check_ended()
            by_home = await self._by_home(queues)
            await self._list.remove(queues)
            away: HomeAway | None = None
            for number, some in by_home.items():
                part = await self._ready(number)
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
                report = await self._agree()
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
                part = await self._part_of(queue)
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
                part = await self._part_of(queue)
                await stack.enter_async_context(part.lock)
            yield
            if self._is_acting:
                await self._list.remove([queue])

    async def __aiter__(self) -> AsyncIterator[Message]:
        self._caller.check_loop()
        while True:
            while not self._deliveries:
                for exchange in self._exchanges():
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

    # --- the parts --------------------------------------------------------------------------------

    async def _agree(self) -> Report:
        found, mended, parts = await self._entered()
        first, *others = parts
        # First, by itself: its SOKS says since when the service is ours, and the others are told.
        await self._agree_first(first, found)
        await self._agree_together(others, found)
        for _ in range(REDIRECT_HOPS_MAX):
            led = {home for part in parts for home in part.take_sent_home()} & self._homes.keys()
            if not led:
                break
            sent = [self._part(number) for number in led]
            await self._agree_together(sent, None)
            parts += [part for part in sent if part not in parts]
        if self.away:
            await self._forget_empty(await self._exchange.homes())
        return self._reported(parts, mended)

    async def _forget_empty(self, told: Sequence[PartFacts]) -> None:
        """A home that is away and has nothing on either side any more is no part: its queues have gone."""
        listed = await self._list.digests()
        for facts in told:
            part = self._parts.get(facts.home)
            if part is None or part.state is PartState.AGREED or part.caller is self._caller:
                continue
            if not facts.count and not listed.get(facts.home, Digest.empty()).count:
                del self._parts[facts.home]
                retry = self._retries.pop(facts.home, None)
                if retry is not None and retry is not asyncio.current_task():
                    retry.cancel()
        self._look()

    async def planned(self) -> tuple[int, int, Report]:
        """What an agreement would add and remove, at all homes that are there; changes nothing."""
        found, mended, parts = await self._entered()
        added = removed = 0
        for part in parts:
            try:
                if part is not parts[0]:
                    await part.connect(self._callers.at_home)
                more = await part.compare(found)
            except (MoorlineError, OSError, TimeoutError) as error:
                if part is parts[0] or not is_away(error):
                    raise
                part.lost()
                continue
            added, removed = added + more[0], removed + more[1]
        return added, removed, self._reported(parts, mended)

    async def _entered(self) -> tuple[ListCheck, int, list[ServicePart]]:
        """The list, whole, what was mended in it, and the parts that are to agree: that of our node first."""
        exchange = self._exchange
        exchange.report = Report()
        opened, told = await exchange.open_and_homes()
        named = {facts.home: _home(facts) for facts in told if facts.name}
        name = self._caller.node.node if self._caller.node is not None else ""
        here = named.get(opened.home, Home(opened.home, name, opened.node))
        found, mended = await self._list.enter(here, named)
        self._homes = {**named, here.number: here}
        wanted = {facts.home for facts in told if facts.count}
        wanted |= {home for home, part in found.parts.items() if not part.is_empty}
        wanted &= self._homes.keys() - {here.number}
        first = self._part(here.number)
        if first.exchange is not exchange:
            first.take(self._caller, exchange)
        return found, mended, [first, *(self._part(number) for number in sorted(wanted))]

    async def _agree_first(self, part: ServicePart, found: ListCheck) -> None:
        async with part.lock:
            await part.agree(found)
        self._look()

    async def _agree_together(self, parts: Iterable[ServicePart], found: ListCheck | None) -> None:
        room = asyncio.Semaphore(SERVICE_PARTS_TOGETHER)

        async def one(part: ServicePart) -> None:
            async with room:
                await self._try(part, found)

        try:
            async with asyncio.TaskGroup() as group:
                for part in parts:
                    group.create_task(one(part))
        except BaseExceptionGroup as errors:
            # The first of them says what is wrong; the others were cancelled by it.
            raise errors.exceptions[0] from None

    async def _try(self, part: ServicePart, found: ListCheck | None = None) -> bool:
        """Whether its node was there; if not, it is tried again later."""
        try:
            async with part.lock:
                await part.connect(self._callers.at_home)
                await part.agree(found)
        except (MoorlineError, OSError, TimeoutError) as error:
            is_ended = part.exchange is not None and part.exchange.ended is not None
            if is_ended or not is_away(error):
                raise  # it is there, and says why not
            part.lost()
            self._retry(part)
            return False
        finally:
            self._look()
        return True

    def _retry(self, part: ServicePart) -> None:
        number = part.home.number
        if number in self._retries or self.is_closed:
            return

        async def attempt() -> bool:
            if self._caller.lost.done() or self.is_closed or self._exchange.ended is not None:
                return True
            await self._look_for(part)
            if self._parts.get(number) is not part:
                return True
            if not await self._try(part):
                return False
            self.report.away = self.away
            self.report.parts |= self.proven
            return True

        def told(error: MoorlineError) -> None:
            part.failure = error

        task = asyncio.create_task(keep_trying(attempt, told))
        self._retries[number] = task
        task.add_done_callback(lambda done: self._tried(number, done))

    def _tried(self, number: bytes, done: "asyncio.Task[None]") -> None:
        if self._retries.get(number) is done:
            del self._retries[number]

    async def _look_for(self, part: ServicePart) -> None:
        """Where its home is by now: another node may have it, or another address."""
        if not part.is_lost:
            return
        told = await self._exchange.homes()
        for facts in told:
            if facts.home == part.home.number and facts.name:
                self._homes[facts.home] = part.home = _home(facts)
        await self._forget_empty(told)

    def _part(self, number: bytes) -> ServicePart:
        part = self._parts.get(number)
        if part is None:
            part = ServicePart(self._homes[number], self._list, self._asking, self._seen)
            self._parts[number] = part
        part.home = self._homes[number]
        return part

    async def _ready(self, number: bytes) -> ServicePart:
        """The part of a home, which is opened if it is new."""
        part = self._part(number)
        if part.exchange is None and number not in self._retries:
            await self._try(part)
        return part

    async def _part_of(self, queue: bytes) -> ServicePart:
        (number,) = await self._by_home([queue])
        return await self._ready(number)

    async def _by_home(self, queues: Sequence[bytes]) -> dict[bytes, list[bytes]]:
        """By our list, or else by their ids. What these do not say the node knows that we are connected
        to."""
        listed = await self._list.homes_of(queues)
        here = self._exchange.home
        homes = {queue: listed.get(queue, home_number(queue)) for queue in queues}
        if any(home not in self._homes for home in homes.values()):
            # A node that has just come, perhaps.
            for facts in await self._exchange.homes():
                if facts.name:
                    self._homes.setdefault(facts.home, _home(facts))
        return _grouped(
            {queue: home if home in self._homes else here for queue, home in homes.items()}
        )

    def _reported(self, parts: Iterable[ServicePart], mended: int) -> Report:
        report = Report(mended=mended)
        for part in parts:
            if part.state is PartState.AGREED:
                report.add(part.report)
                report.parts[part.name] = part.report.digest
        report.away = self.away
        self.report = report
        return report

    # --- what the nodes push ----------------------------------------------------------------------

    @property
    def _is_acting(self) -> bool:
        return self._exchange.is_open and not self.is_closed

    def _exchanges(self) -> list[ServiceExchange]:
        others = [part.exchange for part in self._parts.values() if part.exchange is not None]
        return [self._exchange, *others]

    def hear(self, caller: Caller, message: WireMessage) -> bool:
        """Takes what is meant for the service; False if it is not."""
        part = self._by_caller.get(caller)
        if part is None or part.caller is not caller:
            part = next((one for one in self._parts.values() if one.caller is caller), None)
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
        for part in self._parts.values():
            if part.caller is caller:
                part.lost()
                # What was delivered by it comes again, and cannot be acknowledged any more.
                kept = [one for one in self._deliveries if one[0] is not part]
                self._deliveries = deque(kept)
                if caller is not self._caller:
                    self._retry(part)
        self._exchange.news.set()
        self._look()

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
        self._caller = caller
        self._exchange = ServiceExchange(caller, self._asking)
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
        there = [part for part in self._parts.values() if part.state is PartState.AGREED]
        if there and all(part.is_all_delivered for part in there):
            self.all_delivered.set()
        if len(there) == len(self._parts):
            self.whole.set()
        else:
            self.whole.clear()
        self._news.set()


def _home(facts: PartFacts) -> Home:
    return Home(facts.home, facts.name, facts.node_id, facts.addresses, facts.is_alive)


def _grouped(homes: dict[bytes, bytes]) -> dict[bytes, list[bytes]]:
    by_home: dict[bytes, list[bytes]] = {}
    for queue, home in homes.items():
        by_home.setdefault(home, []).append(queue)
    return by_home


def _highs(queues: Sequence[bytes]) -> list[int]:
    highs: list[int] = hash_ids(queues)[:, 0].tolist()
    return highs
