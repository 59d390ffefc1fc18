"""Room: wire. What waits in a queue, read without taking it: for those who read all queues (Spark)."""

from typing import Annotated

import msgspec

from moorline.wire.bounds import Body, RowsMax
from moorline.wire.message import Answer, Call
from moorline.wire.queue import MessageId, QueueId


class WaitingMessage(msgspec.Struct, frozen=True, array_like=True, gc=False):
    message: int
    time_ms: int
    is_quota_marker: bool
    body: Body


class PeekQueue(Call, frozen=True, gc=False, tag=145):
    """The messages behind that one, as many as fit; for the queue's owner and the operator."""

    queue: QueueId
    after: MessageId = 0


class QueuePeeked(Answer, frozen=True, gc=False, tag=146):
    """In order; `is_all` says that nothing stands behind the last one."""

    messages: Annotated[list[WaitingMessage], RowsMax]
    is_all: bool


COMMANDS = PeekQueue
EVENTS = QueuePeeked
