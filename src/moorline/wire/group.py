"""Room: wire. The messages of groups for their operators, and those that nodes say to each other.

What a Borrower and a Leader say (core.group.message) travels inside `ForLeader` and `ForBorrower`.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

from moorline.core.group.message import BorrowerMessage, LeaderMessage
from moorline.core.stream import Extent
from moorline.limits import (
    DELIVERIES_MAX,
    GROUP_ROWS_PER_PAGE_MAX,
    GROUPS_PER_PAGE_MAX,
    MEMBER_LENGTH_MAX,
    OIDC_GROUPS_MAX,
    OPERATOR_LENGTH_MAX,
    PRINCIPAL_CHARACTERS_MAX,
    START_LENGTH_MAX,
    STREAM_READ_BYTES_MAX,
    STREAM_WAIT_MS_MAX,
)
from moorline.wire.bounds import Body, Code, FilterText, MemberText, Name, ReadFilters, RowsMax
from moorline.wire.message import Answer, Call, Message
from moorline.wire.topic import (
    NO_STREAM,
    Filter,
    Number,
    OffsetRange,
    StreamCount,
    StreamKey,
)


class GroupFacts(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A group as the catalog has it; `leader` is empty where nobody leads it now."""

    name: FilterText
    leader: Name
    epoch: int
    deliveries_max: int
    created_us: int


class MemberFacts(msgspec.Struct, frozen=True, array_like=True, gc=False):
    borrower: MemberText
    member: MemberText
    streams: int
    silent_ms: int


