"""Room: records. In which of a node's databases a table is registered.

    number = await directory.database_of("experiments")

Names that are asked for at once are looked up by one look at the registrations of each database, and looks
are some milliseconds apart: whoever asks for thousands of names that nobody has registered costs one. What a
look found is not kept, since the next question may be about a table that was registered meanwhile.
"""

import asyncio
from collections.abc import Sequence

from moorline.errors import DatabaseUnreachable, TableRefused
from moorline.limits import RECORDS_LOOKS_APART_MS
from moorline.net.clock import monotonic_ms
from moorline.records.database import Database

Found = tuple[dict[str, int], DatabaseUnreachable | None]
"""Databases by the names in them; and why one of them does not answer."""


class Directory:
    def __init__(self, databases: Sequence[Database]) -> None:
        self._databases = databases
        self._next: asyncio.Task[Found] | None = None
        """The look that has not begun: whoever comes now hears what it finds."""
        self._looks: set[asyncio.Task[Found]] = set()
        self._turn = asyncio.Lock()
        self._ended_ms = 0

    async def database_of(self, name: str) -> int:
        """TableRefused if it is registered nowhere; DatabaseUnreachable if that is not certain."""
        if self._next is None:
            self._next = asyncio.create_task(self._look())
            self._looks.add(self._next)
            self._next.add_done_callback(self._done)
        # Others wait for it too.
        found, away = await asyncio.shield(self._next)
        if name in found:
            return found[name]
        # One that does not answer may be the one that has it.
        raise away or TableRefused(f"no table is registered as {name}.")

    async def close(self) -> None:
        looks = list(self._looks)
        for look in looks:
            look.cancel()
        if looks:
            await asyncio.wait(looks)

    async def _look(self) -> Found:
        async with self._turn:
            pause_ms = self._ended_ms + RECORDS_LOOKS_APART_MS - monotonic_ms()
            if pause_ms > 0:
                await asyncio.sleep(pause_ms / 1_000)
            self._next = None
            found: dict[str, int] = {}
            away: DatabaseUnreachable | None = None
            for number, database in enumerate(self._databases):
                try:
                    registered = await database.registrations()
                except DatabaseUnreachable as error:
                    away = error
                    continue
                for registration in registered:
                    # The first that has it, as the settings name them.
                    found.setdefault(registration.name, number)
            self._ended_ms = monotonic_ms()
            return found, away

    def _done(self, look: "asyncio.Task[Found]") -> None:
        self._looks.discard(look)
        if not look.cancelled():
            look.exception()  # it may be that nobody waits any more
