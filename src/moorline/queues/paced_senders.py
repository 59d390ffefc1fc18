"""Room: queues. Those who wait for their share of the log while a checkpoint empties it.

They are sessions that are not read from, and the node itself where it sends many messages. Whoever came first
goes on first.
"""

import asyncio
from collections.abc import Callable

from moorline.limits import LOG_PACE_TICK_MS
from moorline.net.session import Session

PACED = "log"
"""Why sessions are held: the log fills faster than a checkpoint empties it."""


class _Waiter:
    """Stands among the sessions for the node itself."""

    def __init__(self, released: "asyncio.Future[None]") -> None:
        self.released = released

    def release_reading(self, reason: str) -> None:  # noqa: ARG002
        if not self.released.done():
            self.released.set_result(None)


class PacedSenders:
    """`is_ahead` says whether the next one is to wait; with None nobody has to."""

    def __init__(self, is_ahead: Callable[[], bool | None]) -> None:
        self._is_ahead = is_ahead
        self._waiting: dict[Session | _Waiter, None] = {}
        """In the order in which they came."""
        self._loop = asyncio.get_running_loop()
        self._ticking: asyncio.TimerHandle | None = None

    def hold_if_ahead(self, session: Session) -> None:
        if self._is_ahead():
            session.hold_reading(PACED)
            self._wait(session)

    async def turn(self) -> None:
        """Returns when it is the caller's turn, at once where nobody has to wait."""
        if self._is_ahead():
            waiter = _Waiter(self._loop.create_future())
            self._wait(waiter)
            await waiter.released

    def release_all(self) -> None:
        self._release(len(self._waiting))

    def _wait(self, sender: Session | _Waiter) -> None:
        self._waiting[sender] = None
        self._tick_soon()

    def _tick_soon(self) -> None:
        if self._ticking is None:
            self._ticking = self._loop.call_later(LOG_PACE_TICK_MS / 1_000, self._tick)

    def _tick(self) -> None:
        """One of them goes on, if time has made up for what was sent; all, if nobody has to wait."""
        self._ticking = None
        is_ahead = self._is_ahead() if self._waiting else None
        if is_ahead is None:
            self.release_all()
            return
        if not is_ahead:
            self._release(1)
        self._tick_soon()

    def _release(self, count: int) -> None:
        for sender in list(self._waiting)[:count]:
            del self._waiting[sender]
            sender.release_reading(PACED)
