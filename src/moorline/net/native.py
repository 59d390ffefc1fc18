"""Room: net. The native protocol, as connections speak it: frames of msgpack, hello, ping, goodbye.

The bytes are those of wire; docs/protocols/native.md draws them.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple

import msgspec

from moorline.core.accepting_link import AcceptingLink
from moorline.core.connecting_link import ConnectingLink
from moorline.core.effects import Event, Say
from moorline.core.link import (
    BadBytes,
    EndLink,
    GoodbyeHeard,
    HelloHeard,
    Link,
    SayHello,
    SayPing,
    SayWelcome,
    WelcomeHeard,
)
from moorline.core.proof import ChallengeHeard, ResponseHeard, SayChallenge, SayResponse
from moorline.limits import (
    FRAME_BYTES_MAX,
    HELLO_FRAME_BYTES_MAX,
    PROOF_FRAME_BYTES_MAX,
    RECORD_BYTES_MAX,
)
from moorline.net.clock import monotonic_ms
from moorline.net.session import Handlers
from moorline.wire.decoder import MessageDecoder
from moorline.wire.frame import Check, Splitter, frames
from moorline.wire.link import (
    PROTOCOL,
    Challenge,
    Goodbye,
    Hello,
    Ping,
    Pong,
    Response,
    Welcome,
)
from moorline.wire.message import Message
from moorline.wire.protocol import client_decoder, node_decoder

Encode = Callable[[Sequence[Message]], tuple[list[bytearray], list[msgspec.Struct]]]

MakeWelcome = Callable[[int, int], Welcome]
"""What a node says of itself, from the version chosen and the keepalive."""


class Tongue(NamedTuple):
    """Which messages pass on a link: what the calling end hears, and what the called one does."""

    own: MessageDecoder
    other: MessageDecoder


OF_NODES: Final = Tongue(client_decoder, node_decoder)


class NativeProtocol(msgspec.Struct, frozen=True):
    """What a node serves at a native address; a publisher of values hears other messages."""

    handlers: Handlers
    welcome: MakeWelcome
    decoder: MessageDecoder = node_decoder

    def accepting(
        self,
        name: str,
        *,
        hello_timeout_ms: int,
        keepalive_ms: int,
        mechanisms: Collection[str] = (),
    ) -> "NativeNodeEnd":
        link = AcceptingLink(
            name,
            hello_timeout_ms=hello_timeout_ms,
            keepalive_ms=keepalive_ms,
            mechanisms=mechanisms,
        )
        return NativeNodeEnd(link, self.welcome, self.decoder)


class NativeEnd:
    """What both ends share."""

    link_messages = frozenset[type[Message]](
        {Hello, Challenge, Response, Welcome, Ping, Pong, Goodbye}
    )

    def __init__(
        self, link: Link, decoder: MessageDecoder, check: Check | None = None, *, has_proofs: bool
    ) -> None:
        """`check` looks at what is to be sent as the other end will."""
        self.link = link
        # Only where proofs are expected is there room for one: a stranger gets no more memory than it needs.
        self._splitter = Splitter(PROOF_FRAME_BYTES_MAX if has_proofs else HELLO_FRAME_BYTES_MAX)
        self._of_frames = self._splitter
        """The same, until the link is wrapped: then that one cuts records, and this what is in them."""
        # Not methods of ours around them: a frame is to cost no call more.
        self.feed = self._splitter.feed
        self.decode = decoder.decode
        self.encode: Encode = frames if check is None else partial(frames, check=check)

    def opened(self) -> None:
        self._of_frames.payload_bytes_max = FRAME_BYTES_MAX

    def wrapped(self) -> Callable[[bytes], Iterator[memoryview]]:
        self._of_frames = Splitter(self._splitter.payload_bytes_max)
        self._splitter.payload_bytes_max = RECORD_BYTES_MAX
        return self._of_frames.feed

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
    def __init__(
        self, link: AcceptingLink, welcome: MakeWelcome, decoder: MessageDecoder = node_decoder
    ) -> None:
        super().__init__(link, decoder, has_proofs=bool(link.mechanisms))
        self._welcome = welcome
        self.can_leave = False
        """Whether the other end said that it goes elsewhere by itself."""

    def meant(self, message: Message) -> Event | Message | None:
        match message:
            case Hello() if message.protocol != PROTOCOL:
                return BadBytes("MALFORMED", "a hello of another protocol")
            case Hello():
                self.can_leave = message.can_leave
                return HelloHeard(
                    message.version_min, message.version_max, message.mechanism, message.proof
                )
            case Response(proof):
                return ResponseHeard(proof)
        return super().meant(message)

    def said(self, say: Say) -> Message | None:
        match say:
            case SayWelcome(version, keepalive_ms):
                return self._welcome(version, keepalive_ms)
            case SayChallenge(proof):
                return Challenge(proof)
        return super().said(say)


class NativeClientEnd(NativeEnd):
    """`welcome` is what the node said of itself."""

    def __init__(
        self,
        link: ConnectingLink,
        software: str,
        tongue: Tongue = OF_NODES,
        *,
        can_leave: bool = False,
    ) -> None:
        # A field that breaks its bound would cost the link, and with it what others have asked.
        check = tongue.other.decode
        super().__init__(link, tongue.own, check, has_proofs=bool(link.mechanism))
        self.welcome: Welcome | None = None
        self._software = software
        self._can_leave = can_leave

    def meant(self, message: Message) -> Event | Message | None:
        match message:
            case Welcome():
                self.welcome = message
                return WelcomeHeard(message.version, message.keepalive_ms)
            case Challenge(proof):
                return ChallengeHeard(proof)
        return super().meant(message)

    def said(self, say: Say) -> Message | None:
        match say:
            case SayHello(version_min, version_max, mechanism, proof):
                return Hello(
                    PROTOCOL,
                    version_min,
                    version_max,
                    self._software,
                    mechanism,
                    proof,
                    self._can_leave,
                )
            case SayResponse(proof):
                return Response(proof)
        return super().said(say)
