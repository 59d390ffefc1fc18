"""Room: net/http. What is served at which path, for whom, and within which bounds: the rooms above
register it."""

from collections.abc import Awaitable, Callable
from enum import Enum
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from moorline.limits import HTTP_BODY_BYTES_MAX, WEBSOCKET_MESSAGE_BYTES_MAX
from moorline.net.http.messages import Request, Response, text_response

if TYPE_CHECKING:
    from moorline.net.http.websocket import WebSocket

RouteHandler = Callable[[Request], Response | Awaitable[Response]]


class Entry(Enum):
    """Who may come to a route."""

    OPEN = "open"
    """Whoever reaches the port, by whatever name: nothing is judged, and the peer is nobody. For what may be
    read by all: health, a script."""
    JUDGED = "judged"
    """Whoever is let in: Host and Origin are right, and the peer has an identity, or is anonymous where
    that is let in."""
    PROVES = "proves"
    """Host and Origin are judged too, and the handler takes the proof by itself: the peer is nobody, and has
    no rights."""
    LATER = "later"
    """A WebSocket whose first message may bring the proof: as above, but without a proof the handler
    hears of it too. Until `peer.is_entered` it has no rights, and after HTTP_LOGIN_MS it ends."""


class SocketHandler(Protocol):
    """A subject's end of one WebSocket. What it raises is our mistake, and ends the socket."""

    def opened(self, socket: "WebSocket", /) -> None: ...

    def message(self, data: str | bytes, /) -> None:
        """A whole one: text as str, binary as bytes."""

    def pause(self) -> None:
        """More waits for the peer than it should: send less, only what is newest, or close."""

    def resume(self) -> None: ...

    def closed(self, code: int, text: str, /) -> None:
        """Exactly once. The code is the peer's, ours, or 1006 where there was none."""


class Route(msgspec.Struct, frozen=True):
    method: str
    path: str
    """Exact, or all that begins with it if it ends with `/` and `is_prefix` is set."""
    handler: RouteHandler
    entry: Entry = Entry.JUDGED
    is_prefix: bool = False
    is_held: bool = False
    """A long poll: its answer may take long, and it takes a place among the node's connections."""
    body_bytes_max: int = 0

    def __post_init__(self) -> None:
        assert self.entry is not Entry.LATER, "only a WebSocket can bring its proof later"
        assert self.method.isupper(), "HEAD is answered as GET is"
        assert self.method not in {"HEAD", "OPTIONS"}, "HEAD is answered as GET is"
        assert 0 <= self.body_bytes_max <= HTTP_BODY_BYTES_MAX
        _check(self.path, is_prefix=self.is_prefix)


class SocketRoute(msgspec.Struct, frozen=True):
    path: str
    make: Callable[[Request], SocketHandler | Response]
    subprotocols: tuple[str, ...] = ()
    """What is spoken here; the first that the client offers is taken."""
    needs_subprotocol: bool = False
    """Whoever offers none of them is refused."""
    entry: Entry = Entry.JUDGED
    is_prefix: bool = False
    message_bytes_max: int = WEBSOCKET_MESSAGE_BYTES_MAX
    is_deflated: bool = False
    """Whether permessage-deflate is taken from clients that offer it: it costs memory for each socket. Frames
    that are made once are never compressed."""

    method = "GET"
    body_bytes_max = 0

    def __post_init__(self) -> None:
        assert self.entry is not Entry.OPEN, "every page can open a WebSocket: it must be judged"
        assert not self.needs_subprotocol or self.subprotocols
        _check(self.path, is_prefix=self.is_prefix)


AnyRoute = Route | SocketRoute

UPGRADE: Final = "upgrade"
"""Where a WebSocket stands at a path that has a page too; no method is called so."""


class Routes:
    """The table. Exact paths come before prefixes, and longer prefixes before shorter ones."""

    def __init__(self, base_path: str = "") -> None:
        """Below `base_path` the same is served as without it."""
        self.base_path = base_path
        self.missing = text_response("not here\n", 404)
        """What is answered where nothing is."""
        self._exact: dict[str, dict[str, AnyRoute]] = {}
        self._prefixes: dict[str, dict[str, AnyRoute]] = {}

    def add(self, *routes: AnyRoute) -> None:
        """Two for one method and path are our mistake; but for a page and a WebSocket, which are told apart
        by what the request wants (UPGRADE)."""
        for route in routes:
            table = self._prefixes if route.is_prefix else self._exact
            methods = table.setdefault(route.path, {})
            there = methods.get(route.method)
            if isinstance(there, SocketRoute) and isinstance(route, Route):
                assert UPGRADE not in methods, f"{UPGRADE} {route.path} is there already"
                methods[UPGRADE] = there
            elif isinstance(there, Route) and isinstance(route, SocketRoute):
                assert UPGRADE not in methods, f"{UPGRADE} {route.path} is there already"
                methods[UPGRADE] = route
                continue
            else:
                assert there is None, f"{route.method} {route.path} is there already"
            methods[route.method] = route

    def at(self, path: str) -> dict[str, AnyRoute]:
        """By method; empty if nothing is there."""
        found = self._exact.get(path)
        if found is not None:
            return found
        # As many looks as the path has levels, however many prefixes there are.
        end = path.rfind("/")
        while end >= 0:
            found = self._prefixes.get(path[: end + 1])
            if found is not None:
                return found
            end = path.rfind("/", 0, end)
        return {}


def _check(path: str, *, is_prefix: bool) -> None:
    assert path.startswith("/"), path
    assert path.isascii(), path
    assert not is_prefix or path.endswith("/"), f"{path}: a prefix is whole levels"
