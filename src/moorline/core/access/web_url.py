"""Room: core/access. URLs that a node calls or sends a browser to: https, or http on this machine alone."""

import ipaddress
from typing import Final
from urllib.parse import urlsplit

import msgspec

_PORTS: Final = {"http": 80, "https": 443}


class Url(msgspec.Struct, frozen=True):
    scheme: str
    host: str
    port: int
    target: str

    @classmethod
    def parsed(cls, text: str) -> "Url":
        """ValueError for what is not called: no https, but on this machine, a name in it, a fragment."""
        parts = urlsplit(text)
        if not text.isascii() or any(sign <= " " or sign == "\x7f" for sign in text):
            raise ValueError("it is no URL")
        if parts.scheme not in _PORTS or not parts.hostname:
            raise ValueError("it is no https:// URL")
        if parts.username is not None or parts.password is not None or parts.fragment:
            raise ValueError("it has a user or a fragment in it")
        is_here = parts.hostname == "localhost" or _is_loopback(parts.hostname)
        if parts.scheme == "http" and not is_here:
            raise ValueError("it is not https://, which is needed but on this machine")
        target = parts.path or "/"
        return cls(
            parts.scheme,
            parts.hostname,
            parts.port or _PORTS[parts.scheme],
            f"{target}?{parts.query}" if parts.query else target,
        )

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
