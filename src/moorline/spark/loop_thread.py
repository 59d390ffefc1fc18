"""Room: spark. An event loop in a thread of its own.

Spark's code is synchronous. What speaks to nodes, resolvers and publishers lives on such a loop, and goes on
while a task is busy with something else: it answers pings, and hears what is pushed.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


class LoopThread:
    """Runs coroutines for other threads, from its making to `close`."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return self.begin(work)()

    def begin(self, work: Coroutine[Any, Any, Result]) -> Callable[[], Result]:
        """Begins it on the loop; what it returns waits for the result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result

    def close(self) -> None:
        if self._loop.is_closed():
            return
        self.run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        """What is open is closed first, by whoever opened it."""
        await self._say_goodbye()
        # Nobody waits for what is still asked for.
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _say_goodbye(self) -> None:
        """Nothing is open here."""
