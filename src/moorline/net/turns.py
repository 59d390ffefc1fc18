"""Room: net. Handlers whose answers need more than the loop: tasks, those of one session in turn."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any

from moorline.errors import MoorlineError
from moorline.limits import ANSWERS_PER_WRITE, SLICE_MS
from moorline.net.session import Handler, Session, mistaken
from moorline.wire.message import Answer, Call, Failed

log = logging.getLogger("moorline.net")

HandleOne = Callable[[Session, Any], Awaitable[Answer | None]]
Ready = Callable[[Session, Any], Awaitable[None]]
HandleRun = Callable[[Session, Any], Awaitable[list[Answer]]]
Over = Callable[[Session, Any], None]


def _unheard(session: Session, call: Call) -> None:
    """For those who keep no account of their calls."""


class Turns:
    """One turn at a time for each key; a session is one, a service another."""

    def __init__(self) -> None:
        self._locks: dict[object, asyncio.Lock] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def turn(self, key: object) -> asyncio.Lock:
        return self._locks.setdefault(key, asyncio.Lock())

    def forget(self, key: object) -> None:
        self._locks.pop(key, None)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("a task failed", exc_info=task.exception())

    def later(self, handle: HandleOne, over: Over = _unheard) -> Handler:
        """A handler of runs from one that answers a single call later, or leaves it to a commit.

        `over` hears of every call when it is done with, also of one that was given up before its turn.
        """

        async def one_by_one(session: Session, calls: list[Call]) -> None:
            ends_ns = time.monotonic_ns() + SLICE_MS * 1_000_000
            for place, call in enumerate(calls):
                # Not every one of them waits for something, and some that do not are long.
                if place and (place % ANSWERS_PER_WRITE == 0 or time.monotonic_ns() > ends_ns):
                    await asyncio.sleep(0)
                    ends_ns = time.monotonic_ns() + SLICE_MS * 1_000_000
                await session.room_to_write()
                if session.begin_turn(call):
                    await _answered(session, [call], _alone(handle))
                over(session, call)

        return self._begun(one_by_one)

    def spawned(self, handle: HandleOne, ready: Ready | None = None) -> Handler:
        """The same, with calls side by side: for those that change nothing.

        However many are asked, few are answered at a time. A call whose answer may be long in coming waits in
        `ready`, which refuses nothing: there it keeps no other from being answered, and holds nothing yet.
        """

        async def aside(session: Session, call: Call) -> None:
            if ready is not None:
                await ready(session, call)
            async with session.answering:
                await session.room_to_write()
                if session.is_open and session.begin_turn(call):
                    await _answered(session, [call], _alone(handle))

        def begin(session: Session, calls: list[Call]) -> Iterable[Answer]:
            session.wait_for_turn(calls)
            for call in calls:
                self.spawn(aside(session, call))
            return ()

        return begin

    def together(self, handle: HandleRun) -> Handler:
        """The same for calls that are cheaper together."""

        async def all_at_once(session: Session, calls: list[Call]) -> None:
            await session.room_to_write()
            wanted = [call for call in calls if session.begin_turn(call)]
            if wanted:
                await _answered(session, wanted, handle)

        return self._begun(all_at_once)

    def _begun(self, run: Callable[[Session, list[Call]], Awaitable[None]]) -> Handler:
        async def in_turn(turn: asyncio.Lock, session: Session, calls: list[Call]) -> None:
            async with turn:
                await run(session, calls)

        def begin(session: Session, calls: list[Call]) -> Iterable[Answer]:
            session.wait_for_turn(calls)
            if session not in self._locks:
                session.at_end(lambda: self.forget(session))
            self.spawn(in_turn(self.turn(session), session, calls))
            return ()

        return begin


async def _answered(session: Session, calls: list[Call], handle: HandleRun) -> None:
    try:
        answers = await handle(session, calls)
    except MoorlineError as error:
        answers = [Failed.of(call.call, error) for call in calls]
    except Exception as error:
        log.exception("a handler failed", extra={"call": type(calls[0]).__name__})
        answers = [mistaken(call, error) for call in calls]
    if answers:
        session.answer(answers)


def _alone(handle: HandleOne) -> HandleRun:
    async def handle_one(session: Session, calls: list[Any]) -> list[Answer]:
        answer = await handle(session, calls[0])
        return [] if answer is None else [answer]

    return handle_one
