"""Room: net. What is spoken over a connection: one object for each protocol, at one end of one link.

    bytes in      feed cuts them into frames, decode makes messages of a frame
    messages out  encode makes bytes of them
    the link      its machine, what messages mean to it, and the words for what it wants said

All else is the connection's (net.connection): bounds, flow control, holds, silence, goodbye.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, runtime_checkable

import msgspec

from moorline.core.effects import Event, Say
from moorline.core.link import Link
from moorline.wire.message import Message

Encode = Callable[[Sequence[Message]], tuple[Sequence[bytes | bytearray], Sequence[msgspec.Struct]]]
"""Bytes for messages in their order, and those of them that have none."""


class LinkProtocol(Protocol):
    """What one end of one connection speaks and hears."""

    @property
    def link(self) -> Link:
        """The machine of this end. Messages pass while it is open."""

    @property
    def link_messages(self) -> frozenset[type[Message]]:
        """The types of message that concern the link itself; all others are for handlers."""

    def feed(self, data: bytes, /) -> Iterator[memoryview]:
        """Each frame that is whole now. `WireError` as soon as one breaks its bound."""

    def decode(self, frame: memoryview, /) -> list[Message]:
        """The messages of a frame, within their bounds; `WireError` for anything else."""

    def encode(
        self, messages: Sequence[Message], /
    ) -> tuple[Sequence[bytes | bytearray], Sequence[msgspec.Struct]]:
        """Bytes for these messages in their order, and those of them that have none."""

    def opened(self) -> None:
        """Messages pass from now on: frames may be as large as they ever may."""

    def meant(self, message: Message, /) -> Event | Message | None:
        """What a message of the link is: an event of its machine, or what is answered at once, or nothing."""

    def said(self, say: Say, /) -> Message | None:
        """The message for what the machine wants said; None where this protocol has no word for it."""


@runtime_checkable
class WrappableProtocol(Protocol):
    """A protocol whose links may be wrapped (net.records)."""

    def wrapped(self) -> Callable[[bytes], Iterator[memoryview]]:
        """From now on what `feed` gives are records; what is returned cuts their contents into frames."""
