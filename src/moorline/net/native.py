"""Room: net. The native protocol, as connections speak it: frames of msgpack, hello, ping, goodbye.

The bytes are those of wire; docs/protocols/native.md draws them.
"""

from collections.abc import Callable
from functools import partial

import msgspec

from moorline.core.effects import Event
from moorline.core.link import (
    AcceptingLink,
    BadBytes,
    ConnectingLink,
    EndLink,
    GoodbyeHeard,
    HelloHeard,
    Link,
    Say,
    SayHello,
    SayPing,
    SayWelcome,
    WelcomeHeard,
)
from moorline.limits import FRAME_BYTES_MAX, HELLO_FRAME_BYTES_MAX
from moorline.net.clock import monotonic_ms
from moorline.net.session import Handlers
from moorline.wire.frame import Check, Splitter, frames
from moorline.wire.link import PROTOCOL, Goodbye, Hello, Ping, Pong, Welcome
from moorline.wire.message import Message
from moorline.wire.protocol import MessageDecoder, client_decoder, node_decoder

MakeWelcome = Callable[[int, int], Welcome]
"""What a node says of itself, from the version chosen and the keepalive."""


class NativeProtocol(msgspec.Struct, frozen=True):
    """What a node serves at a native address."""

    handlers: Handlers
    welcome: MakeWelcome

    def accepting(self, name: str, *, hello_timeout_ms: int, keepalive_ms: int) -> "NativeNodeEnd":
        link = AcceptingLink(name, hello_timeout_ms=hello_timeout_ms, keepalive_ms=keepalive_ms)
        return NativeNodeEnd(link, self.welcome)


class NativeEnd:
    """What both ends share."""

    link_messages = frozenset[type[Message]]({Hello, Welcome, Ping, Pong, Goodbye})

    def __init__(self, link: Link, decoder: MessageDecoder, check: Check | None = None) -> None:
        """`check` looks at what is to be sent as the other end will."""
        self.link = link
        self._splitter = Splitter(HELLO_FRAME_BYTES_MAX)
        # Not methods of ours around them: a frame is to cost no call more.
        self.feed = self._splitter.feed
        self.decode = decoder.decode
        self.encode = partial(frames, check=check)

    def opened(self) -> None:
        self._splitter.payload_bytes_max = FRAME_BYTES_MAX

    def meant(self, message: Message) -> Event | Message | None:
        match message:
            case Ping(token):
                return Pong(token)
            case Goodbye(code, text):
                return GoodbyeHeard(code, text)
        return None

    def said(self, say: Say) -> Message | None:
        match say:
            case SayPing():
                return Ping(monotonic_ms())
            case EndLink(code, text):
                return Goodbye(code, text[:512])
        raise AssertionError(f"this end never says {say}")


class NativeNodeEnd(NativeEnd):
    def __init__(self, link: AcceptingLink, welcome: MakeWelcome) -> None:
        super().__init__(link, node_decoder)
        self._welcome = welcome

    def meant(self, message: Message) -> Event | Message | None:
        if not isinstance(message, Hello):
            return super().meant(message)
        if message.protocol != PROTOCOL:
            return BadBytes("MALFORMED", "a hello of another protocol")
        return HelloHeard(message.version_min, message.version_max)

    def said(self, say: Say) -> Message | None:
        if isinstance(say, SayWelcome):
            return self._welcome(say.version, say.keepalive_ms)
        return super().said(say)


class NativeClientEnd(NativeEnd):
    """`welcome` is what the node said of itself."""

    def __init__(self, link: ConnectingLink, software: str) -> None:
        # A field that breaks its bound would cost the link, and with it what others have asked.
        super().__init__(link, client_decoder, node_decoder.decode)
        self.welcome: Welcome | None = None
        self._software = software

    def meant(self, message: Message) -> Event | Message | None:
        if not isinstance(message, Welcome):
            return super().meant(message)
        self.welcome = message
        return WelcomeHeard(message.version, message.keepalive_ms)

    def said(self, say: Say) -> Message | None:
        if isinstance(say, SayHello):
            return Hello(PROTOCOL, say.version_min, say.version_max, self._software)
        return super().said(say)
