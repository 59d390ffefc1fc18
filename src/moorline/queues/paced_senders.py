"""Room: queues. Those who wait for their share of the log while a checkpoint empties it.

They are sessions that are not read from, and whose calls that are heard already wait too, and the node itself
where it sends many messages. Whoever came first goes on first, by a step: so nobody sends much at once, and
nobody waits long for what others sent.
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

    def release_work(self, reason: str) -> bool:  # noqa: ARG002
        if not self.released.done():
            self.released.set_result(None)
        return False


class PacedSenders:
    """`is_ahead` says whether the next one is to wait; with None nobody has to."""

    def __init__(self, is_ahead: Callable[[], bool | None]) -> None:
        self._is_ahead = is_ahead
        self._waiting: dict[Session | _Waiter, None] = {}
        """In the order in which they came."""
        self._loop = asyncio.get_running_loop()
        self._ticking: asyncio.Handle | None = None

    def hold_if_ahead(self, session: Session) -> None:
        if self._is_ahead():
            session.hold_work(PACED)
            self._wait(session)

    async def turn(self) -> None:
        """Returns when it is the caller's turn, at once where nobody has to wait."""
        if self._is_ahead():
            waiter = _Waiter(self._loop.create_future())
            self._wait(waiter)
            await waiter.released

    def release_all(self) -> None:
        while self._waiting:
            self._release_first()

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
        elif not is_ahead and self._release_first() and self._waiting:
            # Behind the step that it has at hand: then it is known what is left for the others.
            self._ticking = self._loop.call_soon(self._tick)
        else:
            self._tick_soon()

    def _release_first(self) -> bool:
        sender = next(iter(self._waiting))
        del self._waiting[sender]
        return sender.release_work(PACED)
