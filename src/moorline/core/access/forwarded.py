"""Room: core/access. Whom a proxy of HTTP speaks for: what it writes into the head of a request.

    X-Forwarded-For: 203.0.113.7, 10.0.0.2       or        Forwarded: for=203.0.113.7;proto=https
    X-Forwarded-Proto: https
    X-Forwarded-Host: moor.example.org

A client can write all of this too, and most proxies add to what is there. So it is read from the right: what
stands last was written by the proxy that we know, and as long as an address is one of a proxy that is
trusted, the one before it was written by that proxy. The first that is not is the client's, and what stands
to the left of it is the client's own words. Only one family of headers is read, the one that the proxy is
known to write: of the other a proxy may pass on whatever the client invented.
"""

import ipaddress
import re
from collections.abc import Callable, Collection
from typing import Final, Literal

import msgspec

from moorline.limits import HTTP_PROXY_HOPS_MAX

Family = Literal["x-forwarded", "forwarded"]

_SCHEMES: Final = {"http": "http", "https": "https", "ws": "http", "wss": "https"}

_PAIR: Final = re.compile(
    r"""\s*(?P<name>[A-Za-z]+)=(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<token>[^\s",;=]*))\s*"""
)
"""One parameter of `Forwarded` (RFC 7239, 4)."""

_WITH_PORT: Final = re.compile(r"\[(?P<six>[0-9A-Fa-f:.]+)\](?::\d{1,5})?|(?P<four>[\d.]+):\d{1,5}")


class Client(msgspec.Struct, frozen=True):
    """Who is behind the proxies."""

    address: str
    scheme: str = ""
    """By which it reached the first of them; empty if none says so."""
    host: str = ""
    """By which name; empty if none says so, and then it is in `Host`."""


class _Hop(msgspec.Struct, frozen=True):
    address: str
    scheme: str
    host: str


def client_of(
    headers: Collection[tuple[bytes, bytes]], family: Family, is_trusted: Callable[[str], bool]
) -> Client | None:
    """None where the proxy says nothing; ValueError where it says what cannot be read."""
    hops = _forwarded(headers) if family == "forwarded" else _x_forwarded(headers)
    if not hops:
        return None
    place = len(hops) - 1
    address = _address(hops[place].address)
    while place > 0 and is_trusted(address):
        place -= 1
        address = _address(hops[place].address)
    return Client(address, _scheme(hops[place].scheme), hops[place].host)


def _x_forwarded(headers: Collection[tuple[bytes, bytes]]) -> list[_Hop]:
    addresses = _items(headers, b"x-forwarded-for")
    schemes = _each(_items(headers, b"x-forwarded-proto"), len(addresses), "x-forwarded-proto")
    hosts = _each(_items(headers, b"x-forwarded-host"), len(addresses), "x-forwarded-host")
    return [_Hop(*hop) for hop in zip(addresses, schemes, hosts, strict=True)]


def _items(headers: Collection[tuple[bytes, bytes]], wanted: bytes) -> list[str]:
    found = b",".join(value for name, value in headers if name == wanted)
    items = [item.strip() for item in found.decode("ascii", "replace").split(",") if item.strip()]
    return _bounded(items)


def _bounded(items: list[str]) -> list[str]:
    if len(items) > HTTP_PROXY_HOPS_MAX:
        raise ValueError(f"more than {HTTP_PROXY_HOPS_MAX} proxies stand between")
    return items


def _each(items: list[str], count: int, name: str) -> list[str]:
    """One for each hop. A single one was written by a proxy that keeps none from before it."""
    if len(items) <= 1:
        return (items or [""]) * count
    if len(items) != count:
        raise ValueError(f"{name} has {len(items)} values beside {count} addresses")
    return items


def _forwarded(headers: Collection[tuple[bytes, bytes]]) -> list[_Hop]:
    whole = b",".join(value for name, value in headers if name == b"forwarded")
    elements = _bounded(_elements(whole.decode("ascii", "replace")))
    return [_hop(element) for element in elements]


def _elements(text: str) -> list[str]:
    """What the commas part that are not within quotes."""
    elements, start, is_quoted, is_escaped = [], 0, False, False
    for place, sign in enumerate(text):
        if is_escaped:
            is_escaped = False
        elif is_quoted and sign == "\\":
            is_escaped = True
        elif sign == '"':
            is_quoted = not is_quoted
        elif sign == "," and not is_quoted:
            elements.append(text[start:place])
            start = place + 1
    if is_quoted:
        raise ValueError("forwarded has a quote that does not end")
    elements.append(text[start:])
    return [element for element in elements if element.strip()]


def _hop(element: str) -> _Hop:
    found: dict[str, str] = {}
    place = 0
    while True:
        pair = _PAIR.match(element, place)
        if pair is None:
            raise ValueError("forwarded cannot be read")
        name = pair["name"].lower()
        if name in found:
            raise ValueError(f"forwarded has {name} twice in one element")
        quoted = pair["quoted"]
        found[name] = pair["token"] if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
        place = pair.end()
        if place == len(element):
            break
        if element[place] != ";":
            raise ValueError("forwarded cannot be read")
        place += 1
    return _Hop(found.get("for", ""), found.get("proto", ""), found.get("host", ""))


def _address(text: str) -> str:
    """Without a port and brackets. A name, `unknown`, or `_hidden` is nobody to count or to slow down."""
    match = _WITH_PORT.fullmatch(text)
    if match is not None:
        text = match["six"] or match["four"]
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        raise ValueError("the address that a proxy speaks for is none") from None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


def _scheme(text: str) -> str:
    if not text:
        return ""
    try:
        return _SCHEMES[text.lower()]
    except KeyError:
        raise ValueError("the scheme that a proxy tells is neither http nor https") from None
