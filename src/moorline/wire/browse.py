"""Room: wire. Looking at what is in a stream, some messages at a time: for people."""

from typing import Annotated

import msgspec
from msgspec import Meta, field

from moorline.limits import (
    BROWSED_CONTAINS_BYTES_MAX,
    BROWSED_MAX,
    HEADER_BYTES_MAX,
    HEADERS_MAX,
    READ_FILTERS_MAX,
    TOPIC_KEY_BYTES_MAX,
)
from moorline.wire.bounds import Body, Code, FilterText
from moorline.wire.message import Answer, Call
from moorline.wire.topic import Number

KeyBytes = Annotated[bytes, Meta(max_length=TOPIC_KEY_BYTES_MAX)]
ShownHeader = tuple[
    Annotated[str, Meta(max_length=HEADER_BYTES_MAX)],
    Annotated[bytes, Meta(max_length=HEADER_BYTES_MAX)],
]


class BrowsedMessage(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """`body_bytes` is how long the body is, of which a long one shows its beginning, unless all was asked."""

    offset: int
    time_us: int
    topic: FilterText
    key: KeyBytes | None
    headers: Annotated[list[ShownHeader], Meta(max_length=HEADERS_MAX)]
    body: Body
    body_bytes: int
    ttl_s: int
    flags: int


class BrowseStream(Call, frozen=True, gc=False, tag=460):
    """The messages of a stream from an offset on that one of the filters takes, that have the key if one is
    named, and some bytes in their body. One call looks at a bounded piece, and says how far it came."""

    shard: Number
    generation: Number
    offset: Number
    filters: Annotated[list[FilterText], Meta(min_length=1, max_length=READ_FILTERS_MAX)]
    contains: Annotated[bytes, Meta(max_length=BROWSED_CONTAINS_BYTES_MAX)] = b""
    key: KeyBytes | None = None
    count: Annotated[int, Meta(ge=1, le=BROWSED_MAX)] = BROWSED_MAX
    is_whole: bool = False
    """Whole bodies: for one message that is downloaded, or sent again as it is."""
    from_us: Number = 0
    """Not those that are older."""


class StreamBrowsed(Answer, frozen=True, gc=False, tag=461):
    """What was found below `upto`; with a `reason` what lay between is gone. Nothing at all, `upto` being
    `first`, is the end of the stream."""

    first: int
    upto: int
    messages: Annotated[list[BrowsedMessage], Meta(max_length=BROWSED_MAX)] = field(
        default_factory=list
    )
    reason: Code = ""


COMMANDS = BrowseStream
EVENTS = StreamBrowsed
