"""Listening to what the ends of the net send, and holding calls until the test lets them go on."""

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from tests.waiting import until

from moorline.net import native as net_native
from moorline.wire import frame as wire_frame
from moorline.wire.frame import Check
from moorline.wire.message import Message


class Sniffer:
    """Everything that any end of the net sends, in order, with its size."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sent: list[Message] = []
        self.encoder = msgspec.msgpack.Encoder()
        frames = wire_frame.frames

        def sniffed(messages: Sequence[Message], check: Check | None = None) -> Any:
            self.sent += messages
            return frames(messages, check)

        monkeypatch.setattr(net_native, "frames", sniffed)

    def of(self, *kinds: type[Message]) -> list[Any]:
        return [message for message in self.sent if isinstance(message, kinds)]

    def sizes(self, kind: type[Message]) -> list[int]:
        return [len(self.encoder.encode(message)) for message in self.of(kind)]


class Gate:
    """Holds calls of an async method until the test opens it; after the call or before it."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, owner: object, name: str, *, after: bool = False
    ) -> None:
        self.waiting = 0
        self.is_open = asyncio.Event()
        method = getattr(owner, name)

        async def gated(*values: Any, **named: Any) -> Any:
            result = await method(*values, **named) if after else None
            self.waiting += 1
            await self.is_open.wait()
            return result if after else await method(*values, **named)

        monkeypatch.setattr(owner, name, gated)

    async def reached(self, count: int = 1) -> None:
        await until(lambda: self.waiting >= count)
