"""Room: net. Who is behind a proxy that speaks the PROXY protocol: read from the socket before anything else,
TLS included, and of proxies that are trusted alone."""

import asyncio
import ipaddress
import socket
from collections.abc import Iterable

from moorline.errors import Malformed
from moorline.limits import PROXY_HEAD_MS
from moorline.wire.proxy_head import Source, source_of, wanted

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class Untrusted(ConnectionError):
    """Somebody who is no proxy of ours would say who it is."""


async def read_proxy_head(accepted: socket.socket, trusted: Iterable[Network]) -> Source:
    """An `OSError` ends the connection: nobody is there to be told why."""
    address = str(accepted.getpeername()[0]).partition("%")[0]
    if not is_trusted(address, trusted):
        raise Untrusted(f"{address} is no proxy that is trusted")
    loop = asyncio.get_running_loop()
    head = b""
    try:
        async with asyncio.timeout(PROXY_HEAD_MS / 1_000):
            while count := wanted(head):
                data = await loop.sock_recv(accepted, count)
                if not data:
                    raise ConnectionError("a proxy has closed the connection in its head")
                head += data
        return source_of(head)
    except Malformed as error:
        raise ConnectionError(str(error)) from None
    except TimeoutError:
        raise ConnectionError("no whole head of a proxy in time") from None


def is_trusted(address: str, trusted: Iterable[Network]) -> bool:
    found: ipaddress.IPv4Address | ipaddress.IPv6Address = ipaddress.ip_address(address)
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
        found = found.ipv4_mapped
    return any(found in network for network in trusted)
