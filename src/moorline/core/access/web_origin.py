"""Room: core/access. Who stands behind a request of HTTP: a program, a page of ours, or a page of
somebody else.

Every web page that somebody opens can make its browser send requests to any address, also to this
machine's own.
So what a request says of itself is judged before it is answered:

    Host                 must be a name of this listener. A page whose own name was turned to our address (DNS
                         rebinding) still says its own name there.
    Origin               the page that asks: ours, or one of those that are named, or else refused.
    Sec-Fetch-Site       how the page stands to us. Without an Origin (an image, a script) only its own page
                         may ask, and whoever follows a link.
    Referer              a page as well: browsers say it where they say no Origin.
    Forwarded, Via, …    a proxy stands between: the address is the proxy's, and says nothing.

What comes from a page, or by a proxy, is never `@loopback`: the rights of whoever sits at this machine
are not those of what its browser shows.
"""

import ipaddress
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Final

import msgspec

LOOPBACK_NAME: Final = "localhost"
PORTS: Final = {"http": 80, "https": 443}
"""By scheme: the port that is not written."""

_FORWARDED: Final = frozenset(
    {
        b"cf-connecting-ip",
        b"cf-connecting-ipv6",
        b"client-ip",
        b"fastly-client-ip",
        b"fly-client-ip",
        b"forwarded",
        b"forwarded-for",
        b"true-client-ip",
        b"via",
        b"x-client-ip",
        b"x-cluster-client-ip",
        b"x-envoy-external-address",
        b"x-original-forwarded-for",
        b"x-originating-ip",
        b"x-proxyuser-ip",
        b"x-real-ip",
        b"x-remote-addr",
        b"x-remote-ip",
    }
)
"""By which the proxies that are in use name the client that they stand for."""
_FORWARDED_PREFIX: Final = b"x-forwarded"
_NOT_BY_A_PAGE: Final = frozenset({b"", b"none"})
"""Of Sec-Fetch-Site: a program, or somebody who typed the address."""

_AUTHORITY: Final = re.compile(
    r"(?:\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<name>[A-Za-z0-9._-]{1,255}))(?::(?P<port>[0-9]{1,5}))?"
)

ORIGIN_FORM: Final = "http://HOST[:PORT] or https://HOST[:PORT], without a path"
HOST_FORM: Final = "a name or an address without a port"


class Origin(msgspec.Struct, frozen=True):
    scheme: str
    host: str
    port: int

    @classmethod
    def parsed(cls, text: str) -> "Origin":
        """ValueError if it is none; `null`, which pages in a sandbox say, is none."""
        scheme, separator, authority = text.partition("://")
        if not separator or scheme.lower() not in PORTS:
            raise ValueError(f"accepted: {ORIGIN_FORM}")
        host, port = authority_of(authority)
        return cls(scheme.lower(), host, PORTS[scheme.lower()] if port is None else port)

    def __str__(self) -> str:
        """As browsers write it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        is_usual = self.port == PORTS[self.scheme]
        return f"{self.scheme}://{host}" if is_usual else f"{self.scheme}://{host}:{self.port}"


def authority_of(text: str) -> tuple[str, int | None]:
    """Host and port, in one spelling: lower case, no dot at the end, addresses as Python writes them."""
    match = _AUTHORITY.fullmatch(text)
    if match is None or int(match["port"] or 0) > 65_535:
        raise ValueError(f"{text[:80]!r} is no HOST or HOST:PORT")
    port = int(match["port"]) if match["port"] is not None else None
    return host_of(match["six"] or match["name"]), port


def host_of(text: str) -> str:
    """A name, or an address without brackets, in one spelling; ValueError if it is neither."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        if _AUTHORITY.fullmatch(text) is None or ":" in text:
            raise ValueError(f"accepted: {HOST_FORM}") from None
        return text.lower().rstrip(".")
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


