"""Room: wire. The messages of queues: commands to a broker, its answers, and what it pushes."""

from typing import Annotated

from msgspec import Meta

from moorline.ids import ID_BYTES
from moorline.limits import QUEUE_WINDOW_MAX, QUEUES_PER_PAGE_MAX
from moorline.wire.message import Answer, Call, Message

QueueId = Annotated[bytes, Meta(min_length=ID_BYTES, max_length=ID_BYTES)]
MessageId = Annotated[int, Meta(ge=0)]
Window = Annotated[int, Meta(ge=1, le=QUEUE_WINDOW_MAX)]
PageSize = Annotated[int, Meta(ge=1, le=QUEUES_PER_PAGE_MAX)]


class NewQueue(Call, frozen=True, gc=False, tag=20):
    """NEW: the node draws the id; the caller owns the queue."""


class QueueMade(Answer, frozen=True, gc=False, tag=21):
    queue: bytes


class Send(Call, frozen=True, gc=False, tag=22):
    """SEND: one message to one queue."""

    queue: QueueId
    body: bytes


class Sent(Answer, frozen=True, gc=False, tag=23):
    """The message is stored, as durably as the node's `queues.sync` says."""

    message: int


class Subscribe(Call, frozen=True, gc=False, tag=24):
    """SUB: deliveries begin; at most `window` are unacknowledged at once."""

    queue: QueueId
    window: Window = 1


class Subscribed(Answer, frozen=True, gc=False, tag=25):
    """`waiting` messages are in the queue now."""

    waiting: int


class Acknowledge(Call, frozen=True, gc=False, tag=26):
    """ACK: the head is done with; `message` must be its id."""

    queue: QueueId
    message: MessageId


class Acknowledged(Answer, frozen=True, gc=False, tag=27):
    """`waiting` messages are left. `is_gone`: it had left the queue before, by expiry or an earlier ACK."""

    waiting: int
    is_gone: bool = False


class Get(Call, frozen=True, gc=False, tag=28):
    """GET: the head, without a subscription and without a change."""

    queue: QueueId


class Got(Answer, frozen=True, gc=False, tag=29):
    """`message` is 0 where the queue is empty."""

    message: int
    time_ms: int = 0
    is_quota_marker: bool = False
    body: bytes = b""


class Suspend(Call, frozen=True, gc=False, tag=30):
    """OFF: no more sends; what is there can be read."""

    queue: QueueId


class DeleteQueue(Call, frozen=True, gc=False, tag=31):
    """DEL: the queue and its messages are gone."""

    queue: QueueId


class BlockQueue(Call, frozen=True, gc=False, tag=32):
    """The operator's: nothing passes while `blocked`."""

    queue: QueueId
    blocked: bool


class Done(Answer, frozen=True, gc=False, tag=33):
    """The change is stored."""


class DescribeQueue(Call, frozen=True, gc=False, tag=34):
    queue: QueueId


class QueueDescribed(Answer, frozen=True, gc=False, tag=35):
    queue: bytes
    waiting: int
    stored: int
    is_subscribed: bool
    is_suspended: bool
    is_blocked: bool
    is_damaged: bool
    is_over_quota: bool
    created_s: int
    owner: str


class ListQueues(Call, frozen=True, gc=False, tag=36):
    """A page of all queues behind that id; the operator's."""

    after: bytes = b""
    count: PageSize = 1_000


class QueuesListed(Answer, frozen=True, gc=False, tag=37):
    """`total` queues are there in all; an empty page is the end."""

    total: int
    queues: list[tuple[bytes, int]]


class Delivery(Message, frozen=True, gc=False, tag=38):
    """Pushed: a message of a queue that this client is subscribed to."""

    queue: bytes
    message: int
    time_ms: int
    is_quota_marker: bool
    body: bytes


class Ended(Message, frozen=True, gc=False, tag=39):
    """Pushed: the subscription is over, and why: TAKEN_OVER, DELETED, BLOCKED or DAMAGED."""

    queue: bytes
    code: str


class Unsubscribe(Call, frozen=True, gc=False, tag=40):
    """Deliveries end; what was delivered and not acknowledged comes again later."""

    queue: QueueId


COMMANDS = (
    NewQueue
    | Send
    | Subscribe
    | Unsubscribe
    | Acknowledge
    | Get
    | Suspend
    | DeleteQueue
    | BlockQueue
    | DescribeQueue
    | ListQueues
)
EVENTS = (
    QueueMade
    | Sent
    | Subscribed
    | Acknowledged
    | Got
    | Done
    | QueueDescribed
    | QueuesListed
    | Delivery
    | Ended
)
