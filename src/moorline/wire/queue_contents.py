"""Room: wire. What waits in a queue, read without taking it: for those who read all queues (Spark)."""

from typing import Annotated

import msgspec
from msgspec import Meta

from moorline.limits import BROWSED_CONTAINS_BYTES_MAX
from moorline.wire.bounds import Body, RowsMax
from moorline.wire.message import Answer, Call
from moorline.wire.queue import MessageId, QueueId


class WaitingMessage(msgspec.Struct, frozen=True, array_like=True, gc=False):
    message: int
    time_ms: int
    is_quota_marker: bool
    body: Body


class PeekQueue(Call, frozen=True, gc=False, tag=145):
    """The messages behind that one, as many as fit; for the queue's owner and the operator.

    Of those that are looked at, with `contains` the ones that have these bytes, and none that is older than
    `from_ms`.
    """

    queue: QueueId
    after: MessageId = 0
    contains: Annotated[bytes, Meta(max_length=BROWSED_CONTAINS_BYTES_MAX)] = b""
    from_ms: Annotated[int, Meta(ge=0)] = 0


class QueuePeeked(Answer, frozen=True, gc=False, tag=146):
    """In order; `is_all` says that nothing stands behind the last one that was looked at, which is `upto`."""

    messages: Annotated[list[WaitingMessage], RowsMax]
    is_all: bool
    upto: int = 0


COMMANDS = PeekQueue
EVENTS = QueuePeeked
