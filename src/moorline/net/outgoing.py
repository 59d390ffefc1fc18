"""Room: net. Calls of HTTP that a node makes to others: few, small, and never longer than their time.

One connection for each call. The answer is read whole within one time for all of it, name, handshake and
every byte included, and within bounds for its head and its body; a redirect is not followed, a body that is
packed is not unpacked, and no setting of the environment sends it elsewhere. In clear only to this machine.
"""

import asyncio
import socket
import ssl
from itertools import count
from typing import Final

import h11

from moorline.core.access.web_url import Url
from moorline.limits import (
    OIDC_ANSWER_BYTES_MAX,
    OIDC_HEAD_BYTES_MAX,
    OUTGOING_PARTS_MAX,
    OUTGOING_PARTS_PER_TURN,
)

_CHUNK_BYTES: Final = 64 * 1_024
_ADDRESSES_MAX: Final = 4
"""Of one name that are tried, one after the other."""


class CallFailed(Exception):
    """The other end did not answer as it should; the text says what is wrong with it, and nothing secret."""


class Outgoing:
    def __init__(self, context: ssl.SSLContext, *, timeout_ms: int, at_once_max: int) -> None:
        self._context = context
        self._timeout_s = timeout_ms / 1_000
        self._places = asyncio.Semaphore(at_once_max)
        self._lookups: dict[tuple[str, int], asyncio.Task[list[str]]] = {}
        """Names that are being looked up: whoever wants the same waits for the same. A lookup has a thread of
        few until it is over, and cannot be taken back; one that hangs is one, and not one for each call."""

    async def close(self) -> None:
        lookups = list(self._lookups.values())
        for lookup in lookups:
            lookup.cancel()
        await asyncio.gather(*lookups, return_exceptions=True)

    async def get(self, url: str) -> bytes:
        return await self._call(url, "GET", b"", {})

    async def post(self, url: str, body: bytes, headers: dict[str, str]) -> bytes:
        return await self._call(url, "POST", body, headers)

    async def _call(self, text: str, method: str, body: bytes, headers: dict[str, str]) -> bytes:
        """The body of an answer 200; `Refused` of another one, with its status."""
        try:
            url = Url.parsed(text)
        except ValueError as error:
            raise CallFailed(str(error)) from None
        try:
            async with asyncio.timeout(self._timeout_s), self._places:
                return await self._exchanged(url, method, body, headers)
        except TimeoutError:
            raise CallFailed(f"{url.host} did not answer in time") from None
        except ssl.SSLCertVerificationError as error:
            raise CallFailed(
                f"the certificate of {url.host} cannot be verified ({error.verify_message})"
            ) from None
        except OSError as error:
            why = error.strerror or type(error).__name__
            raise CallFailed(f"{url.host} cannot be reached ({why})") from None
        except h11.RemoteProtocolError:
            raise CallFailed(f"{url.host} does not speak HTTP") from None
        except UnicodeError:
            # A level of it is empty or too long, which is said when it is looked up.
            raise CallFailed(f"{url.host[:200]} is no name of a machine") from None

    async def _exchanged(
        self, url: Url, method: str, body: bytes, headers: dict[str, str]
    ) -> bytes:
        reader, writer = await self._connected(url)
        try:
            link = h11.Connection(h11.CLIENT, max_incomplete_event_size=OIDC_HEAD_BYTES_MAX)
            own = {
                "host": url.authority,
                "accept": "application/json",
                "accept-encoding": "identity",
                "connection": "close",
                "user-agent": "moorline",
                **({"content-length": str(len(body))} if method == "POST" else {}),
                **headers,
            }
            request = h11.Request(method=method, target=url.target, headers=list(own.items()))
            said = link.send(request) or b""
            if body:
                said += link.send(h11.Data(data=body)) or b""
            said += link.send(h11.EndOfMessage()) or b""
            writer.write(said)
            await writer.drain()
            return await _answer(link, reader, url.host)
        finally:
            # Not waited for: the other end may never say its part of a goodbye.
            writer.transport.abort()

    async def _connected(self, url: Url) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        context = self._context if url.scheme == "https" else None
        addresses = await self._addresses_of(url)
        failure: OSError = OSError("it has no address")
        for address in addresses:
            try:
                # Each has its part of the time: one that hears nothing leaves some to the next.
                async with asyncio.timeout(self._timeout_s / len(addresses)):
                    return await asyncio.open_connection(
                        address,
                        url.port,
                        ssl=context,
                        server_hostname=url.host if context is not None else None,
                        limit=_CHUNK_BYTES,
                    )
            except ssl.SSLCertVerificationError:
                raise
            except (OSError, TimeoutError) as error:
                failure = error
        raise failure

    async def _addresses_of(self, url: Url) -> list[str]:
        key = url.host, url.port
        lookup = self._lookups.get(key)
        if lookup is None:
            lookup = self._lookups[key] = asyncio.create_task(_looked_up(*key))
            lookup.add_done_callback(lambda done: self._looked_up(key, done))
        return await asyncio.shield(lookup)

    def _looked_up(self, key: tuple[str, int], lookup: "asyncio.Task[list[str]]") -> None:
        del self._lookups[key]
        if not lookup.cancelled():
            lookup.exception()  # whoever asked may be gone by then


async def _looked_up(host: str, port: int) -> list[str]:
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = dict.fromkeys(str(address[0]) for _, _, _, _, address in found)
    return list(addresses)[:_ADDRESSES_MAX]


async def _answer(link: h11.Connection, reader: asyncio.StreamReader, host: str) -> bytes:
    body = bytearray()
    status = 0
    for part in count(1):
        if part > OUTGOING_PARTS_MAX:
            raise CallFailed(f"{host} answers in more than {OUTGOING_PARTS_MAX} parts")
        if not part % OUTGOING_PARTS_PER_TURN:
            await asyncio.sleep(0)
        event = link.next_event()
        if event is h11.NEED_DATA:
            link.receive_data(await reader.read(_CHUNK_BYTES))
        elif isinstance(event, h11.Response):
            status = event.status_code
            if status != 200:
                # What it says besides may be long, and may have what was sent in it.
                raise Refused(host, status)
        elif isinstance(event, h11.Data):
            body += event.data
            if len(body) > OIDC_ANSWER_BYTES_MAX:
                raise CallFailed(f"{host} answers more than {OIDC_ANSWER_BYTES_MAX} bytes")
        elif isinstance(event, h11.EndOfMessage):
            return bytes(body)
        elif isinstance(event, h11.ConnectionClosed):
            break
    raise CallFailed(f"{host} hung up")


class Refused(CallFailed):
    """Another status than 200; a redirect is one."""

    def __init__(self, host: str, status: int) -> None:
        super().__init__(f"{host} answers {status}")
        self.status = status
