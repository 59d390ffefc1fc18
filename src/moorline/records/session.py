"""Room: records. One client connection, whatever it speaks: its set of subscriptions, and what it asks.

    session = RecordSession(tables, outlet)
    session.heard([Subscribe(…)])
    session.pause(); session.resume(); session.closed()

A subscribe is the whole set from then on: what was subscribed before ends, each table of the new set
is judged by
itself, and one that is refused touches no other. There is no task for a client that only listens: one
works while it
asks, and ends with what it asked.
"""

import asyncio
import itertools
from collections import deque
from collections.abc import AsyncIterator, Sequence
from typing import Any, Protocol

import msgspec

from moorline.access.trail import Acting
from moorline.core.records.feed_events import How
from moorline.core.sets.digest import DIGEST_BYTES
from moorline.errors import (
    CallFailed,
    DatabaseUnreachable,
    Malformed,
    NotAuthorized,
    OverQuota,
    TableRefused,
)
from moorline.limits import (
    RECORDS_ASKED_MAX,
    RECORDS_AWAY_MS_MAX,
    RECORDS_SNAPSHOT_MS_MAX,
    SLICE_MS,
)
from moorline.net.clock import monotonic_ms
from moorline.net.session_rights import SessionAllowance, SessionRights
from moorline.records.capture import ScannedRow
from moorline.records.form import Form
from moorline.records.receiver import Receiver
from moorline.records.scans import records_of
from moorline.records.subscribing import Tables
from moorline.records.table_host import TableHost
from moorline.wire.records import (
    Fetch,
    FromClient,
    Lists,
    Login,
    Ranges,
    RecordMessage,
    Refused,
    ResumeRecords,
    Subscribe,
    TableSubscription,
    Told,
    Verify,
    where_msgpack,
)

_numbers = itertools.count(1)

Said = FromClient | ResumeRecords


class Outlet(Protocol):
    """How a client is reached."""

    @property
    def form(self) -> Form: ...
    @property
    def is_entered(self) -> bool:
        """Whether it has rights."""

    @property
    def acting(self) -> Acting:
        """Who it is, for the audit."""

    @property
    def rights(self) -> SessionRights: ...
    @property
    def allowance(self) -> SessionAllowance | None: ...
    @property
    def is_writable(self) -> bool: ...
    def write(self, packet: Any, /) -> None: ...
    async def login(self, said: Login) -> None:
        """NotAuthorized or OverQuota say why not."""

    def hold_reading(self) -> None: ...
    def release_reading(self) -> None: ...
    def close(self, code: str, text: str) -> None: ...
    def boot(self, why: str) -> None:
        """Ends like by any fault: the client comes back with what it has."""


