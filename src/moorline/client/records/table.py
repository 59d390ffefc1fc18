"""Room: client/records. A live copy of the rows of a Postgres table.

    async with moor.records("experiments", where={"workspace_id": 1}) as table:
        print(table.rows[17]["state"])
        async for change in table.changes():
            print(change.kind.value, change.key, change.row)

It has a connection of its own, opened as that of its `Moor` was, and opens another one when it is cut: behind
a random pause, with its cursor and its digest, at whatever node answers there. At the end of each sync the
digest of its rows is compared with the node's; a copy that is wrong heals by itself, and says so.

Messages name their table and nothing else, so a connection has one copy of a table. Design:
docs/design/records.md, docs/decisions/0086-a-copy-has-its-own-connection.md.
"""

import asyncio
import contextlib
import logging
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from moorline.client.records.asked import Asked
from moorline.client.records.cache_keeper import CacheKeeper
from moorline.client.records.changes import ChangeKind, Changes, RecordChange
from moorline.client.records.copying import CopyOverLink
from moorline.client.records.rows import Rows
from moorline.client.records.settings import RecordSettings
from moorline.config.addresses import Address
from moorline.core.records.copy import Copying
from moorline.core.records.feed_events import How
from moorline.core.records.table import Key
from moorline.core.sets.digest import Digest
from moorline.errors import CallFailed, ConfigError, MoorlineError
from moorline.limits import GOODBYE_MS_MAX
from moorline.net.caller import Caller
from moorline.wire.records import Refused

log = logging.getLogger("moorline.client")

Held = tuple[int, bytes]
Dial = Callable[[], Awaitable[tuple[Caller, Address]]]

PASSING: Final = frozenset({"BUSY", "NOT_READY"})
"""Refusals that say nothing against the subscription: it is asked for again."""

VANISHING: Final = frozenset({"NO_SUCH_TABLE", "NOT_GRANTED", "TABLE_GONE"})
"""Refusals behind which nothing of the table may be seen any more."""


