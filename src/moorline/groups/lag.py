"""Room: groups. How far a group is in every shard and how far behind, by its Leader or by what is stored.

A shard that a group has no place in yet counts from the group's start on: what waits there waits for the
group, whether anybody leads it or not.
"""

from collections.abc import Iterable

from moorline.catalog.groups import GroupRow
from moorline.core.delivery.progress import Cursor
from moorline.core.group.leader import Leader
from moorline.core.group.line import Lag, Line
from moorline.core.stream import Shard
from moorline.groups.leaders import Leaders
from moorline.topics.cluster import Lines
from moorline.wire.group import CursorFacts


def led_cursors(leader: Leader, lines: Lines) -> list[CursorFacts]:
    """As the Leader knows them; a shard whose start it is still looking for counts whole until then."""
    unknown = [
        _waiting(Line(shard, Cursor(extents[0].first)), lines, "starting")
        for shard, extents in lines.items()
        if extents and shard not in leader.lines
    ]
    return [*(_cursor_of(leader, lag) for lag in leader.lags()), *unknown]


async def stored_cursors(leaders: Leaders, row: GroupRow) -> list[CursorFacts]:
    """Nobody who can be asked leads it: as they are stored, and from its start on where none is."""
    lines = leaders.cluster.lines()
    cursors = dict(await leaders.cursor_commits.load(row.reader))
    new = {shard: extents for shard, extents in lines.items() if extents and shard not in cursors}
    starts: dict[Shard, int] = {}
    for node in {shard.node for shard in new}:
        of_node = {shard: new[shard] for shard in new if shard.node == node}
        starts |= await leaders.starts(node, row, of_node)
    for shard, extents in new.items():
        # A node that does not answer: rather too many than none.
        cursors[shard] = Cursor(starts.get(shard, extents[0].first))
    return [
        # What waits in a stream that nobody tells of is not known: that is no lag of 0.
        _waiting(Line(shard, cursor), lines, "free" if shard in lines else "away")
        for shard, cursor in cursors.items()
    ]


def in_order(cursors: Iterable[CursorFacts]) -> list[tuple[Shard, CursorFacts]]:
    """By node and shard, as pages are."""
    return sorted((Shard(cursor.node, cursor.shard), cursor) for cursor in cursors)


def _waiting(line: Line, lines: Lines, status: str) -> CursorFacts:
    line.extents = lines.get(line.shard, ())
    low, failing = line.progress.low, len(line.progress.failures)
    lost = line.lost + line.gone
    return CursorFacts(*line.shard, low, line.end, line.lag, "", status, 0, failing, lost)


def _cursor_of(leader: Leader, lag: Lag) -> CursorFacts:
    line = leader.lines[lag.shard]
    delivered = max((lease.delivered for lease in line.leases.values()), default=0)
    low = line.progress.low
    pending = sum(upto - first for first, upto in line.progress.open_ranges(low, delivered))
    failing = len(line.progress.failures)
    return CursorFacts(
        *lag.shard,
        lag.offset,
        lag.end,
        lag.lag,
        lag.borrower,
        lag.status,
        pending,
        failing,
        line.lost + line.gone,
    )
