"""Room: wire. The files of streams for readers that decode whole blocks themselves, and where the nodes are.

A reader of everything (a Spark task) asks for bytes of a segment as they lie on the disk and checks them
itself: the node only reads and sends.
"""

from typing import Annotated

from msgspec import Meta, field

from moorline.core.stream import Extent, SegmentPart
from moorline.limits import (
    CLUSTER_NODES_MAX,
    NODE_ADDRESSES_MAX,
    READ_FILTERS_MAX,
    STREAM_READ_BYTES_MAX,
    STREAM_SHARDS_MAX,
)
from moorline.wire.bounds import Body, Code, FilterText, Name, ReadFilters, RowsMax
from moorline.wire.message import Answer, Call
from moorline.wire.node import AddressText
from moorline.wire.topic import Number

NodeAddresses = Annotated[list[AddressText], Meta(max_length=NODE_ADDRESSES_MAX)]
NodeRow = tuple[Name, NodeAddresses, bool]


class DescribeCluster(Call, frozen=True, gc=False, tag=141):
    """Where the brokers of this cluster are.

    Here as in `DescribeShards` and `FindOffsets`: whoever names the filters that it wants to read needs the
    right to read these, and not to list all topics.
    """

    filters: ReadFilters = field(default_factory=list)


class ClusterDescribed(Answer, frozen=True, gc=False, tag=142):
    """(home, addresses, whether it gave a sign of life lately) of each node that ever registered.

    `ids` are those of their data folders, by home: another folder is another node, whatever its name.
    """

    node: Name
    nodes: Annotated[list[NodeRow], Meta(max_length=CLUSTER_NODES_MAX)]
    ids: Annotated[dict[Name, Name], Meta(max_length=CLUSTER_NODES_MAX)] = field(
        default_factory=dict
    )


class ReadStreamFile(Call, frozen=True, gc=False, tag=143):
    """Bytes of a stream's file, of a segment only what is committed."""

    shard: Number
    generation: Number
    part: SegmentPart
    position: Number
    bytes_max: Annotated[int, Meta(ge=0, le=STREAM_READ_BYTES_MAX)]


class ReadMatching(Call, frozen=True, gc=False, tag=68):
    """The messages of a stream from an offset to before another that one of the filters takes, and no other:
    for readers who may not read all topics, and for those who want few of its messages.

    At most `messages_max` of them, if that is not 0; an older node gives as many as fit.
    """

    shard: Number
    generation: Number
    offset: Number
    upto: Number
    bytes_max: Annotated[int, Meta(ge=1, le=STREAM_READ_BYTES_MAX)]
    filters: Annotated[list[FilterText], Meta(min_length=1, max_length=READ_FILTERS_MAX)]
    messages_max: Number = 0


class MatchingRead(Answer, frozen=True, gc=False, tag=69):
    """Of the messages `first` to before `upto` the frames that match; `skipped` others are left out.

    With a `reason` the messages are lost. Nothing at all, `upto` being `first`, is the end of the stream.
    """

    first: int
    upto: int
    frames: Body
    skipped: int = 0
    reason: Code = ""


class StreamFileRead(Answer, frozen=True, gc=False, tag=144):
    """`end` and `size_bytes` are what is committed now; `reason` says why a stream is not there."""

    data: Body
    first: int
    end: int
    size_bytes: int
    is_sealed: bool
    reason: Code = ""


class DescribeShards(Call, frozen=True, gc=False, tag=47):
    """How far the shards of this node go, and the streams of some of them from an offset on.

    `since` has (shard, offset): streams that end behind it are told, of shards that are not named none.

    `counts` has (shard, count), of shards that `since` names: how far so many messages go from there on that
    a filter may take. Then no streams are told.
    """

    since: Annotated[list[tuple[Number, Number]], Meta(max_length=STREAM_SHARDS_MAX)] = field(
        default_factory=list
    )
    filters: ReadFilters = field(default_factory=list)
    counts: Annotated[list[tuple[Number, Number]], Meta(max_length=STREAM_SHARDS_MAX)] = field(
        default_factory=list
    )


class ShardsDescribed(Answer, frozen=True, gc=False, tag=49):
    """`shards` are (shard, first, end), all of them; with `is_more` there are more streams than told.

    `counted` are (shard, upto, count): of the messages to before `upto` so many may match, and no other does.
    It may be less than was asked for. A node of an older program counts nothing, and tells streams.
    """

    shards: Annotated[list[tuple[int, int, int]], RowsMax]
    streams: Annotated[list[Extent], RowsMax]
    is_more: bool = False
    counted: Annotated[list[tuple[int, int, int]], Meta(max_length=STREAM_SHARDS_MAX)] = field(
        default_factory=list
    )


COMMANDS = DescribeCluster | ReadStreamFile | ReadMatching | DescribeShards
EVENTS = ClusterDescribed | StreamFileRead | MatchingRead | ShardsDescribed
