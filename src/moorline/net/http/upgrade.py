"""Room: net/http. The head of a request that is to become a WebSocket, and what is answered to it (RFC
6455, 4.2)."""

from typing import NamedTuple

from wsproto.extensions import Extension, PerMessageDeflate

from moorline.net.http.messages import BadRequest, Request, Response, refusal
from moorline.net.http.routes import SocketRoute
from moorline.wire.websocket import (
    VERSION,
    BadOffer,
    accept_of,
    has_item,
    items_of,
    subprotocols_of,
)


class Upgrade(NamedTuple):
    headers: list[tuple[str, str]]
    subprotocol: str
    token: str
    """What stood among the subprotocols as a proof; empty if nothing did."""
    extensions: list[Extension]


def upgrade_of(request: Request, route: SocketRoute) -> Upgrade | Response:
    is_upgrade = has_item(request.header(b"upgrade"), b"websocket")
    if request.method != "GET" or not is_upgrade:
        text = "this path is a WebSocket's"
        return refusal(426, "UPGRADE", text, (("upgrade", "websocket"), ("connection", "upgrade")))
    if not has_item(request.header(b"connection"), b"upgrade"):
        raise BadRequest("Connection: upgrade is missing")
    if request.header(b"sec-websocket-version") != VERSION:
        text = "WebSocket version 13 is spoken here"
        return refusal(426, "VERSION", text, (("sec-websocket-version", VERSION.decode()),))
    accept = accept_of(request.header(b"sec-websocket-key"))
    if accept is None:
        raise BadRequest("Sec-WebSocket-Key is not 16 bytes in base64")
    try:
        offered, token = subprotocols_of(request.header(b"sec-websocket-protocol"))
    except BadOffer as error:
        raise BadRequest(f"Sec-WebSocket-Protocol: {error}") from None
    request.subprotocols = tuple(offered)
    chosen = next((name for name in offered if name in route.subprotocols), "")
    if route.needs_subprotocol and not chosen:
        raise BadRequest(f"Sec-WebSocket-Protocol: offer one of {', '.join(route.subprotocols)}")
    headers = [
        ("upgrade", "websocket"),
        ("connection", "upgrade"),
        ("sec-websocket-accept", accept.decode("ascii")),
    ]
    if chosen:
        headers.append(("sec-websocket-protocol", chosen))
    extensions: list[Extension] = []
    if route.is_deflated:
        deflate, said = _deflate(request)
        if deflate is not None:
            extensions.append(deflate)
            headers.append(("sec-websocket-extensions", said))
    return Upgrade(headers, chosen, token, extensions)


def _deflate(request: Request) -> tuple[PerMessageDeflate | None, str]:
    """The first offer of permessage-deflate that can be taken."""
    for item in items_of(request.header(b"sec-websocket-extensions")):
        offer = item.decode("ascii", "replace")
        if offer.partition(";")[0].strip() != PerMessageDeflate.name:
            continue
        # Nothing of one message is kept for the next: 32 KiB less for each socket that says little.
        deflate = PerMessageDeflate(client_no_context_takeover=True)
        try:
            taken = deflate.accept(offer)
        except ValueError:
            continue
        if taken is not None:
            return (
                deflate,
                f"{PerMessageDeflate.name}; {taken}" if taken else PerMessageDeflate.name,
            )
    return None, ""
