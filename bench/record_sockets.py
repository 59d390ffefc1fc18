"""Many clients of records in one process: WebSockets that look for a few words in what they get, and no more.

A client that applied each row would be measured in place of the node. These remember the last cursor, come
back with it when they are cut, and note when they saw a word that the benchmark waits for.
"""

import asyncio
import base64
import json
import os
import random
import re
import struct
import time
from typing import cast

from moorline.core.backoff import pause_ms
from moorline.limits import RECORD_CLIENT_RETURN_MS_MAX
from moorline.net.descriptors import raised_limit

AT_ONCE = 12
"""Handshakes at once: a node has some places for those that are not let in yet."""
TAIL_BYTES = 4_096
"""Kept of what came before: a `sync_end` with its cursor may come in two parts."""
END = re.compile(rb'"cursor":"([^"]+)","digest"')
REFUSED = b'"type":"refused"'
GOODBYE = b"come back with your cursor"
PING = b"\x89\x00"
PONG = b"\x8a\x80" + bytes(4)
WAIT_S = 170


class Socket(asyncio.Protocol):
    """One connection."""

    def __init__(self, client: "SocketClient") -> None:
        self._client = client
        self._tail = b""
        self._transport: asyncio.Transport | None = None
        self._is_open = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not looked at: a transport of uvloop is none by its class.
        self._transport = transport = cast("asyncio.Transport", transport)
        transport.write(upgrade_head(self._client.port, self._client.token))

    def data_received(self, data: bytes) -> None:
        text = self._tail + data
        if not self._is_open:
            if b"\r\n\r\n" not in text:
                self._tail = text
                return
            assert self._transport is not None
            if b" 101 " not in text[:20]:
                # More come at once than it has places for: it says 503, and is asked again later.
                self._transport.close()
                return
            self._is_open = True
            self._transport.write(frame(json.dumps(self._client.subscription()).encode()))
            text = text.partition(b"\r\n\r\n")[2]
        if PING in data:
            # Or it would be cut as one that is gone.
            assert self._transport is not None
            self._transport.write(PONG)
        if GOODBYE in data:
            # The node waits for the answer to its goodbye.
            assert self._transport is not None
            self._transport.close()
        self._client.got(text)
        self._tail = text[-TAIL_BYTES:]

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002
        self._client.lost()


class SocketClient:
    """One client, over one connection after the other."""

    def __init__(self, port: int, where: dict[str, object], token: str, return_s: float) -> None:
        self.port = port
        self.token = token
        self.synced = asyncio.Event()
        self.seen = asyncio.Event()
        self.cuts = 0
        self.word = b""
        self.saw_s = 0.0
        self._where = where
        self._return_s = return_s
        self._cursor = ""
        self._tries = 0
        self._coming: asyncio.Task[None] | None = None

    def subscription(self) -> list[dict[str, object]]:
        table: dict[str, object] = {"table": "fans", "where": self._where}
        if self._cursor:
            # Without a digest: who may see other rows since gets them all, and is asked nothing.
            table |= {"cursor": self._cursor}
        return [{"type": "subscribe", "sync": 1, "tables": [table]}]

    async def open(self) -> None:
        await self._connect()
        await self.synced.wait()

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.create_connection(lambda: Socket(self), "127.0.0.1", self.port)
        except OSError:
            # Nothing was made that would be lost.
            self.lost()

    def got(self, text: bytes) -> None:
        for cursor in END.findall(text)[-1:]:
            self._cursor = cursor.decode()
            self._tries = 0
            self.synced.set()
        if self.word and not self.saw_s and self.word in text:
            self.saw_s = time.monotonic()
            self.seen.set()
        if REFUSED in text:
            raise RuntimeError(f"a client was refused: {text[-300:]!r}")

    def lost(self) -> None:
        self.cuts += self.synced.is_set()
        self.synced.clear()
        self._coming = asyncio.get_running_loop().create_task(self._come_back())

    async def _come_back(self) -> None:
        # As our own clients do: twice as long behind each try that led to nothing.
        pause = pause_ms(
            self._tries,
            random.random(),
            first_ms=round(self._return_s * 1_000),
            most_ms=RECORD_CLIENT_RETURN_MS_MAX,
        )
        self._tries += 1
        await asyncio.sleep(pause / 1_000)
        await self._connect()


class Sockets:
    """The role of a worker: some clients."""

    def __init__(self) -> None:
        self._clients: list[SocketClient] = []
        # An ordinary account may open a thousand files before it asks for more.
        raised_limit()

    async def open(
        self, port: int, wheres: list[dict[str, object]], tokens: list[str], return_s: float
    ) -> None:
        gate = asyncio.Semaphore(AT_ONCE)

        async def open_one(client: SocketClient) -> None:
            async with gate:
                await client.open()

        made = [
            SocketClient(port, where, token, return_s)
            for where, token in zip(wheres, tokens, strict=True)
        ]
        self._clients += made
        async with asyncio.timeout(WAIT_S):
            await asyncio.gather(*map(open_one, made))

    async def look_for(self, word: str) -> None:
        for client in self._clients:
            client.word, client.saw_s = word.encode(), 0.0
            client.seen.clear()

    async def saw(self) -> list[float]:
        """When each of them saw it, by the clock of the machine."""
        async with asyncio.timeout(WAIT_S):
            for client in self._clients:
                await client.seen.wait()
        return [client.saw_s for client in self._clients]


def upgrade_head(port: int, token: str) -> bytes:
    key = base64.b64encode(os.urandom(16)).decode()
    words = ["moorline.records.json"]
    if token:
        shown = base64.urlsafe_b64encode(token.encode()).decode().rstrip("=")
        words.append(f"moorline.bearer.{shown}")
    head = (
        f"GET /records HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\n"
        f"Connection: Upgrade\r\nSec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n"
        f"Sec-WebSocket-Protocol: {', '.join(words)}\r\n\r\n"
    )
    return head.encode()


def frame(data: bytes) -> bytes:
    """A text of a client: masked, as RFC 6455 asks for, with a mask that changes nothing."""
    size = len(data)
    length = bytes([0x80 | size]) if size < 126 else b"\xfe" + struct.pack(">H", size)
    return b"\x81" + length + bytes(4) + data
