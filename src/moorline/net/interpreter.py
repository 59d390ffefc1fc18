"""Room: net. The interpreter of effects: what machines want done, with real timers, sockets and files.

Timers are its own. Every other effect goes to the performer of its type, in list order. A performer may
return an event, or an awaitable of one (a thread's fsync): it is posted when it is there.

    Interpreter          of one machine: a performer for each type of effect
    .perform_in_turn     the same, and what a performer awaits is over before the next effect begins
    TableInterpreter     of one among very many owners, which share one table of functions
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final

from moorline.core.effects import CancelTimer, Effect, Event, SetTimer, TimerFired

Performer = Callable[[Any], "Event | Awaitable[Event] | None"]
TurnPerformer = Callable[[Any], "Awaitable[object] | None"]
TablePerformer = Callable[[Any, Any], None]
"""Of an owner, and the effect."""


class Interpreter:
    """Performs the effects of one machine, or of several that speak through one door."""

    __slots__ = ("_failed", "_loop", "_performers", "_post", "_tasks", "_timers")

    def __init__(
        self,
        performers: Mapping[type[Effect], Performer | TurnPerformer],
        post: Callable[[Event], None],
        failed: Callable[[Exception], None],
    ) -> None:
        """`post` gets what answers the effects, timers too; `failed` an error of what was awaited."""
        self._performers: dict[type[Effect], Callable[[Any], Any]] = {
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

    async def perform_in_turn(self, effects: Iterable[Effect]) -> None:
        """For performers that wait for each other's end, as what is published before it is forgotten.

        Nothing is posted of what they return.
        """
        for effect in effects:
            answer = self._performers[type(effect)](effect)
            if answer is not None:
                assert not isinstance(answer, Event), "an event is posted, and not awaited"
                await answer

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


class TableInterpreter(Interpreter):
    """For thousands that say nothing for hours: what each has of it is counted in bytes.

    A table of bound methods would be a kilobyte for each owner. Nothing is awaited, and behind `close`
    nothing is performed, also of a list that is being performed.
    """

    __slots__ = ("_owner", "_table")

    def __init__(
        self,
        owner: object,
        table: Mapping[type[Effect], TablePerformer],
        post: Callable[[Event], None],
    ) -> None:
        self._owner: object | None = owner
        self._table = table
        self._post = post
        self._loop = asyncio.get_running_loop()
        self._timers = {}

    def perform(self, effects: Iterable[Effect]) -> None:
        table = self._table
        for effect in effects:
            owner = self._owner
            if owner is None:
                return
            performer = table.get(type(effect))
            if performer is None:
                _TIMERS[type(effect)](self, effect)
            else:
                performer(owner, effect)

    def close(self) -> None:
        self._owner = None
        self._post = _unheard
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()


_TIMERS: Final[Mapping[type[Effect], Callable[[Any, Any], None]]] = {
    SetTimer: Interpreter._set_timer,  # noqa: SLF001 - of this module
    CancelTimer: Interpreter._cancel_timer,  # noqa: SLF001
}


def _unheard(event: Event) -> None:
    """Of a timer that was on its way when all ended."""


def nothing_awaited(error: Exception) -> None:
    """The `failed` of a machine whose effects are all performed at once."""
    raise AssertionError("nothing was awaited") from error
