"""Room: groups. How far a group is in every shard and how far behind, by its Leader or by what is stored.

A shard that a group has no place in yet counts from the group's start on: what waits there waits for the
group, whether anybody leads it or not.
"""

from collections.abc import Iterable

from moorline.catalog.groups import GroupRow
from moorline.core.delivery.progress import Cursor
from moorline.core.group.leader import Leader
from moorline.core.group.views import Lag, ShardView
from moorline.core.stream import Shard
from moorline.groups.leaders import Leaders
from moorline.topics.directory import ShardExtents
from moorline.wire.group import CursorFacts


def led_cursors(leader: Leader, shard_extents: ShardExtents) -> list[CursorFacts]:
    """As the Leader knows them; a shard whose start it is still looking for counts whole until then."""
    unknown = [
        _waiting(ShardView(shard, Cursor(extents[0].first)), shard_extents, "starting")
        for shard, extents in shard_extents.items()
        if extents and shard not in leader.shards
    ]
    return [*(_cursor_of(leader, lag) for lag in leader.lags()), *unknown]


async def stored_cursors(leaders: Leaders, row: GroupRow) -> list[CursorFacts]:
    """Nobody who can be asked leads it: as they are stored, and from its start on where none is."""
    shard_extents = leaders.directory.shard_extents()
    cursors = dict(await leaders.cursor_commits.load(row.reader))
    new = {
        shard: extents
        for shard, extents in shard_extents.items()
        if extents and shard not in cursors
    }
    starts: dict[Shard, int] = {}
    for node in {shard.home for shard in new}:
        of_node = {shard: new[shard] for shard in new if shard.home == node}
        starts |= await leaders.starts(node, row, of_node)
    for shard, extents in new.items():
        # A node that does not answer: rather too many than none.
        cursors[shard] = Cursor(starts.get(shard, extents[0].first))
    return [
        # What waits in a stream that nobody tells of is not known: that is no lag of 0.
        _waiting(
            ShardView(shard, cursor), shard_extents, "free" if shard in shard_extents else "away"
        )
        for shard, cursor in cursors.items()
    ]


def in_order(cursors: Iterable[CursorFacts]) -> list[tuple[Shard, CursorFacts]]:
    """By node and shard, as pages are."""
    return sorted((Shard(cursor.node, cursor.shard), cursor) for cursor in cursors)


def _waiting(view: ShardView, shard_extents: ShardExtents, status: str) -> CursorFacts:
    view.extents = shard_extents.get(view.shard, ())
    low, failing = view.progress.low, len(view.progress.failures)
    lost = view.lost + view.gone
    return CursorFacts(*view.shard, low, view.end, view.lag, "", status, 0, failing, lost)


def _cursor_of(leader: Leader, lag: Lag) -> CursorFacts:
    view = leader.shards[lag.shard]
    delivered = max((lease.delivered for lease in view.leases.values()), default=0)
    low = view.progress.low
    pending = sum(upto - first for first, upto in view.progress.open_ranges(low, delivered))
    failing = len(view.progress.failures)
    return CursorFacts(
        *lag.shard,
        lag.offset,
        lag.end,
        lag.lag,
        lag.borrower,
        lag.status,
        pending,
        failing,
        view.lost + view.gone,
    )
