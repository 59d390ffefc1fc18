"""Room: net. The driver: runs one machine over real timers, sockets and files.

    driver = Driver(machine, {Send: send, Sync: sync}, failed)
    driver.post(Received("b1", message))

Timers are the driver's own. Every other effect goes to the performer of its type, in list order. A
performer may return an event, or an awaitable of one (a thread's fsync): it is posted when it is
there. One driver owns one machine, and all of its steps happen on one event loop, so a machine
needs no lock.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from enum import Enum
from typing import Any, TypeVar

from moorline.core.effects import CancelTimer, Effect, Event, SetTimer, TimerFired
from moorline.core.machine import Machine
from moorline.errors import MachineError
from moorline.limits import INBOX_EVENTS_MAX
from moorline.net.clock import monotonic_ms

State = TypeVar("State", bound=Enum)
Performer = Callable[[Any], "Event | Awaitable[Event] | None"]


class Driver:
    """Runs one machine."""

    __slots__ = (
        "_busy",
        "_failed",
        "_inbox",
        "_loop",
        "_machine",
        "_performers",
        "_tasks",
        "_timers",
    )

    def __init__(
        self,
        machine: Machine[State],
        performers: Mapping[type[Effect], Performer],
        failed: Callable[[Exception], None],
    ) -> None:
        """`failed` hears of a machine's mistake or a performer's error; the driver is closed then."""
        self._machine: Machine[Any] = machine
        self._performers = performers
        self._failed = failed
        self._loop = asyncio.get_running_loop()
        self._inbox: deque[Event] = deque()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Future[Event]] = set()
        self._busy = False

    def post(self, event: Event) -> None:
        """Gives an event to the machine; one that comes during a step waits for the end of it."""
        if len(self._inbox) >= INBOX_EVENTS_MAX:
            full = f"{self._machine.name}: the inbox is full\n{self._machine.story()}"
            self._fail(MachineError(full))
            return
        self._inbox.append(event)
        if self._busy:
            return
        self._busy = True
        try:
            while self._inbox:
                for effect in self._machine.handle(self._inbox.popleft(), monotonic_ms()):
                    self._perform(effect)
        except Exception as error:
            self._fail(error)
        finally:
            self._busy = False

    def close(self) -> None:
        """Cancels timers and forgets what waits; the machine hears nothing more."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        for task in self._tasks:
            task.cancel()
        self._tasks.clear()
        self._inbox.clear()

    def _perform(self, effect: Effect) -> None:
        if isinstance(effect, SetTimer):
            self._cancel(effect.name)
            self._timers[effect.name] = self._loop.call_later(
                effect.after_ms / 1_000, self._fire, effect.name
            )
        elif isinstance(effect, CancelTimer):
            self._cancel(effect.name)
        else:
            answer = self._performers[type(effect)](effect)
            if isinstance(answer, Event):
                self.post(answer)
            elif answer is not None:
                task = asyncio.ensure_future(answer)
                self._tasks.add(task)
                task.add_done_callback(self._answered)

    def _cancel(self, name: str) -> None:
        timer = self._timers.pop(name, None)
        if timer is not None:
            timer.cancel()

    def _fire(self, name: str) -> None:
        self._timers.pop(name, None)
        self.post(TimerFired(name))

    def _answered(self, task: asyncio.Future[Event]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            return
        error = task.exception()
        if isinstance(error, Exception):
            self._fail(error)
        elif error is None:
            self.post(task.result())

    def _fail(self, error: Exception) -> None:
        self.close()
        self._failed(error)
