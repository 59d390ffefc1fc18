"""Room: net/http. One WebSocket behind its upgrade: messages in, frames out, pings, and an end that is
heard once.

    OPEN ─┬─► CLOSING ─┬─► gone    we have said close, and wait for the peer's for a moment
          ├─► FAILED ──┤           it broke the protocol or a bound: it hears why, and is heard no more
          └────────────┘           the peer said close, was silent for too long, or does not read at all

There is no task: the transport calls, and the subject's handler is called. wsproto parses what comes;
what goes out is made in wire/websocket.py. Of what comes together a few frames are heard; the rest waits for
the next turn (net/http/turns.py), and until it is heard nothing more is read.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any, Final, cast

from wsproto import ConnectionType
from wsproto.connection import Connection, ConnectionState
from wsproto.events import BytesMessage, CloseConnection, Event, Ping, Pong, TextMessage
from wsproto.extensions import Extension
from wsproto.utilities import LocalProtocolError, RemoteProtocolError

from moorline.limits import (
    GOODBYE_MS_MAX,
    HTTP_LOGIN_MS,
    HTTP_REQUEST_BYTES_MAX,
    HTTP_TURN_MS,
    WEBSOCKET_BUFFER_BYTES,
    WEBSOCKET_BUFFER_BYTES_MAX,
    WEBSOCKET_CONTROLS_MAX,
    WEBSOCKET_CONTROLS_MS,
    WEBSOCKET_FRAGMENTS_MAX,
    WEBSOCKET_FRAMES_PER_TURN,
    WEBSOCKET_INFLATE_BYTES,
    WEBSOCKET_PIECE_BYTES,
    WEBSOCKET_STRANGER_FRAMES_MAX,
)
from moorline.net.clock import monotonic_ms
from moorline.net.http.peer import Peer
from moorline.net.http.routes import SocketHandler
from moorline.net.http.turns import Turns
from moorline.net.slow_reader import Outflow
from moorline.wire.websocket import (
    frame_binary,
    frame_close,
    frame_ping,
    frame_pong,
)

log = logging.getLogger("moorline.net")

NORMAL: Final = 1000
GOING_AWAY: Final = 1001
NO_CODE: Final = 1005
ABNORMAL: Final = 1006
POLICY: Final = 1008
TOO_BIG: Final = 1009
MISTAKE: Final = 1011
TRY_LATER: Final = 1013

CODES: Final = {"STOPPING": GOING_AWAY, "OVER_QUOTA": TRY_LATER, "BUSY": TRY_LATER}
"""By the code with which a login ends; all others are a matter of policy."""


class State(Enum):
    OPEN = "open"
    CLOSING = "closing"
    FAILED = "failed"
    GONE = "gone"


class WebSocket(asyncio.Protocol):
    """What a handler sends by, and the transport's protocol from the upgrade on."""

    def __init__(
        self,
        transport: asyncio.Transport,
        handler: SocketHandler,
        peer: Peer,
        *,
        subprotocol: str,
        keepalive_ms: int,
        message_bytes_max: int,
        turns: Turns,
        extensions: Iterable[Extension] = (),
        gone: Callable[[], None] = lambda: None,
        entered: Callable[["WebSocket"], None] = lambda _: None,
    ) -> None:
        self.peer = peer
        self.subprotocol = subprotocol
        """The one that was agreed on; empty if there is none."""
        self.is_writable = True
        """False from `pause` to `resume`."""
        self._transport = transport
        self._handler = handler
        self._state = State.OPEN
        self._bytes_max = message_bytes_max
        extensions = list(extensions)
        self._is_deflated = bool(extensions)
        self._parser = Connection(ConnectionType.SERVER, extensions)
        self._loop = asyncio.get_running_loop()
        self._keepalive_s = keepalive_ms / 1_000
        self._outflow = Outflow(transport)
        self._parts: list[str | bytes] = []
        self._parts_bytes = 0
        self._frames = 0
        self._turns = turns
        self._unheard = bytearray()
        """What has come and the parser does not have yet."""
        self._is_behind = False
        """Whether something may be left there, or in the parser."""
        self._is_in_line = False
        self._is_held = False
        """Whether the subject wants to hear nothing for now."""
        self._is_reading = True
        self._frames_heard = 0
        self._controls = 0
        self._controls_since_ms = 0
        self._was_heard = True
        self._is_asked = False
        """Whether a ping is on its way, and nothing has come since."""
        self._gone = gone
        self._entered = entered
        self._timer = self._loop.call_later(self._keepalive_s, self._look)
        self._patience: asyncio.TimerHandle | None = None

    # --- what subjects do -------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        return self._state is State.OPEN

    @property
    def waiting_bytes(self) -> int:
        """What the peer has not taken yet, as far as this process holds it."""
        return self._transport.get_write_buffer_size()

    def send_binary(self, payload: bytes) -> None:
        self.write(frame_binary(payload))

    def write(self, frame: bytes) -> None:
        """A frame that may be many receivers'. Where the socket is not open any more, it is nobody's."""
        if self._state is not State.OPEN:
            return
        self._transport.write(frame)
        if not self.is_writable and self.waiting_bytes > WEBSOCKET_BUFFER_BYTES_MAX:
            self._cut("a reader that takes nothing, for whom too much waits")

    def close(self, code: int = NORMAL, text: str = "") -> None:
        """Says close, behind what was sent; the handler has heard `closed` when this returns."""
        if self._state is not State.OPEN:
            return
        self._transport.write(frame_close(code, text))
        self._begin_closing()
        self._end(code, text)

    def abort(self) -> None:
        """Cuts the socket at once, whatever waits to be written."""
        self._cut("cut by this node")

    def enter(self) -> None:
        """Its subject knows who it is, by a login of its own."""
        if not self.peer.is_entered:
            self.peer.is_entered = True
            self._entered(self)

    def hold_reading(self) -> None:
        """Nothing more is read until it is released: what the peer sends waits on its side."""
        self._is_held = self._state is State.OPEN
        self._read_or_not()

    def release_reading(self) -> None:
        if self._is_held:
            self._is_held = False
            # A held peer was not silent: we did not listen.
            self._was_heard = True
            self._wait_or_read()

    # --- asyncio ----------------------------------------------------------------------------------

    def begin(self, came: bytes) -> None:
        """Behind the answer to the upgrade; `came` stood behind its request."""
        self._transport.set_protocol(self)
        self._transport.set_write_buffer_limits(high=WEBSOCKET_BUFFER_BYTES)
        self.peer.cut = self._ended_by_access
        if not self.peer.is_entered:
            self._patience = self._loop.call_later(HTTP_LOGIN_MS / 1_000, self._look_for_login)
        self._call(self._handler.opened, self)
        if came:
            self.data_received(came)

    def data_received(self, data: bytes) -> None:
        self._was_heard = True
        if self._is_deaf:
            return  # read, so that our close arrives, and not heard
        self._unheard += data
        is_first = not self._is_behind
        self._is_behind = True
        if is_first and not self._is_held and not self._turns.is_crowded:
            self._hear()
        self._wait_or_read()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._state = State.GONE
        self._end(ABNORMAL, "the connection is gone")
        self._timer.cancel()
        self._gone()

    def pause_writing(self) -> None:
        self.is_writable = False
        if self._state is State.OPEN:
            self._call(self._handler.pause)

    def resume_writing(self) -> None:
        self.is_writable = True
        if self._state is State.OPEN:
            self._call(self._handler.resume)

    # --- inside -----------------------------------------------------------------------------------

    @property
    def _is_deaf(self) -> bool:
        return self._state in {State.FAILED, State.GONE}

    def _go_on(self) -> None:
        """It is its turn."""
        self._is_in_line = False
        if not self._is_held and not self._is_deaf:
            self._hear()
        self._wait_or_read()

    def _wait_or_read(self) -> None:
        if self._is_deaf:
            self._unheard.clear()
            self._is_behind = False
        elif self._is_behind and not self._is_held and not self._is_in_line:
            self._is_in_line = True
            self._turns.wait(self._go_on)
        self._read_or_not()

    def _read_or_not(self) -> None:
        is_wanted = not self._is_behind and not self._is_held
        if is_wanted is self._is_reading or self._transport.is_closing():
            return
        self._is_reading = is_wanted
        if is_wanted:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def _hear(self) -> None:
        """As much as one turn allows, while the subject listens; `_is_behind` says whether more is left."""
        frames, ends_ms = 0, monotonic_ms() + HTTP_TURN_MS
        try:
            while True:
                for event in self._parser.events():
                    self._hear_event(event)
                    frames += 1
                    is_over = frames >= WEBSOCKET_FRAMES_PER_TURN or monotonic_ms() >= ends_ms
                    if is_over or self._is_deaf or self._is_held:
                        return
                if not self._unheard:
                    self._is_behind = False
                    return
                # A piece without an event counts too: what is unpacked from it may be large.
                frames += 1
                step = WEBSOCKET_INFLATE_BYTES if self._is_deflated else WEBSOCKET_PIECE_BYTES
                piece = bytes(self._unheard[:step])
                del self._unheard[:step]
                self._parser.receive_data(piece)
        except (LocalProtocolError, RemoteProtocolError):
            self._finish()

    def _hear_event(self, event: Event) -> None:
        self._frames_heard += 1
        if self._frames_heard > WEBSOCKET_STRANGER_FRAMES_MAX and not self.peer.is_entered:
            self._fail(POLICY, f"more than {WEBSOCKET_STRANGER_FRAMES_MAX} frames without a proof")
            return
        match event:
            case TextMessage() | BytesMessage():
                if self._state is State.OPEN:
                    self._take(event)
            case Ping():
                # One that does not read its answers gets none: they would pile up.
                if self._may_say_nothing() and self._state is State.OPEN and self.is_writable:
                    self._transport.write(frame_pong(bytes(event.payload)))
            case Pong():
                self._may_say_nothing()
            case CloseConnection():
                self._hear_close(event)

    def _may_say_nothing(self) -> bool:
        """Counts a frame that says nothing; too many of them within a time end the socket."""
        now_ms = monotonic_ms()
        if now_ms - self._controls_since_ms >= WEBSOCKET_CONTROLS_MS:
            self._controls, self._controls_since_ms = 0, now_ms
        self._controls += 1
        if self._controls > WEBSOCKET_CONTROLS_MAX:
            self._fail(POLICY, "too many pings, pongs or empty frames")
        return self._controls <= WEBSOCKET_CONTROLS_MAX

    def _take(self, event: TextMessage | BytesMessage) -> None:
        """A piece of a message, until it is whole: wsproto gives what has come, also of one frame."""
        piece: str | bytes = event.data if isinstance(event, TextMessage) else bytes(event.data)
        self._parts_bytes += len(piece.encode()) if isinstance(piece, str) else len(piece)
        self._frames += event.frame_finished
        # The last fragment of a message is empty with some programs, and ends it.
        is_end = event.message_finished and self._parts_bytes > 0
        if event.frame_finished and not piece and not is_end and not self._may_say_nothing():
            return
        # A stranger has a proof to say, and no more.
        bytes_max = self._bytes_max if self.peer.is_entered else HTTP_REQUEST_BYTES_MAX
        if self._parts_bytes > bytes_max:
            self._fail(TOO_BIG, f"a message is larger than {bytes_max} bytes")
            return
        if self._frames > WEBSOCKET_FRAGMENTS_MAX:
            self._fail(POLICY, f"a message has more than {WEBSOCKET_FRAGMENTS_MAX} fragments")
            return
        if piece or not self._parts:
            self._parts.append(piece)
        if event.message_finished:
            whole = self._joined()
            self._parts, self._parts_bytes, self._frames = [], 0, 0
            self._call(self._handler.message, whole)
        elif len(self._parts) > WEBSOCKET_FRAGMENTS_MAX:
            # It comes byte by byte: each as an object of its own would be fifty times as much.
            self._parts = [self._joined()]

    def _joined(self) -> str | bytes:
        parts = self._parts
        if len(parts) == 1:
            return parts[0]
        return type(parts[0])().join(cast("list[Any]", parts))

    def _hear_close(self, event: CloseConnection) -> None:
        if self._state is State.CLOSING:
            self._finish()
            return
        code, reason = int(event.code), event.reason or ""
        if self._parser.state is not ConnectionState.REMOTE_CLOSING:
            # Nobody said it: wsproto tells a mistake of the peer in this way.
            self._fail(code, reason)
            return
        self._transport.write(frame_close(NORMAL if code == NO_CODE else code))
        self._end(code, reason)
        self._finish()

    def _fail(self, code: int, text: str) -> None:
        """The peer broke something: it hears what, and whatever it says from now on is not heard."""
        if self._state is State.OPEN:
            self._transport.write(frame_close(code, text))
            self._begin_closing()
        self._state = State.FAILED
        self._end(code, text)

    def _begin_closing(self) -> None:
        self._state = State.CLOSING
        self._timer.cancel()
        self._timer = self._loop.call_later(GOODBYE_MS_MAX / 1_000, self._transport.abort)
        self._is_held = False  # or the peer's close would never be read
        self._wait_or_read()

    def _finish(self) -> None:
        """Both have said close: what is left is written, within the time of a goodbye."""
        self._state = State.GONE
        self._timer.cancel()
        self._timer = self._loop.call_later(GOODBYE_MS_MAX / 1_000, self._transport.abort)
        self._transport.close()

    def _end(self, code: int, text: str) -> None:
        """Tells the handler, once, and gives back what the login held."""
        handler, self._handler = self._handler, NOBODY
        if handler is NOBODY:
            return
        self._parts = []
        if self._patience is not None:
            self._patience.cancel()
        try:
            handler.closed(code, text)
        except Exception:
            log.exception("a WebSocket's handler failed at its end")
        self.peer.end("DONE")

    def _ended_by_access(self, code: str, text: str) -> None:
        self.close(CODES.get(code, POLICY), f"{code}: {text}")

    def _look_for_login(self) -> None:
        if not self.peer.is_entered:
            self.close(POLICY, "AUTH: no proof came in time")

    def _look(self) -> None:
        """Whether the peer is there: a ping behind a time of silence, and the end behind a second one."""
        self._timer = self._loop.call_later(self._keepalive_s, self._look)
        # Its answers stand behind all that it has not read yet: slow is not silent.
        has_moved = self._outflow.has_moved()
        if self._was_heard or has_moved or not self._is_reading:
            self._was_heard = self._is_asked = False
        elif self._is_asked:
            self._cut("silent: it answers no ping")
        else:
            self._is_asked = True
            self._transport.write(frame_ping())

    def _cut(self, why: str) -> None:
        log.debug("a WebSocket is cut", extra={"address": self.peer.peer_address, "why": why})
        self._transport.abort()
        self._state = State.GONE
        self._timer.cancel()
        self._end(ABNORMAL, why)

    def _call(self, hook: Callable[..., None], *arguments: Any) -> None:
        try:
            hook(*arguments)
        except Exception:
            log.exception("a WebSocket's handler failed")
            self.close(MISTAKE, "a mistake in the node; its log says more")


class _Nobody:
    """In the place of a handler that has heard of the end."""

    def opened(self, socket: WebSocket, /) -> None: ...
    def message(self, data: str | bytes, /) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def closed(self, code: int, text: str, /) -> None: ...


NOBODY: Final = _Nobody()
