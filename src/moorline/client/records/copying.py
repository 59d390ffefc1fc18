"""Room: client/records. A copy between its machine (core/records/copy.py) and a link.

Messages come in and go out. It knows nothing of connecting. `Listener` hears what became of rows, and what
happened.
"""

import asyncio
import logging
from collections.abc import Iterable
from typing import Protocol

import msgspec

from moorline.client.records.asked import Asked
from moorline.client.records.digest_exchange import DigestExchange, compare
from moorline.client.records.reassembly import Reassembly
from moorline.client.records.rows import Facts
from moorline.core.effects import Effect, Event
from moorline.core.records import copy as machine
from moorline.core.records.copy import Copy, Copying
from moorline.core.records.cursor import brief_of, facts_hash, text_of
from moorline.core.records.feed_events import How
from moorline.core.records.row_hash import NAME
from moorline.core.records.table import Key
from moorline.core.sets.digest import DIGEST_BYTES, Digest
from moorline.errors import Malformed, MoorlineError
from moorline.limits import RECORD_RESUME_BYTES_MAX
from moorline.net.caller import Caller
from moorline.net.clock import monotonic_ms
from moorline.wire.message import Message
from moorline.wire.records import (
    Deletion,
    FromClient,
    FromNode,
    Record,
    RecordMessages,
    RecordsUnchanged,
    Refused,
    ResumeRecords,
    Subscribe,
    SyncEnd,
    SyncStart,
    TableSubscription,
    Told,
)

log = logging.getLogger("moorline.client")

Held = tuple[int, bytes]


class Listener(Protocol):
    def changed(self, key: Key, before: Held | None, held: Held | None) -> None: ...

    def stored(self, cursor: str) -> None:
        """The copy is proven to be the table; `how` it came to that is of the last sync."""

    def drifted(self) -> float:
        """How many seconds to wait before it heals: one that is wrong again and again is in no hurry."""

    def refused(self, refused: Refused) -> None: ...


