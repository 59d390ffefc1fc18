"""Room: records. Clients over WebSockets, at `/records` of the HTTP port: JSON or msgpack, as the
subprotocol says."""

from typing import Any, Final

import msgspec

from moorline.access.trail import Acting
from moorline.limits import RECORD_KNOWN_CHARACTERS_MAX, WEBSOCKET_MESSAGE_BYTES_MAX
from moorline.net.http.messages import Request
from moorline.net.http.routes import Entry, Routes, SocketRoute
from moorline.net.http.websocket import POLICY, WebSocket
from moorline.net.session_rights import SessionAllowance, SessionRights
from moorline.records.browser import serving
from moorline.records.form import JSON, MSGPACK, Form
from moorline.records.session import RecordSession
from moorline.records.subscribing import Tables
from moorline.wire.records import FromClient, Login, node_json, node_msgpack

PATH: Final = "/records"
AS_JSON: Final = "moorline.records.json"
AS_MSGPACK: Final = "moorline.records.msgpack"

MALFORMED: Final = 1007
RESTART: Final = 1012
"""As when a node is started anew: a client comes back with what it has."""


class SocketOutlet:
    def __init__(self, socket: WebSocket) -> None:
        self.form: Form = MSGPACK if socket.subprotocol == AS_MSGPACK else JSON
        self._socket = socket

    @property
    def is_entered(self) -> bool:
        return self._socket.peer.is_entered

    @property
    def acting(self) -> Acting:
        return self._socket.peer

    @property
    def rights(self) -> SessionRights:
        return self._socket.peer.rights

    @property
    def allowance(self) -> SessionAllowance | None:
        return self._socket.peer.allowance

    @property
    def is_writable(self) -> bool:
        return self._socket.is_writable

    def write(self, packet: Any, /) -> None:
        self._socket.write(packet)

    async def login(self, said: Login) -> None:
        await self._socket.peer.authenticate(
            token=said.token, user=said.user, password=said.password
        )

    def hold_reading(self) -> None:
        self._socket.hold_reading()

    def release_reading(self) -> None:
        self._socket.release_reading()

    def close(self, code: str, text: str) -> None:
        self._socket.close(POLICY, f"{code}: {text}")

    def boot(self, why: str) -> None:  # noqa: ARG002
        # Not a word of why: a change of rights looks like any other end.
        if self._socket.is_writable:
            self._socket.close(RESTART, "come back with your cursor")
        else:
            self._socket.abort()


class RecordSocket:
    """A `SocketHandler`."""

    _session: RecordSession
    _socket: WebSocket

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def opened(self, socket: WebSocket, /) -> None:
        self._socket = socket
        self._session = RecordSession(self._tables, SocketOutlet(socket))

    def message(self, data: str | bytes, /) -> None:
        try:
            messages = decoded(data)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            self._socket.close(MALFORMED, f"MALFORMED: {error}")
            return
        self._session.heard(messages)

    def pause(self) -> None:
        self._session.pause()

    def resume(self) -> None:
        self._session.resume()

    def closed(self, code: int, text: str, /) -> None:  # noqa: ARG002
        self._session.closed()


def decoded(data: str | bytes) -> list[FromClient]:
    if isinstance(data, str):
        heard: list[FromClient] = node_json.decode(data)
    else:
        heard = node_msgpack.decode(data)
    return heard


def register(routes: Routes, tables: Tables) -> None:
    def make(_: Request) -> RecordSocket:
        return RecordSocket(tables)

    serving.register(routes)
    routes.add(
        SocketRoute(
            PATH,
            make,
            subprotocols=(AS_JSON, AS_MSGPACK),
            entry=Entry.LATER,
            message_bytes_max=WEBSOCKET_MESSAGE_BYTES_MAX + RECORD_KNOWN_CHARACTERS_MAX,
        )
    )
