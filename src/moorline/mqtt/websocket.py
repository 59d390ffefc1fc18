"""Room: mqtt. Clients over WebSockets of the HTTP port (MQTT 5, 6), at `/mqtt` and `/`: the same client as
over TCP, behind another transport.

A message of the WebSocket is a piece of the stream: packets may stand in it whole, several, or in part. Text
is none. Whoever is let in by the port (Host, Origin, proxies) proves itself by CONNECT, as everywhere.
"""

from typing import Final

from moorline.mqtt.client import Client
from moorline.mqtt.listener import MqttListeners
from moorline.mqtt.logins import MqttAdmission
from moorline.net.http.messages import Request
from moorline.net.http.routes import Entry, Routes, SocketRoute
from moorline.net.http.websocket import WebSocket

PATHS: Final = ("/mqtt", "/")
SUBPROTOCOLS: Final = ("mqtt", "mqttv3.1", "mqttv3.1.1")
"""The name of the standard, and those of before it."""

NOT_BINARY: Final = 1003


class MqttWebSocket:
    """A `SocketHandler`, and the transport of a client."""

    _socket: WebSocket

    def __init__(self, listeners: MqttListeners, admission: MqttAdmission) -> None:
        self._listeners = listeners
        self._admission = admission
        self.client: Client | None = None

    # --- the WebSocket ----------------------------------------------------------------------------

    def opened(self, socket: WebSocket, /) -> None:
        self._socket = socket
        peer = socket.peer
        client = self.client = self._listeners.make_client(self._admission, self)
        self._listeners.joined(client)
        # A page of this machine's browser, and what a proxy passes on, is not somebody on this machine.
        client.is_forwarded = not peer.is_local
        client.begin(peer.peer_address, b"", is_encrypted=peer.is_encrypted)
        client.certificate = peer.certificate

    def message(self, data: str | bytes, /) -> None:
        if self.client is None:
            return
        if isinstance(data, str):
            # MQTT-6.0.0-1
            self._socket.close(NOT_BINARY, "MQTT is binary")
            return
        self.client.received(data)

    def pause(self) -> None:
        if self.client is not None:
            self.client.pause_writing()

    def resume(self) -> None:
        if self.client is not None:
            self.client.resume_writing()

    def closed(self, code: int, text: str, /) -> None:  # noqa: ARG002
        if self.client is not None:
            self.client.lost()

    # --- the transport ----------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        if self.client is not None and self.client.is_entered:
            # Its login is that of its CONNECT. From CONNACK on it is no stranger to the port either, whom it
            # would cut after a while.
            self._socket.enter()
        self._socket.send_binary(data)

    def close(self) -> None:
        self._socket.close()

    def abort(self) -> None:
        self._socket.abort()

    def pause_reading(self) -> None:
        self._socket.hold_reading()

    def resume_reading(self) -> None:
        self._socket.release_reading()


def register(routes: Routes, listeners: MqttListeners, admission: MqttAdmission) -> None:
    def make(_: Request) -> MqttWebSocket:
        return MqttWebSocket(listeners, admission)

    for path in PATHS:
        routes.add(
            SocketRoute(
                path,
                make,
                subprotocols=SUBPROTOCOLS,
                needs_subprotocol=True,
                entry=Entry.LATER,
            )
        )
