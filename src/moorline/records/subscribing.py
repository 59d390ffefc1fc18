"""Room: records. How a subscription finds its table: whether it may, where the table is, and what it
is given.

    joining = await tables.joining(session, sync, wanted)      the host is open, the cursor is read; or
    `Refused`
    refused = joining.join(session)                            in one go: rights are read, and it is
    registered

Whoever may see nothing of a table is told that there is no such table, whether there is one or not,
and no database
is asked for that.
"""

import asyncio
import contextlib
import itertools
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final, Protocol

from moorline.access.guard import HEAVY
from moorline.access.trail import Acting
from moorline.config.records import Records
from moorline.core.records.cursor import FACTS_BYTES, HEAD_BYTES, Asked, Cursor, Why, misfit
from moorline.core.records.feed_events import How, Wanted
from moorline.core.records.filter import parse_filter
from moorline.core.records.known_ids import KnownIds
from moorline.core.records.permit import ROOT, Permit, level_of_owner
from moorline.core.records.value import WHOLE_BITS
from moorline.core.sets.digest import Digest
from moorline.errors import (
    BadFilter,
    DatabaseUnreachable,
    Denied,
    LimitReached,
    MoorlineError,
    OverQuota,
    RightsUnknown,
    TableRefused,
    TableRestored,
)
from moorline.limits import (
    RECORDS_AWAY_MS_MAX,
    RECORDS_UNKNOWN_MAX,
    RECORDS_UNKNOWN_MS,
)
from moorline.net.clock import monotonic_ms
from moorline.net.session_rights import SessionAllowance
from moorline.net.slices import in_slices
from moorline.net.tasks import Tasks
from moorline.records.capture import Capture
from moorline.records.database import Database
from moorline.records.opening import open_capture
from moorline.records.permits import Permits
from moorline.records.places import Places
from moorline.records.pruning import prune
from moorline.records.receiver import Hearer, Receiver, Resumes
from moorline.records.sending import facts_of
from moorline.records.signing import Signing
from moorline.records.table_host import TableHost
from moorline.wire.records import Refused, TableSubscription

if TYPE_CHECKING:
    from moorline.records.session import RecordSession

log = logging.getLogger("moorline.records")

_numbers = itertools.count(1)

NO_SUCH_TABLE = "no such table"
READ: Final = "ReadRecords"
"""As the audit names it."""
RETURN_MS = 1_000


TellDenied = Callable[[Acting, str], None]


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