class CopyOverLink:
    """One copy, over one link after the other."""

    def __init__(self, asked: Asked, listener: Listener) -> None:
        self.asked = asked
        self.facts = Facts()
        self.how = How.FULL
        """Of the last sync."""
        self.copy = Copy(asked.table)
        self._listener = listener
        self._caller: Caller | None = None
        self._is_stale = False
        """The columns are others: all rows are wanted, whatever is known."""
        self._exchange: DigestExchange | None = None
        self._comparing: asyncio.Task[None] | None = None
        self._healing: asyncio.TimerHandle | None = None
        self._parts = Reassembly()

    @property
    def is_synced(self) -> bool:
        return self.copy.state is Copying.SYNCED

    @property
    def is_apart(self) -> bool:
        return self._caller is None

    def fill(self, facts: Facts, salt: int, cursor: str, rows: dict[Key, Held]) -> None:
        """From a cache, before the first link."""
        assert self.is_apart, "rows of a cache come first"
        self.facts = facts
        self.copy = Copy(self.asked.table, salt, rows, cursor)

    # --- links ------------------------------------------------------------------------------------

    def connect(self, caller: Caller) -> None:
        self._caller = caller
        self._parts = Reassembly()
        caller.pushed = self._pushed
        self._handle(machine.Connected())

    def disconnect(self) -> None:
        self._stop_comparing()
        self._caller = None
        self._handle(machine.LinkLost())

    def ask_again(self) -> None:
        """On the same link, behind a refusal, with what is known."""
        if not self.is_apart:
            self._handle(machine.Connected())

    def change(self, asked: Asked) -> None:
        """Another filter, or other columns; what comes for the one before is not taken any more."""
        # Rows with the same key and seq have other columns: the digest does not tell them apart.
        self._is_stale = self._is_stale or asked.columns != self.asked.columns
        self.asked = asked
        self.copy.cursor = ""
        if not self.is_apart:
            self._resubscribe()

    def clear(self) -> None:
        """Nothing of it may be seen any more."""
        self.copy.cursor = ""
        self.remove(list(self.copy.rows))

    def remove(self, keys: list[Key]) -> None:
        before = {key: self.copy.rows.get(key) for key in keys}
        self.copy.remove(keys)
        self._tell_gone(before)

    # --- what is heard ----------------------------------------------------------------------------

    def _pushed(self, messages: list[Message]) -> None:
        caller = self._caller
        try:
            for message in messages:
                if isinstance(message, RecordsUnchanged):
                    self._unchanged(message)
                if isinstance(message, RecordMessages):
                    for one in self._parts.take(message):
                        self._hear(one)
        except (MoorlineError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            # The link is of no use any more; the next one may lead to a node that makes sense.
            self._give_up(caller, error)

    def _unchanged(self, message: RecordsUnchanged) -> None:
        if message.sync != self.copy.sync or self.copy.state is not Copying.ASKING:
            return  # of a subscription that was changed since
        cursor = text_of(message.cursor) if message.cursor else self.copy.cursor
        self.how = How.REPLAY
        self._handle(machine.Started(message.sync, How.REPLAY))
        # It was compared at the node: what we said that we hold is what there is.
        self._handle(machine.Ended(message.sync, cursor, self.copy.digest()))

    def _hear(self, message: FromNode) -> None:
        if message.table != self.asked.table:
            return
        match message:
            case SyncStart():
                self._start(message)
            case Record(_, seq, row):
                self._record(seq, bytes(row))
            case Deletion(_, key):
                held_key = tuple(key)
                before = self.copy.rows.get(held_key)
                self._handle(machine.DeletionCame(held_key))
                self._tell(held_key, before)
            case SyncEnd():
                self._end(message)
            case Told():
                if self._exchange is not None:
                    self._exchange.hear(message)
            case Refused():
                if message.sync == self.copy.sync:
                    self._stop_comparing()
                    # There is a link still, but nothing of ours comes by it.
                    self._handle(machine.LinkLost())
                    self._listener.refused(message)

    def _start(self, start: SyncStart) -> None:
        try:
            how = How(start.how)
        except ValueError:
            raise Malformed(f"a sync by {start.how[:40]!r}, which is no way") from None
        if start.sync != self.copy.sync or how is How.LIVE:
            self.how = how if start.sync == self.copy.sync else self.how
            self._handle(machine.Started(start.sync, how))
            return
        # One that begins anew: what was asked and compared so far is of another moment.
        self._stop_comparing()
        if start.hash != NAME:
            raise Malformed(f"a digest of {start.hash[:40]!r}, and we know {NAME}")
        told = Facts(tuple(start.key), tuple((one.name, one.type) for one in start.columns))
        if not told.key or not start.salt:
            raise Malformed("a sync without the facts of its table")
        is_other = bool(self.copy.rows) and told != self.facts
        if how is not How.FULL and (is_other or self._is_stale):
            # By key and seq our rows are those of the node, but they have other columns.
            self._is_stale = True
            self._resubscribe()
            return
        # A node that has to tell too much answers a question with all rows.
        self._stop_comparing()
        self.facts, self.how = told, how
        self._handle(machine.Started(start.sync, how, int(start.salt, 16)))

    def _record(self, seq: int, data: bytes) -> None:
        if self.copy.state is not Copying.SYNCING:
            return  # of a subscription that was changed since
        key = self.facts.key_of(self.facts.read(data))
        before = self.copy.rows.get(key)
        self._handle(machine.RecordCame(key, seq, data))
        self._tell(key, before)

    def _end(self, end: SyncEnd) -> None:
        digest = Digest.from_bytes(end.digest)
        before: dict[Key, Held] = {}
        if self.how is How.FULL or digest != self.copy.digest():
            # Rows go at this end: those that did not come, or all that did not heal.
            before = dict(self.copy.rows)
        self._stop_comparing()
        self._handle(machine.Ended(end.sync, end.cursor, digest), before)

    def _tell(self, key: Key, before: Held | None) -> None:
        held = self.copy.rows.get(key)
        if held != before:
            self._listener.changed(key, before, held)

    def _tell_gone(self, before: dict[Key, Held | None] | dict[Key, Held]) -> None:
        for key, was in before.items():
            if was is not None and key not in self.copy.rows:
                self._listener.changed(key, was, None)

    # --- what the machine wants -------------------------------------------------------------------

    def _handle(self, event: Event, before: dict[Key, Held] | None = None) -> None:
        effects = self.copy.handle(event, monotonic_ms())
        # Before the effects: whoever is told that it is synced has heard of every row.
        self._tell_gone(before or {})
        self._perform(effects)

    def _resubscribe(self) -> None:
        self._stop_comparing()
        self._perform(self.copy.change())

    def _perform(self, effects: Iterable[Effect]) -> None:
        pause_s = 0.0
        for effect in effects:
            match effect:
                case machine.Subscribe() if pause_s:
                    loop = asyncio.get_running_loop()
                    self._healing = loop.call_later(pause_s, self._subscribe, effect)
                case machine.Subscribe():
                    self._subscribe(effect)
                case machine.Reconcile(sync):
                    self._reconcile(sync)
                case machine.Store(cursor, _):
                    self._is_stale = False
                    self._listener.stored(cursor)
                case machine.Drifted():
                    pause_s = self._listener.drifted()
                case _:
                    raise AssertionError(f"nobody performs {effect}")

    def _subscribe(self, wanted: machine.Subscribe) -> None:
        asked, cursor, digest = self.asked, wanted.cursor, wanted.digest
        if self._is_stale:
            cursor, digest = "", None
        if digest is not None and (place := self._place(cursor)):
            if self._caller is not None:
                held = place + bytes(digest)
                where = msgspec.msgpack.encode(asked.where) if asked.where else b""
                self._caller.send(
                    ResumeRecords(wanted.sync, asked.table, held, where, asked.columns)
                )
            return
        known = None if digest is None else bytes(digest)
        table = TableSubscription(asked.table, asked.where, asked.columns, cursor, known)
        self._say([Subscribe(wanted.sync, [table])])

    def _place(self, cursor: str) -> bytes:
        """What is said of it in few bytes; nothing where it has to be said in full."""
        if not cursor:
            facts = self.facts
            return facts_hash(facts.key, facts.columns, self.copy.salt) if facts.key else b""
        brief = brief_of(cursor)
        return brief if len(brief) + DIGEST_BYTES <= RECORD_RESUME_BYTES_MAX else b""

    def _reconcile(self, sync: int) -> None:
        self._exchange = DigestExchange(sync, self.asked.table, self._say_when_writable)
        self._comparing = asyncio.create_task(self._compare(self._exchange))

    async def _compare(self, exchange: DigestExchange) -> None:
        caller = self._caller
        try:
            await compare(self.copy, exchange, self.remove)
        except Exception as error:
            # Whatever it was: without an end this sync would be waited for without an end.
            self._give_up(caller, error)

    def _give_up(self, caller: Caller | None, error: Exception) -> None:
        log.warning("a node and a copy did not understand each other", extra={"why": str(error)})
        if caller is not None:
            caller.close("MALFORMED", str(error)[:200])

    def _stop_comparing(self) -> None:
        self._exchange = None
        if self._comparing is not None:
            self._comparing.cancel()
            self._comparing = None
        if self._healing is not None:
            self._healing.cancel()
            self._healing = None

    async def _say_when_writable(self, message: FromClient) -> None:
        if self._caller is not None:
            await self._caller.room_to_write()
        self._say([message])

    def _say(self, messages: list[FromClient]) -> None:
        if self._caller is not None:
            self._caller.send(RecordMessages(msgspec.msgpack.encode(messages)))
