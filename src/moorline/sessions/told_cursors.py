"""Room: sessions. Cursors of a plain subscription, as they come from its client and go to it.

They are the client's word. It may name what it likes: nobody else reads by it, and what it passes over it has
done to itself. Offsets that this node has not given yet are cut to its end: a shard that lost its newest
messages with its machine gives their offsets again, and those are not done.
"""

from collections.abc import Iterable, Sequence

from moorline.core.delivery.progress import Cursor, Progress
from moorline.core.stream import Shard
from moorline.errors import BadStart
from moorline.limits import CLIENT_SHARDS_MAX, SEQUENCE_FIRST_MAX, STREAM_SHARDS_MAX
from moorline.topics.directory import StreamDirectory
from moorline.wire.topic import HomeCursors, ToldCursor


def cursors_told(
    told: Sequence[HomeCursors], directory: StreamDirectory
) -> list[tuple[Shard, Cursor]]:
    """What a client says of where it was."""
    if sum(len(shards) for _, shards in told) > CLIENT_SHARDS_MAX:
        raise BadStart(f"a subscription goes on in at most {CLIENT_SHARDS_MAX} shards")
    for _, shards in told:
        for number, offset, ranges in shards:
            # No shard has such a number, and no message such an offset: nothing is made for them.
            far = max([offset, *(upto for _, upto in ranges)])
            if number >= STREAM_SHARDS_MAX or far > SEQUENCE_FIRST_MAX:
                raise BadStart(f"no stream has a place like shard {number}, offset {far}")
    return [
        (Shard(home, number), _cursor(Shard(home, number), offset, ranges, directory))
        for home, shards in told
        for number, offset, ranges in shards
    ]


def _cursor(
    shard: Shard, offset: int, ranges: Iterable[tuple[int, int]], directory: StreamDirectory
) -> Cursor:
    extents = directory.extents(shard) if shard.home == directory.node else ()
    # Of other nodes' shards the newest end is not known here.
    end = extents[-1].end if extents else None
    progress = Progress(Cursor(offset if end is None else min(offset, end)))
    for first, upto in ranges:
        last = upto if end is None else min(upto, end)
        if first < last:
            progress.ack(first, last)
    return progress.cursor()


def cursors_of(cursors: Iterable[tuple[Shard, Cursor]]) -> list[HomeCursors]:
    """For a client; of more shards than it may name none, and it begins anew elsewhere."""
    by_home: dict[str, list[ToldCursor]] = {}
    count = 0
    for shard, cursor in cursors:
        by_home.setdefault(shard.home, []).append((shard.number, cursor.offset, ()))
        count += 1
    return list(by_home.items()) if count <= CLIENT_SHARDS_MAX else []
