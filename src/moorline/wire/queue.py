"""Room: wire. The messages of queues: commands to a broker, its answers, and what it pushes."""

from typing import Annotated

import msgspec
from msgspec import Meta

from moorline.ids import ID_BYTES
from moorline.limits import (
    QUEUE_PROBLEM_CHARACTERS_MAX,
    QUEUE_PROBLEMS_MAX,
    QUEUE_WINDOW_MAX,
    QUEUES_PER_PAGE_MAX,
)
from moorline.wire.bounds import Body, Code, Id, Words
from moorline.wire.message import Answer, Call, Message

QueueId = Annotated[bytes, Meta(min_length=ID_BYTES, max_length=ID_BYTES)]
MessageId = Annotated[int, Meta(ge=0)]
WindowSize = Annotated[int, Meta(ge=1, le=QUEUE_WINDOW_MAX)]
PageSize = Annotated[int, Meta(ge=1, le=QUEUES_PER_PAGE_MAX)]


class NewQueue(Call, frozen=True, gc=False, tag=20):
    """NEW: the node draws the id; the caller owns the queue."""


class QueueMade(Answer, frozen=True, gc=False, tag=21):
    queue: Id


class Send(Call, frozen=True, gc=False, tag=22):
    """SEND: one message to one queue."""

    queue: QueueId
    body: Body


class Sent(Answer, frozen=True, gc=False, tag=23):
    """The message is stored, as durably as the node's `queues.sync` says."""

    message: int


class Subscribe(Call, frozen=True, gc=False, tag=24):
    """SUB: deliveries begin; at most `window` are unacknowledged at once."""

    queue: QueueId
    window: WindowSize = 1


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
    body: Body = b""


class Suspend(Call, frozen=True, gc=False, tag=30):
    """OFF: no more sends; what is there can be read."""

    queue: QueueId


class DeleteQueue(Call, frozen=True, gc=False, tag=31):
    """DEL: the queue and its messages are gone."""

    queue: QueueId


class PurgeQueue(Call, frozen=True, gc=False, tag=636):
    """All that waits in the queue now is gone, also what was refused by its quota; the queue stays."""

    queue: QueueId


class QueuePurged(Answer, frozen=True, gc=False, tag=637):
    messages: int


class BlockQueue(Call, frozen=True, gc=False, tag=32):
    """The operator's: nothing passes while `blocked`."""

    queue: QueueId
    blocked: bool


class Done(Answer, frozen=True, gc=False, tag=33):
    """The change is stored."""


class DescribeQueue(Call, frozen=True, gc=False, tag=34):
    queue: QueueId


class QueueDescribed(Answer, frozen=True, gc=False, tag=35):
    queue: Id
    waiting: int
    stored: int
    is_subscribed: bool
    is_suspended: bool
    is_blocked: bool
    is_damaged: bool
    is_over_quota: bool
    created_s: int
    owner: Words
    unreadable: int = 0
    is_closed: bool = False
    messages_max: int = 0
    """The quota of each queue of the node: how many may wait in it."""
    bytes: int = 0
    """Of what waits, as it is stored."""


class ListQueues(Call, frozen=True, gc=False, tag=36):
    """A page of all queues behind that id; the operator's."""

    after: Id = b""
    count: PageSize = 1_000
    only: Code = ""
    """What the page is narrowed to: waiting, full, shut or damaged; empty for all."""
    has_facts: bool = False
    """Whether the answer says of each queue how it is."""


class QueueFacts(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A queue as the node has it in memory: nothing is read for it."""

    waiting: int
    bytes: int
    is_subscribed: bool
    is_suspended: bool
    is_blocked: bool
    is_damaged: bool
    is_over_quota: bool
    is_closed: bool
    created_s: int
    owner: Words


class QueuesListed(Answer, frozen=True, gc=False, tag=37):
    """`total` queues are there in all. A page without queues whose `upto` is that of the call is the end:
    where few are wanted among many, a page may have none and be followed by others."""

    total: int
    queues: Annotated[list[tuple[Id, int]], Meta(max_length=QUEUES_PER_PAGE_MAX)]
    facts: Annotated[list[QueueFacts], Meta(max_length=QUEUES_PER_PAGE_MAX)] = msgspec.field(
        default_factory=list
    )
    """Those of `queues`, one for each, if they were asked for."""
    upto: Id = b""
    """The last queue that was looked at."""
    messages_max: int = 0
    """The quota of each queue of the node."""


class Delivery(Message, frozen=True, gc=False, tag=38):
    """Pushed: a message of a queue that this client is subscribed to."""

    queue: Id
    message: int
    time_ms: int
    is_quota_marker: bool
    body: Body


class Ended(Message, frozen=True, gc=False, tag=39):
    """Pushed: the subscription is over, and why: TAKEN_OVER, DELETED, BLOCKED or DAMAGED."""

    queue: Id
    code: Code


class Unsubscribe(Call, frozen=True, gc=False, tag=40):
    """Deliveries end; what was delivered and not acknowledged comes again later."""

    queue: QueueId


class CheckQueue(Call, frozen=True, gc=False, tag=41):
    """The operator's: looks at all files of one queue; with `is_repair` puts right what is wrong."""

    queue: QueueId
    is_repair: bool = False


class QueueProblem(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One thing that is not as it should be: see journal.queues.check."""

    kind: Code
    text: Annotated[str, Meta(max_length=QUEUE_PROBLEM_CHARACTERS_MAX)]
    lost: int = 0
    is_mended_by_a_start: bool = False


class QueueChecked(Answer, frozen=True, gc=False, tag=42):
    """What was found; of more problems than are told there are `problems_total`.

    `messages` can be delivered, `saved` of them out of files that were set aside, `lost` are gone. `is_clean`
    says that nothing is wrong, or nothing is left behind the repair.
    """

    messages: int
    saved: int
    lost: int
    is_clean: bool
    problems_total: int
    problems: Annotated[list[QueueProblem], Meta(max_length=QUEUE_PROBLEMS_MAX)]


class CloseQueue(Call, frozen=True, gc=False, tag=67):
    """The owner's: while `closed`, to know the id is no right to send to it; who is granted that may."""

    queue: QueueId
    closed: bool


class CheckpointQueues(Call, frozen=True, gc=False, tag=43):
    """The operator's: what the log holds goes into the queues' files and the index, now."""


class QueuesCheckpointed(Answer, frozen=True, gc=False, tag=44):
    """So many queues had changes; the log had `log_bytes` before, and has `log_bytes_left`."""

    queues: int
    log_bytes: int
    log_bytes_left: int
    took_ms: int


COMMANDS = (
    NewQueue
    | Send
    | Subscribe
    | Unsubscribe
    | Acknowledge
    | Get
    | Suspend
    | DeleteQueue
    | PurgeQueue
    | BlockQueue
    | CloseQueue
    | DescribeQueue
    | ListQueues
    | CheckQueue
    | CheckpointQueues
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
    | QueueChecked
    | QueuesCheckpointed
    | QueuePurged
)
