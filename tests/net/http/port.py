"""A real HTTP port with routes of the tests' own, and clients without manners."""

import asyncio
import base64
import contextlib
import ssl
from collections.abc import AsyncIterator, Sequence
from typing import TypeVar

from tests.access.directory import LIGHT, Directory

from moorline.access.passes import Pass
from moorline.access.proofs import PrincipalProofs, TokenRow
from moorline.access.tokens import new_token
from moorline.config.addresses import Address
from moorline.core.access.web_origin import WebNames
from moorline.core.descriptors import Descriptors, Use
from moorline.core.door import Door
from moorline.net.authentication import Authentication
from moorline.net.descriptors import of_process
from moorline.net.http.logins import Proxies, WebAdmission
from moorline.net.http.messages import Request, Response, Static, json_response, text_response
from moorline.net.http.peer import Peer
from moorline.net.http.routes import Entry, Route, Routes, SocketRoute
from moorline.net.http.server import HttpServer
from moorline.net.http.websocket import WebSocket
from moorline.net.listener import LoginRefused, ServerTls
from moorline.net.session_rights import SessionRights
from moorline.wire.websocket import frame_text

MECHANISMS = ("certificate", "password", "token", "anonymous")
PATIENCE_S = 60


class Heard:
    """A subject that writes down what it hears, and answers texts with themselves."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.messages: list[str | bytes] = []
        self.events: list[str] = []
        self.ends: list[tuple[int, str]] = []
        self.socket: WebSocket

    def opened(self, socket: WebSocket, /) -> None:
        self.socket = socket

    def message(self, data: str | bytes, /) -> None:
        self.messages.append(data)
        if isinstance(data, str):
            if data == "fail":
                raise RuntimeError("a mistake of the test's own")
            self.socket.write(frame_text(data.encode()))
        else:
            self.socket.send_binary(data)

    def pause(self) -> None:
        self.events.append("pause")

    def resume(self) -> None:
        self.events.append("resume")

    def closed(self, code: int, text: str, /) -> None:
        self.ends.append((code, text))


class Port:
    def __init__(
        self,
        *,
        hosts: Sequence[str] = (),
        origins: Sequence[str] = (),
        anonymous: str = "loopback",
        tls: ServerTls | None = None,
        keepalive_ms: int = 60_000,
        descriptors: Descriptors | None = None,
        is_proxied: bool = False,
        mechanisms: tuple[str, ...] = MECHANISMS,
        proxies: Proxies = Proxies(),  # noqa: B008  # frozen
        base_path: str = "",
    ) -> None:
        self.directory = Directory()
        self.passes: dict[bytes, Pass] = {}
        """Those that somebody asked for, by their texts."""
        self.proofs = PrincipalProofs(self.directory, "home", cost=LIGHT)
        self.refused: list[LoginRefused] = []
        self.entered: list[Peer] = []
        self.handlers: list[Heard] = []
        self.waiting: list[asyncio.Future[Response]] = []
        self.posted: list[bytes] = []
        self.bound = 1_000_000
        self.tls = tls
        self.routes = Routes(base_path)
        self._add_routes()
        account = descriptors or of_process(1_000, shards=0)
        self.connections = Door(account, Use.CONNECTIONS)
        at = self.proofs.at_address
        self.server = HttpServer(
            self.routes,
            WebAdmission(
                WebNames(hosts, origins),
                anonymous,
                Authentication(mechanisms, at(is_proxied=is_proxied)),
                Authentication(mechanisms, at(is_proxied=True)),
                "http://test",
                is_proxied,
                entered=self._enter,
                refused=self.refused.append,
                find_pass=self.passes.get,
                proxies=proxies,
            ),
            account,
            tls=tls,
            long_stays=self.connections,
            keepalive_ms=keepalive_ms,
        )
        self.address = Address("http", "", 0)

    def _add_routes(self) -> None:
        script = Static(b"'script'", "text/javascript")
        self.routes.add(
            Route("GET", "/open", lambda _: text_response("open"), entry=Entry.OPEN),
            Route("GET", "/script.js", script.answer, entry=Entry.OPEN),
            Route("GET", "/who", self._who),
            Route("GET", "/below/", lambda request: text_response(request.rest), is_prefix=True),
            Route("GET", "/query", lambda request: json_response(request.query())),
            Route("GET", "/held", self._hold, is_held=True),
            Route("GET", "/mistake", self._mistake),
            Route("GET", "/large", lambda _: Response(200, b"x" * 3_000_000), entry=Entry.OPEN),
            Route("POST", "/post", self._post, body_bytes_max=1_000),
            SocketRoute("/socket", self._socket, subprotocols=("mqtt", "other")),
            SocketRoute("/later", self._socket, ("mqtt",), entry=Entry.LATER),
            SocketRoute("/deflate", self._socket, is_deflated=True, message_bytes_max=100_000),
            SocketRoute("/mqtt", self._socket, ("mqtt",), needs_subprotocol=True),
            SocketRoute("/never", lambda _: text_response("not for you", 403)),
        )

    def _enter(self, peer: Peer) -> SessionRights:
        self.entered.append(peer)
        if len(self.entered) > self.bound:
            peer.close("OVER_QUOTA", "the quota connections is full")
        return None  # type: ignore[return-value]  # nothing here asks for a right

    def _who(self, request: Request) -> Response:
        peer = request.peer
        return json_response([peer.principal, peer.identity.proof.value, peer.is_local])

    def _hold(self, _: Request) -> "asyncio.Future[Response]":
        self.waiting.append(asyncio.get_running_loop().create_future())
        return self.waiting[-1]

    def _mistake(self, _: Request) -> Response:
        raise RuntimeError("a mistake of the test's own")

    def _post(self, request: Request) -> Response:
        self.posted.append(request.body)
        return json_response(len(request.body))

    def _socket(self, request: Request) -> Heard:
        self.handlers.append(Heard(request))
        return self.handlers[-1]

    def new_token(self, name: str, expires_ms: int | None = None) -> str:
        token = new_token()
        self.directory.add_token(token, TokenRow(name, expires_ms))
        return token

    @property
    def scheme(self) -> str:
        return "https" if self.tls is not None else "http"

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.address.port}"

    def socket_url(self, path: str) -> str:
        return f"{'wss' if self.tls is not None else 'ws'}://{self.host}{path}"

    async def connect(
        self, context: ssl.SSLContext | None = None
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.address.port, ssl=context)

    async def ask(
        self, path: str, *headers: str, method: str = "GET", context: ssl.SSLContext | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        """One request by a connection of its own. A header `Host` in it takes the place of ours."""
        reader, writer = await self.connect(context)
        try:
            has_host = any(header.lower().startswith("host:") for header in headers)
            lines = [f"{method} {path} HTTP/1.1", *([] if has_host else [f"Host: {self.host}"])]
            lines += [*headers, "Connection: close", "", ""]
            writer.write("\r\n".join(lines).encode())
            return await answer_of(reader, has_body=method != "HEAD")
        finally:
            writer.close()


async def answer_of(
    reader: asyncio.StreamReader, *, has_body: bool = True
) -> tuple[int, dict[str, str], bytes]:
    async with asyncio.timeout(PATIENCE_S):
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
        size = int(headers.get("content-length", "0")) if has_body else 0
        return int(head[0].split()[1]), headers, await reader.readexactly(size)


async def is_closed(reader: asyncio.StreamReader) -> bytes:
    """Waits for the end; what came before it."""
    async with asyncio.timeout(PATIENCE_S):
        try:
            return await reader.read(-1)
        except ConnectionError:
            return b""


AnyPort = TypeVar("AnyPort", bound=Port)


@contextlib.asynccontextmanager
async def opened(port: AnyPort) -> AsyncIterator[AnyPort]:
    async with port.proofs:
        port.address = await port.server.open(Address("http", "127.0.0.1", 0))
        try:
            yield port
        finally:
            await port.server.close()
            port.connections.check()
            port.server.door.check()


def basic(name: str, password: str) -> str:
    return "Authorization: Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()
