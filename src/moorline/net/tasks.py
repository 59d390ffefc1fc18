"""Room: net. Work that goes on beside the loop's turns and that nobody waits for."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

log = logging.getLogger("moorline.groups")


class Tasks:
    """Keeps tasks from being collected while they run, and says in the log which of them failed."""

    def __init__(self, failure: str) -> None:
        self._failure = failure
        self._running: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._done)
        return task

    async def finish(self, within_ms: int) -> None:
        """Waits for those that run now, and cancels what is not done by then."""
        if self._running:
            await asyncio.wait(self._running, timeout=within_ms / 1_000)
        self.cancel()

    def cancel(self) -> None:
        for task in self._running:
            task.cancel()

    def _done(self, task: "asyncio.Task[None]") -> None:
        self._running.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error(self._failure, exc_info=task.exception())
