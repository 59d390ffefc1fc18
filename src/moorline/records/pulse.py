"""Room: records. Whether somebody writes: the sequences of a database's tables, looked at all the time.

    pulse = Pulse(database, poll_ms=5)
    leave = pulse.watch(registration.n, stirred)        `stirred()`: a row was given a number
    await pulse.run()

A look at a table costs Postgres and the node a millisecond and more, so that one which does not change is
looked at less often. A sequence is one small page, one statement reads all of them, and every write of a
registered table takes a number before it commits. So whoever follows the table looks soon, and not at the end
of its pause. Nothing relies on it: where it fails, or a number is taken long before its commit, the next look
comes by itself.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import asyncpg

from moorline.catalog.address import LOST_ERRORS
from moorline.errors import DatabaseUnreachable
from moorline.limits import RECORDS_AWAY_MS_MAX, RECORDS_PULSE_SHARE
from moorline.net.clock import monotonic_ms
from moorline.records.database import Database
from moorline.records.naming import filled, sql

SEQ_LAST = sql("seq_last").rstrip().rstrip(";")


class Pulse:
    def __init__(self, database: Database, poll_ms: int) -> None:
        self._database = database
        self._poll_ms = poll_ms
        self._watchers: dict[int, dict[object, Callable[[], None]]] = {}
        """By the number of the registration."""
        self._seen: dict[int, int] = {}
        self._is_watched = asyncio.Event()
        self._connection: Any = None

    def watch(self, number: int, stirred: Callable[[], None]) -> Callable[[], None]:
        """What it returns ends that."""
        token = object()
        self._watchers.setdefault(number, {})[token] = stirred
        self._is_watched.set()

        def leave() -> None:
            watchers = self._watchers.get(number, {})
            watchers.pop(token, None)
            if not watchers:
                self._watchers.pop(number, None)
                self._seen.pop(number, None)
            if not self._watchers:
                self._is_watched.clear()

        return leave

    async def run(self) -> None:
        try:
            while True:
                if not self._watchers:
                    # An idle node holds no connection for it.
                    await self._leave()
                    await self._is_watched.wait()
                started_ms = monotonic_ms()
                try:
                    await self._look()
                except (DatabaseUnreachable, asyncpg.PostgresError, *LOST_ERRORS):
                    # Away, or one of the tables is registered no more, which its host hears by its own look.
                    await self._leave()
                    await asyncio.sleep(RECORDS_AWAY_MS_MAX / 1_000)
                    continue
                spent_ms = monotonic_ms() - started_ms
                await asyncio.sleep(max(self._poll_ms, spent_ms * RECORDS_PULSE_SHARE) / 1_000)
        finally:
            await self._leave()

    async def _look(self) -> None:
        if self._connection is None:
            self._connection = await self._database.listening()
        numbers = list(self._watchers)
        query = "select " + ", ".join(f"({filled(SEQ_LAST, n=number)})" for number in numbers)
        found = await self._connection.fetchrow(query)
        for number, last in zip(numbers, found, strict=True):
            if self._seen.get(number, last) != last:
                for stirred in list(self._watchers.get(number, {}).values()):
                    stirred()
            if number in self._watchers:
                self._seen[number] = last

    async def _leave(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(*LOST_ERRORS):
                await connection.close(timeout=1)
