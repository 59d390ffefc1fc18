"""Room: console. The node's HTTP port: GET and HEAD of /healthz and /metrics, one request at a time.

h11 parses; nothing here trusts the client with more than a small request head and a few seconds.
"""

import asyncio
import logging
from collections.abc import Callable

import h11
import msgspec
from prometheus_client import generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from moorline.config.addresses import Address
from moorline.limits import HTTP_REQUEST_BYTES_MAX, HTTP_TIMEOUT_MS
from moorline.metrics import Metrics
from moorline.net.listener import cannot_listen

log = logging.getLogger("moorline.console")


class Health(msgspec.Struct, frozen=True):
    """What /healthz says; `ok` decides between 200 and 503."""

    ok: bool
    node: str
    roles: list[str]
    problems: list[str]


class Page(msgspec.Struct, frozen=True):
    status: int
    content_type: str
    body: bytes


class HttpPort:
    """Serves until closed."""

    def __init__(self, metrics: Metrics, health: Callable[[], Health]) -> None:
        self._metrics = metrics
        self._health = health
        self._server: asyncio.Server | None = None
        self._serving: set[asyncio.Task[None]] = set()

    async def open(self, address: Address) -> Address:
        try:
            self._server = await asyncio.start_server(
                self._accept, address.host, address.port, limit=HTTP_REQUEST_BYTES_MAX
            )
        except OSError as error:
            raise cannot_listen(address, error) from error
        host, port = self._server.sockets[0].getsockname()[:2]
        return Address("http", host, port)

    async def close(self) -> None:
        """Takes no more requests, and cuts those that are under way."""
        if self._server is not None:
            self._server.close()
        serving = list(self._serving)
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # The tasks are ours: asyncio takes a cancelled one of its own for a mistake, and says so.
        task = asyncio.create_task(self._serve(reader, writer))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(HTTP_TIMEOUT_MS / 1_000):
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
            page = self._page(request)
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

    def _page(self, request: h11.Request) -> Page:
        if request.method not in {b"GET", b"HEAD"}:
            return Page(405, "text/plain", b"only GET and HEAD\n")
        match request.target.partition(b"?")[0]:
            case b"/healthz":
                health = self._health()
                return Page(
                    200 if health.ok else 503, "application/json", msgspec.json.encode(health)
                )
            case b"/metrics":
                return Page(200, CONTENT_TYPE_LATEST, generate_latest(self._metrics.registry))
            case b"/":
                return Page(200, "text/plain", b"a Moorline node: /healthz /metrics\n")
            case _:
                return Page(404, "text/plain", b"not here: /healthz /metrics\n")


async def _request(connection: h11.Connection, reader: asyncio.StreamReader) -> h11.Request:
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(await reader.read(HTTP_REQUEST_BYTES_MAX))
        elif isinstance(event, h11.Request):
            return event
        else:
            raise h11.RemoteProtocolError("no request", error_status_hint=400)
