"""Room: wire. How long the fields of messages may be, and which field of one is too long.

Every text, bytes, list and map of every message has its bound, here or where the message is: the decoder
refuses a frame that breaks one before anything of it is kept, and a caller what it would be refused for.
A test walks over all messages and their parts, and finds a field that has none.
"""

import re
from typing import Annotated, Any, Protocol

import msgspec
from msgspec import Meta

from moorline.errors import Malformed
from moorline.ids import ID_BYTES
from moorline.limits import (
    CODE_LENGTH_MAX,
    FILTER_LENGTH_MAX,
    FRAME_BYTES_MAX,
    MEMBER_LENGTH_MAX,
    NAME_CHARACTERS_MAX,
    READ_FILTERS_MAX,
    ROWS_PER_ANSWER_MAX,
    TEXT_LENGTH_MAX,
    TOPIC_WINDOW_MAX,
)
from moorline.wire.frame import LENGTH, frame

Code = Annotated[str, Meta(max_length=CODE_LENGTH_MAX)]
"""For programs."""
Words = Annotated[str, Meta(max_length=TEXT_LENGTH_MAX)]
"""For people."""
Name = Annotated[str, Meta(max_length=NAME_CHARACTERS_MAX)]
"""Of a node, a role, a program."""
FilterText = Annotated[str, Meta(max_length=FILTER_LENGTH_MAX)]
ReadFilters = Annotated[list[FilterText], Meta(max_length=READ_FILTERS_MAX)]
"""What somebody wants to read who may not read everything."""
"""A topic or a filter, with a group before it or not; perhaps empty."""
MemberText = Annotated[str, Meta(max_length=MEMBER_LENGTH_MAX)]
Id = Annotated[bytes, Meta(max_length=ID_BYTES)]
HashBytes = Annotated[bytes, Meta(max_length=ID_BYTES)]
"""A digest is no longer than an id."""
Body = Annotated[bytes, Meta(max_length=FRAME_BYTES_MAX)]
"""Messages, or one: a frame is the bound. What a node takes of one is a setting, and refused by name."""
RowsMax = Meta(max_length=ROWS_PER_ANSWER_MAX)
WindowMax = Meta(max_length=TOPIC_WINDOW_MAX)
"""Of what a client may have in hand at once."""

_PLACES = re.compile(r"\[(\d+)\]")


class Decodes(Protocol):
    """What the other end hears with."""

    def decode(self, payload: memoryview) -> Any: ...


def cut(text: str) -> str:
    """A text for people that fits its field."""
    return text if len(text) <= TEXT_LENGTH_MAX else text[: TEXT_LENGTH_MAX - 1] + "…"


def fault_of(message: msgspec.Struct, heard_with: Decodes) -> str | None:
    """Which field of a message the other end would refuse, and why; None if it would take it."""
    try:
        heard_with.decode(memoryview(frame([message]))[LENGTH.size :])
    except Malformed as error:
        what, _, path = str(error).partition(" - at `$")
        return f"{_named(message, path)}: {what[:1].lower()}{what[1:]}"
    return None


def _named(message: msgspec.Struct, path: str) -> str:
    """A path of the decoder, `[0][2][7]`, as a reader of the code would write it."""
    name, found = type(message).__name__, message
    for place in map(int, _PLACES.findall(path)[1:]):
        if isinstance(found, msgspec.Struct):
            has_tag = found.__struct_config__.tag is not None
            field = found.__struct_fields__[place - has_tag]
            name, found = f"{name}.{field}", getattr(found, field)
        else:
            name, found = f"{name}[{place}]", found[place]
    return name
