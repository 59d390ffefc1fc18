"""Room: spark. What readers of topics ask of the place where streams are, in the names of Spark's offsets."""

from collections.abc import Sequence
from typing import Protocol, TypeVar

from moorline.core.stream import Shard
from moorline.journal.streams.folder import FolderStreams
from moorline.journal.streams.source import Counted, StreamSource
from moorline.spark.node_streams import NodeStreams
from moorline.spark.options import Endpoint, Offsets
from moorline.spark.planning import Described

Value = TypeVar("Value")


class Streams(StreamSource, Protocol):
    """Where streams are, as a driver sees it, which tells its tasks where to ask."""

    def silent(self) -> list[str]:
        """Nodes whose streams are not known now."""

    def addresses(self, node: str) -> tuple[str, ...]: ...


def opened(path: str, node: str, endpoint: Endpoint, filters: Sequence[str] = ()) -> Streams:
    """Those of a folder if a path is given, else of nodes. Whoever opens them closes them.

    With filters the nodes give what these take, and nothing else.
    """
    return FolderStreams(path, node) if path else NodeStreams(endpoint, filters)


def described(streams: StreamSource, since: Offsets) -> Described:
    """All shards, and of those that are named the streams that end behind that offset."""
    bounds, shard_extents = streams.described(shards_of(since))
    return Described(named(bounds), named(shard_extents))


def offsets_at(streams: StreamSource, time_us: int) -> Offsets:
    return named(streams.offsets_at(time_us))


def counted(
    streams: StreamSource, since: Offsets, filters: Sequence[str], count_max: Offsets
) -> dict[str, Counted]:
    return named(streams.count_matching(shards_of(since), filters, shards_of(count_max)))


def shards_of(offsets: Offsets) -> dict[Shard, int]:
    found: dict[Shard, int] = {}
    for name, at in offsets.items():
        home, _, number = name.rpartition("/")
        found[Shard(home, int(number))] = at
    return found


def named(by_shard: dict[Shard, Value]) -> dict[str, Value]:
    """As the offsets of Spark name them."""
    return {str(shard): value for shard, value in by_shard.items()}
