"""Room: console. The web page of a node: its files, the shapes of the messages that it says, and the socket
by which it says them.

The page is a client like any other: it speaks the native protocol (net/native_json.py) with the rights of
whoever looks at it, and the node has nothing for it that `moor` does not have.
"""

from importlib import resources
from typing import Final

import msgspec

from moorline.net import native_json
from moorline.net.http.messages import Request, Response, Static
from moorline.net.http.routes import Entry, Route, Routes
from moorline.net.native_json import NativeSockets
from moorline.wire.json_messages import shapes

PATH: Final = "/console/"
SOCKET: Final = "/console/socket"

TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}

POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
"""Nothing comes from elsewhere, nothing in the page runs that is not one of its files, no text becomes markup
by whatever mistake, and no other page has it in a frame."""

HEADERS: Final = {
    "content-security-policy": POLICY,
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-embedder-policy": "require-corp",
    "x-frame-options": "DENY",
    "permissions-policy": ", ".join(
        f"{feature}=()"
        for feature in (
            "accelerometer",
            "camera",
            "display-capture",
            "geolocation",
            "gyroscope",
            "magnetometer",
            "microphone",
            "midi",
            "payment",
            "publickey-credentials-get",
            "screen-wake-lock",
            "serial",
            "usb",
        )
    ),
}
"""`x-frame-options` is for browsers that do not know the policy; the page needs nothing of the machine."""


class Ways(msgspec.Struct, frozen=True):
    """By what somebody may log in to the page."""

    oidc: str = ""
    """The host of the issuer; empty without one."""
    mechanisms: tuple[str, ...] = ()
    is_kerberos: bool = False
    """Whether a browser may show a ticket (console/negotiate.py)."""


def register(routes: Routes, sockets: NativeSockets, ways: Ways) -> None:
    """The files are open to all: there is nothing of the node in them."""
    folder = resources.files("moorline.console") / "pages"
    for file in sorted(folder.iterdir(), key=lambda one: one.name):
        suffix = file.name.rpartition(".")[2]
        if suffix not in TYPES:
            continue
        _add(routes, PATH + file.name, file.read_bytes(), TYPES[suffix])
    _add(routes, PATH, (folder / "index.html").read_bytes(), TYPES["html"])
    _add(routes, PATH + "shapes.json", msgspec.json.encode(shapes()), "application/json")
    _add(routes, PATH + "login.json", msgspec.json.encode(ways), "application/json")
    routes.add(Route("GET", PATH.rstrip("/"), _moved, entry=Entry.OPEN))
    native_json.register(routes, SOCKET, sockets)


def _add(routes: Routes, path: str, body: bytes, content_type: str) -> None:
    served = Static(body, content_type, HEADERS)
    routes.add(Route("GET", path, served.answer, entry=Entry.OPEN))


def _moved(_: Request) -> Response:
    # Relative, so that it holds behind a proxy that serves us below a path of its own.
    return Response(308, headers=(("location", "console/"),))
