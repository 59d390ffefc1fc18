"""Room: client. What a client that stays tells its program.

async for event in moor.events():
    print(event.kind.value, event.why)
"""

import asyncio
import weakref
from collections import deque
from collections.abc import AsyncIterator
from enum import Enum

import msgspec

from moorline.limits import CLIENT_EVENTS_MAX


class EventKind(Enum):
    CONNECTED = "connected"
    LOST = "lost"
    NOBODY = "nobody"
    """All places were tried; the next round begins behind `pause_ms`."""
    RESUMED = "resumed"
    """What the program had is there again. `home` is where; `is_elsewhere` if it was another one before."""
    GAP = "gap"
    """Messages were gone before they were acknowledged; `what` is the filter, `count` a bound."""
    ENDED = "ended"
    """A subscription cannot go on; `what` is its filter or its queue, `why` the code."""
    OVER = "over"
    """The client connects no more: it was closed, or every place refuses it for good."""


class ClientEvent(msgspec.Struct, frozen=True):
    kind: EventKind
    why: str = ""
    home: str = ""
    address: str = ""
    is_elsewhere: bool = False
    what: str = ""
    count: int = 0
    pause_ms: int = 0


class Events:
    """What happens from now on, for one reader. Who does not read loses the oldest: `missed` counts them."""

    def __init__(self) -> None:
        self.missed = 0
        self._waiting: deque[ClientEvent] = deque()
        self._news = asyncio.Event()
        self._is_over = False

    def put(self, event: ClientEvent) -> None:
        if len(self._waiting) >= CLIENT_EVENTS_MAX:
            self._waiting.popleft()
            self.missed += 1
        self._waiting.append(event)
        self._is_over = event.kind is EventKind.OVER
        self._news.set()

    @property
    def is_over(self) -> bool:
        return self._is_over

    def __aiter__(self) -> AsyncIterator[ClientEvent]:
        return self

    async def __anext__(self) -> ClientEvent:
        while not self._waiting:
            if self._is_over:
                raise StopAsyncIteration
            self._news.clear()
            await self._news.wait()
        return self._waiting.popleft()


class Told:
    """Those who listen to one client."""

    def __init__(self) -> None:
        # Whoever stops to read is gone by itself.
        self._listeners: weakref.WeakSet[Events] = weakref.WeakSet()
        self._is_over = False

    def listen(self) -> Events:
        events = Events()
        if self._is_over:
            events.put(ClientEvent(EventKind.OVER))
        else:
            self._listeners.add(events)
        return events

    def tell(self, event: ClientEvent) -> None:
        for one in list(self._listeners):
            one.put(event)
        if event.kind is EventKind.OVER:
            self._is_over = True
            self._listeners.clear()