class RecordTable:
    """Made by `Moor.records`; open from `async with` to its end."""

    def __init__(
        self,
        dial: Dial,
        asked: Asked,
        *,
        cache: Path | str | None = None,
        wait: bool = True,
        settings: RecordSettings | None = None,
    ) -> None:
        self._dial = dial
        self._wait = wait
        self._settings = settings or RecordSettings()
        self._copy = CopyOverLink(asked, self)
        self._rows = Rows(lambda: self._copy.copy.rows, lambda: self._copy.facts)
        self._cache = None if cache is None else CacheKeeper(cache, asked, self._cache_failed)
        self._unkept: set[Key] = set()
        """Keys that have changed since the cache was last told."""
        self._listeners: list[Changes] = []
        self._running: asyncio.Task[None] | None = None
        self._outcome: asyncio.Future[None] | None = None
        """Of the first sync, or of that behind a change of the filter."""
        self._refusal: CallFailed | None = None
        self._address: Address | None = None
        self._tries = 0
        self._drifts = 0
        self._has_synced = self._is_drifted = False
        self._is_entering = False
        self._asking_again: asyncio.Task[None] | None = None
        self._leaving: Caller | None = None

    # --- what a program sees ----------------------------------------------------------------------

    @property
    def name(self) -> str:
        return self._copy.asked.table

    @property
    def rows(self) -> Rows:
        """By the value of the key, or by a tuple of values. It is live: the same object for good."""
        return self._rows

    @property
    def digest(self) -> Digest:
        """Of the rows, by key and seq."""
        return self._copy.copy.digest()

    @property
    def is_synced(self) -> bool:
        """Whether the rows are the table as it was a moment ago, proven by digest."""
        return self._copy.is_synced

    @property
    def how(self) -> str:
        """By which way the last sync went: replay, digest, full, or live."""
        return self._copy.how.value

    @property
    def is_connected(self) -> bool:
        return not self._copy.is_apart

    @property
    def columns(self) -> tuple[tuple[str, str], ...]:
        """Names and types, once the first sync has begun or a cache was read."""
        return self._copy.facts.columns

    @property
    def key(self) -> tuple[str, ...]:
        return self._copy.facts.key

    @property
    def address(self) -> Address | None:
        """Of the node that serves it now, or did last."""
        return self._address

    @property
    def refusal(self) -> CallFailed | None:
        """Why the node does not serve it now."""
        return self._refusal

    @property
    def cache_set_aside(self) -> Path | None:
        """Where the cache is that was found and not taken."""
        aside = None if self._cache is None else self._cache.set_aside
        return None if aside is None else aside.path

    def changes(self) -> Changes:
        """Everything from now on, for one reader; each call gives another. They must be read, or closed."""
        changes = Changes()
        self._listeners = [one for one in self._listeners if not one.is_over]
        if self._running is None:
            changes.close()
        self._listeners.append(changes)
        return changes

    async def synced(self) -> None:
        """Waits until the copy is the table; raises what the node has against it."""
        if self._running is None:
            raise ConfigError("this copy is not open: use it in `async with`")
        if not self.is_synced:
            if self._outcome is None or self._outcome.done():
                self._outcome = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._outcome)

    async def change(
        self, where: Mapping[str, Any] | None, *, columns: Sequence[str] | None = None
    ) -> None:
        """Another filter, and other columns, from now on; waits until the copy is that. The last one wins.

        A cache is of one filter: a copy that has one cannot change.
        """
        if self._cache is not None:
            raise ConfigError(
                "a copy with a cache keeps its filter: open another one, with another file"
            )
        self._refusal = None
        self._stop_asking()
        self._copy.change(Asked.of(self.name, where, columns))
        await self.synced()

    # --- opening and closing ----------------------------------------------------------------------

    async def __aenter__(self) -> "RecordTable":
        if self._running is not None:
            raise ConfigError("this copy is open already")
        self._outcome = asyncio.get_running_loop().create_future()
        self._is_entering = self._wait
        try:
            await self._read_cache()
            self._running = asyncio.create_task(self._run())
            self._running.add_done_callback(self._ran)
            if self._wait:
                await asyncio.shield(self._outcome)
        except BaseException:
            await self.close()
            raise
        self._is_entering = False
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends what `changes` gave, and writes the cache to its end."""
        self._stop_asking()
        if self._running is not None:
            self._running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._running
        if self._leaving is not None:
            # The goodbye is to be out before the program ends.
            await asyncio.wait([self._leaving.gone], timeout=GOODBYE_MS_MAX / 1_000)
        self._conclude(ConfigError("this copy was closed"))
        for changes in self._listeners:
            changes.close()
        if self._cache is not None:
            await self._cache.close()

    def _ran(self, task: "asyncio.Task[None]") -> None:
        if task.cancelled() or (error := task.exception()) is None:
            return
        # A mistake of ours: whoever waits must not wait for ever.
        for changes in self._listeners:
            changes.fail(error)
        self._conclude(error)

    # --- staying connected ------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            try:
                caller, self._address = await self._dial()
            except (MoorlineError, OSError) as error:
                self._failed(error)
            else:
                await self._serve(caller)
            await asyncio.sleep(self._pause_s())
            self._tries += 1

    async def _serve(self, caller: Caller) -> None:
        try:
            self._copy.connect(caller)
            if self._has_synced:
                self._tell(RecordChange(ChangeKind.RECONNECTED))
            lost = await asyncio.shield(caller.lost)
            self._tell(RecordChange(ChangeKind.DISCONNECTED, why=str(lost)))
        finally:
            self._stop_asking()
            self._copy.disconnect()
            self._keep_partly()
            caller.close("DONE", "the copy is done")
            self._leaving = caller

    def _failed(self, error: Exception) -> None:
        """No link: the first time whoever opens the copy hears why, later it is tried again."""
        if self._is_entering:
            self._conclude(error)
        self._tell(RecordChange(ChangeKind.DISCONNECTED, why=str(error)))

    def _pause_s(self) -> float:
        return self._settings.pause_ms(self._tries, random.random()) / 1_000

    def _stop_asking(self) -> None:
        if self._asking_again is not None:
            self._asking_again.cancel()
            self._asking_again = None

    async def _ask_again(self, after_ms: int) -> None:
        await asyncio.sleep(after_ms / 1_000 + self._pause_s())
        self._tries += 1
        self._asking_again = None
        self._copy.ask_again()

    # --- what the copy tells ----------------------------------------------------------------------

    def changed(self, key: Key, before: Held | None, held: Held | None) -> None:
        self._unkept.add(key)
        if not any(not one.is_over for one in self._listeners):
            return
        facts = self._copy.facts
        found = held or before
        assert found is not None, "nothing became nothing"
        row = facts.read(found[1])
        kind = ChangeKind.DELETION if held is None else ChangeKind.RECORD
        how = self._copy.how.value
        self._tell(RecordChange(kind, facts.public_key(row), row, found[0], how))

    def stored(self, cursor: str) -> None:
        self._tries, self._refusal = 0, None
        self._keep(cursor)
        how, was_drifted = self._copy.how, self._is_drifted
        self._has_synced, self._is_drifted, self._drifts = True, False, 0
        if how is not How.LIVE:
            self._tell(RecordChange(ChangeKind.SYNCED, how=how.value))
        if was_drifted:
            self._tell(RecordChange(ChangeKind.HEALED, how=how.value))
        self._conclude(None)

    def drifted(self) -> float:
        self._is_drifted = True
        self._drifts += 1
        log.warning("a copy of records differs from its table", extra={"table": self.name})
        self._tell(RecordChange(ChangeKind.DRIFTED, how=self._copy.how.value))
        if self._drifts == 1:
            return 0.0
        return self._settings.pause_ms(self._drifts, random.random()) / 1_000

    def refused(self, refused: Refused) -> None:
        code = "DENIED" if refused.code == "NOT_GRANTED" else refused.code
        error = CallFailed.of(code, f"{self.name}: {refused.why}")
        if refused.code in VANISHING:
            self._copy.clear()
            self._keep("")
        self._refusal = error
        self._tell(RecordChange(ChangeKind.REFUSED, why=str(error), error=error))
        if refused.code not in PASSING:
            self._conclude(error)
        self._stop_asking()
        self._asking_again = asyncio.create_task(self._ask_again(refused.return_ms))

    def _conclude(self, error: BaseException | None) -> None:
        """For whoever waits for a sync."""
        outcome = self._outcome
        if outcome is None or outcome.done():
            return
        if error is None:
            outcome.set_result(None)
        else:
            outcome.set_exception(error)
            outcome.exception()  # nobody may wait for it, which is no mistake

    def _tell(self, change: RecordChange) -> None:
        for changes in self._listeners:
            changes.put(change)

    # --- the cache --------------------------------------------------------------------------------

    async def _read_cache(self) -> None:
        if self._cache is None:
            return
        contents = await self._cache.open()
        aside = self._cache.set_aside
        if aside is not None:
            log.warning("a cache was set aside", extra={"path": str(aside.path), "why": aside.why})
        if contents is not None:
            # In a thread: all of it is hashed.
            await asyncio.to_thread(self._copy.fill, *contents)

    def _keep(self, cursor: str) -> None:
        unkept, self._unkept = self._unkept, set()
        if self._cache is not None:
            held = self._copy.copy.rows
            facts, salt = self._copy.facts, self._copy.copy.salt
            self._cache.keep(((key, held.get(key)) for key in unkept), facts, salt, cursor)

    def _keep_partly(self) -> None:
        """What a long sync has brought before it was cut is of no cursor, and worth to be kept."""
        copy = self._copy.copy
        assert copy.state is Copying.APART, "only between two links"
        if self._unkept and not copy.cursor and self._copy.facts.key:
            self._keep("")

    def _cache_failed(self, why: str) -> None:
        log.warning("the cache of a copy cannot be written", extra={"why": why})
        self._tell(RecordChange(ChangeKind.CACHE_LOST, why=why))
