"""A client of records over a real WebSocket: the copy of the core, with a socket around it."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from moorline.core.records.feed_events import How
from moorline.core.records.row_hash import RowDigest
from moorline.core.sets.digest import Digest
from moorline.wire.records import (
    Deletion,
    Fetch,
    FromNode,
    Lists,
    Ranges,
    Record,
    RecordMessage,
    Refused,
    Subscribe,
    SyncEnd,
    SyncStart,
    TableSubscription,
    Told,
    Verify,
    client_json,
    client_msgpack,
)

PATIENCE_S = 60
AS_JSON = "moorline.records.json"
AS_MSGPACK = "moorline.records.msgpack"


class Held:
    """What a client holds of one table. Its digest is compared at every end of a sync."""

    def __init__(self, table: str, **wanted: Any) -> None:
        self.table = table
        self.wanted = wanted
        self.rows: dict[tuple[str, ...], tuple[int, dict[str, Any]]] = {}
        self.cursor = ""
        self.salt = 0
        self.key: list[str] = []
        self.columns: list[str] = []
        self.hows: list[str] = []
        self.ends = 0
        self.drifts = 0
        self.refused: list[Refused] = []
        self.heard: list[RecordMessage] = []
        self.is_syncing = False
        self._unseen: set[tuple[str, ...]] | None = None

    @property
    def digest(self) -> Digest:
        digest = RowDigest(self.salt)
        for key, (seq, _) in self.rows.items():
            digest.enter(key, seq)
        return digest.digest()

    def left(self) -> None:
        """Its connection is over: how it was synced, and whether, is asked anew."""
        self.hows.clear()
        self.ends = 0
        self.is_syncing = False

    def subscription(self) -> TableSubscription:
        return TableSubscription(
            self.table,
            cursor=self.cursor,
            digest=bytes(self.digest) if self.rows else None,
            **self.wanted,
        )

    def take(self, message: Any) -> None:
        self.heard.append(message)
        match message:
            case SyncStart():
                self.hows.append(message.how)
                self.is_syncing = True
                if message.salt:
                    self.salt = int(message.salt, 16)
                    self.key = list(message.key)
                    self.columns = [column.name for column in message.columns]
                self._unseen = set(self.rows) if message.how == "full" else None
            case Record():
                row = json.loads(bytes(message.row))
                key = tuple(str(row[name]) for name in self.key)
                self.rows[key] = (message.seq, row)
                if self._unseen is not None:
                    self._unseen.discard(key)
            case Deletion():
                self.rows.pop(tuple(message.key), None)
            case SyncEnd():
                for key in self._unseen or ():
                    del self.rows[key]
                self._unseen = None
                self.is_syncing = False
                self.ends += 1
                if bytes(self.digest) != message.digest:
                    self.drifts += 1
                self.cursor = message.cursor
            case Refused():
                self.refused.append(message)

    def contents(self) -> dict[tuple[str, ...], dict[str, Any]]:
        return {key: row for key, (_, row) in self.rows.items()}


class RecordClient:
    def __init__(self, socket: ClientConnection, *held: Held) -> None:
        self.socket = socket
        self.held = {one.table: one for one in held}
        self.sync = 0
        self.questions = 0
        self.asked_bytes = 0
        self.answered_bytes = 0
        self.close_code: int | None = None
        self.close_reason = ""
        self.is_reading = asyncio.Event()
        self.is_reading.set()
        self._answers: asyncio.Queue[Told] = asyncio.Queue()
        self._reconciling: list[asyncio.Task[None]] = []
        self.task = asyncio.create_task(self._read())

    @property
    def is_binary(self) -> bool:
        return self.socket.subprotocol == AS_MSGPACK

    async def send(self, *messages: RecordMessage) -> None:
        if self.is_binary:
            data: str | bytes = msgspec.msgpack.encode(messages)
        else:
            data = msgspec.json.encode(messages).decode()
        self.asked_bytes += len(data)
        await self.socket.send(data)

    async def subscribe(self, *tables: str) -> None:
        """The set: all that is held, or only these."""
        self.sync += 1
        wanted = [self.held[table].subscription() for table in tables or self.held]
        await self.send(Subscribe(self.sync, wanted))

    async def _read(self) -> None:
        try:
            while True:
                await self.is_reading.wait()
                data = await self.socket.recv()
                self.answered_bytes += len(data)
                for message in self._decoded(data):
                    self._take(message)
        except ConnectionClosed as error:
            received = error.rcvd
            self.close_code = received.code if received is not None else 1006
            self.close_reason = received.reason if received is not None else ""
        finally:
            for task in self._reconciling:
                task.cancel()

    def _decoded(self, data: str | bytes) -> list[FromNode]:
        if isinstance(data, str):
            heard: list[FromNode] = client_json.decode(data)
            return heard
        messages = client_msgpack.decode(data)
        return [
            Record(
                one.table,
                one.seq,
                msgspec.Raw(msgspec.json.encode(msgspec.msgpack.decode(one.row))),
            )
            if isinstance(one, Record)
            else one
            for one in messages
        ]

    def _take(self, message: Any) -> None:
        if isinstance(message, Told):
            self._answers.put_nowait(message)
            return
        held = self.held.get(message.table)
        sync = getattr(message, "sync", self.sync)
        if held is None or sync != self.sync:
            return
        held.take(message)
        if isinstance(message, SyncStart) and message.how == How.DIGEST.value:
            self._reconciling.append(asyncio.create_task(self._reconcile(held, self.sync)))

    async def _ask(self, message: RecordMessage) -> Told:
        self.questions += 1
        await self.send(message)
        return await self._answers.get()

    async def _reconcile(self, held: Held, sync: int) -> None:
        """By ranges alone, as a page does it."""
        from moorline.core.records.copy import CopySet

        table = held.table
        told = await self._ask(Verify(sync, table, bytes(held.digest), sketches=False))
        if told.digest != bytes(held.digest):
            own = CopySet(held.salt, {key: seq for key, (seq, _) in held.rows.items()})
            asked = [f"{number:02x}" for number in range(256)]
            listed: list[str] = []
            while asked:
                answer = await self._ask(Ranges(sync, table, asked))
                deeper: list[str] = []
                for prefix, facts in zip(asked, answer.ranges, strict=True):
                    mine = own.ranges([_prefix(prefix)])[0]
                    if (mine.count, f"{mine.hash:016x}") == (facts.count, facts.hash):
                        continue
                    if facts.count + mine.count <= 24 or len(prefix) == 15:
                        listed.append(prefix)
                    else:
                        deeper += [f"{prefix}{digit:x}" for digit in range(16)]
                asked = deeper
            await self._repair(held, own, sync, listed)
        await self.send(Fetch(sync, table, []))

    async def _repair(self, held: Held, own: Any, sync: int, listed: list[str]) -> None:
        import numpy as np

        answer = await self._ask(Lists(sync, held.table, listed))
        wanted: list[str] = []
        for prefix, listed_bytes in zip(listed, answer.lists, strict=True):
            theirs = np.frombuffer(listed_bytes, ">u8").astype(np.uint64)
            mine = own.highs(_prefix(prefix))
            for key in own.having(mine[~np.isin(mine, theirs)]):
                del held.rows[key]
            wanted += [f"{int(high):016x}" for high in theirs[~np.isin(theirs, mine)]]
        for at in range(0, len(wanted), 4_096):
            await self.send(Fetch(sync, held.table, wanted[at : at + 4_096]))


def _prefix(digits: str) -> Any:
    from moorline.core.sets.prefix import Prefix

    return Prefix(4 * len(digits), int(digits, 16))


@asynccontextmanager
async def client(
    url: str, *held: Held, form: str = AS_JSON, is_subscribed: bool = True, **options: Any
) -> AsyncIterator[RecordClient]:
    async with connect(
        url,
        subprotocols=[form],  # type: ignore[list-item]
        max_size=None,
        proxy=None,
        **options,
    ) as socket:
        made = RecordClient(socket, *held)
        try:
            if is_subscribed:
                await made.subscribe()
            yield made
        finally:
            made.task.cancel()
            with suppress(asyncio.CancelledError):
                await made.task


Check = Callable[[], Awaitable[None]]