class RecordSession:
    """A `Hearer`."""

    def __init__(self, tables: Tables, outlet: Outlet, *, can_compare: bool = True) -> None:
        self.can_compare = can_compare
        """Whether it can answer, and so be synced by questions."""
        self.number = next(_numbers)
        self.sync = -1
        """Number of its set; older ones are not heard of any more."""
        self.receivers: dict[str, tuple[TableHost, Receiver]] = {}
        self.is_over = False
        self._tables = tables
        self._outlet = outlet
        self._asked: deque[Said] = deque()
        self._newest: Said | None = None
        """The last set that it asked for: of those before it, which wait still, none is looked at."""
        self._joining: set[asyncio.Task[None]] = set()
        self._is_working = False
        self._room: list[asyncio.Future[None]] = []

    # --- for whoever holds the connection ---------------------------------------------------------

    def heard(self, messages: Sequence[Said]) -> None:
        if self.is_over:
            return
        self._asked.extend(messages)
        for message in reversed(messages):
            if isinstance(message, Subscribe | ResumeRecords):
                self._newest = message
                break
        if len(self._asked) > RECORDS_ASKED_MAX:
            self._outlet.hold_reading()
        if self._asked and not self._is_working:
            self._is_working = True
            self._tables.spawn(self._work())

    def pause(self) -> None:
        for host, receiver in list(self.receivers.values()):
            host.pause(receiver)

    def resume(self) -> None:
        self._let_go_on()
        for host, receiver in list(self.receivers.values()):
            host.resume(receiver)

    def closed(self) -> None:
        if self.is_over:
            return
        self.is_over = True
        self._asked.clear()
        self._let_go_on()
        self._end_all()

    # --- for hosts --------------------------------------------------------------------------------

    @property
    def form(self) -> Form:
        return self._outlet.form

    @property
    def acting(self) -> Acting:
        return self._outlet.acting

    @property
    def rights(self) -> SessionRights:
        return self._outlet.rights

    @property
    def allowance(self) -> SessionAllowance | None:
        return self._outlet.allowance

    @property
    def is_writable(self) -> bool:
        return self.is_over or self._outlet.is_writable

    def write(self, packet: Any, /) -> None:
        if not self.is_over:
            self._outlet.write(packet)

    async def writable(self) -> None:
        while not self.is_writable:
            room: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._room.append(room)
            await room

    def refuse(self, table: str, code: str, why: str, return_ms: int = 0) -> None:
        self.receivers.pop(table, None)
        self.say(Refused(self.sync, table, code, why, return_ms))

    def ended(self, receiver: Receiver) -> None:
        """A sync has ended, which it was told."""

    def boot(self, why: str) -> None:
        if not self.is_over:
            self._outlet.boot(why)
            self.closed()

    def say(self, message: RecordMessage) -> None:
        form = self.form
        self.write(form.packet([form.message(message)]))

    # --- inside -----------------------------------------------------------------------------------

    def _let_go_on(self) -> None:
        room, self._room = self._room, []
        for one in room:
            if not one.done():
                one.set_result(None)

    def _end_all(self) -> None:
        for task in self._joining:
            task.cancel()
        ended, self.receivers = self.receivers, {}
        for host, receiver in ended.values():
            host.unsubscribe(receiver)

    async def _work(self) -> None:
        try:
            ends_ms = monotonic_ms() + SLICE_MS
            while self._asked and not self.is_over:
                await self._do(self._asked.popleft())
                if monotonic_ms() >= ends_ms:
                    # What is answered at once never waits: a flood of it would be one turn of the loop.
                    await asyncio.sleep(0)
                    ends_ms = monotonic_ms() + SLICE_MS
                if len(self._asked) <= RECORDS_ASKED_MAX // 2:
                    self._outlet.release_reading()
        finally:
            self._is_working = False

    async def _do(self, message: Said) -> None:
        if isinstance(message, Login):
            await self._login(message)
        elif not self._outlet.is_entered:
            self._outlet.close(NotAuthorized.code, "say login first")
        elif isinstance(message, Subscribe | ResumeRecords):
            self._begin_set(message)
        else:
            await self._answer(message)

    async def _login(self, message: Login) -> None:
        try:
            await self._outlet.login(message)
        except (NotAuthorized, OverQuota) as error:
            self._outlet.close(error.code, str(error))

    def _begin_set(self, message: Subscribe | ResumeRecords) -> None:
        if message.sync <= self.sync:
            self._outlet.close("MALFORMED", "the number of a set must rise")
            return
        self.sync = message.sync
        self._end_all()
        if message is not self._newest:
            # It is over before it begins: thousands of them cost what their numbers do.
            return
        if isinstance(message, ResumeRecords):
            self._resume(message)
        else:
            self._subscribe([(one, b"") for one in message.tables])

    def _resume(self, message: ResumeRecords) -> None:
        try:
            where = where_msgpack.decode(message.where) if message.where else {}
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            self._outlet.close("MALFORMED", str(error))
            return
        place, digest = message.known[:-DIGEST_BYTES], message.known[-DIGEST_BYTES:]
        wanted = TableSubscription(message.table, where, message.columns, digest=digest)
        self._subscribe([(wanted, place)])

    def _subscribe(self, tables: list[tuple[TableSubscription, bytes]]) -> None:
        """Of who resumes, also what it says of the place where it was."""
        seen: set[str] = set()
        for wanted, place in tables:
            if wanted.table in seen:
                self.refuse(wanted.table, "BAD_FILTER", "a table is in a set once")
                continue
            seen.add(wanted.table)
            # Each by itself: one that is slow to open, or refused, delays no other.
            task = self._tables.spawn(self._subscribe_one(self.sync, wanted, place))
            self._joining.add(task)
            task.add_done_callback(self._joining.discard)

    async def _subscribe_one(self, sync: int, wanted: TableSubscription, place: bytes) -> None:
        if self.is_over or self.sync != sync:
            return
        joining = await self._tables.joining(self, sync, wanted, place)
        if self.is_over or self.sync != sync:
            return
        if isinstance(joining, Refused):
            self.refuse(joining.table, joining.code, joining.why, joining.return_ms)
            return
        # Nothing is waited for from here on: rights that are read now are those it is registered by.
        refused = joining.join(self)
        if refused is not None:
            self.refuse(refused.table, refused.code, refused.why, refused.return_ms)

    async def _answer(self, message: Verify | Ranges | Lists | Fetch) -> None:
        found = self.receivers.get(message.table)
        if found is None or message.sync != self.sync or found[1].offer is None:
            return  # of a set, or a sync, that is over
        host, receiver = found
        offer = receiver.offer
        assert offer is not None
        # Behind the total bound of an offer: what we work at is not waited for by the client.
        receiver.asked_ms = monotonic_ms() + RECORDS_SNAPSHOT_MS_MAX
        try:
            if isinstance(message, Fetch):
                await self._fetch(host, receiver, message)
                receiver.asked_ms = monotonic_ms()
                return
            told = await _told(receiver, message)
            if receiver.offer is not offer or self.sync != message.sync:
                return  # it was cut, or begins anew
            if told is None:
                receiver.pending = How.FULL
                await self._bring(host, receiver, offer.everything())
                if receiver.offer is offer:
                    host.sync_done(receiver)
                return
        except Malformed as error:
            self._outlet.close(Malformed.code, str(error))
            return
        except (CallFailed, DatabaseUnreachable, TableRefused):
            if receiver.offer is not offer:
                return  # the snapshot of it was given up, and it begins anew
            # What it has of it may be a part: it subscribes again with that.
            self._end_one(host, receiver)
            text = "the database of the table does not answer"
            self.refuse(message.table, "BUSY", text, RECORDS_AWAY_MS_MAX)
            return
        receiver.asked_ms = monotonic_ms()
        self.say(told)
        await self.writable()
        receiver.asked_ms = monotonic_ms()

    async def _fetch(self, host: TableHost, receiver: Receiver, message: Fetch) -> None:
        offer = receiver.offer
        assert offer is not None
        if not message.prefixes:
            host.sync_done(receiver)
            return
        await self._bring(host, receiver, offer.rows(list(message.prefixes)))

    async def _bring(
        self, host: TableHost, receiver: Receiver, parts: AsyncIterator[list[ScannedRow]]
    ) -> None:
        offer = receiver.offer
        async for rows in parts:
            if receiver.offer is not offer or self.is_over:
                return  # it was cut, or begins anew
            host.sending.rows([receiver], receiver.filter, (), list(records_of(rows)))
            # Who reads no more of what it asked for is as one who asks no more.
            receiver.asked_ms = monotonic_ms()
            await self.writable()
            receiver.asked_ms = monotonic_ms() + RECORDS_SNAPSHOT_MS_MAX

    def _end_one(self, host: TableHost, receiver: Receiver) -> None:
        self.receivers.pop(receiver.table, None)
        host.unsubscribe(receiver)


async def _told(receiver: Receiver, message: Verify | Ranges | Lists) -> Told | None:
    """None: all rows are cheaper than an answer."""
    offer = receiver.offer
    assert offer is not None
    if isinstance(message, Verify):
        return await offer.verify(message)
    if isinstance(message, Ranges):
        return await offer.ranges(message)
    return await offer.lists(message)
