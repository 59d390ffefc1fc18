"""Room: net. The interpreter of effects: what machines want done, with real timers, sockets and files.

Timers are its own. Every other effect goes to the performer of its type, in list order. A performer may
return an event, or an awaitable of one (a thread's fsync): it is posted when it is there.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from moorline.core.effects import CancelTimer, Effect, Event, SetTimer, TimerFired

Performer = Callable[[Any], "Event | Awaitable[Event] | None"]


class Interpreter:
    """Performs the effects of one machine, or of several that speak through one door."""

    __slots__ = ("_failed", "_loop", "_performers", "_post", "_tasks", "_timers")

    def __init__(
        self,
        performers: Mapping[type[Effect], Performer],
        post: Callable[[Event], None],
        failed: Callable[[Exception], None],
    ) -> None:
        """`post` gets what answers the effects, timers too; `failed` an error of what was awaited."""
        self._performers: dict[type[Effect], Performer] = {
            SetTimer: self._set_timer,
            CancelTimer: self._cancel_timer,
            **performers,
        }
        self._post = post
        self._failed = failed
        self._loop = asyncio.get_running_loop()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Future[Event]] = set()

    def perform(self, effects: Iterable[Effect]) -> None:
        performers = self._performers
        for effect in effects:
            answer = performers[type(effect)](effect)
            if answer is None:
                continue
            if isinstance(answer, Event):
                self._post(answer)
            else:
                task = asyncio.ensure_future(answer)
                self._tasks.add(task)
                task.add_done_callback(self._answered)

    def close(self) -> None:
        """Cancels timers and what is awaited: nobody hears of them any more."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        for task in self._tasks:
            task.cancel()
        self._tasks.clear()

    def _set_timer(self, wanted: SetTimer) -> None:
        before = self._timers.get(wanted.name)
        if before is not None:
            before.cancel()
        self._timers[wanted.name] = self._loop.call_later(
            wanted.after_ms / 1_000, self._fire, wanted.name
        )

    def _cancel_timer(self, unwanted: CancelTimer) -> None:
        timer = self._timers.pop(unwanted.name, None)
        if timer is not None:
            timer.cancel()

    def _fire(self, name: str) -> None:
        self._timers.pop(name, None)
        self._post(TimerFired(name))

    def _answered(self, task: asyncio.Future[Event]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            return
        error = task.exception()
        if isinstance(error, Exception):
            self._failed(error)
        elif error is None:
            self._post(task.result())


def nothing_awaited(error: Exception) -> None:
    """The `failed` of a machine whose effects are all performed at once."""
    raise AssertionError("nothing was awaited") from error
