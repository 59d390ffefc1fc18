"""Room: wire. WebSocket: frames that a server sends, and what stands in the heads of an upgrade (RFC 6455).

    0x80 | opcode     one byte: the frame is a whole message
    length            1 byte up to 125; 126 and 2 bytes; 127 and 8 bytes, big-endian
    payload           as it is: only clients mask theirs

Since nothing in a frame is of its receiver, one that is made once may be written to any number of
sockets. What clients send is parsed by wsproto (net/http/websocket.py).
"""

import base64
import binascii
import hashlib
import struct
from typing import Final

from moorline.limits import WEBSOCKET_SUBPROTOCOLS_MAX

TEXT: Final = 0x1
BINARY: Final = 0x2
CLOSE: Final = 0x8
PING: Final = 0x9
PONG: Final = 0xA

VERSION: Final = b"13"
BEARER: Final = "moorline.bearer."
"""What a subprotocol begins with that is a token, in base64url: pages cannot set headers of a WebSocket."""

REASON_BYTES_MAX: Final = 123
"""Of the reason of a close: a control frame has 125 bytes, and the code takes two (RFC 6455, 5.5)."""

_LAST: Final = 0x80
_GUID: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_KEY_BYTES: Final = 16
_SHORT: Final = struct.Struct("!BB")
_MIDDLE: Final = struct.Struct("!BBH")
_LONG: Final = struct.Struct("!BBQ")
_CODE: Final = struct.Struct("!H")


def frame_text(payload: bytes) -> bytes:
    """A text message; the bytes are UTF-8 already."""
    return _frame(TEXT, payload)


def frame_binary(payload: bytes) -> bytes:
    return _frame(BINARY, payload)


def frame_ping(payload: bytes = b"") -> bytes:
    assert len(payload) <= 125, "a control frame is short"
    return _frame(PING, payload)


def frame_pong(payload: bytes) -> bytes:
    assert len(payload) <= 125, "a control frame is short"
    return _frame(PONG, payload)


def frame_close(code: int, reason: str = "") -> bytes:
    """The reason is cut to what fits, between two characters."""
    text = reason.encode()[:REASON_BYTES_MAX].decode("utf-8", "ignore").encode()
    return _frame(CLOSE, _CODE.pack(code) + text)


def _frame(opcode: int, payload: bytes) -> bytes:
    size = len(payload)
    if size <= 125:
        return _SHORT.pack(_LAST | opcode, size) + payload
    if size <= 0xFFFF:
        return _MIDDLE.pack(_LAST | opcode, 126, size) + payload
    return _LONG.pack(_LAST | opcode, 127, size) + payload


# --- the upgrade ----------------------------------------------------------------------------------


def accept_of(key: bytes) -> bytes | None:
    """What the server answers to the client's key; None if that is none: 16 bytes in base64."""
    try:
        if len(base64.b64decode(key, validate=True)) != _KEY_BYTES:
            return None
    except (binascii.Error, ValueError):
        return None
    # The hash of the protocol: it proves that the key was read, and protects nothing.
    return base64.b64encode(hashlib.sha1(key + _GUID, usedforsecurity=False).digest())


def items_of(header: bytes) -> list[bytes]:
    """Of a header that is a list with commas; empty ones are nothing (RFC 9110, 5.6.1)."""
    return [item for item in (part.strip(b" \t") for part in header.split(b",")) if item]


def has_item(header: bytes, wanted: bytes) -> bool:
    """Whether the list has it, in capitals or not."""
    return any(item.lower() == wanted for item in items_of(header))


class BadOffer(ValueError):
    """Subprotocols that cannot be offered; the text says why."""


def subprotocols_of(header: bytes) -> tuple[list[str], str]:
    """What is offered, in the client's order, and the token that is hidden among it; empty if there is
    none."""
    items = items_of(header)
    if len(items) > WEBSOCKET_SUBPROTOCOLS_MAX:
        raise BadOffer(f"more than {WEBSOCKET_SUBPROTOCOLS_MAX} subprotocols")
    try:
        texts = [item.decode("ascii") for item in items]
    except UnicodeDecodeError:
        raise BadOffer("a subprotocol that is not ASCII") from None
    tokens = [text.removeprefix(BEARER) for text in texts if text.startswith(BEARER)]
    if len(tokens) > 1:
        raise BadOffer("two tokens")
    return [text for text in texts if not text.startswith(BEARER)], _token(
        tokens[0]
    ) if tokens else ""


def _token(encoded: str) -> str:
    # Without its padding, as an = may not be in a subprotocol (RFC 6455, 4.1).
    padded = encoded + "=" * (-len(encoded) % 4)
    try:
        text = base64.b64decode(padded, altchars=b"-_", validate=True).decode("ascii")
    except (binascii.Error, ValueError):
        raise BadOffer("a token that is not base64url") from None
    if not text:
        raise BadOffer("an empty token")
    return text
