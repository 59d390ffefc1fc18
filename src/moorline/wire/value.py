"""Room: wire. The messages between a subscriber and the publisher of values.

A value is null, true or false, a whole number of 64 bits, a float, text, bytes, a time with its zone, a list
or a map of such. Updates name values by the id that the subscription was answered with. The updates of one
commit are one batch, which may come in several messages: `is_end` is true in the last.
"""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from moorline.core.hidden_bytes import without_bytes
from moorline.limits import MESSAGES_PER_FRAME_MAX, VALUES_PER_MESSAGE_MAX
from moorline.wire.bounds import Code
from moorline.wire.decoder import MessageDecoder
from moorline.wire.link import Challenge, Goodbye, Hello, Ping, Pong, Response, Welcome
from moorline.wire.message import Answer, Call, CallsGivenUp, Failed, Message
from moorline.wire.resolver import Holder, Path, Permissions, ResolverId, Seconds, TokenBytes

ValueId = Annotated[int, Meta(ge=0, le=1 << 62)]
ValueIds = Annotated[list[ValueId], Meta(max_length=VALUES_PER_MESSAGE_MAX)]
Values = Annotated[list[Any], Meta(max_length=VALUES_PER_MESSAGE_MAX)]
Claim = tuple[Path, Permissions, TokenBytes]


class SubscribeValues(Call, frozen=True, gc=False, tag=340):
    """Who was judged by which resolver, until when, and for each path what it gave. `conflate`: the latest
    value of each is enough, where this subscriber is slow."""

    weighed_by = "claims"

    resolver: ResolverId
    holder: Holder
    expires_s: Seconds
    claims: Annotated[list[Claim], Meta(max_length=VALUES_PER_MESSAGE_MAX)]
    conflate: bool = False

    __repr__ = without_bytes


AGAIN = "AGAIN"


class SubscribedValue(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """An empty `code`: this is its id, and its value now. Else why not. `AGAIN` says only that the
    answer is full of values, and this one comes when it is asked for again."""

    code: Code
    id: ValueId = 0
    value: Any = None


class ValuesSubscribed(Answer, frozen=True, gc=False, tag=341):
    values: Annotated[list[SubscribedValue], Meta(max_length=VALUES_PER_MESSAGE_MAX)]


class UnsubscribeValues(Call, frozen=True, gc=False, tag=342):
    ids: ValueIds


class ValuesUnsubscribed(Answer, frozen=True, gc=False, tag=343):
    pass


class WriteValue(Call, frozen=True, gc=False, tag=344):
    """Back to the publisher. With `wants_receipt` the answer waits for what the publisher says to it."""

    id: ValueId
    value: Any
    wants_receipt: bool = False


class ValueWritten(Answer, frozen=True, gc=False, tag=345):
    value: Any = None


class ValuesChanged(Message, frozen=True, gc=False, tag=346):
    """Pushed: two lists of one length."""

    ids: ValueIds
    values: Values
    is_end: bool = True


class PublisherAlive(Message, frozen=True, gc=False, tag=347):
    """Pushed where nothing else was for a heartbeat."""


class ValuesEnded(Message, frozen=True, gc=False, tag=348):
    """Pushed: these are subscribed no longer."""

    ids: ValueIds
    code: Code


HeardByPublisher = (
    Hello
    | Response
    | Ping
    | Pong
    | Goodbye
    | CallsGivenUp
    | SubscribeValues
    | UnsubscribeValues
    | WriteValue
)
HeardBySubscriber = (
    Welcome
    | Challenge
    | Ping
    | Pong
    | Goodbye
    | Failed
    | ValuesSubscribed
    | ValuesUnsubscribed
    | ValueWritten
    | ValuesChanged
    | PublisherAlive
    | ValuesEnded
)

_Batch = Meta(max_length=MESSAGES_PER_FRAME_MAX)

publisher_decoder = MessageDecoder(Annotated[list[HeardByPublisher], _Batch])
subscriber_decoder = MessageDecoder(Annotated[list[HeardBySubscriber], _Batch])
