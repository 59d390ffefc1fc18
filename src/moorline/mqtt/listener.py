"""Room: mqtt. The addresses of MQTT: sockets by the door of the node's connections, a client behind each."""

import asyncio
import contextlib
import socket
import ssl
from functools import partial
from typing import cast

from moorline.config.addresses import Address
from moorline.limits import GOODBYE_MS_MAX
from moorline.mqtt.broker import MqttBroker
from moorline.mqtt.client import Client, Transport
from moorline.mqtt.logins import MqttAdmission
from moorline.net.acceptor import Acceptor, Visit
from moorline.net.authentication import BY_CERTIFICATE, BY_NOTHING
from moorline.net.clock import wall_ms
from moorline.net.http.peer import Peer
from moorline.net.listener import Describer, LoginRefused
from moorline.net.proxy_head import Network, read_proxy_head
from moorline.net.tls import why_refused_here
from moorline.wire.proxy_head import Source


class MqttListeners:
    """All addresses of MQTT of a node."""

    def __init__(self, broker: MqttBroker, acceptor: Acceptor) -> None:
        self._broker = broker
        self._acceptor = acceptor
        self._clients: set[Client] = set()

    @property
    def peers(self) -> list[Peer]:
        """Those that have entered, for whoever judges them again."""
        return [client for client in self._clients if client.is_entered]

    @property
    def connections(self) -> int:
        return len(self._clients)

    async def open(
        self, address: Address, admission: MqttAdmission, proxies: list[Network] | None = None
    ) -> list[Address]:
        """With `proxies`, who comes is a proxy of one of these networks, and says first who is behind it."""
        return await self._acceptor.open(address, partial(self._serve, admission, proxies))

    def judge_again(self, trust: Describer) -> None:
        """Other files of TLS are in use."""
        now_ms = wall_ms()
        for client in list(self._clients):
            certificate = client.identity.certificate
            if certificate is not None and (problem := trust.problem_of(certificate, now_ms)):
                client.close("EXPIRED", f"{problem}: connect again with another one")

    async def close(self) -> None:
        """Says goodbye to all; whoever accepts takes no more by then."""
        leaving = list(self._clients)
        for client in leaving:
            client.close("STOPPING", "the node stops; connect again to another or later")
        if leaving:
            await asyncio.wait([one.gone for one in leaving], timeout=GOODBYE_MS_MAX / 1_000)

    def make_client(self, admission: MqttAdmission, transport: Transport) -> Client:
        broker = self._broker
        return Client(broker, admission, broker.terms(admission.methods), transport)

    async def _serve(
        self,
        admission: MqttAdmission,
        proxies: list[Network] | None,
        accepted: socket.socket,
        visit: Visit,
    ) -> "asyncio.Future[None]":
        behind = "" if proxies is None else (await self._behind(accepted, proxies)).address
        connection = MqttSocket(self, admission, visit, behind)
        tls = admission.tls
        timeout_s = self._broker.config.hello_timeout_ms / 1_000
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: connection,
                accepted,
                ssl=tls.context if tls else None,
                ssl_handshake_timeout=timeout_s if tls else None,
            )
        except ssl.SSLCertVerificationError as error:
            address, why = _address_of(accepted), why_refused_here(error)
            admission.refused(LoginRefused(address, BY_CERTIFICATE, "", why))
            raise
        except ssl.SSLError as error:
            address = _address_of(accepted)
            admission.refused(LoginRefused(address, BY_NOTHING, "", str(error), "TLS", "Handshake"))
            raise
        except BaseException:
            connection.abort()
            raise
        visit.cut = connection.abort
        return connection.client.gone

    async def _behind(self, accepted: socket.socket, proxies: list[Network]) -> Source:
        try:
            return await read_proxy_head(accepted, proxies)
        except OSError as error:
            self._acceptor.note(f"a connection by a proxy is cut: {error}")
            raise

    def joined(self, client: Client) -> None:
        self._clients.add(client)
        client.gone.add_done_callback(lambda _: self._clients.discard(client))


class MqttSocket(asyncio.Protocol):
    """A client over TCP or TLS."""

    __slots__ = ("_behind", "_is_heard", "_listeners", "_transport", "_visit", "client")

    def __init__(
        self, listeners: MqttListeners, admission: MqttAdmission, visit: Visit, behind: str
    ) -> None:
        """`behind` is who a proxy says is there; empty where the connection is its own."""
        self._listeners = listeners
        self._behind = behind
        self._visit = visit
        self._transport: asyncio.Transport | None = None
        self.client = listeners.make_client(admission, self)
        self._is_heard = False

    # --- asyncio ----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have the methods of asyncio's without being subclasses of it.
        self._transport = transport = cast("asyncio.Transport", transport)
        self._listeners.joined(self.client)
        peer = transport.get_extra_info("peername")
        link = transport.get_extra_info("ssl_object")
        shown = (link.getpeercert(True) or b"") if link is not None else b""
        address = self._behind or (str(peer[0]) if peer else "")
        self.client.begin(address, shown, is_encrypted=link is not None)

    def data_received(self, data: bytes) -> None:
        if self._is_heard:
            self.client.received(data)
            return
        # It is heard, so that it is told in its own version.
        self.client.is_unwanted = self._visit.is_refused
        self.client.received(data)
        if self.client.has_connect:
            self._heard()

    def pause_writing(self) -> None:
        self.client.pause_writing()

    def resume_writing(self) -> None:
        self.client.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self.client.lost()

    def _heard(self) -> None:
        """It has said what it wants: not by its first byte, so that whoever says no more keeps nobody out."""
        self._is_heard = True
        self._visit.heard()

    # --- what the client does to it ---------------------------------------------------------------

    def write(self, data: bytes) -> None:
        if not self._is_heard:
            self._heard()  # of a CONNECT that took more than one turn
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def pause_reading(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()


def _address_of(accepted: socket.socket) -> str:
    with contextlib.suppress(OSError):  # it may be gone already
        return str(accepted.getpeername()[0])
    return ""
