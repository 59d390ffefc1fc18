"""Room: net. Steps that may hang in a library: in threads, each with a time limit, so that no loop waits.

A thread cannot be taken back. One that hangs keeps its place, so there is a bound of them; they are daemons,
since a process that is done must not wait for a server that does not answer. Any number of loops may use one
`Steps`, and a forked process begins with none of its parent's.
"""

import asyncio
import contextlib
import os
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")
Step = tuple[Callable[[], Any], asyncio.AbstractEventLoop, "asyncio.Future[Any]"]


class Hangs(Exception):
    """The step was not done in its time, or not even begun."""


class Steps:
    """`await steps.run(work, 3_000)`: what it returns or raises, or `Hangs`."""

    def __init__(self, name: str, at_once_max: int) -> None:
        self._name = name
        self._at_once_max = at_once_max
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._waiting: queue.SimpleQueue[Step] = queue.SimpleQueue()
        self._threads = 0
        self._unfinished = 0
        self._lock = threading.Lock()

    async def run(self, work: Callable[[], T], timeout_ms: int) -> T:
        if self._process != os.getpid():
            self._begin()
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()
        with self._lock:
            self._unfinished += 1
            is_short = self._threads < min(self._unfinished, self._at_once_max)
            self._threads += is_short
        self._waiting.put((work, loop, done))
        if is_short:
            threading.Thread(
                target=self._work_forever, args=(self._waiting,), name=self._name, daemon=True
            ).start()
        try:
            async with asyncio.timeout(timeout_ms / 1_000):
                return await done
        except TimeoutError:
            raise Hangs from None

    def _work_forever(self, waiting: "queue.SimpleQueue[Step]") -> None:
        while True:
            work, loop, done = waiting.get()
            result, failed = None, None
            # Who has given up meanwhile is not worth a step that may hang as well.
            if not done.cancelled():
                try:
                    result = work()
                except Exception as error:
                    failed = error
            # Before anybody is told: whoever asks for the next step then finds this thread free.
            with self._lock:
                self._unfinished -= 1
            self._settle(loop, done, result, failed)

    @staticmethod
    def _settle(
        loop: asyncio.AbstractEventLoop,
        done: "asyncio.Future[Any]",
        result: object,
        error: Exception | None,
    ) -> None:
        def tell() -> None:
            if done.done():
                return
            if error is not None:
                done.set_exception(error)
            else:
                done.set_result(result)

        with contextlib.suppress(RuntimeError):  # that loop is over, and nobody waits
            loop.call_soon_threadsafe(tell)
