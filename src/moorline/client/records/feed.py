"""Room: client/records. The changes of a table from a cursor on, without a copy of its rows.

    async with moor.record_feed(asked, cursor) as feed:
        await feed.begun()
        batch = feed.take()

A batch is what changed, net, up to its cursor: of each key the latest, a row or None. `is_whole`: it is all
rows, and what was there before is forgotten: at the first sync, and where the cursor could not be replayed.
Between two looks changes gather, one for each key, so what waits is bounded by the table.

Nothing is verified by digest, for there is nothing to compare: a copy does that, or a witness.
"""

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from moorline.client.records.asked import Asked
from moorline.client.records.listening import Listening
from moorline.client.records.rows import Facts
from moorline.client.records.settings import RecordSettings
from moorline.config.addresses import Address
from moorline.core.records.feed_events import How
from moorline.core.records.table import Key
from moorline.net.caller import Caller
from moorline.wire.records import (
    Deletion,
    FromNode,
    Record,
    SyncEnd,
    SyncStart,
    TableSubscription,
)

Change = tuple[int, bytes] | None
"""seq and row, as the node wrote it in msgpack; None for a key that is gone."""


class FeedBatch(NamedTuple):
    changes: dict[Key, Change]
    is_whole: bool
    cursor: str
    facts: Facts


class RecordFeed(Listening):
    """Made by `Moor.record_feed`; it comes back by itself, from the last cursor that it heard."""

    def __init__(
        self,
        dial: Callable[[], Awaitable[tuple[Caller, Address]]],
        asked: Asked,
        cursor: str = "",
        settings: RecordSettings | None = None,
    ) -> None:
        super().__init__(dial, asked.table, settings)
        self.error: BaseException | None = None
        """What the node has against it, since it began."""
        self._asked = asked
        self._cursor = cursor
        self._facts = Facts()
        self._ended: dict[Key, Change] = {}
        """Of syncs that have ended; what comes now is in `_coming` until its end."""
        self._is_whole = False
        self._coming: dict[Key, Change] = {}
        self._is_coming_whole = False

    def take(self) -> FeedBatch:
        """What has come since the last time; its changes are empty where that is nothing."""
        if self.error is not None:
            raise self.error
        batch = FeedBatch(self._ended, self._is_whole, self._cursor, self._facts)
        self._ended, self._is_whole = {}, False
        return batch

    def __len__(self) -> int:
        return len(self._ended)

    def wanted(self) -> TableSubscription:
        self._coming, self._is_coming_whole = {}, False
        asked = self._asked
        return TableSubscription(asked.table, asked.where, asked.columns, self._cursor)

    def failed(self, error: BaseException) -> None:
        self.error = error

    def hear(self, message: FromNode) -> None:
        match message:
            case SyncStart():
                self._start(message)
            case Record(_, seq, row):
                data = bytes(row)
                self._coming[self._facts.key_of(self._facts.read(data))] = seq, data
            case Deletion(_, key):
                self._coming[tuple(key)] = None
            case SyncEnd():
                if message.sync == self.sync:
                    self._end(message.cursor)
            case _:
                pass  # answers to what it never asks

    def _start(self, start: SyncStart) -> None:
        if start.how == How.LIVE.value or start.sync != self.sync:
            return
        self._facts = Facts(tuple(start.key), tuple((one.name, one.type) for one in start.columns))
        if start.how == How.FULL.value:
            self._coming, self._is_coming_whole = {}, True
        elif start.how == How.DIGEST.value:
            # Nobody here could answer what is asked then: all rows are.
            self._cursor = ""
            self.subscribe()

    def _end(self, cursor: str) -> None:
        if self._is_coming_whole:
            self._ended, self._is_whole = self._coming, True
        else:
            self._ended.update(self._coming)
        self._coming, self._is_coming_whole = {}, False
        self._cursor, self.error = cursor, None
        self.conclude(None)
