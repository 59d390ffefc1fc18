"""Room: client. One part of a service: the queues at one home, the connection to its node, and their
agreement.

    AWAY ──connected──► AGREEING ──proven──► AGREED
      ▲                    │ lost               │ lost
      └────────────────────┴────────────────────┘     tried again later, less and less often

While a part is away its list stays as it is, and nobody says that it is proven. What differs is found
when its node is back.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from enum import Enum

from moorline.client.list_check import ListCheck
from moorline.client.own_list import Home, OwnList
from moorline.client.service_exchange import Asking, Report, ServiceExchange
from moorline.client.service_repair import Seen, ServiceRepair, unseen
from moorline.core.sets.asker import Agreed, Repair
from moorline.errors import ConnectionLost, Elsewhere, HomeAway, MoorlineError, Refused
from moorline.limits import SERVICE_PART_RETRY_MS, SERVICE_PART_RETRY_MS_MAX
from moorline.net.caller import Caller
from moorline.net.reconcile import Comparison
from moorline.wire.message import Message as WireMessage
from moorline.wire.service import AllDelivered

Connect = Callable[[Elsewhere], Awaitable[Caller]]


def is_away(error: BaseException) -> bool:
    """A node that cannot be reached, or has said goodbye; whatever else it says is an answer."""
    if isinstance(error, Refused):
        return type(error) is Refused
    return isinstance(error, (ConnectionLost, Elsewhere, OSError, TimeoutError))


class PartState(Enum):
    AWAY = "away"
    AGREEING = "agreeing"
    AGREED = "agreed"


class ServicePart:
    """A home of a service."""

    def __init__(self, home: Home, own: OwnList, asking: Asking, seen: Seen = unseen) -> None:
        self.home = home
        self.state = PartState.AWAY
        self.lock = asyncio.Lock()
        """Held by whoever changes the part, or brings it to agreement."""
        self.settled = asyncio.Event()
        """Set unless it is being brought to agreement; acknowledgements wait for it."""
        self.settled.set()
        self.caller: Caller | None = None
        self.exchange: ServiceExchange | None = None
        self.repair: ServiceRepair | None = None
        self.is_all_delivered = False
        self.report = Report()
        """Of its last agreement."""
        self.failure: MoorlineError | None = None
        """Why it could not be proven although its node is there."""
        self._own = own
        self._asking = asking
        self._seen = seen

    @property
    def name(self) -> str:
        return self.home.name or self.home.number.hex()

    @property
    def is_lost(self) -> bool:
        return self.caller is None or not self.caller.is_open

    def take(self, caller: Caller, exchange: ServiceExchange) -> None:
        """The connection by which it is asked from now on."""
        self.caller, self.exchange = caller, exchange
        self.is_all_delivered = False

    async def connect(self, connect: Connect) -> None:
        """Reaches the node that has the home, and opens the service there."""
        if self.is_lost:
            told = Elsewhere("a part of the service", self.home.name, self.home.addresses)
            caller = await connect(told)
            self.take(caller, ServiceExchange(caller, self._asking))
        await self.open()

    async def open(self) -> None:
        assert self.exchange is not None
        self.exchange.report = Report()
        opened = await self.exchange.open()
        if opened.home != self.home.number:
            raise ConnectionLost(f"the node there has not the home {self.name!r}")

    async def agree(self, found: ListCheck | None = None) -> Report:
        """Proves that both sides mean the same queues, and repairs what differs; under `lock`, and opened.

        `found` is the list as it was just checked; None: it is checked now.
        """
        assert self.exchange is not None
        part = self._own.part(self.home)
        thread = self._own.thread
        self.repair = ServiceRepair(self.exchange, part, thread, self._seen)
        self.state = PartState.AGREEING
        self.settled.clear()
        try:
            if found is None:
                found = await thread.run(self._own.associations.checked)
            await self.repair.enter(found)
            self.report = await self.repair.agree()
            self.state, self.failure = PartState.AGREED, None
        finally:
            if self.state is not PartState.AGREED:
                self.state = PartState.AWAY
            # Also where it failed: whoever waits is to hear why from the node, not to hang.
            self.settled.set()
        return self.report

    async def compare(self, found: ListCheck) -> tuple[int, int]:
        """How many queues an agreement would add and remove; changes nothing. It is opened."""
        exchange, part = self.exchange, self._own.part(self.home)
        assert exchange is not None
        own = await part.enter(found)
        comparison = Comparison("plan", exchange, own, exchange.salt, exchange.theirs)
        match await comparison.begin():
            case Repair(missing, extra):
                is_all = any(prefix.bits == 0 for prefix in extra)
                surplus = exchange.theirs.count if is_all else len(extra)
                if part.is_doubtful:
                    # A list that failed its check takes nothing away: it would come back.
                    exchange.report.restored = surplus
                    surplus = 0
                added, removed = len(missing), surplus
            case Agreed(digest):
                exchange.report.lost = await part.settle()
                exchange.report.digest = digest
                added = removed = 0
        self.report, self.state = exchange.report, PartState.AGREED
        return added, removed

    def take_sent_home(self) -> set[bytes]:
        """The homes of queues that were found not to be of this one, since this was last asked."""
        if self.repair is None:
            return set()
        found, self.repair.sent_home = self.repair.sent_home, set()
        return found

    async def associate(self, queues: list[bytes]) -> list[bytes]:
        self.check_there()
        assert self.repair is not None
        return await self.repair.associate(queues)

    def check_there(self) -> None:
        if self.exchange is not None:
            self.exchange.check_ended()
        if self.state is not PartState.AGREED:
            raise HomeAway(
                f"the node of the home {self.name!r} is away: what was asked for is in the list, and is done "
                "when the node is back"
            )

    def lost(self) -> None:
        """The connection is gone."""
        self.state = PartState.AWAY
        self.is_all_delivered = False
        if self.exchange is not None:
            self.exchange.news.set()

    def hear(self, message: WireMessage) -> bool:
        """Takes what the node says of the exchange, or of deliveries as a whole; False if it does not."""
        assert self.exchange is not None
        if self.exchange.hear(message):
            return True
        if isinstance(message, AllDelivered) and self.exchange.is_open:
            self.is_all_delivered = True
            return True
        return False


async def keep_trying(
    attempt: Callable[[], Awaitable[bool]], told: Callable[[MoorlineError], None]
) -> None:
    """Until it says that it came through; pauses grow, and no two clients come back together."""
    pause_ms = SERVICE_PART_RETRY_MS
    while True:
        await asyncio.sleep(pause_ms * random.uniform(0.5, 1.5) / 1_000)
        try:
            if await attempt():
                return
        except (MoorlineError, OSError, TimeoutError) as error:
            if isinstance(error, MoorlineError) and not is_away(error):
                told(error)
        pause_ms = min(pause_ms * 2, SERVICE_PART_RETRY_MS_MAX)
