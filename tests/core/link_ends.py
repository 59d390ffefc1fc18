"""Both ends of a link for tests of their machines: built, and how they ended."""

from moorline.core.accepting_link import AcceptingLink
from moorline.core.connecting_link import ConnectingLink
from moorline.core.effects import Effect
from moorline.core.link import EndLink, Opened

HELLO_MS, KEEPALIVE_MS = 500, 1_000
TIMES = {"hello_timeout_ms": HELLO_MS, "keepalive_ms": KEEPALIVE_MS}


def node(*mechanisms: str) -> AcceptingLink:
    link = AcceptingLink("node's end", mechanisms=mechanisms, **TIMES)
    link.handle(Opened(), 0)
    return link


def client(mechanism: str = "password") -> ConnectingLink:
    return ConnectingLink("client's end", mechanism=mechanism, **TIMES)


def ended(effects: list[Effect]) -> tuple[str, str, bool]:
    (end,) = (effect for effect in effects if isinstance(effect, EndLink))
    return end.code, end.text, end.say
