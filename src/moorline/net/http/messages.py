"""Room: net/http. Requests as handlers see them, and the answers that they give."""

import hashlib
import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import parse_qsl, unquote_to_bytes

import msgspec

from moorline.limits import HTTP_QUERY_FIELDS_MAX
from moorline.net.http.peer import Peer
from moorline.wire.websocket import items_of

Headers = tuple[tuple[str, str], ...]

JSON: Final = "application/json"
PLAIN: Final = "text/plain"

_NO_LEVEL: Final = re.compile(r"[/\\\0]")


class BadRequest(ValueError):
    """Raised by what reads a request, also in a handler: it is answered with 400 and this text."""


class Request:
    """One request, its body included."""

    __slots__ = ("body", "headers", "method", "path", "peer", "query_text", "rest", "subprotocols")

    def __init__(
        self, method: str, target: bytes, headers: list[tuple[bytes, bytes]], peer: Peer
    ) -> None:
        path, _, query = target.partition(b"?")
        self.method = method
        self.path = path.decode("ascii")
        """As it was written: percent signs stand."""
        self.query_text = query.decode("ascii")
        self.headers = headers
        """Names in lower case, in the order in which they came."""
        self.peer = peer
        """Who is asking. Of a route that is open to all it is nobody yet."""
        self.body = b""
        self.rest = ""
        """What stands behind the prefix of the route, without percent signs."""
        self.subprotocols: tuple[str, ...] = ()
        """Of a WebSocket: what the client offers, without a token."""

    def header(self, name: bytes) -> bytes:
        """All values of that name, with commas; empty if there is none."""
        return b", ".join(value for found, value in self.headers if found == name)

    def query(self) -> dict[str, str]:
        """The fields behind the question mark; one that is there twice is refused."""
        try:
            pairs = parse_qsl(
                self.query_text,
                keep_blank_values=True,
                errors="strict",
                max_num_fields=HTTP_QUERY_FIELDS_MAX,
            )
        except ValueError:
            raise BadRequest("the query of this path cannot be read") from None
        found = dict(pairs)
        if len(found) != len(pairs):
            raise BadRequest("a field of the query is there twice")
        return found

    def take_rest(self, prefix: str) -> None:
        """Its levels are those that were written: what would be another path once it is read is refused."""
        written = self.path[len(prefix) :]
        try:
            levels = [unquote_to_bytes(level).decode() for level in written.split("/")]
        except UnicodeDecodeError:
            raise BadRequest("the path is not UTF-8") from None
        if any(level in {".", ".."} or _NO_LEVEL.search(level) for level in levels):
            raise BadRequest("the path has a level that is none: . or .., or a slash or NUL within")
        self.rest = "/".join(levels)


class Response(msgspec.Struct, frozen=True):
    status: int
    body: bytes = b""
    content_type: str = PLAIN
    headers: Headers = ()
    """Names in lower case."""


def json_response(value: Any, status: int = 200, headers: Headers = ()) -> Response:
    return Response(status, msgspec.json.encode(value), JSON, headers)


def text_response(text: str, status: int = 200) -> Response:
    return Response(status, text.encode())


def refusal(status: int, code: str, text: str, headers: Headers = ()) -> Response:
    """An error as programs read it: `{"code": …, "text": …}`."""
    return json_response({"code": code, "text": text}, status, headers)


class Static:
    """Bytes that do not change while the node runs; a browser that has them is told so."""

    def __init__(self, body: bytes, content_type: str, headers: Mapping[str, str] | None = None):
        self.etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
        # Asked for again each time: behind an upgrade of the node the old ones are not used.
        own = {"etag": self.etag, "cache-control": "no-cache", **(headers or {})}
        self._whole = Response(200, body, content_type, tuple(own.items()))
        self._unchanged = Response(304, b"", content_type, tuple(own.items()))

    def answer(self, request: Request) -> Response:
        known = {tag.removeprefix(b"W/") for tag in items_of(request.header(b"if-none-match"))}
        has_it = self.etag.encode() in known or b"*" in known
        return self._unchanged if has_it else self._whole
