"""Room: records. How a subscription finds its table: whether it may, where the table is, and what it
is given.

    joining = await tables.joining(session, sync, wanted)      its table is open (joining.py), or `Refused`

Whoever may see nothing of a table is told that there is no such table, whether there is one or not, and no
database is asked for that.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Coroutine
from typing import Any, Final, Protocol

from moorline.access.guard import HEAVY
from moorline.access.trail import Acting
from moorline.config.records import Records
from moorline.core.records.cursor import FACTS_BYTES, TableCursor, Why
from moorline.core.records.filter import Filter, parsed
from moorline.core.records.known_ids import KnownIds
from moorline.core.records.permit import ROOT, level_of_owner
from moorline.errors import (
    BadFilter,
    DatabaseUnreachable,
    Denied,
    MoorlineError,
    OverQuota,
    RightsUnknown,
    TableRefused,
    TableRestored,
)
from moorline.limits import (
    RECORDS_AWAY_MS_MAX,
)
from moorline.net.session_rights import SessionAllowance
from moorline.net.slices import in_slices
from moorline.net.tasks import Tasks
from moorline.records.capture import Capture
from moorline.records.database import Database
from moorline.records.directory import Directory
from moorline.records.joining import NO_SUCH_TABLE, RETURN_MS, Joining
from moorline.records.opening import open_capture
from moorline.records.permits import Permits
from moorline.records.pruning import prune
from moorline.records.pulse import Pulse
from moorline.records.receiver import Hearer
from moorline.records.scan_slots import ScanSlots
from moorline.records.signing import Signing
from moorline.records.table_host import TableHost
from moorline.wire.records import Refused, TableSubscription

log = logging.getLogger("moorline.records")

READ: Final = "ReadRecords"
"""As the audit names it."""


class TellRefused(Protocol):
    """`Trail.refused`."""

    def __call__(self, session: Acting, /, act: str, path: str, code: str) -> None: ...


def nobody_hears(session: Acting, /, act: str, path: str, code: str) -> None:
    """Where there is no audit."""


class Subscriber(Hearer, Protocol):
    @property
    def acting(self) -> Acting: ...
    @property
    def allowance(self) -> SessionAllowance | None: ...


class Tables:
    """All tables that a node serves, of all its databases."""

    def __init__(
        self,
        settings: Records,
        databases: list[Database],
        signing: Signing,
        permits: Permits,
        refused: TellRefused = nobody_hears,
    ) -> None:
        self._refused = refused
        self.hosts: dict[str, TableHost] = {}
        self.subscribed = 0
        """Since the start."""
        self.refused = 0
        self._settings = settings
        self.databases = databases
        self.signing = signing
        self.permits = permits
        self._slots = [ScanSlots(settings.connections_max) for _ in databases]
        self._pulses = [Pulse(database, settings.poll_ms) for database in databases]
        self._directory = Directory(databases)
        self._opening: dict[str, asyncio.Future[TableHost]] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        self._tasks = Tasks("work for a client of records failed")
        permits.on_change(self._rights_changed)

    def spawn(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        return self._tasks.spawn(work)

    async def close(self) -> None:
        self._tasks.cancel()
        await self._directory.close()
        running = list(self._running.values())
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)

    async def joining(
        self, session: Subscriber, sync: int, wanted: TableSubscription, place: bytes = b""
    ) -> Joining | Refused:
        joining = await self._joining(session, sync, wanted, place)
        self.subscribed += 1
        self.refused += isinstance(joining, Refused)
        return joining

    async def _joining(
        self, session: Subscriber, sync: int, wanted: TableSubscription, place: bytes
    ) -> Joining | Refused:
        name = wanted.table
        try:
            if not self.permits.may_know(session.rights, name):
                self._tell_denied(session.acting, name)
                return Refused(sync, name, "NO_SUCH_TABLE", NO_SUCH_TABLE)
            if session.allowance is not None:
                session.allowance.take(HEAVY)
            host = await self.host(name)
            cursor = await self.signing.open(wanted.cursor) if wanted.cursor else Why.MALFORMED
            if len(place) > FACTS_BYTES:
                await self.signing.learn(place)
        except RightsUnknown as error:
            return Refused(sync, name, "BUSY", str(error), RETURN_MS)
        except OverQuota as error:
            return Refused(sync, name, "BUSY", str(error), RETURN_MS)
        except TableRestored:
            return Refused(
                sync, name, "NOT_READY", "the table was restored: its operator renews it"
            )
        except TableRefused:
            return Refused(sync, name, "NO_SUCH_TABLE", NO_SUCH_TABLE)
        except DatabaseUnreachable:
            text = "the database of the table does not answer"
            return Refused(sync, name, "BUSY", text, RECORDS_AWAY_MS_MAX)
        found = cursor if isinstance(cursor, TableCursor) else None
        known: KnownIds | BadFilter | None = None
        if wanted.ids is not None:
            try:
                known = await in_slices(KnownIds.parsed(wanted.ids), session.rights.principal)
            except BadFilter as error:
                known = error
        # Last, and nothing is waited for behind it: it is of the table as it is when they join.
        filter_ = await _filter_of(host, wanted, session.rights.principal)
        return Joining(
            host,
            self.permits,
            sync,
            wanted,
            found,
            place,
            self.signing,
            known,
            filter_,
            self._tell_denied,
        )

    def _tell_denied(self, acting: Acting, name: str) -> None:
        """For the audit: the client hears the same as of a table that is not there."""
        path = f"{ROOT}/{level_of_owner(name)}"
        self._refused(acting, act=READ, path=path, code=Denied.code)

    # --- hosts ------------------------------------------------------------------------------------

    async def host(self, name: str) -> TableHost:
        """Opened by whoever comes first; the others wait for that."""
        found = self.hosts.get(name)
        if found is not None and not found.is_over:
            return found
        # Before anything is made for it: a client may ask for any names.
        number = await self._directory.database_of(name)
        found = self.hosts.get(name)
        if found is not None and not found.is_over:
            return found
        opening = self._opening.get(name)
        if opening is None:
            opening = self._opening[name] = asyncio.get_running_loop().create_future()
            task = asyncio.create_task(self._serve(name, number, opening))
            self._running[name] = task
            task.add_done_callback(lambda _: self._ended(name, task, opening))
        return await asyncio.shield(opening)

    async def _serve(self, name: str, number: int, opened: "asyncio.Future[TableHost]") -> None:
        settings = self._settings
        host: TableHost | None = None
        try:
            async with open_capture(self.databases[number], name) as capture:
                host = TableHost(
                    capture,
                    self.signing,
                    self.permits,
                    self._slots[number],
                    self._pulses[number],
                    poll_ms=settings.poll_ms,
                    poll_ms_max=settings.poll_ms_max,
                    admitted_per_s=settings.admitted_per_s,
                    boots_all=settings.boot == "all",
                )
                self.hosts[name] = host
                self._opening.pop(name, None)
                opened.set_result(host)
                await host.run()
        except MoorlineError as error:
            if not opened.done():
                opened.set_exception(error)
                opened.exception()  # it may be that nobody waits any more
            else:
                log.warning("a table is left", extra={"table": name, "why": str(error)})
        finally:
            if host is not None:
                host.leave()
                if self.hosts.get(name) is host:
                    del self.hosts[name]

    def _ended(
        self, name: str, task: "asyncio.Task[None]", opened: "asyncio.Future[TableHost]"
    ) -> None:
        if self._opening.get(name) is opened:
            del self._opening[name]
        if self._running.get(name) is task:
            del self._running[name]
        if not opened.done():
            opened.set_exception(DatabaseUnreachable("the node stops."))
            opened.exception()
        if not task.cancelled() and task.exception() is not None:
            log.error("a table's host failed", exc_info=task.exception(), extra={"table": name})

    @contextlib.asynccontextmanager
    async def capture(self, name: str) -> AsyncIterator[Capture]:
        """One of its own, for whoever follows a table without subscribing to it."""
        number = await self._directory.database_of(name)
        async with open_capture(self.databases[number], name) as capture:
            yield capture

    def _rights_changed(self, version: int) -> None:
        for host in list(self.hosts.values()):
            host.rights_changed(version)

    async def pulse_forever(self) -> None:
        """Tables that somebody begins to write to."""
        async with asyncio.TaskGroup() as group:
            for pulse in self._pulses:
                group.create_task(pulse.run())

    # --- logs -------------------------------------------------------------------------------------

    async def prune_forever(self) -> None:
        """Lines of the logs that are old; also of tables that nobody subscribes to."""
        while True:
            await asyncio.sleep(self._settings.prune_ms / 1_000)
            for database in self.databases:
                with contextlib.suppress(DatabaseUnreachable):
                    await self._prune(database)

    async def _prune(self, database: Database) -> None:
        for registration in await database.registrations():
            if registration.capture != "log" or registration.is_dropped:
                continue
            try:
                async with database.connection() as connection:
                    pruned = await prune(connection, registration, self._settings.log_life_s)
            except (DatabaseUnreachable, TableRefused) as error:
                # It was removed in between; or this role may not, and others are not to wait for that.
                log.debug(
                    "a log is not pruned", extra={"table": registration.name, "why": str(error)}
                )
                continue
            if pruned.has_lost:
                log.warning(
                    "the log of a table had passed its bound: clients are synced anew",
                    extra={"table": registration.name},
                )


async def _filter_of(
    host: TableHost, wanted: TableSubscription, principal: str
) -> Filter | BadFilter:
    while True:
        table = host.table
        try:
            found: Filter | BadFilter = await in_slices(
                parsed(table, wanted.where, wanted.columns), principal
            )
        except BadFilter as error:
            found = error
        if (table.columns, table.scopes) == (host.table.columns, host.table.scopes):
            return found
