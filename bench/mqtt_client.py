"""A raw client of MQTT 3.1.1 for benchmarks: it knows just the bytes it needs, the same for every server.

All messages of a case have one length, so that what comes is counted and acknowledged by numpy, many at once.
"""

import asyncio
import struct
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
PUBACK, PUBREC, PUBREL, PUBCOMP = 0x40, 0x50, 0x62, 0x70
ACK_BYTES = 4
IDS = 60_000
"""Packet ids go around below what 16 bits hold."""


def remaining(size: int) -> bytes:
    written = bytearray()
    while size >= 0x80:
        written.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([*written, size])


def text(value: str) -> bytes:
    return struct.pack(">H", len(value)) + value.encode()


def connect_packet(client_id: str, clean: bool) -> bytes:
    body = text("MQTT") + bytes((4, 2 if clean else 0)) + b"\0\0" + text(client_id)
    return b"\x10" + remaining(len(body)) + body


def subscribe_packet(topic: str, qos: int) -> bytes:
    body = b"\0\1" + text(topic) + bytes((qos,))
    return b"\x82" + remaining(len(body)) + body


class Template:
    """PUBLISHes of one topic, QoS and length; ids are written into copies of it."""

    def __init__(self, topic: str, qos: int, payload: int) -> None:
        body = text(topic) + (b"\0\0" if qos else b"") + b"x" * payload
        self.one = bytes((0x30 | qos << 1,)) + remaining(len(body)) + body
        self.size = len(self.one)
        self.qos = qos
        self.id_at = self.size - payload - 2

    def many(self, first: int, count: int) -> bytes:
        if not self.qos:
            return self.one * count
        rows = np.tile(np.frombuffer(self.one, np.uint8), (count, 1))
        ids = (np.arange(first, first + count) % IDS + 1).astype(">u2")
        rows[:, self.id_at : self.id_at + 2] = ids.view(np.uint8).reshape(count, 2)
        return rows.tobytes()


def answers(kind: int, ids: Bytes) -> bytes:
    """One acknowledgement for each row of two bytes."""
    rows = np.empty((len(ids), ACK_BYTES), np.uint8)
    rows[:, 0], rows[:, 1], rows[:, 2:] = kind, 2, ids
    return rows.tobytes()


class Raw(asyncio.Protocol):
    """One connection. `template` is what it hears, if it hears PUBLISHes."""

    def __init__(self, template: Template | None = None) -> None:
        self.template = template
        self.transport: asyncio.Transport
        self.finished = 0
        """Publishes that have their last answer."""
        self.received = 0
        self._tail = b""
        self._ready: asyncio.Future[bytes] | None = None
        self.told: Callable[[], None] = lambda: None
        self.lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.transport.set_write_buffer_limits(high=1 << 30)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self.lost = True
        if self._ready is not None and not self._ready.done():
            self._ready.set_exception(ConnectionError("the server has closed the connection"))
        self.told()

    def data_received(self, data: bytes) -> None:
        if self._tail:
            data = self._tail + data
        if self._ready is not None:
            ready, self._ready = self._ready, None
            size = 2 + data[1]
            self._tail = b""
            ready.set_result(data[:size])
            data = data[size:]
            if not data:
                return
        at = self._take(data)
        self._tail = data[at:]
        self.told()

    def _take(self, data: bytes) -> int:
        at = 0
        while at < len(data):
            before = at
            if data[at] & 0xF0 == 0x30:
                at = self._take_publishes(data, at)
            elif len(data) - at >= ACK_BYTES:
                at = self._take_acks(data, at)
            if at == before:
                break
        return at

    def _take_publishes(self, data: bytes, at: int) -> int:
        template = self.template
        assert template is not None, "a PUBLISH came to who wants none"
        count = (len(data) - at) // template.size
        if not count:
            return at
        rows = np.frombuffer(data, np.uint8, count * template.size, at).reshape(count, -1)
        # Only as far as there are PUBLISHes: an acknowledgement may stand among them.
        others = np.flatnonzero(rows[:, 0] & 0xF0 != 0x30)
        if len(others):
            rows = rows[: others[0]]
        self.received += len(rows)
        if template.qos:
            kind = PUBACK if template.qos == 1 else PUBREC
            ids = rows[:, template.id_at : template.id_at + 2]
            self.transport.write(answers(kind, ids))
        return at + len(rows) * template.size

    def _take_acks(self, data: bytes, at: int) -> int:
        count = (len(data) - at) // ACK_BYTES
        rows = np.frombuffer(data, np.uint8, count * ACK_BYTES, at).reshape(count, -1)
        publishes = np.flatnonzero(rows[:, 0] & 0xF0 == 0x30)
        if len(publishes):
            rows = rows[: publishes[0]]
        kinds = rows[:, 0]
        self.finished += int(np.count_nonzero((kinds == PUBACK) | (kinds == PUBCOMP)))
        received, released = rows[kinds == PUBREC], rows[kinds == PUBREL]
        if len(received):
            self.transport.write(answers(PUBREL, received[:, 2:]))
        if len(released):
            self.transport.write(answers(PUBCOMP, released[:, 2:]))
        return at + len(rows) * ACK_BYTES

    async def ask(self, packet: bytes) -> bytes:
        """Says a packet that is answered by a short one."""
        self._ready = asyncio.get_running_loop().create_future()
        self.transport.write(packet)
        return await asyncio.wait_for(self._ready, 30)

    async def until(self, done: Callable[[], bool], within_s: float = 60) -> bool:
        """Whether it came to be in time."""
        if done():
            return True
        changed = asyncio.get_running_loop().create_future()

        def look() -> None:
            if not changed.done() and (done() or self.lost):
                changed.set_result(None)

        self.told = look
        try:
            await asyncio.wait_for(changed, within_s)
        except TimeoutError:
            return False
        finally:
            self.told = lambda: None
        return done()


async def joined(
    port: int, client_id: str, template: Template | None = None, *, clean: bool = True
) -> Raw:
    loop = asyncio.get_running_loop()
    made: tuple[Any, Raw] = await loop.create_connection(lambda: Raw(template), "127.0.0.1", port)
    answer = await made[1].ask(connect_packet(client_id, clean))
    assert answer[0] == 0x20, answer
    assert answer[3] == 0, f"CONNACK {answer[3]}"
    return made[1]
