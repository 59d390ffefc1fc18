"""Room: net/http. The head of a request: which route it means, and whether it is served there at all.

Whatever can be said without the body is said here, so that a body that nobody wants is not read.
"""

import msgspec

from moorline.core.access.base_path import below
from moorline.core.access.web_origin import Asking, Judged
from moorline.limits import HTTP_HEADERS_MAX, HTTP_PREFLIGHT_S
from moorline.net.http.logins import Facts, Logins
from moorline.net.http.messages import BadRequest, Request, Response, refusal, text_response
from moorline.net.http.routes import UPGRADE, AnyRoute, Entry, Routes, SocketRoute
from moorline.net.http.upgrade import Upgrade, upgrade_of
from moorline.wire.websocket import has_item


class Head(msgspec.Struct):
    """What a head is found to be: a route, or an answer that refuses it."""

    route: AnyRoute | None = None
    refused: Response | None = None
    judged: Judged | None = None
    """None where nothing was judged: at a route that is open to all."""
    asking: Asking | None = None
    facts: Facts | None = None
    """Of whoever is behind the proxy, where one is trusted."""
    upgrade: Upgrade | None = None


def judged_head(routes: Routes, logins: Logins, facts: Facts, request: Request) -> Head:
    head = Head()
    try:
        head.refused = _refusal(head, routes, logins, facts, request)
    except BadRequest as error:
        head.refused = refusal(400, "BAD_REQUEST", str(error))
    if head.refused is not None:
        head.route = None
    return head


def _refusal(
    head: Head, routes: Routes, logins: Logins, facts: Facts, request: Request
) -> Response | None:
    if len(request.headers) > HTTP_HEADERS_MAX:
        return text_response(f"more than {HTTP_HEADERS_MAX} headers\n", 431)
    request.path = below(routes.base_path, request.path)
    methods = routes.at(request.path)
    if not methods:
        return routes.missing
    found = methods.get("GET" if request.method == "HEAD" else request.method)
    if UPGRADE in methods and has_item(request.header(b"upgrade"), b"websocket"):
        found = methods[UPGRADE]
    if found is None and request.method != "OPTIONS":
        return _only(methods)
    route = found or next(iter(methods.values()))
    if route.entry is not Entry.OPEN:
        judged = logins.judge(facts, request.method, request.headers)
        if isinstance(judged, Response):
            return judged
        head.judged, head.asking, head.facts = judged
    if found is None:
        return _preflight(methods, head.judged)
    if isinstance(route, SocketRoute):
        upgrade = upgrade_of(request, route)
        if isinstance(upgrade, Response):
            return upgrade
        head.upgrade = upgrade
    # Where none is taken, one without a length is refused too: it would be waited for.
    if declared_bytes(request.headers) > route.body_bytes_max:
        return too_large(route)
    if route.is_prefix:
        request.take_rest(route.path)
    head.route = route
    return None


def _preflight(methods: dict[str, AnyRoute], judged: Judged | None) -> Response:
    """A browser asks whether a page of another origin may ask."""
    allowed = ", ".join(sorted(methods.keys() - {UPGRADE}))
    if judged is None or not judged.other_origin:
        return Response(204, headers=(("allow", f"{allowed}, OPTIONS"),))
    return Response(
        204,
        headers=(
            ("access-control-allow-methods", allowed),
            ("access-control-allow-headers", "authorization, content-type, if-none-match"),
            ("access-control-max-age", str(HTTP_PREFLIGHT_S)),
        ),
    )


def is_chunked(headers: list[tuple[bytes, bytes]]) -> bool:
    """Whether the length of the body is not known before its end."""
    return any(name == b"transfer-encoding" for name, _ in headers)


def declared_bytes(headers: list[tuple[bytes, bytes]]) -> int:
    """What the head says of the body; 1 where its length is not known."""
    if is_chunked(headers):
        return 1
    # h11 has looked at it: digits, and twenty of them at most.
    return next((int(value) for name, value in headers if name == b"content-length"), 0)


def framing_problem(
    version: bytes, headers: list[tuple[bytes, bytes]], head: Head
) -> Response | None:
    """Of a head that another program between may read otherwise (RFC 9112, 6.1 and 11.2)."""
    names = {name for name, _ in headers}
    if {b"content-length", b"transfer-encoding"} <= names:
        text = "Content-Length and Transfer-Encoding are both there"
    elif version < b"1.1" and b"transfer-encoding" in names:
        text = "HTTP/1.0 has no Transfer-Encoding"
    elif version < b"1.1" and head.upgrade is not None:
        text = "HTTP/1.0 has no Upgrade"
    else:
        return None
    return refusal(400, "BAD_REQUEST", text)


def too_large(route: AnyRoute | None) -> Response:
    bytes_max = route.body_bytes_max if route is not None else 0
    return refusal(413, "TOO_LARGE", f"the body may have {bytes_max} bytes")


def _only(methods: dict[str, AnyRoute]) -> Response:
    names = sorted(methods.keys() - {UPGRADE})
    if "GET" in names:
        names.insert(names.index("GET") + 1, "HEAD")
    text = " and ".join(names)
    return Response(405, f"only {text}\n".encode(), headers=(("allow", ", ".join(names)),))
