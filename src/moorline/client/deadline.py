"""Room: client. How long a call may take, for all calls within a block.

with moorline.deadline(2.0):
    await moor.publish("orders/eu", b"ahoy")
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from moorline.errors import ConfigError

_SET: ContextVar[float | None] = ContextVar("moorline_deadline_s")


@contextmanager
def deadline(seconds: float | None) -> Iterator[None]:
    """Each call of a client that stays, made in this block by this task, ends within that time; None: never.

    One that never left is `Unreachable` then, and nothing was done. Else its outcome is unknown.
    """
    check_deadline(seconds)
    token = _SET.set(seconds)
    try:
        yield
    finally:
        _SET.reset(token)


def check_deadline(seconds: float | None) -> None:
    if seconds is not None and not seconds > 0:
        raise ConfigError(f"a deadline is a number of seconds above 0, or None, not {seconds}")


def deadline_of(default: float | None) -> float | None:
    """What this call has."""
    return _SET.get(default)


class SharedDeadline:
    """The deadline of calls that all have as long: one timer for all of them, and not one for each call.

    A timer that is set and cancelled a moment later costs more than most of what a call does. They end in
    the order in which they began, so only the first of them is waited for.
    """

    def __init__(self, seconds: float, end: Callable[[int], object]) -> None:
        """`end` is told of each call whose time has passed."""
        self._seconds = seconds
        self._end = end
        self._loop = asyncio.get_running_loop()
        self._calls: dict[int, float] = {}
        """By which time each ends, in that order."""
        self._is_waiting = False

    def begin(self, number: int) -> float:
        """That call has so long from now on, unless it is `over` before; by which time."""
        ends_s = self._calls[number] = self._loop.time() + self._seconds
        if not self._is_waiting:
            self._is_waiting = True
            self._loop.call_later(self._seconds, self._end_due)
        return ends_s

    def over(self, number: int) -> None:
        self._calls.pop(number, None)

    def _end_due(self) -> None:
        now_s = self._loop.time()
        while self._calls:
            number = next(iter(self._calls))
            ends_s = self._calls[number]
            if ends_s > now_s:
                self._loop.call_at(ends_s, self._end_due)
                return
            del self._calls[number]
            self._end(number)
        self._is_waiting = False
