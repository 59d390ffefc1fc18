"""Room: net. The driver: runs one machine over real timers, sockets and files.

    driver = Driver(machine, {Send: send, Sync: sync}, failed)
    driver.post(Received("b1", message))

One driver owns one machine, and all of its steps happen on one event loop, so a machine needs no lock. Its
effects are performed by an interpreter, and what answers them is posted.
"""

from collections import deque
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, TypeVar

from moorline.core.effects import Effect, Event
from moorline.core.machine import Machine
from moorline.errors import MachineError
from moorline.limits import INBOX_EVENTS_MAX
from moorline.net.clock import monotonic_ms
from moorline.net.interpreter import Interpreter, Performer

State = TypeVar("State", bound=Enum)


class Driver:
    """Runs one machine."""

    __slots__ = ("_busy", "_failed", "_inbox", "_interpreter", "_machine")

    def __init__(
        self,
        machine: Machine[State],
        performers: Mapping[type[Effect], Performer],
        failed: Callable[[Exception], None],
    ) -> None:
        """`failed` hears of a machine's mistake or a performer's error; the driver is closed then."""
        self._machine: Machine[Any] = machine
        self._failed = failed
        self._interpreter = Interpreter(performers, self.post, self._fail)
        self._inbox: deque[Event] = deque()
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
                effects = self._machine.handle(self._inbox.popleft(), monotonic_ms())
                self._interpreter.perform(effects)
        except Exception as error:
            self._fail(error)
        finally:
            self._busy = False

    def close(self) -> None:
        """Cancels timers and forgets what waits; the machine hears nothing more."""
        self._interpreter.close()
        self._inbox.clear()

    def _fail(self, error: Exception) -> None:
        self.close()
        self._failed(error)