class Asking(msgspec.Struct, frozen=True):
    """What is judged of a request; headers that are not there are empty, or None where that is not the
    same."""

    method: str
    host: str
    origin: str | None = None
    fetch_site: bytes = b""
    fetch_mode: bytes = b""
    fetch_dest: bytes = b""
    is_forwarded: bool = False
    has_referer: bool = False

    @classmethod
    def of(cls, method: str, headers: Collection[tuple[bytes, bytes]]) -> "Asking":
        """Headers by names in lower case. ValueError where one that decides is there twice."""
        found: dict[bytes, bytes] = {}
        for name, value in headers:
            if name in _DECIDING:
                if name in found:
                    raise ValueError(f"{name.decode()} is there twice")
                found[name] = value
        origin = found.get(b"origin")
        return cls(
            method,
            found.get(b"host", b"").decode("ascii", "replace"),
            None if origin is None else origin.decode("ascii", "replace"),
            found.get(b"sec-fetch-site", b""),
            found.get(b"sec-fetch-mode", b""),
            found.get(b"sec-fetch-dest", b""),
            is_forwarded(name for name, _ in headers),
            any(name == b"referer" for name, _ in headers),
        )


_DECIDING: Final = frozenset(
    {b"host", b"origin", b"sec-fetch-site", b"sec-fetch-mode", b"sec-fetch-dest"}
)


def is_forwarded(names: Iterable[bytes]) -> bool:
    """Whether a proxy says that it stands between."""
    # Some programs write a name with underscores, and mean the same.
    dashed = (name.replace(b"_", b"-") for name in names)
    return any(name in _FORWARDED or name.startswith(_FORWARDED_PREFIX) for name in dashed)


class Judged(msgspec.Struct, frozen=True):
    """A request that may be answered."""

    is_page: bool
    """A browser asks for what it shows: nobody is `@loopback` by that."""
    other_origin: str = ""
    """The origin that was named in the settings, as it wrote itself: its page may read the answer."""


def own_origin(asking: Asking, scheme: str) -> str:
    """That by which the node was called, of a request that was judged."""
    host, port = authority_of(asking.host)
    return str(Origin(scheme, host, PORTS[scheme] if port is None else port))


class Misjudged(msgspec.Struct, frozen=True):
    """One that is refused."""

    status: int
    code: str
    text: str


class WebNames:
    """The names by which a listener is called, and the origins of others that may ask it."""

    def __init__(self, hosts: Iterable[str] = (), origins: Iterable[str] = ()) -> None:
        """ValueError for one that is none."""
        self._hosts = frozenset(map(host_of, hosts))
        self._origins = frozenset(map(Origin.parsed, origins))

    def judge(self, asking: Asking, *, scheme: str, own_address: str) -> Judged | Misjudged:
        """`own_address` is the one that the client reached; `scheme` is http, or https over our own TLS."""
        try:
            host, port = authority_of(asking.host)
        except ValueError:
            return Misjudged(400, "BAD_HOST", "the Host of the request is no HOST:PORT")
        if not self._is_own(host, own_address):
            return Misjudged(
                421,
                "OTHER_HOST",
                "this node is not called by that Host: use its address, or name it in http_hosts",
            )
        own = Origin(scheme, host, PORTS[scheme] if port is None else port)
        if asking.origin is not None:
            return self._judge_origin(asking.origin, own)
        if asking.fetch_site in _NOT_BY_A_PAGE:
            return Judged(is_page=asking.has_referer)
        if asking.fetch_site == b"same-origin" or _follows_link(asking):
            return Judged(is_page=True)
        return _OTHER_ORIGIN

    def _is_own(self, host: str, own_address: str) -> bool:
        if host == LOOPBACK_NAME or host in self._hosts:
            return True
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            return False
        # An address cannot be turned to another machine, as a name can.
        return address.is_loopback or host == host_of(own_address.partition("%")[0])

    def _judge_origin(self, text: str, own: Origin) -> Judged | Misjudged:
        try:
            origin = Origin.parsed(text)
        except ValueError:
            return _OTHER_ORIGIN
        if origin == own:
            return Judged(is_page=True)
        if origin in self._origins:
            return Judged(is_page=True, other_origin=text)
        return _OTHER_ORIGIN


_OTHER_ORIGIN: Final = Misjudged(
    403, "OTHER_ORIGIN", "pages of that origin may not ask this node: name it in http_origins"
)


def _follows_link(asking: Asking) -> bool:
    """Somebody goes from a page of others to one of ours: what is shown is ours alone."""
    return (
        asking.method in {"GET", "HEAD"}
        and asking.fetch_mode == b"navigate"
        and asking.fetch_dest == b"document"
    )


def cors_headers(judged: Judged) -> Mapping[str, str]:
    """What lets a page of a named origin read the answer. Never with credentials of the browser's own."""
    if not judged.other_origin:
        return {}
    return {"access-control-allow-origin": judged.other_origin, "vary": "origin"}