class Joining:
    """A subscription whose table is open."""

    def __init__(
        self,
        host: TableHost,
        permits: Permits,
        sync: int,
        wanted: TableSubscription,
        cursor: Cursor | None,
        place: bytes,
        signing: Signing,
        known: KnownIds | BadFilter | None,
        denied: TellDenied,
    ) -> None:
        self._denied = denied
        self._parsed = known
        """The ids that it says it knows, or what is wrong with them."""
        self._place = place
        """Of who resumes: a brief cursor, or the hash of what it was told of the table."""
        self._signing = signing
        self._host = host
        self._permits = permits
        self._sync = sync
        self._wanted = wanted
        self._cursor = cursor

    def join(self, session: "RecordSession") -> Refused | None:
        host, wanted, name = self._host, self._wanted, self._wanted.table
        if host.is_over:
            return Refused(self._sync, name, "BUSY", "the table is being opened", RETURN_MS)
        try:
            # The number before the permit: a change in between is seen by the feed.
            version = self._permits.version
            permit = self._permits.of(session.rights, host.table)
            if permit.is_nothing:
                self._denied(session.acting, name)
                return Refused(self._sync, name, "NO_SUCH_TABLE", NO_SUCH_TABLE)
            there = {column.name for column in host.table.columns}
            for column in (*(wanted.columns or ()), *wanted.where):
                if column not in there:
                    return Refused(self._sync, name, "NO_SUCH_COLUMN", f"no column {column[:64]!r}")
            filter_ = parse_filter(host.table, wanted.where, wanted.columns)
            receiver = Receiver(next(_numbers), session, self._sync, name, filter_)
            receiver.digest = None if wanted.digest is None else Digest.from_bytes(wanted.digest)
            receiver.known = self._known()
            receiver.can_compare = receiver.known is None and session.can_compare
        except BadFilter as error:
            return Refused(self._sync, name, "BAD_FILTER", str(error))
        except (LimitReached, RightsUnknown) as error:
            return Refused(self._sync, name, "BUSY", str(error), RETURN_MS)
        cursor = self._cursor
        is_as_told = True
        if self._place:
            cursor, is_as_told = self._resumed(receiver, permit)
        if cursor is not None and misfit(cursor, host.table, filter_.hash, permit.hash) is not None:
            cursor = None
        if cursor is not None and receiver.digest not in (None, cursor.digest):
            # It holds something else than it was told there: what it has too much no replay would take away.
            cursor = None
        otherwise = How.FULL
        if receiver.known is not None:
            otherwise = How.IDS
        elif not is_as_told or (
            self._cursor is not None and self._cursor.epoch != host.table.epoch
        ):
            # Numbers of rows are given anew there: a digest could find one equal that is another row.
            otherwise = How.FULL
        elif receiver.can_compare and receiver.digest is not None and receiver.digest.count:
            otherwise = How.DIGEST
        session.receivers[name] = (host, receiver)
        host.subscribe(receiver, Wanted(filter_, permit, version, cursor, otherwise))
        return None

    def _resumed(self, receiver: Receiver, permit: Permit) -> tuple[Cursor | None, bool]:
        """The cursor that it means, if it is that; and whether the table is what it was told.

        Where epoch or columns are others, nothing that it holds is of use.
        """
        table, filter_, digest = self._host.table, receiver.filter, receiver.digest
        assert digest is not None, "who resumes says its digest"
        receiver.facts = facts_of(table, filter_)
        if len(self._place) == FACTS_BYTES:
            is_as_told = self._place == receiver.facts
            receiver.resumes = Resumes.WITHOUT_CURSOR if is_as_told else Resumes.NOT
            return None, is_as_told
        asked = Asked(table.name, table.epoch, filter_.hash, permit.hash, digest)
        found = self._signing.open_brief(self._place, asked)
        is_as_told = self._place[HEAD_BYTES : HEAD_BYTES + FACTS_BYTES] == facts_of(
            table, filter_, table.epoch
        )
        if not isinstance(found, Cursor):
            return None, is_as_told
        receiver.resumes = Resumes.WITH_CURSOR if is_as_told else Resumes.NOT
        return found if is_as_told else None, is_as_told

    def _known(self) -> KnownIds | None:
        if self._wanted.ids is None:
            return None
        table = self._host.table
        types = {column.name: column.type for column in table.columns}
        if len(table.key) != 1 or types.get(table.key[0]) not in WHOLE_BITS:
            raise BadFilter("known ids are of a key that is one whole number: say a digest instead")
        if isinstance(self._parsed, BadFilter):
            raise self._parsed
        return self._parsed


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
        self._databases = databases
        self._signing = signing
        self._permits = permits
        self._places = [Places(settings.connections_max) for _ in databases]
        self._opening: dict[str, asyncio.Future[TableHost]] = {}
        self._unknown: dict[str, int] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        self._tasks = Tasks("work for a client of records failed")
        permits.on_change(self._rights_changed)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.spawn(work)

    async def close(self) -> None:
        self._tasks.cancel()
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
            if not self._permits.may_know(session.rights, name):
                self._tell_denied(session.acting, name)
                return Refused(sync, name, "NO_SUCH_TABLE", NO_SUCH_TABLE)
            if session.allowance is not None:
                session.allowance.take(HEAVY)
            host = await self.host(name)
            cursor = await self._signing.open(wanted.cursor) if wanted.cursor else Why.MALFORMED
            if len(place) > FACTS_BYTES:
                await self._signing.learn(place)
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
        found = cursor if isinstance(cursor, Cursor) else None
        known: KnownIds | BadFilter | None = None
        if wanted.ids is not None:
            try:
                known = await in_slices(KnownIds.parsed(wanted.ids))
            except BadFilter as error:
                known = error
        return Joining(
            host,
            self._permits,
            sync,
            wanted,
            found,
            place,
            self._signing,
            known,
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
        opening = self._opening.get(name)
        if opening is None:
            if monotonic_ms() - self._unknown.get(name, -RECORDS_UNKNOWN_MS) < RECORDS_UNKNOWN_MS:
                raise TableRefused(f"no table is registered as {name}.")
            opening = self._opening[name] = asyncio.get_running_loop().create_future()
            task = asyncio.create_task(self._serve(name, opening))
            self._running[name] = task
            task.add_done_callback(lambda _: self._ended(name, task, opening))
        return await asyncio.shield(opening)

    async def _serve(self, name: str, opened: "asyncio.Future[TableHost]") -> None:
        settings = self._settings
        host: TableHost | None = None
        try:
            number = await self._database_of(name)
            async with open_capture(self._databases[number], name) as capture:
                host = TableHost(
                    capture,
                    self._signing,
                    self._permits,
                    self._places[number],
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
                if isinstance(error, TableRefused) and not isinstance(error, TableRestored):
                    self._remember_unknown(name)
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
        number = await self._database_of(name)
        async with open_capture(self._databases[number], name) as capture:
            yield capture

    async def _database_of(self, name: str) -> int:
        away: DatabaseUnreachable | None = None
        for number, database in enumerate(self._databases):
            try:
                if await database.registrations(name):
                    return number
            except DatabaseUnreachable as error:
                away = error
        # One that does not answer may be the one that has it.
        raise away or TableRefused(f"no table is registered as {name}.")

    def _remember_unknown(self, name: str) -> None:
        if len(self._unknown) >= RECORDS_UNKNOWN_MAX:
            self._unknown.clear()
        self._unknown[name] = monotonic_ms()

    def _rights_changed(self, version: int) -> None:
        for host in list(self.hosts.values()):
            host.rights_changed(version)

    # --- logs -------------------------------------------------------------------------------------

    async def prune_forever(self) -> None:
        """Lines of the logs that are old; also of tables that nobody subscribes to."""
        while True:
            await asyncio.sleep(self._settings.prune_ms / 1_000)
            for database in self._databases:
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
