"""Room: net/http. The bytes of an answer, as its request allows them."""

from typing import Final

import h11

from moorline.core.access.web_origin import Judged, cors_headers
from moorline.net.http.messages import Response, refusal

BUSY: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\n"
    b"content-length: 0\r\nretry-after: 1\r\nconnection: close\r\n\r\n"
)
"""More ask than are answered at once."""

MISTAKE: Final = refusal(500, "INTERNAL", "a mistake in the node; its log says more")
NO_ROOM: Final = refusal(
    503, "BUSY", "this node has as many connections as it takes", (("retry-after", "1"),)
)
SERVED_SOON: Final = Response(0)
"""In the place of an answer: the proof is checked, and the handler is called next."""

WITHOUT_BODY: Final = frozenset({204, 304})


def written(
    link: h11.Connection, response: Response, *, judged: Judged | None, is_head: bool
) -> bytes:
    """Head, body and end. `judged` is what was found of the page that asks; a HEAD gets no body."""
    headers = [
        ("content-type", response.content_type),
        ("content-length", str(len(response.body))),
        ("x-content-type-options", "nosniff"),
        *response.headers,
    ]
    if response.status in WITHOUT_BODY:
        del headers[:2]
    if judged is not None:
        headers += cors_headers(judged).items()
    sent = link.send(h11.Response(status_code=response.status, headers=headers)) or b""
    if response.body and not is_head and response.status not in WITHOUT_BODY:
        sent += link.send(h11.Data(data=response.body)) or b""
    return sent + (link.send(h11.EndOfMessage()) or b"")
