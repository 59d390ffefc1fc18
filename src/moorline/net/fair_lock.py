"""Room: net. A lock that is shared among principals, and then among what each one waits for.

    async with lock.held_by(principal): …

A plain lock is fair among those who wait: who waits a thousand times has a thousand turns, and another one's
single turn is behind them. Here it is behind a few (`core/access/principal_turns.py`).
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from moorline.core.access.principal_turns import PrincipalTurns


class FairLock:
    def __init__(self) -> None:
        self._turns = PrincipalTurns()
        self._waiting: dict[int, asyncio.Future[None]] = {}
        self._is_held = False
        self._numbers = 0

    @asynccontextmanager
    async def held_by(self, principal: str) -> AsyncIterator[None]:
        """What it costs is the time for which it is held."""
        await self._begin(principal)
        began_ns = time.monotonic_ns()
        try:
            yield
        finally:
            self._end((time.monotonic_ns() - began_ns) // 1_000)

    async def _begin(self, principal: str) -> None:
        self._numbers = number = self._numbers + 1
        turn = self._waiting[number] = asyncio.get_running_loop().create_future()
        self._turns.wait(principal, number)
        if not self._is_held:
            self._next()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._end(0)  # it was given to us meanwhile: the next one has it
            elif self._waiting.pop(number, None) is not None:
                self._turns.leave(principal, number)
            raise

    def _end(self, cost_us: int) -> None:
        self._turns.spent(cost_us)
        self._is_held = False
        self._next()

    def _next(self) -> None:
        while (found := self._turns.next()) is not None:
            turn = self._waiting.pop(found[1])
            if not turn.done():
                self._is_held = True
                turn.set_result(None)
                return
            # It was cancelled, and has not heard of it yet.
            self._turns.spent(0)
