"""Room: client. One subscriber at a publisher: what waits for it, and what it was granted.

What it can take at once is written at once. The rest waits in its outlet, within bounds, and a task of its
own writes it as there is room: nobody waits for another's connection.
"""

import asyncio

import msgspec

from moorline.client.values.frames import encode
from moorline.core.values.batch import Batch, Outlet
from moorline.net.clock import monotonic_ms
from moorline.net.session import Session
from moorline.wire.resolver import Holder
from moorline.wire.value import PublisherAlive, ValuesEnded

SLOW = "SLOW"


class Held(msgspec.Struct):
    """One subscription: who was judged for it, and until when that counts without another word."""

    path: str
    permissions: int
    holder: Holder
    until_ms: int


class Follower:
    """One connection of a subscriber."""

    def __init__(self, session: Session, outlet: Outlet) -> None:
        self.session = session
        self.held: dict[int, Held] = {}
        """By the ids of values."""
        self.outlet = outlet
        self.writing = 0
        """Values that it wrote back and that their writers have not done with."""
        self._sent_ms = monotonic_ms()
        self._room = asyncio.Event()
        self._writing: asyncio.Task[None] | None = None
        self._turn = asyncio.Lock()
        self._awaited = 0
        """Batches that wait for room in the outlet, each for its turn."""

    # --- batches ----------------------------------------------------------------------------------

    def give(self, batch: Batch) -> bool:
        """Sends it, or lets it wait. False: there is no room for it."""
        if self._awaited:
            return False  # an older one waits for its turn
        return self._give(batch)

    def _give(self, batch: Batch) -> bool:
        if not len(self.outlet) and self.session.writable:
            self._send(batch)
            return True
        if not self.outlet.put(batch, monotonic_ms()):
            return False
        if self._writing is None:
            self._writing = asyncio.create_task(self._write())
        return True

    async def give_in_time(self, batch: Batch, timeout_ms: int) -> bool:
        """The same, and waits for room; not longer than until what waits first is that old."""
        self._awaited += 1
        try:
            # One after the other, as they were committed: a short one does not overtake a long one.
            async with self._turn:
                return await self._find_room(batch, timeout_ms)
        finally:
            self._awaited -= 1

    async def _find_room(self, batch: Batch, timeout_ms: int) -> bool:
        while not self._give(batch):
            since_ms = self.outlet.waits_since_ms
            left_ms = (since_ms or 0) + timeout_ms - monotonic_ms()
            if left_ms <= 0 or not self.session.is_open:
                return False
            self._room.clear()
            try:
                async with asyncio.timeout(left_ms / 1_000):
                    await self._room.wait()
            except TimeoutError:
                continue
        return True

    def is_late(self, timeout_ms: int) -> bool:
        """Whether something has waited for longer than that."""
        since_ms = self.outlet.waits_since_ms
        return since_ms is not None and monotonic_ms() - since_ms > timeout_ms

    async def _write(self) -> None:
        try:
            while len(self.outlet):
                await self.session.room_to_write()
                if not self.session.is_open:
                    return
                batch = self.outlet.take()
                if batch is None:
                    break  # what waited was told anew meanwhile
                self._send(batch)
                self._room.set()
        finally:
            self._writing = None
            self._room.set()

    def _send(self, batch: Batch) -> None:
        encode(batch)
        self._sent_ms = monotonic_ms()
        self.session.send_frames(batch.frames)

    # --- the rest ---------------------------------------------------------------------------------

    def end(self, ids: list[int], code: str) -> None:
        """These are subscribed no longer, and it hears why."""
        for one in ids:
            self.held.pop(one, None)
        self.session.send(ValuesEnded(ids, code))

    def say_alive(self, heartbeat_ms: int) -> None:
        # What waits for room is a sign of life of ours that it has not read yet.
        if monotonic_ms() - self._sent_ms >= heartbeat_ms // 2 and self.session.writable:
            self._sent_ms = monotonic_ms()
            self.session.send(PublisherAlive())

    def cut(self, text: str) -> None:
        self.session.close(SLOW, text)
        # It does not read: nothing of what waits for it will be taken.
        self.session.abort()

    def close(self) -> None:
        if self._writing is not None:
            self._writing.cancel()
        self._room.set()
