"""Room: wire. What a proxy says before the bytes of a connection that it passes on: the PROXY protocol,
versions 1 and 2 (HAProxy's proxy-protocol.txt).

    1   PROXY TCP4 SOURCE DESTINATION PORT PORT CRLF     one line of at most 107 bytes; or PROXY UNKNOWN …
    2   signature   12 bytes
        version     byte   0x20 the proxy itself, 0x21 somebody's
        family      byte   0x11 TCP over IPv4, 0x21 over IPv6; of others no address is taken
        length      u16    bytes that follow: addresses, ports, and what else it says, which is passed over

A head is read byte by byte where its length is not known: what stands behind it is TLS, or the protocol.
"""

import ipaddress
import struct
from typing import Final, NamedTuple

from moorline.errors import Malformed
from moorline.limits import PROXY_HEAD_BYTES_MAX

SIGNATURE: Final = b"\r\n\r\n\0\r\nQUIT\n"
_FIXED: Final = 16
_LINE_BYTES_MAX: Final = 107
_V1: Final = b"PROXY "
_LOCAL, _PROXIED = 0x20, 0x21
_ADDRESSES: Final = {0x11: (4, 12), 0x21: (16, 36)}
"""By the family: bytes of an address, and of all addresses and ports together."""


class Source(NamedTuple):
    """Whom the proxy speaks for; both are empty where it speaks for itself, or does not know."""

    address: str
    port: int


NOBODY: Final = Source("", 0)


def wanted(head: bytes) -> int:
    """How many bytes may be read now without taking any that stand behind the head; 0 if it is whole.
    `Malformed` for what begins no head."""
    if not head:
        return 1
    if head[:1] == _V1[:1]:
        return _wanted_of_line(head)
    if not SIGNATURE.startswith(head[: len(SIGNATURE)]):
        raise Malformed("this is no head of the PROXY protocol")
    if len(head) < _FIXED:
        return _FIXED - len(head)
    (size,) = struct.unpack_from(">H", head, 14)
    if _FIXED + size > PROXY_HEAD_BYTES_MAX:
        raise Malformed(
            f"a head of {_FIXED + size} bytes; at most {PROXY_HEAD_BYTES_MAX} are taken"
        )
    return int(_FIXED + size - len(head))


def _wanted_of_line(head: bytes) -> int:
    if not _V1.startswith(head[: len(_V1)]):
        raise Malformed("this is no head of the PROXY protocol")
    if head.endswith(b"\r\n"):
        return 0
    if len(head) >= _LINE_BYTES_MAX:
        raise Malformed(f"a line of more than {_LINE_BYTES_MAX} bytes")
    return 1


def source_of(head: bytes) -> Source:
    """Of a head that is whole."""
    if head.startswith(_V1):
        return _source_of_line(head)
    version, family = head[12], head[13]
    if version not in (_LOCAL, _PROXIED):
        raise Malformed(f"version {version >> 4} of the PROXY protocol, command {version & 15}")
    sizes = _ADDRESSES.get(family)
    if version == _LOCAL or sizes is None:
        return NOBODY
    size, together = sizes
    if len(head) < _FIXED + together:
        raise Malformed("a head that ends in its addresses")
    address = ipaddress.ip_address(head[_FIXED : _FIXED + size])
    (port,) = struct.unpack_from(">H", head, _FIXED + 2 * size)
    return Source(str(address), port)


def _source_of_line(head: bytes) -> Source:
    words = head[:-2].split(b" ")
    if words[1] == b"UNKNOWN":
        return NOBODY
    families = {b"TCP4": ipaddress.IPv4Address, b"TCP6": ipaddress.IPv6Address}
    family = families.get(words[1])
    if family is None or len(words) != 6:
        raise Malformed("a line of the PROXY protocol has a family, two addresses and two ports")
    try:
        source, _ = (str(family(word.decode("ascii"))) for word in words[2:4])
    except ValueError:
        raise Malformed("an address in the line of a proxy is none") from None
    ports = [int(word) for word in words[4:] if word.isdigit() and len(word) <= 5]
    if len(ports) != 2 or max(ports) > 65_535:
        raise Malformed("a port in the line of a proxy is none")
    return Source(source, ports[0])
