"""Room: config. Addresses as an operator writes them: `tcp://127.0.0.1:7411`, `tls://[::]:7411`.

listen = scheme "://" host ":" port      scheme is tcp or tls; port 0 asks for a free one
http   = [ scheme "://" ] host ":" port | "off"     scheme is http or https
mqtt   = scheme "://" host ":" port      scheme is mqtt or mqtts
host   = name | IPv4 | "[" IPv6 "]"
"""

import ipaddress
import re
from typing import Literal, NamedTuple

Scheme = Literal["tcp", "tls", "http", "https", "mqtt", "mqtts"]

LISTEN_FORM = "tcp://HOST:PORT or tls://HOST:PORT (port 0 takes a free one, IPv6 in brackets)"
HTTP_FORM = 'HOST:PORT or https://HOST:PORT (port 0 takes a free one, IPv6 in brackets) or "off"'
MQTT_FORM = (
    "mqtt://HOST:PORT or mqtts://HOST:PORT (port 0 takes a free one, IPv6 in brackets), or off"
)
PORT_MAX = 65_535

DEFAULT_ADDRESS = "tcp://127.0.0.1:7411"
"""Where a node listens, and where clients look for one, unless somebody says otherwise."""

DEFAULT_MQTT = "mqtt://127.0.0.1:1883"
"""Where a node listens for clients of MQTT: the port that all of them try, on this machine only."""

_HOST_NAME = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(\.(?!-)[A-Za-z0-9_-]{1,63})*\.?")
_HOST_AND_PORT = re.compile(r"(?:\[(?P<six>[^\[\]]*)\]|(?P<host>[^\[\]:/@]*)):(?P<port>[0-9]{1,5})")


class Address(NamedTuple):
    scheme: Scheme
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.scheme}://{self.host_and_port}"

    @property
    def host_and_port(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        if self.host.lower().rstrip(".") == "localhost":
            return True
        try:
            ip = ipaddress.ip_address(self.host)
        except ValueError:
            return False
        # ::ffff:127.0.0.1 is loopback too, which Python 3.11 does not say by itself.
        mapped = ip.ipv4_mapped if isinstance(ip, ipaddress.IPv6Address) else None
        return (mapped or ip).is_loopback

    @property
    def is_unspecified(self) -> bool:
        """Whether it says: everywhere on that machine."""
        try:
            return ipaddress.ip_address(self.host).is_unspecified
        except ValueError:
            return False


def listen_address(text: str) -> Address:
    """Parse one entry of `listen`; ValueError says what is wrong with it."""
    for scheme in ("tcp", "tls"):
        if text.startswith(f"{scheme}://"):
            return _address(scheme, text.removeprefix(f"{scheme}://"))
    raise ValueError("it does not begin with tcp:// or tls://")


def http_address(text: str) -> Address | None:
    """Parse `http`; None where it is off."""
    if text == "off":
        return None
    if text.startswith("https://"):
        return _address("https", text.removeprefix("https://"))
    return _address("http", text.removeprefix("http://"))


def mqtt_address(text: str) -> Address:
    """Parse one entry of `mqtt`; ValueError says what is wrong with it."""
    for scheme in ("mqtt", "mqtts"):
        if text.startswith(f"{scheme}://"):
            return _address(scheme, text.removeprefix(f"{scheme}://"))
    raise ValueError("it does not begin with mqtt:// or mqtts://")


def _address(scheme: Scheme, text: str) -> Address:
    match = _HOST_AND_PORT.fullmatch(text)
    if match is None:
        raise ValueError("it has no host and port in the form HOST:PORT")
    if int(match["port"]) > PORT_MAX:
        raise ValueError(f"its port is above {PORT_MAX}")
    return Address(scheme, _host(match["six"], match["host"]), int(match["port"]))


def _host(six: str | None, host: str | None) -> str:
    if six is not None:
        try:
            return str(ipaddress.IPv6Address(six))
        except ValueError:
            raise ValueError("what is in the brackets is not an IPv6 address") from None
    assert host is not None
    if re.fullmatch(r"[0-9.]+", host):
        try:
            return str(ipaddress.IPv4Address(host))
        except ValueError:
            raise ValueError("its host is not an IPv4 address") from None
    if _HOST_NAME.fullmatch(host) is None:
        raise ValueError("its host is not a name, an IPv4 address or an IPv6 address in brackets")
    return host


RESOLVER_LIST_FORM = "moor://HOST[:PORT],HOST[:PORT]… or moors://… for TLS"
RESOLVERS_FORM = f"{RESOLVER_LIST_FORM}, or a list of addresses"
DEFAULT_PORT = 7411
_RESOLVER_SCHEMES = {"moor": "tcp", "moors": "tls"}


def resolver_addresses(text: str) -> list[Address]:
    """The members of `moor://host1,host2:7500`; ValueError says what is wrong with it.

    A single `tcp://` or `tls://` address is a list of one.
    """
    scheme, _, hosts = text.partition("://")
    if scheme not in _RESOLVER_SCHEMES:
        return [listen_address(text)]
    scheme = _RESOLVER_SCHEMES[scheme]
    found: list[Address] = []
    for host in hosts.split(","):
        has_port = _HOST_AND_PORT.fullmatch(host) is not None
        address = listen_address(f"{scheme}://{host if has_port else f'{host}:{DEFAULT_PORT}'}")
        if address in found:
            raise ValueError(f"{host} is named twice")
        found.append(address)
    return found
