"""Room: spark. Where a micro-batch ends that shall have so many messages, of those that the query wants.

A shard has messages of all topics. How far so many go that may match is asked for: a node and a folder know
it without reading them (journal/streams/match_count.py). What matches nothing is passed over, and takes none
of the limit. Only the end of a batch depends on what is asked; it is in Spark's checkpoint before the batch
is planned, so that the batch is the same when it is run again.
"""

from collections.abc import Callable

from moorline.journal.streams.match_count import every
from moorline.journal.streams.source import Counted
from moorline.limits import READ_FILTERS_MAX
from moorline.spark.options import Offsets
from moorline.spark.planning import shared_out

Count = Callable[[Offsets, Offsets], dict[str, Counted]]
"""Of shards, from these offsets on, so many; those of which nothing is known are left out."""


def may_count(filters: tuple[str, ...]) -> bool:
    """Whether it can make a difference: who wants everything has nothing to pass over."""
    return "#" not in filters and len(filters) <= READ_FILTERS_MAX


def limited_by_matches(start: Offsets, end: Offsets, rows_max: int, count: Count) -> Offsets:
    """At most so many messages that may match, of each shard a part that goes with what it has of them."""
    behind = {shard: at for shard, at in start.items() if end.get(shard, at) > at}
    found = _asked(behind, end, dict.fromkeys(behind, rows_max), count)
    waiting = {shard: one.matches for shard, one in found.items()}
    if sum(waiting.values()) > rows_max:
        shares = shared_out(waiting, rows_max)
        less = {shard: at for shard, at in behind.items() if shares[shard] < waiting[shard]}
        found |= _asked(less, end, shares, count)
    return {**end, **{shard: one.upto for shard, one in found.items()}}


def is_enough(start: Offsets, end: Offsets, rows_min: int, count: Count) -> bool:
    """Whether so many messages wait that may match."""
    behind = {shard: at for shard, at in start.items() if end.get(shard, at) > at}
    found = _asked(behind, end, dict.fromkeys(behind, rows_min), count)
    if sum(one.matches for one in found.values()) >= rows_min:
        return True
    # Of some it was not looked to their end. What is there can be passed over at least.
    return any(one.upto < end[shard] for shard, one in found.items())


def _asked(since: Offsets, end: Offsets, count_max: Offsets, count: Count) -> dict[str, Counted]:
    if not since:
        return {}
    told = count(since, {shard: count_max[shard] for shard in since})
    found: dict[str, Counted] = {}
    for shard, at in since.items():
        one = told.get(shard)
        if one is None or one.upto <= at:
            one = every(at, end[shard], count_max[shard])
        upto, matches = one
        # The shard may have grown since, beyond what this batch may have.
        upto = min(upto, end[shard])
        found[shard] = Counted(upto, min(matches, upto - at))
    return found
