"""Room: client. All parts of a service, one for each home that has some of its queues, and their agreement.

The part of the node that we are connected to agrees first, by itself: its answer says since when the service
is ours, and the other nodes are told. These agree side by side. A home that is away is tried again, less and
less often, until it is proven or has nothing of the service any more.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence

from moorline.client.list_check import ListCheck
from moorline.client.own_list import Home, OwnList
from moorline.client.service_exchange import Asking, Report, ServiceExchange
from moorline.client.service_part import Connect, PartState, ServicePart, is_away, keep_trying
from moorline.client.service_repair import Seen
from moorline.core.sets.digest import Digest
from moorline.errors import MoorlineError
from moorline.ids import home_number
from moorline.limits import REDIRECT_HOPS_MAX, SERVICE_PARTS_TOGETHER
from moorline.net.caller import Caller
from moorline.wire.service import PartFacts


class ServiceParts:
    """By home; `caller` and `exchange` are of the connection that the service was entered over."""

    def __init__(
        self,
        caller: Caller,
        at_home: Connect,
        own: OwnList,
        asking: Asking,
        seen: Seen,
        changed: Callable[[], None],
    ) -> None:
        """`changed` is called whenever a part has come to another state."""
        self.caller = caller
        self.exchange = ServiceExchange(caller, asking)
        self.homes: dict[bytes, Home] = {}
        """Those that are known of, also without a part."""
        self.report = Report()
        """What the last agreement took."""
        self.is_closed = False
        self._at_home = at_home
        self._own = own
        self._asking = asking
        self._seen = seen
        self._changed = changed
        self._by_home: dict[bytes, ServicePart] = {}
        self._retries: dict[bytes, asyncio.Task[None]] = {}

    def all(self) -> list[ServicePart]:
        return list(self._by_home.values())

    def at(self, caller: Caller) -> ServicePart | None:
        """The part of the node at the other end of this connection."""
        return next((one for one in self._by_home.values() if one.caller is caller), None)

    def exchanges(self) -> list[ServiceExchange]:
        others = [part.exchange for part in self._by_home.values() if part.exchange is not None]
        return [self.exchange, *others]

    @property
    def away(self) -> list[str]:
        """The homes whose parts are not proven now: their node does not answer."""
        return sorted(
            part.name for part in self._by_home.values() if part.state is not PartState.AGREED
        )

    @property
    def proven(self) -> dict[str, Digest]:
        """By home, what both sides have had since they agreed, as the node told last."""
        return {
            part.name: part.exchange.theirs
            for part in self._by_home.values()
            if part.state is PartState.AGREED and part.exchange is not None
        }

    def go_on_over(self, caller: Caller) -> None:
        """The service is entered anew, over this connection."""
        self.caller = caller
        self.exchange = ServiceExchange(caller, self._asking)

    def stop_trying(self) -> None:
        """Homes that are away stay so."""
        for task in self._retries.values():
            task.cancel()
        self._retries.clear()

    async def agree(self) -> Report:
        found, mended, parts = await self._entered()
        first, *others = parts
        # First, by itself: its SOKS says since when the service is ours, and the others are told.
        await self._agree_first(first, found)
        await self._agree_together(others, found)
        for _ in range(REDIRECT_HOPS_MAX):
            led = {home for part in parts for home in part.take_sent_home()} & self.homes.keys()
            if not led:
                break
            sent = [self._part(number) for number in led]
            await self._agree_together(sent, None)
            parts += [part for part in sent if part not in parts]
        if self.away:
            await self._forget_empty(await self.exchange.homes())
        return self._reported(parts, mended)

    async def _forget_empty(self, told: Sequence[PartFacts]) -> None:
        """A home that is away and has nothing on either side any more is no part: its queues have gone."""
        listed = await self._own.digests()
        for facts in told:
            part = self._by_home.get(facts.home)
            if part is None or part.state is PartState.AGREED or part.caller is self.caller:
                continue
            if not facts.count and not listed.get(facts.home, Digest.empty()).count:
                del self._by_home[facts.home]
                retry = self._retries.pop(facts.home, None)
                if retry is not None and retry is not asyncio.current_task():
                    retry.cancel()
        self._changed()

    async def planned(self) -> tuple[int, int, Report]:
        """What an agreement would add and remove, at all homes that are there; changes nothing."""
        found, mended, parts = await self._entered()
        added = removed = 0
        for part in parts:
            try:
                if part is not parts[0]:
                    await part.connect(self._at_home)
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
        exchange = self.exchange
        exchange.report = Report()
        opened, told = await exchange.open_and_homes()
        named = {facts.home: _home(facts) for facts in told if facts.name}
        name = self.caller.node.node if self.caller.node is not None else ""
        here = named.get(opened.home, Home(opened.home, name, opened.node))
        found, mended = await self._own.enter(here, named)
        self.homes = {**named, here.number: here}
        wanted = {facts.home for facts in told if facts.count}
        wanted |= {home for home, part in found.parts.items() if not part.is_empty}
        wanted &= self.homes.keys() - {here.number}
        first = self._part(here.number)
        if first.exchange is not exchange:
            first.take(self.caller, exchange)
        return found, mended, [first, *(self._part(number) for number in sorted(wanted))]

    async def _agree_first(self, part: ServicePart, found: ListCheck) -> None:
        async with part.lock:
            await part.agree(found)
        self._changed()

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
                await part.connect(self._at_home)
                await part.agree(found)
        except (MoorlineError, OSError, TimeoutError) as error:
            is_ended = part.exchange is not None and part.exchange.ended is not None
            if is_ended or not is_away(error):
                raise  # it is there, and says why not
            part.lost()
            self.retry(part)
            return False
        finally:
            self._changed()
        return True

    def retry(self, part: ServicePart) -> None:
        number = part.home.number
        if number in self._retries or self.is_closed:
            return

        async def attempt() -> bool:
            if self.caller.lost.done() or self.is_closed or self.exchange.ended is not None:
                return True
            await self._look_for(part)
            if self._by_home.get(number) is not part:
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
        told = await self.exchange.homes()
        if self._own.is_bound and not any(
            facts.is_alive for facts in told if facts.home == part.home.number
        ):
            # A node counts as there for some time after it went, so entering could not know.
            here = self._part(self.exchange.home)
            if await self._own.take_in(part.home, here.home):
                await self._agree_together([here], None)
                told = await self.exchange.homes()
        for facts in told:
            if facts.home == part.home.number and facts.name:
                self.homes[facts.home] = part.home = _home(facts)
        await self._forget_empty(told)

    def _part(self, number: bytes) -> ServicePart:
        part = self._by_home.get(number)
        if part is None:
            part = ServicePart(self.homes[number], self._own, self._asking, self._seen)
            self._by_home[number] = part
        part.home = self.homes[number]
        return part

    async def ready(self, number: bytes) -> ServicePart:
        """The part of a home, which is opened if it is new."""
        part = self._part(number)
        if part.exchange is None and number not in self._retries:
            await self._try(part)
        return part

    async def part_of(self, queue: bytes) -> ServicePart:
        (number,) = await self.by_home([queue])
        return await self.ready(number)

    async def by_home(self, queues: Sequence[bytes]) -> dict[bytes, list[bytes]]:
        """By our list, or else by their ids. What these do not say the node knows that we are connected
        to."""
        listed = await self._own.homes_of(queues)
        here = self.exchange.home
        homes = {queue: listed.get(queue, home_number(queue)) for queue in queues}
        if any(home not in self.homes for home in homes.values()):
            # A node that has just come, perhaps.
            for facts in await self.exchange.homes():
                if facts.name:
                    self.homes.setdefault(facts.home, _home(facts))
        return grouped(
            {queue: home if home in self.homes else here for queue, home in homes.items()}
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


def _home(facts: PartFacts) -> Home:
    return Home(facts.home, facts.name, facts.node_id, facts.addresses, facts.is_alive)


def grouped(homes: dict[bytes, bytes]) -> dict[bytes, list[bytes]]:
    by_home: dict[bytes, list[bytes]] = {}
    for queue, home in homes.items():
        by_home.setdefault(home, []).append(queue)
    return by_home
