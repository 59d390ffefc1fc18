"""Room: console. The node's HTTP port: GET and HEAD of its pages, one request at a time.

h11 parses; nothing here trusts the client with more than a small request head and a few seconds. Where
there are too many at once, the one that has not finished its request for longest goes: a probe is always
answered.
"""

import asyncio
import logging
import socket
from collections.abc import Callable

import h11
import msgspec
from prometheus_client import generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from moorline.config.addresses import Address
from moorline.core.descriptors import Descriptors, Use
from moorline.core.door import Door
from moorline.limits import HTTP_CONNECTIONS_MAX, HTTP_REQUEST_BYTES_MAX, HTTP_TIMEOUT_MS
from moorline.metrics import Metrics
from moorline.net.acceptor import Acceptor, Visit
from moorline.net.slices import in_slices

log = logging.getLogger("moorline.console")


PAGES = b"/livez /readyz /healthz /metrics"


class Health(msgspec.Struct, frozen=True):
    """What a page about health says; `ok` decides between 200 and 503."""

    ok: bool
    node: str
    roles: list[str]
    problems: list[str]


class Page(msgspec.Struct, frozen=True):
    status: int
    content_type: str
    body: bytes


_BUSY = (
    b"HTTP/1.1 503 Service Unavailable\r\n"
    b"content-length: 0\r\nretry-after: 1\r\nconnection: close\r\n\r\n"
)
"""More ask than are answered at once."""


class HttpPort:
    """Serves until closed."""

    def __init__(
        self, metrics: Metrics, health: Callable[[str], Health], descriptors: Descriptors
    ) -> None:
        self._metrics = metrics
        # Asked for one of the pages by its name: "livez", "readyz" or "healthz".
        self._health = health
        door = Door(descriptors, Use.HTTP)
        # A short queue: a probe is not to wait behind thousands that say nothing.
        self._acceptor = Acceptor(door, backlog=2 * HTTP_CONNECTIONS_MAX)

    async def open(self, address: Address) -> Address:
        return (await self._acceptor.open(address, self._serve))[0]

    async def close(self) -> None:
        """Takes no more requests, and cuts those that are under way."""
        self._acceptor.close()
        await self._acceptor.cut_all()

    async def _serve(self, accepted: socket.socket, visit: Visit) -> None:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=HTTP_REQUEST_BYTES_MAX, loop=loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
        transport, _ = await loop.connect_accepted_socket(lambda: protocol, accepted)
        writer = asyncio.StreamWriter(transport, protocol, reader, loop)
        try:
            async with asyncio.timeout(HTTP_TIMEOUT_MS / 1_000):
                if visit.is_refused:
                    writer.write(_BUSY)
                else:
                    await self._answer(reader, writer)
                writer.close()
                await writer.wait_closed()
        except (TimeoutError, ConnectionError, h11.ProtocolError):
            pass
        except Exception:
            log.exception("an HTTP request failed by a mistake of ours")
        finally:
            # Or a client that reads nothing would hold the socket; a closed one does not mind.
            writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=HTTP_REQUEST_BYTES_MAX)
        try:
            request = await _request(connection, reader)
            page = await self._page(request)
        except h11.RemoteProtocolError as error:
            page = Page(error.error_status_hint, "text/plain", b"this is not HTTP\n")
            request = None
        if connection.our_state not in {h11.SEND_RESPONSE, h11.IDLE}:
            return
        head = h11.Response(
            status_code=page.status,
            headers=[
                ("content-type", page.content_type),
                ("content-length", str(len(page.body))),
                ("connection", "close"),
            ],
        )
        sent = connection.send(head) or b""
        if request is None or request.method != b"HEAD":
            sent += connection.send(h11.Data(data=page.body)) or b""
        writer.write(sent)
        await writer.drain()

    async def _page(self, request: h11.Request) -> Page:
        if request.method not in {b"GET", b"HEAD"}:
            return Page(405, "text/plain", b"only GET and HEAD\n")
        match request.target.partition(b"?")[0]:
            case b"/livez" | b"/readyz" | b"/healthz" as path:
                health = self._health(path[1:].decode())
                return Page(
                    200 if health.ok else 503, "application/json", msgspec.json.encode(health)
                )
            case b"/metrics":
                await in_slices(self._metrics.count())
                return Page(200, CONTENT_TYPE_LATEST, generate_latest(self._metrics.registry))
            case b"/":
                return Page(200, "text/plain", b"a Moorline node: " + PAGES + b"\n")
            case _:
                return Page(404, "text/plain", b"not here: " + PAGES + b"\n")


async def _request(connection: h11.Connection, reader: asyncio.StreamReader) -> h11.Request:
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(await reader.read(HTTP_REQUEST_BYTES_MAX))
        elif isinstance(event, h11.Request):
            return event
        else:
            raise h11.RemoteProtocolError("no request", error_status_hint=400)
