"""Room: client. One subscription to a value, as a program holds it.

    async with subscriber.durable_subscribe("/oslo/temperature") as temperature:
        await temperature.wait()
        print(temperature.value)
        async for event in temperature:
            ...

Events come in order: alive with the value that it has now, updates, dead. Who reads them slower than they
come gets the latest value of those it has missed, if the subscriber conflates; else it ends with SLOW.
"""

import asyncio
from collections import deque
from enum import Enum
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

from moorline.client.values.link import PublisherLink
from moorline.errors import ConnectionLost, SubscriptionEnded
from moorline.limits import VALUE_EVENTS_MAX

if TYPE_CHECKING:
    from moorline.client.values.subscriber import Subscriber


class Kind(Enum):
    ALIVE = "alive"
    UPDATE = "update"
    DEAD = "dead"


class ValueEvent(NamedTuple):
    """What happened to a subscription; `why` is of its death."""

    kind: Kind
    value: Any = None
    why: str = ""


class ValueSubscription:
    """What a program holds. Several for one path share what is behind them."""

    def __init__(self, subscriber: "Subscriber", path: str, *, is_durable: bool) -> None:
        self.path = path
        self.is_durable = is_durable
        self.publisher = b""
        """The instance that it has its value from."""
        self.why = "it is not subscribed yet"
        """Why it has no value; empty while it has one."""
        self.is_over = False
        self._subscriber = subscriber
        self._link: PublisherLink | None = None
        self._id = 0
        self._last: Any = None
        self._events: deque[ValueEvent] = deque()
        self._news = asyncio.Event()
        self.is_read = False
        """Whether somebody reads its events: else only the latest value is kept."""

    @property
    def is_alive(self) -> bool:
        return self._link is not None

    @property
    def value(self) -> Any:
        """The latest; behind a loss the last one that there was."""
        if self._link is None:
            return self._last
        return self._link.latest.get(self._id, self._last)

    @property
    def id(self) -> int:
        return self._id

    async def wait(self, timeout_s: float | None = None) -> Any:
        """Waits for a value, and returns it."""
        async with asyncio.timeout(timeout_s):
            while not self.is_alive:
                if self.is_over:
                    raise SubscriptionEnded(f"{self.path}: {self.why}")
                self._news.clear()
                await self._news.wait()
        return self.value

    async def write(self, value: Any, *, wants_receipt: bool = False) -> Any:
        """Back to the publisher; with `wants_receipt` waits for what it says to it."""
        if self._link is None:
            raise ConnectionLost(f"{self.path} has no publisher now: {self.why}")
        return await self._link.write(self._id, value, wants_receipt=wants_receipt)

    def drop(self) -> None:
        """It is not wanted any more."""
        if not self.is_over:
            self._end()
            self._news.set()

    # --- reading ----------------------------------------------------------------------------------

    def __aiter__(self) -> "ValueSubscription":
        if not self.is_read:
            self.is_read = True
            if self.is_alive:
                self._events.append(ValueEvent(Kind.ALIVE, self.value))
            self._subscriber.reading(self)
        return self

    async def __anext__(self) -> ValueEvent:
        while not self._events:
            if self.is_over:
                raise StopAsyncIteration
            self._news.clear()
            await self._news.wait()
        return self._events.popleft()

    async def __aenter__(self) -> "ValueSubscription":
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.drop()

    # --- what the subscriber tells ----------------------------------------------------------------

    def came_alive(self, link: PublisherLink, one: int) -> None:
        self._link, self._id, self.publisher, self.why = link, one, link.instance, ""
        self._tell(ValueEvent(Kind.ALIVE, self.value))

    def updated(self, value: Any) -> None:
        self._tell(ValueEvent(Kind.UPDATE, value))

    def died(self, why: str, *, is_over: bool) -> None:
        was_alive = self.is_alive
        self._last, self._link, self.why = self.value, None, why
        self.is_over = self.is_over or is_over
        if was_alive or is_over:
            self._tell(ValueEvent(Kind.DEAD, None, why))
        self._news.set()

    def _tell(self, event: ValueEvent) -> None:
        if self.is_read:
            self._events.append(event)
            if len(self._events) > VALUE_EVENTS_MAX:
                self._overrun()
        self._news.set()

    def _overrun(self) -> None:
        """More waits than is kept: of updates the latest is, or nothing more comes."""
        if self._subscriber.is_conflating:
            kept = [event for event in self._events if event.kind is not Kind.UPDATE]
            self._events = deque(kept[-VALUE_EVENTS_MAX // 2 :])
            self._events.append(ValueEvent(Kind.UPDATE, self.value))
            return
        self._events.append(ValueEvent(Kind.DEAD, None, "SLOW: its events were not read"))
        self._end()

    def _end(self) -> None:
        # First, so that the last value is known behind it.
        self._last, self._link = self.value, None
        self.is_over = True
        self._subscriber.dropped(self)
