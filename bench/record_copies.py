"""Many copies of a table in one process: WebSockets around the client's machine of the core.

Each holds its rows, comes back with its cursor when it is cut, and is back when the digest of what it holds
is the one that the node told it. What it sent and got is counted, the handshakes among it.
"""

import asyncio
import json
import random
import time
from typing import cast

import msgspec

from bench.record_sockets import AT_ONCE, GOODBYE, PING, PONG, WAIT_S, frame, upgrade_head
from moorline.core.backoff import pause_ms
from moorline.core.effects import Effect, Event
from moorline.core.records.copy import (
    Connected,
    Copy,
    DeletionCame,
    Drifted,
    Ended,
    LinkLost,
    RecordCame,
    Started,
    Store,
    Subscribe,
)
from moorline.core.records.feed_events import How
from moorline.core.sets.digest import Digest
from moorline.limits import RECORD_CLIENT_RETURN_MS_MAX
from moorline.net.descriptors import raised_limit
from moorline.wire import records as wire

LONG, LONGEST = 126, 127
"""Lengths of a frame that say that the length follows, in two bytes or in eight."""


class CopySocket(asyncio.Protocol):
    """One connection: frames of the node, put together."""

    def __init__(self, client: "CopyClient") -> None:
        self._client = client
        self._held = b""
        self._is_open = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not looked at: a transport of uvloop is none by its class.
        self._transport = cast("asyncio.Transport", transport)
        self._write(upgrade_head(self._client.port, self._client.token))

    def data_received(self, data: bytes) -> None:
        self._client.bytes += len(data)
        self._held += data
        if not self._is_open:
            head, end, rest = self._held.partition(b"\r\n\r\n")
            if not end:
                return
            if b" 101 " not in head[:20]:
                # More come at once than it has places for: it says 503, and is asked again later.
                self._transport.close()
                return
            self._is_open, self._held = True, rest
            self._write(frame(self._client.subscription()))
        while (size := _frame_size(self._held)) and len(self._held) >= size:
            found, self._held = self._held[:size], self._held[size:]
            self._take(found)

    def _take(self, found: bytes) -> None:
        if found == PING:
            # Or it would be cut as one that is gone.
            self._write(PONG)
        elif found[0] == 0x88:
            assert GOODBYE in found, found
            # The node waits for the answer to its goodbye.
            self._transport.close()
        else:
            self._client.got(found[_head_size(found) :])

    def _write(self, data: bytes) -> None:
        self._client.bytes += len(data)
        self._transport.write(data)

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002
        self._client.lost()


class CopyClient:
    """One copy, over one connection after the other."""

    def __init__(self, port: int, token: str, return_s: float) -> None:
        self.port = port
        self.token = token
        self.proven = asyncio.Event()
        self.proven_s = 0.0
        self.cuts = 0
        self.bytes = 0
        self._copy = Copy("fans")
        self._key: list[str] = []
        self._return_ms = round(return_s * 1_000)
        self._tries = 0
        self._coming: asyncio.Task[None] | None = None

    def subscription(self) -> bytes:
        (asked,) = self._copy.handle(Connected(), 0)
        assert isinstance(asked, Subscribe)
        # Without a digest: who may see other rows since gets them all, and is asked nothing.
        wanted = wire.TableSubscription("fans", cursor=asked.cursor)
        return msgspec.json.encode([wire.Subscribe(asked.sync, [wanted])])

    async def connect(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.create_connection(lambda: CopySocket(self), "127.0.0.1", self.port)
        except OSError:
            # Nothing was made that would be lost.
            self._return()

    def got(self, payload: bytes) -> None:
        for message in wire.client_json.decode(payload):
            event = self._event(message)
            for effect in self._copy.handle(event, 0):
                self._do(effect)

    def _event(self, message: wire.RecordMessage) -> Event:
        match message:
            case wire.SyncStart():
                if message.salt:
                    self._key = list(message.key)
                salt = int(message.salt, 16) if message.salt else None
                return Started(message.sync, How(message.how), salt)
            case wire.Record():
                row = json.loads(bytes(message.row))
                key = tuple(str(row[name]) for name in self._key)
                return RecordCame(key, message.seq, b"")
            case wire.Deletion():
                return DeletionCame(tuple(message.key))
            case wire.SyncEnd():
                return Ended(message.sync, message.cursor, Digest.from_bytes(message.digest))
            case _:
                raise RuntimeError(f"a client was told {message!r}")

    def _do(self, effect: Effect) -> None:
        match effect:
            case Store():
                self._tries = 0
                if not self.proven.is_set():
                    self.proven_s = time.monotonic()
                    self.proven.set()
            case Drifted():
                raise RuntimeError(f"a copy is not what the node says: {effect}")

    def lost(self) -> None:
        self._copy.handle(LinkLost(), 0)
        self._return()

    def _return(self) -> None:
        self.cuts += self.proven.is_set()
        self.proven.clear()
        self._coming = asyncio.get_running_loop().create_task(self._come_back())

    async def _come_back(self) -> None:
        # As our own clients do: twice as long behind each try that led to nothing.
        pause = pause_ms(
            self._tries,
            random.random(),
            first_ms=self._return_ms,
            most_ms=RECORD_CLIENT_RETURN_MS_MAX,
        )
        self._tries += 1
        await asyncio.sleep(pause / 1_000)
        await self.connect()


class Copies:
    """The role of a worker: some copies."""

    def __init__(self) -> None:
        self._clients: list[CopyClient] = []
        self._failed: BaseException | None = None

    async def open(self, port: int, tokens: list[str], return_s: float) -> None:
        # An ordinary account may open a thousand files before it asks for more.
        raised_limit()
        asyncio.get_running_loop().set_exception_handler(self._note)
        gate = asyncio.Semaphore(AT_ONCE)

        async def open_one(client: CopyClient) -> None:
            async with gate:
                await client.connect()
                await client.proven.wait()

        self._clients = [CopyClient(port, token, return_s) for token in tokens]
        async with asyncio.timeout(WAIT_S):
            await asyncio.gather(*map(open_one, self._clients))

    def _note(self, _: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        error = context.get("exception")
        self._failed = error if isinstance(error, BaseException) else RuntimeError(str(context))

    async def sums(self) -> tuple[int, int]:
        """How many were cut so far, and the bytes of all of them in both directions."""
        if self._failed is not None:
            raise self._failed
        return sum(one.cuts for one in self._clients), sum(one.bytes for one in self._clients)

    async def all_back(self) -> list[float]:
        """When each of them was proven the last time; all are."""
        async with asyncio.timeout(WAIT_S):
            for client in self._clients:
                await client.proven.wait()
        await self.sums()
        return [one.proven_s for one in self._clients]


def _head_size(data: bytes) -> int:
    return {LONG: 4, LONGEST: 10}.get(data[1], 2)


def _frame_size(data: bytes) -> int:
    """Of the first frame, its head included; 0 while that is not all there. A node masks nothing."""
    if len(data) < 2 or len(data) < (head := _head_size(data)):
        return 0
    return head + (data[1] if head == 2 else int.from_bytes(data[2:head], "big"))
