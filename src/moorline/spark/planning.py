"""Room: spark. Ranges of streams: where a query begins and ends, how much of it is a batch, who reads what.

Pure: what there is comes in as extents, and a query's place is a dict `{"node-1/3": offset, …}` with one
entry for each shard, because offsets count through all generations of it.
"""

from itertools import pairwise
from typing import NamedTuple

from moorline.core.stream import Extent, Stream
from moorline.errors import ConfigError
from moorline.limits import SPARK_BUNDLE_MESSAGES
from moorline.spark.options import EARLIEST, LATEST, Offsets

ExtentsByShard = dict[str, list[Extent]]
"""The streams of each shard, the oldest first."""

Bounds = dict[str, tuple[int, int]]
"""The first message that each shard has, and its end."""


class Described(NamedTuple):
    """What nodes, or a folder, told: all shards, and those streams that were asked for."""

    bounds: Bounds
    shard_extents: ExtentsByShard


class Range(NamedTuple):
    """Messages `first` to before `upto` of one stream."""

    stream: Stream
    first: int
    upto: int

    @property
    def messages(self) -> int:
        return self.upto - self.first


class ShardGap(NamedTuple):
    """Messages `first` to before `upto` of a shard are gone, or of a stream cannot be read."""

    shard: str
    first: int
    upto: int
    reason: str = "RETENTION"
    """RETENTION where nothing is left of them, DAMAGE where what is left cannot be read."""

    @property
    def messages(self) -> int:
        return self.upto - self.first

    def __str__(self) -> str:
        return f"{self.messages} messages of {self.shard}, {self.first} to {self.upto - 1}"


def firsts(bounds: Bounds) -> Offsets:
    return {shard: first for shard, (first, _) in bounds.items()}


def ends(bounds: Bounds) -> Offsets:
    return {shard: end for shard, (_, end) in bounds.items()}


def resolved(given: str | Offsets, otherwise: str, bounds: Bounds, option: str) -> Offsets:
    """What was asked for as one offset a shard; shards that are not named are at `otherwise`."""
    first, end = firsts(bounds), ends(bounds)
    if isinstance(given, str):
        return first if given == "earliest" else end
    found = dict(first if otherwise == "earliest" else end)
    for shard, offset in given.items():
        if shard not in bounds:
            known = ", ".join(bounds) or "none"
            raise ConfigError(f"{option}: there is no stream {shard!r}; there are {known}")
        if offset > end[shard]:
            raise ConfigError(
                f"{option}: {shard!r} has messages up to {end[shard]}, not to {offset}"
            )
        found[shard] = {EARLIEST: first[shard], LATEST: end[shard]}.get(offset, offset)
    return found


def check_order(start: Offsets, end: Offsets) -> None:
    """Refuses a start behind its end: nothing can be between them."""
    for shard, offset in start.items():
        if offset > end.get(shard, offset):
            raise ConfigError(
                f"the start of {shard!r} is {offset}, above its end, {end[shard]}: give a start below it"
            )


def waiting(start: Offsets, end: Offsets) -> int:
    """How many messages there are between, of all topics."""
    return sum(max(0, upto - start.get(shard, upto)) for shard, upto in end.items())


def limited(start: Offsets, end: Offsets, rows_max: int) -> Offsets:
    """At most so many messages, of each shard a part that goes with what waits in it."""
    if waiting(start, end) <= rows_max:
        return end
    behind = {shard: max(0, at - start.get(shard, at)) for shard, at in end.items()}
    shares = shared_out(behind, rows_max)
    return {
        shard: start[shard] + shares[shard] if behind[shard] else at for shard, at in end.items()
    }


def shared_out(waiting: dict[str, int], rows_max: int) -> dict[str, int]:
    """Of each shard how many, where more wait than there shall be."""
    total = sum(waiting.values())
    # At least one of each, or a shard with little in it would wait for ever.
    return {
        shard: min(max(1, rows_max * count // total), count) for shard, count in waiting.items()
    }


def ranges(
    start: Offsets, end: Offsets, shard_extents: ExtentsByShard
) -> tuple[list[Range], list[ShardGap]]:
    """The pieces of streams between two places, and what between them is not there any more."""
    found: list[Range] = []
    gaps: list[ShardGap] = []
    for shard, upto in sorted(end.items()):
        at = start.get(shard, upto)
        for extent in shard_extents.get(shard, ()):
            if at >= upto or extent.first >= upto:
                break
            if extent.end <= at:
                continue
            if extent.first > at:
                gaps.append(ShardGap(shard, at, extent.first))
                at = extent.first
            stop = min(extent.end, upto)
            found.append(Range(extent.stream, at, stop))
            at = stop
        if at < upto:
            gaps.append(ShardGap(shard, at, upto))
    return found, gaps


def tasks(found: list[Range], min_partitions: int, max_records: int) -> list[list[Range]]:
    """What each task reads: one range, or several small ones of one shard."""
    if max_records:
        found = [part for one in found for part in _split(one, -(-one.messages // max_records))]
    total = sum(one.messages for one in found)
    if len(found) < min_partitions and total:
        # As Kafka's source does: the larger ones are split more often.
        found = [
            part
            for one in found
            for part in _split(one, max(1, -(-min_partitions * one.messages // total)))
        ]
    if min_partitions:
        return [[one] for one in found]
    return _bundled(found, max_records or SPARK_BUNDLE_MESSAGES)


def _split(one: Range, parts: int) -> list[Range]:
    parts = min(parts, one.messages)
    edges = [one.first + one.messages * place // parts for place in range(parts + 1)]
    return [Range(one.stream, first, upto) for first, upto in pairwise(edges)]


def _bundled(found: list[Range], count_max: int) -> list[list[Range]]:
    bundles: list[list[Range]] = []
    count = 0
    for one in found:
        fits = bool(bundles) and count + one.messages <= count_max
        if fits and bundles[-1][-1].stream.shard == one.stream.shard:
            bundles[-1].append(one)
            count += one.messages
        else:
            bundles.append([one])
            count = one.messages
    return bundles
