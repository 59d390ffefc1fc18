"""Room: ids. The shapes of the names that travel and are stored."""

import base64
import re
from collections.abc import Callable

from moorline.errors import Malformed

ID_BYTES = 24
"""Length of a drawn id: 192 bits, so that ids drawn apart never meet."""

HOME_BYTES = 4
"""The id of a queue ends with the number of the home that made it; 160 bits before it are drawn."""

NO_HOME = bytes(HOME_BYTES)
"""The number of no home, never drawn: of queues that are made without a node, by tools and tests."""

NODE_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
"""A node is named like a host."""


def drawn(draw: Callable[[int], bytes], home: bytes = b"") -> bytes:
    """A fresh id whose text does not begin with `-`, so that no command line takes it for an option.

    `home` is what it ends with: the number of a home in the id of a queue, nothing in other ids.
    """
    while True:
        identifier = draw(ID_BYTES - len(home)) + home
        if identifier[0] >> 2 != _DASH:
            return identifier


def drawn_home(draw: Callable[[int], bytes]) -> bytes:
    """A fresh number of a home; the catalog says whether it is another's."""
    while True:
        number = draw(HOME_BYTES)
        if number != NO_HOME:
            return number


def home_number(queue_id: bytes) -> bytes:
    """What the id of a queue ends with: the number of its home, but for exceptions that the catalog has."""
    return queue_id[-HOME_BYTES:]


_TEXT = re.compile(r"[A-Za-z0-9_-]{32}")
_DASH = 62
"""The place of `-` among the 64 characters of base64url."""


def text_of(identifier: bytes) -> str:
    """The 32 characters of base64url that people and paths see."""
    assert len(identifier) == ID_BYTES
    return base64.urlsafe_b64encode(identifier).decode("ascii")


def id_of(text: str) -> bytes:
    """The inverse of `text_of`, for text from outside."""
    if _TEXT.fullmatch(text) is None:
        raise Malformed(f"{text!r} is not an id: expected 32 characters of base64url")
    return base64.urlsafe_b64decode(text)
