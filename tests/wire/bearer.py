"""A token as a browser offers it: among the subprotocols."""

import base64

from moorline.wire.websocket import BEARER


def bearer_item(token: str) -> str:
    return BEARER + base64.urlsafe_b64encode(token.encode()).decode("ascii").rstrip("=")