class CursorFacts(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Where a group is in a shard, how far behind, and who reads it."""

    node: Name
    shard: int
    offset: int
    end: int
    lag: int
    member: MemberText
    status: Code
    pending: int
    failing: int
    lost: int = 0
    """Messages that were gone before the group had done them, whether a member was told yet or not."""


class Originator(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Who asked a node for what it passes on; the other one judges by its own table.

    `proof` is a name of `core.access.principal.Proof`. Nobody is an originator that has no rights.
    """

    principal: Annotated[str, Meta(max_length=PRINCIPAL_CHARACTERS_MAX)] = ""
    proof: Code = ""
    is_local: bool = False
    groups: Annotated[
        tuple[Annotated[str, Meta(max_length=PRINCIPAL_CHARACTERS_MAX)], ...],
        Meta(max_length=OIDC_GROUPS_MAX),
    ] = ()
    """Those of users that its proof gives, where that is one of an issuer."""


class ListGroups(Call, frozen=True, gc=False, tag=121):
    """A page of the groups behind that one, or all of them, if they fit an answer."""

    after: FilterText = ""
    count: Annotated[int, Meta(ge=0, le=GROUPS_PER_PAGE_MAX)] = 0


class GroupsListed(Answer, frozen=True, gc=False, tag=122):
    groups: Annotated[list[GroupFacts], RowsMax]


ShardKey = tuple[Name, Annotated[int, Meta(ge=-1)]]
"""(node, shard)."""
NO_SHARD: ShardKey = ("", -1)
"""Before the first of all places."""


class DescribeGroup(Call, frozen=True, gc=False, tag=123):
    """Answered by the node that leads the group, or from the catalog where nobody does.

    A page of its places behind that one and of its members behind that Borrower, with `count` of each at
    most, or all of both, if they fit an answer.
    """

    group: Filter
    after: ShardKey = NO_SHARD
    member_after: MemberText = ""
    count: Annotated[int, Meta(ge=0, le=GROUP_ROWS_PER_PAGE_MAX)] = 0
    originator: Originator = Originator()
    """Of a call that a node passes on; from anybody else it means nothing."""


class GroupDescribed(Answer, frozen=True, gc=False, tag=124):
    """Members are in the order of their Borrowers, places in that of nodes and shards.

    With `is_more` there are others behind the last ones.
    """

    group: GroupFacts
    members: Annotated[list[MemberFacts], RowsMax]
    cursors: Annotated[list[CursorFacts], RowsMax]
    is_more: bool = False


class CreateGroup(Call, frozen=True, gc=False, tag=125):
    """Declares a group before its first member: from now on nothing that it should read is missed.

    With `deliveries_max` -1 the node's `groups.deliveries_max` counts.
    """

    group: Filter
    start: Annotated[str, Meta(max_length=START_LENGTH_MAX)] = "now"
    deliveries_max: Annotated[int, Meta(ge=-1, le=DELIVERIES_MAX)] = -1


class GroupCreated(Answer, frozen=True, gc=False, tag=126):
    created: bool


class DeleteGroup(Call, frozen=True, gc=False, tag=127):
    """Ends a group for good; its members are told. Answered by `Done`."""

    group: Filter


class SeekGroup(Call, frozen=True, gc=False, tag=128):
    """Moves a group, running or not, to a `start` of SubscribeTopic; answered by `Done`."""

    group: Filter
    start: Annotated[str, Meta(max_length=START_LENGTH_MAX)]


class PlanSeek(Call, frozen=True, gc=False, tag=622):
    """What a `SeekGroup` would do; changes nothing."""

    group: Filter
    start: Annotated[str, Meta(max_length=START_LENGTH_MAX)]


class SeekStep(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A shard of a group: where it is, and where it would go on."""

    node: Name
    shard: int
    offset: int
    target: int


class SeekPlanned(Answer, frozen=True, gc=False, tag=623):
    """`again` messages of the streams would come once more, and `passed` unread ones would be passed over.

    They are counted whatever their topic: a group whose filter takes some of them gets fewer. Of nodes that
    are `away` nothing is counted: their streams go on at the start when they are back.
    """

    again: int
    passed: int
    steps: Annotated[list[SeekStep], RowsMax]
    away: Annotated[list[Name], RowsMax]
    """Homes that did not answer in time."""


class KickMember(Call, frozen=True, gc=False, tag=129):
    """Ends the part of a member in a group; answered by `Done`."""

    group: Filter
    member: Annotated[str, Meta(min_length=1, max_length=MEMBER_LENGTH_MAX)]


class ChangeGroup(Call, frozen=True, gc=False, tag=160):
    """Changes the limits of a group, running or not; answered by `Done`."""

    group: Filter
    deliveries_max: Annotated[int, Meta(ge=0, le=DELIVERIES_MAX)]


# --- between nodes --------------------------------------------------------------------------------


class WatchStreams(Call, frozen=True, gc=False, tag=130):
    """A page of the streams of this node behind that one, or all, and from now on what changes."""

    after: StreamKey = NO_STREAM
    count: StreamCount = 0


class StreamsSeen(Answer, frozen=True, gc=False, tag=131):
    streams: Annotated[list[Extent], RowsMax]


class StreamsChanged(Message, frozen=True, gc=False, tag=132):
    """Pushed: all streams of the shards that changed; with `is_more` they go on in the next of these."""

    streams: Annotated[list[Extent], RowsMax]
    is_more: bool = False


class ReadStream(Call, frozen=True, gc=False, tag=133):
    """What follows an offset; where nothing does yet, waits for it up to `wait_ms`."""

    shard: Number
    generation: Number
    offset: Number
    bytes_max: Annotated[int, Meta(ge=1, le=STREAM_READ_BYTES_MAX)]
    wait_ms: Annotated[int, Meta(ge=0, le=STREAM_WAIT_MS_MAX)] = 0


class StreamRead(Answer, frozen=True, gc=False, tag=134):
    """Frames `first` to before `upto`; none of them if they are lost, and `reason` says why.

    Those of the ranges in `hidden` are of deleted topics: for whoever copies what is stored, for no reader.
    """

    first: int
    upto: int
    frames: Body
    reason: Code = ""
    hidden: Annotated[list[OffsetRange], RowsMax] = msgspec.field(default_factory=list)


class FindOffsets(Call, frozen=True, gc=False, tag=135):
    """The first offset of each shard at or after that time; the ends for a time beyond all."""

    time_us: Number
    filters: ReadFilters = msgspec.field(default_factory=list)


class OffsetsFound(Answer, frozen=True, gc=False, tag=136):
    offsets: Annotated[list[tuple[int, int]], RowsMax]


class FindRetained(Call, frozen=True, gc=False, tag=137):
    filter: Filter
    skip: Number = 0
    """So many were in the answers before."""


class RetainedFound(Answer, frozen=True, gc=False, tag=138):
    """Frames one behind the other; `next` is what to skip for those that follow, 0 if these are the last."""

    frames: Body
    next: Number = 0


class ForLeader(Message, frozen=True, gc=False, tag=139):
    """From a Borrower on another node; `reader` is the group's number in the catalog."""

    reader: Number
    message: BorrowerMessage


class ForBorrower(Message, frozen=True, gc=False, tag=140):
    """Pushed: from a Leader on this node."""

    message: LeaderMessage


Work = DeleteGroup | SeekGroup | KickMember | ChangeGroup
"""What operators ask of a group, and its Leader performs."""


class AskLeader(Call, frozen=True, gc=False, tag=161):
    """An operator's call, passed on to the node that leads the group; answered by `Done`.

    It is for one group, by its number in the catalog, and for the Leader of one epoch. The ticket has
    a deadline, and is taken with the effect; the numbers in `work` mean nothing.
    """

    reader: Number
    epoch: Number
    ticket: Number
    asked_by: Annotated[str, Meta(max_length=OPERATOR_LENGTH_MAX)]
    work: Work
    originator: Originator = Originator()


COMMANDS = (
    ListGroups
    | DescribeGroup
    | CreateGroup
    | DeleteGroup
    | SeekGroup
    | PlanSeek
    | KickMember
    | ChangeGroup
    | AskLeader
    | WatchStreams
    | ReadStream
    | FindOffsets
    | FindRetained
    | ForLeader
)
EVENTS = (
    GroupsListed
    | GroupDescribed
    | GroupCreated
    | SeekPlanned
    | StreamsSeen
    | StreamsChanged
    | StreamRead
    | OffsetsFound
    | RetainedFound
    | ForBorrower
)
