"""Room: net. The native protocol as pages speak it: the same messages and the same link, as JSON over a
WebSocket. Each message of the socket is one frame.

A page has the rights of whoever it proved to be, by the login of its connection or by the proof in its hello;
every call passes the same handlers, guards, quotas and turns as one of a native client.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Final

from moorline.core.accepting_link import AcceptingLink
from moorline.core.effects import Event
from moorline.core.proof import CheckProof, ProofAccepted, ProofContinues, ProofRefused
from moorline.errors import CallFailed
from moorline.limits import HTTP_LOGIN_MS
from moorline.net.fair_turns import FairTurns
from moorline.net.http.messages import Request
from moorline.net.http.peer import Peer
from moorline.net.http.routes import Entry, Routes, SocketRoute
from moorline.net.http.websocket import NORMAL, WebSocket
from moorline.net.native import MakeWelcome, NativeNodeEnd
from moorline.net.session import Handlers, Session
from moorline.wire import json_messages
from moorline.wire.websocket import frame_text

SUBPROTOCOL: Final = "moorline.native.json"
UNSUPPORTED: Final = 1003

PROOFS: Final = ("oidc", "pass", "password", "token")


class JsonNodeEnd(NativeNodeEnd):
    """As at a native address, but for the bytes."""

    def __init__(self, link: AcceptingLink, welcome: MakeWelcome) -> None:
        super().__init__(link, welcome)
        self.feed = _whole
        self.decode = json_messages.node_decoder.decode
        # Nothing is unsendable: a text has no length of its own to keep to.
        self.encode = json_messages.encode  # type: ignore[assignment]  # bytes, not bytearrays


def _whole(data: bytes) -> Iterator[memoryview]:
    yield memoryview(data)


class SocketTransport:
    """A WebSocket, as a session sees its transport."""

    def __init__(self, socket: WebSocket) -> None:
        self._socket = socket

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """The socket has its own."""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return (self._socket.peer.peer_address, 0) if name == "peername" else default

    def get_write_buffer_size(self) -> int:
        return self._socket.waiting_bytes

    def is_closing(self) -> bool:
        return not self._socket.is_open

    def write(self, data: bytes) -> None:
        self._socket.write(frame_text(data))

    def writelines(self, frames: Sequence[bytes]) -> None:
        for frame in frames:
            self._socket.write(frame_text(frame))

    def pause_reading(self) -> None:
        self._socket.hold_reading()

    def resume_reading(self) -> None:
        self._socket.release_reading()

    def close(self) -> None:
        self._socket.close(NORMAL)

    def abort(self) -> None:
        self._socket.abort()


class NativeSocket:
    """A `SocketHandler`: one session over one WebSocket."""

    _session: Session
    _socket: WebSocket

    def __init__(self, served: "NativeSockets") -> None:
        self._served = served

    def opened(self, socket: WebSocket, /) -> None:
        self._socket = socket
        self._session = self._served.session_of(socket.peer)
        self._session.connection_made(SocketTransport(socket))  # type: ignore[arg-type]  # all that it uses

    def message(self, data: str | bytes, /) -> None:
        if isinstance(data, bytes):
            self._socket.close(UNSUPPORTED, "MALFORMED: messages here are text")
            return
        self._session.data_received(data.encode())

    def pause(self) -> None:
        self._session.pause_writing()

    def resume(self) -> None:
        self._session.resume_writing()

    def closed(self, code: int, text: str, /) -> None:  # noqa: ARG002
        # As a transport would: behind whatever step of the link has led to it.
        asyncio.get_running_loop().call_soon(self._session.connection_lost, None)


class NativeSockets:
    """Makes the sessions of one node's pages."""

    def __init__(
        self,
        handlers: Handlers,
        welcome: MakeWelcome,
        turns: FairTurns,
        *,
        keepalive_ms: int,
        joined: Callable[[Session], None] = lambda _: None,
    ) -> None:
        self._handlers, self._welcome = handlers, welcome
        self._turns, self._keepalive_ms = turns, keepalive_ms
        self._joined = joined
        self._made = 0

    def session_of(self, peer: Peer) -> Session:
        self._made += 1
        name = f"page {self._made}"
        link = AcceptingLink(
            name,
            hello_timeout_ms=HTTP_LOGIN_MS,
            keepalive_ms=self._keepalive_ms,
            mechanisms=PROOFS,
        )

        def check(session: Session, asked: CheckProof) -> Event | Awaitable[Event] | None:
            if asked.mechanism:
                return _proven(peer, session, asked)
            if not peer.is_entered:
                return ProofRefused("prove who you are: a page is nobody by itself")
            return _accepted(peer, session)

        def admit(session: Session) -> None:
            session.is_judged, session.page = True, peer
            session.rights, session.allowance = peer.rights, peer.allowance
            session.stand_in_line(self._turns)

        return Session(
            name, JsonNodeEnd(link, self._welcome), self._handlers, self._joined, check, admit
        )


async def _proven(peer: Peer, session: Session, asked: CheckProof) -> Event:
    said = asked.proof.decode(errors="replace")
    try:
        match asked.mechanism:
            case "oidc":
                challenge = await peer.login_by_issuer(asked.proof)
                if challenge:
                    return ProofContinues(challenge)
            case "password":
                user, _, password = said.partition("\0")
                await peer.authenticate(user=user, password=password)
            case "token":
                await peer.authenticate(token=said)
            case _:
                await peer.authenticate(passed=said)
    except CallFailed as error:
        return ProofRefused(str(error), error.code)
    return _accepted(peer, session)


def _accepted(peer: Peer, session: Session) -> ProofAccepted:
    session.identity, session.certificate = peer.identity, peer.certificate
    session.listener, session.is_local = peer.listener, peer.is_local
    return ProofAccepted()  # its end is the peer's, which cuts the socket


def register(routes: Routes, path: str, sockets: NativeSockets) -> None:
    def make(_: Request) -> NativeSocket:
        return NativeSocket(sockets)

    routes.add(
        SocketRoute(
            path,
            make,
            subprotocols=(SUBPROTOCOL,),
            needs_subprotocol=True,
            entry=Entry.LATER,
        )
    )
