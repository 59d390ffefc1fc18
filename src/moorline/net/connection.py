"""Room: net. One connection: the asyncio shell around a link machine, whatever protocol is spoken.

What is read goes through the protocol (net.protocol), a whole frame at a time. What is sent during one turn
of the loop is collected and leaves together. What is bounded, held and timed is the same for all protocols.
Design: docs/design/wire.md.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, cast

from moorline.core.effects import Event, Say
from moorline.core.link import (
    SAID,
    BadBytes,
    CheckSilence,
    EndLink,
    Established,
    GoodbyeHeard,
    LinkLost,
    LinkState,
    Opened,
    SayPing,
    SilentFor,
)
from moorline.core.proof import CheckProof, HearOn, MakeProof, Wrap
from moorline.errors import Malformed, Tampered, WireError
from moorline.limits import (
    FRAME_BYTES_MAX,
    FRAMES_UNCHECKED_MAX,
    GOODBYE_MS_MAX,
    WRAPPED_AT_ONCE_BYTES,
    WRITE_BUFFER_BYTES_MAX,
)
from moorline.net.clock import monotonic_ms
from moorline.net.driver import Driver
from moorline.net.interpreter import Performer
from moorline.net.protocol import Encode, LinkProtocol, WrappableProtocol
from moorline.net.records import Records, Wrapping
from moorline.net.slow_reader import Outflow
from moorline.wire.message import Message

log = logging.getLogger("moorline.net")

SLOW = "slow reader"
"""Why reading is held: the peer does not read what waits for it."""

BEHIND = "behind"
"""Why reading is held: what was read before is not handled yet."""

PROOF = "proof"
"""Why reading is held: a proof is being checked, or made."""


class Connection(asyncio.Protocol):
    """What both ends share. Subclasses hear `opened`, `received` and `ended`."""

    def __init__(self, protocol: LinkProtocol) -> None:
        self.peer_address = ""
        self.is_open = False
        """Whether messages may pass: from the end of the hello until the end of the link."""
        self.writable = True
        self.is_ended_here = False
        """Whether it was us who ended the link, for a reason that we said."""
        self._protocol = protocol
        # Of every read and every write: looked up once.
        self._feed, self._decode, self._encode = protocol.feed, protocol.decode, protocol.encode
        self._link_messages = protocol.link_messages
        self._link = protocol.link
        self._loop = asyncio.get_running_loop()
        self.gone: asyncio.Future[None] = self._loop.create_future()
        self._driver = Driver(self._link, self._performers(), self._failed)
        self._transport: asyncio.Transport | None = None
        self._pending: list[Message] = []
        self._is_abandoned = False
        self._flush_due = False
        self._pushed_bytes = 0
        self._reading = True
        self._holds: set[str] = set()
        self._is_behind = False
        self._is_proving = False
        self._unheard: deque[memoryview | list[Message]] = deque()
        """Frames, or the rest of one, that came while we were behind: no more than one read gave."""
        self._records: Records | None = None
        """From the moment on from which the link is wrapped."""
        self._to_wrap: deque[bytes | bytearray | memoryview] = deque()
        """What is behind in its turn of being wrapped, or the rest of it."""
        self._is_full = False
        """Whether the transport has as much as it takes."""
        self._heard_ms = 0
        self._outflow: Outflow | None = None
        self._room: list[asyncio.Future[None]] = []

    # --- what subclasses hear ---------------------------------------------------------------------

    def opened(self) -> None:
        """The hello is done; messages may pass."""

    def received(self, messages: list[Message]) -> None:
        """The messages of one frame, none of them about the link itself."""

    def ended(self, code: str, text: str) -> None:
        """The link is over; heard exactly once."""

    def unsendable(self, message: Any) -> None:
        """A message of ours is too large for a frame, or has a field that is; nothing of it was sent."""

    def check_proof(self, check: CheckProof) -> Event | Awaitable[Event] | None:
        """Whether the peer is who it says; only accepting ends are asked."""
        raise NotImplementedError

    def make_proof(self, make: MakeProof) -> Awaitable[Event]:
        """Who we are; only connecting ends with credentials are asked."""
        raise NotImplementedError

    def wrapping(self) -> Wrapping:
        """The keys that the mechanism brought; only where it brings some."""
        raise NotImplementedError

    # --- what owners do ---------------------------------------------------------------------------

    @property
    def is_encrypted(self) -> bool:
        if self._records is not None:
            return True
        return self._transport is not None and bool(self._transport.get_extra_info("ssl_object"))

    def shown_certificate(self) -> bytes:
        """What the other end showed in the TLS handshake, as DER; empty if it showed none."""
        link = self._transport.get_extra_info("ssl_object") if self._transport is not None else None
        return (link.getpeercert(True) or b"") if link is not None else b""

    @property
    def encode(self) -> Encode:
        """Makes frames for `send_frames`: the same function for all connections that speak alike."""
        return self._encode

    def send(self, message: Message) -> None:
        """Sends with whatever else is sent in this turn of the loop."""
        self._pending.append(message)
        if not self._flush_due:
            self._flush_due = True
            self._loop.call_soon(self._flush)

    def soon(self, act: Callable[[], object]) -> None:
        """In the next turn of the loop."""
        self._loop.call_soon(act)

    def push(self, message: Message, size_bytes: int) -> None:
        """Sends what nobody asked for just now: by the frame, so that `writable` stays true to it."""
        self.gather(message, size_bytes)
        if self._pending and not self._flush_due:
            self._flush_due = True
            self._loop.call_soon(self._flush)

    def gather(self, message: Message, size_bytes: int) -> None:
        """As `push`, for whoever says `flush_gathered` behind the last of them."""
        self._pending.append(message)
        self._pushed_bytes += size_bytes
        if self._pushed_bytes >= FRAME_BYTES_MAX:
            self._flush()

    def flush_gathered(self) -> None:
        """What waits leaves at the end of this turn of the loop, and needs no turn of its own."""
        if self._pending:
            self._flush()

    def send_all(self, messages: Iterable[Message]) -> None:
        self._pending.extend(messages)
        if self._pending and not self._flush_due:
            self._flush_due = True
            self._loop.call_soon(self._flush)

    def send_frames(self, made: Sequence[bytes | bytearray]) -> None:
        """Frames that were encoded for many: they leave at once, behind what was sent before."""
        self._flush()
        if self._transport is not None and not self._transport.is_closing():
            self._write(made)

    async def room_to_write(self) -> None:
        """Waits while the peer is slower than we are."""
        while not self.writable and self.is_open:
            waiter = self._loop.create_future()
            self._room.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                # However many give up while the peer does not read, none of them is kept.
                with contextlib.suppress(ValueError):
                    self._room.remove(waiter)
                raise

    def hold_reading(self, reason: str) -> None:
        """Stops reading until every reason that was given is released."""
        self._holds.add(reason)
        if self._reading and self._transport is not None:
            self._reading = False
            self._transport.pause_reading()

    def release_reading(self, reason: str) -> None:
        self._holds.discard(reason)
        if self._holds or self._reading or self._transport is None:
            return
        self._reading = True
        # A held peer was not silent: we did not listen.
        self._heard_ms = monotonic_ms()
        if not self._transport.is_closing():
            self._transport.resume_reading()

    def fall_behind(self) -> None:
        """What was heard is not handled yet: nothing more is read and heard until `caught_up`."""
        self._is_behind = True
        self.hold_reading(BEHIND)

    def caught_up(self) -> None:
        if self._is_proving:
            return  # what waits for the proof waits on
        self._is_behind = False
        try:
            while self._unheard and not self._is_closed and not self._is_behind:
                frame = self._unheard.popleft()
                self._heard(frame if isinstance(frame, list) else self._decode(frame))
        except WireError as error:
            self._driver.post(BadBytes(error.code, str(error)))
        if not self._is_behind:
            self.release_reading(BEHIND)

    def close(self, code: str, text: str) -> None:
        """Ends the link from this side, with a goodbye."""
        self._driver.post(BadBytes(code, text))

    def abort(self) -> None:
        """Cuts the socket at once, whatever waits to be written."""
        if self._transport is not None:
            self._transport.abort()

    def abandon(self) -> None:
        """Nobody wants it, opened or not: the socket is cut, and nothing more is said or heard."""
        self._is_abandoned = True
        self.abort()
        # A loop that was cancelled while it made the transport may have closed that already; uvloop
        # then refuses to write to it, and does not say so before.
        self._transport = None
        self._driver.post(LinkLost())
        self._driver.close()

    # --- asyncio ----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have the methods of asyncio's without being subclasses of it.
        transport = cast("asyncio.Transport", transport)
        if self._is_abandoned:
            transport.abort()
            return
        self._transport = transport
        transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES_MAX)
        peer = transport.get_extra_info("peername")
        self.peer_address = str(peer[0]) if peer else ""
        self._heard_ms = monotonic_ms()
        self._outflow = Outflow(transport)
        self._driver.post(Opened())

    def data_received(self, data: bytes) -> None:
        self._heard_ms = monotonic_ms()
        try:
            for payload in self._feed(data):
                if self._records is None:
                    self._take(payload)
                else:
                    for frame in self._records.frames(payload):
                        self._take(frame)
        except WireError as error:
            self._driver.post(BadBytes(error.code, str(error)))

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._driver.post(LinkLost())
        self._driver.close()
        self._wake_writers()
        if not self.gone.done():
            self.gone.set_result(None)

    def pause_writing(self) -> None:
        # Who calls goes on reading its answers: if both ends waited for the other to read, neither would.
        self._is_full = True
        self.writable = False

    def resume_writing(self) -> None:
        self._is_full = False
        if self._to_wrap:
            return  # there is more that is to be written before
        self.writable = True
        self._wake_writers()

    # --- inside -----------------------------------------------------------------------------------

    def _take(self, frame: memoryview) -> None:
        if not self._is_behind:
            self._heard(self._decode(frame))
            return
        self._unheard.append(frame)
        if self._is_proving:
            self._check_unheard()

    def _heard(self, messages: list[Message]) -> None:
        if self.is_open and self._link_messages.isdisjoint(map(type, messages)):
            self.received(messages)
            return
        rest: list[Message] = []
        for place, message in enumerate(messages):
            if type(message) not in self._link_messages:
                if self.is_open:
                    rest.append(message)
                else:
                    self._driver.post(BadBytes("MALFORMED", "the first message must be a hello"))
                continue
            meant = self._protocol.meant(message)
            if isinstance(meant, GoodbyeHeard):
                # What was said before it counts: acknowledgements often share its frame.
                if rest and self.is_open:
                    self.received(rest)
                    rest = []
                if self._is_behind:
                    self._unheard.appendleft(messages[place:])
                    return
            if isinstance(meant, Event):
                self._driver.post(meant)
                if self._is_proving and place + 1 < len(messages):
                    self._unheard.appendleft(messages[place + 1 :])
                    return
            elif meant is not None:
                self.send(meant)
        if rest and self.is_open:
            self.received(rest)

    def _flush(self) -> None:
        self._flush_due = False
        self._pushed_bytes = 0
        pending, self._pending = self._pending, []
        if not pending or self._transport is None or self._transport.is_closing():
            return
        made, unsendable = self._encode(pending)
        self._write(made)
        for message in unsendable:
            self.unsendable(message)

    def _write(self, made: Sequence[bytes | bytearray]) -> None:
        assert self._transport is not None
        if self._records is None:
            self._transport.writelines(made)
            return
        is_waiting = bool(self._to_wrap)
        self._to_wrap += made
        if not is_waiting:
            self._wrap_some()

    def _wrap_some(self) -> None:
        """What a slice has time for; the rest has its next turn behind the others of the loop. Nothing
        overtakes: what is written meanwhile waits behind it, and nobody is asked for more."""
        if self._transport is None or self._transport.is_closing():
            self._to_wrap.clear()
            return
        self._wrap_next()
        if self._to_wrap:
            self.writable = False
            self._loop.call_soon(self._wrap_some)
        elif not self.writable and not self._is_full:
            self.resume_writing()

    def _wrap_next(self) -> None:
        assert self._records is not None
        assert self._transport is not None
        taken: list[bytes | bytearray | memoryview] = []
        room = WRAPPED_AT_ONCE_BYTES
        while self._to_wrap and room:
            one = self._to_wrap.popleft()
            if len(one) > room:
                self._to_wrap.appendleft(memoryview(one)[room:])
                one = memoryview(one)[:room]
            room -= len(one)
            taken.append(one)
        if not taken:
            return
        try:
            self._transport.writelines(self._records.wrapped(taken))
        except WireError as error:
            self._to_wrap.clear()
            self._failed(error)

    def _performers(self) -> dict[type[Any], Performer]:
        return {
            **dict.fromkeys(SAID, self._say),
            CheckProof: lambda check: self._proving(self.check_proof(check)),
            MakeProof: lambda make: self._proving(self.make_proof(make)),
            Wrap: self._wrap,
            HearOn: self._hear_on,
            CheckSilence: lambda _: SilentFor(self._silent_ms()),
            Established: self._established,
            EndLink: self._end,
        }

    def _say(self, say: Say) -> None:
        word = self._protocol.said(say)
        if word is not None:
            self.send(word)

    def _silent_ms(self) -> int:
        # A peer that does not read is cut by its silence; one that we hold back is not silent, and must
        # hear that we are there, since we do not read its pings.
        if SLOW not in self._holds and not self._reading:
            self._say(SayPing())
            return 0
        # Its answers stand behind all that it has not read yet: slow is not silent.
        if self._outflow is not None and self._outflow.has_moved():
            self._heard_ms = monotonic_ms()
        return monotonic_ms() - self._heard_ms

    def _proving(self, answer: Event | Awaitable[Event] | None) -> Event | Awaitable[Event] | None:
        """What cannot be said at once stops the hearing, until the machine hears on."""
        if answer is not None and not isinstance(answer, Event):
            self._is_proving = self._is_behind = True
            self.hold_reading(PROOF)
        return answer

    def _wrap(self, _: Wrap) -> None:
        """What waits goes out in clear; what has come and was not heard must be wrapped already."""
        self._flush()
        assert isinstance(self._protocol, WrappableProtocol)
        self._records = records = Records(self.wrapping(), self._protocol.wrapped())
        came, self._unheard = self._unheard, deque()
        try:
            for frame in came:
                if isinstance(frame, list):
                    raise Tampered("something was said in clear behind the handshake")
                self._unheard.extend(records.frames(frame))
        except WireError as error:
            self._unheard.clear()
            self._driver.post(BadBytes(error.code, str(error)))

    def _hear_on(self, _: HearOn) -> None:
        if self._is_proving:
            # Not within a step of the machine: what is heard next is one of its own.
            self._loop.call_soon(self._proven)

    def _proven(self) -> None:
        self._is_proving = False
        self.caught_up()
        if not self._is_proving:
            self.release_reading(PROOF)

    def _check_unheard(self) -> None:
        """A stranger is not to fill our memory while it is not known who it is."""
        if len(self._unheard) > FRAMES_UNCHECKED_MAX:
            self._unheard.clear()
            raise Malformed("too much is said before the welcome")

    @property
    def _is_closed(self) -> bool:
        return self._link.state is LinkState.CLOSED

    def _established(self, _: Established) -> None:
        self.is_open = True
        self._protocol.opened()
        self.opened()

    def _end(self, end: EndLink) -> None:
        self.is_open = False
        transport = self._transport
        if transport is not None and not transport.is_closing():
            goodbye = self._protocol.said(end) if end.say else None
            if goodbye is not None:
                self._pending.append(goodbye)
            self._flush()
            while self._to_wrap:
                # The last that is said: there is no turn behind it.
                self._wrap_next()
            if end.code == "SILENT":
                transport.abort()
            else:
                transport.close()
                # A peer that does not read would hold the socket for ever.
                self._loop.call_later(GOODBYE_MS_MAX / 1_000, transport.abort)
        self.is_ended_here = end.say
        self.ended(end.code, end.text)

    def _failed(self, error: Exception) -> None:
        log.error("link broken by a mistake of ours", extra={"error": str(error)})
        self.abort()

    def _wake_writers(self) -> None:
        for waiter in self._room:
            if not waiter.done():
                waiter.set_result(None)
        self._room.clear()
