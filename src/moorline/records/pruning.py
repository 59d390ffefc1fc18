"""Room: records. The life of a log: lines that are old go, and the limit moves up.

Writers compare the number of a line with the sequence `log_limit_N`, and write it only up to there. The
registration has a limit of its own, below or equal: up to it all lines are known to be written. The two are
moved like
this:

    1. the sequence is set to the new limit
    2. the number of the last line is read: who was refused by the old limit had taken its number before
    3. is it at or below the old limit, nobody was refused: the registration has the new limit
    4. is it above, lines are lost: the log is cleared, and a transaction number is drawn behind that; those
       below it may lack lines

A node that dies in between leaves the registration's limit where it was, which is the careful side.

The age of a line is the time for which it was visible: a transaction may write it and commit an hour later,
and who follows the table has to see it then. So each turn keeps a *moment* (a snapshot, and when it was
taken), and what goes is what was visible at the newest moment that is a life old. Who comes with a younger
snapshot misses nothing.
"""

from typing import Any, NamedTuple

from moorline.core.records.log_reach import LogReach
from moorline.core.records.snapshot import Snapshot
from moorline.limits import (
    RECORDS_LOG_LIFE_S,
    RECORDS_MOMENTS,
    RECORDS_PRUNE_ROWS_MAX,
    RECORDS_SEEN_S,
)
from moorline.records.definition import LOCK_CLASS
from moorline.records.naming import filled, sql
from moorline.records.registration import Registration, reach_of

PRUNE = sql("prune")
PRUNE_LOCK = sql("prune_lock")
PRUNE_UNLOCK = sql("prune_unlock")
NEXT_XID = sql("next_xid")
CLEARED = sql("cleared")
PRUNED = sql("pruned")
MOMENT_ADD = sql("moment_add")
MOMENTS = sql("moments")
MOMENTS_GONE = sql("moments_gone")
LOG_BOUNDS = sql("log_bounds")
LIMIT_RAISE = sql("limit_raise")
LIMIT_CONFIRM = sql("limit_confirm")
LOG_CLEAR = sql("log_clear")

RAISE_PARTS = 4
"""A quarter of the log is kept free while a node is there, and the limit is moved when it can be by as
much."""


class Pruned(NamedTuple):
    lines: int
    """Lines that were removed; as many as RECORDS_PRUNE_ROWS_MAX: there are more."""
    has_lost: bool = False
    """Lines are missing: what is behind older snapshots is not known any more."""


async def prune(
    connection: Any, registration: Registration, life_s: int = RECORDS_LOG_LIFE_S
) -> Pruned:
    """One turn, of a table with a log. Any node may do it, at any time."""
    number = registration.n
    # Two at a time could set the limit below what one of them has confirmed.
    if not await connection.fetchval(filled(PRUNE_LOCK, lock_class=LOCK_CLASS, n=number)):
        return Pruned(0)
    try:
        # By itself: what it sees is what everybody sees from now on.
        apart_s = life_s / RECORDS_MOMENTS
        await connection.execute(filled(MOMENT_ADD, n=number, apart_s=apart_s))
        async with connection.transaction(isolation="read_committed"):
            lines = await _remove_lines(connection, number, registration.log_rows_max, life_s)
        return Pruned(lines, await _raise_limit(connection, number))
    finally:
        if not connection.is_closed():
            await connection.execute(filled(PRUNE_UNLOCK, lock_class=LOCK_CLASS, n=number))


async def _remove_lines(connection: Any, number: int, rows_max: int, life_s: int) -> int:
    while_s = min(life_s, RECORDS_SEEN_S)
    found = await connection.fetchrow(filled(MOMENTS, n=number, life_s=life_s, while_s=while_s))
    if found is None or found["first_n"] is None:
        return 0
    reach, removed = reach_of(found), 0
    if found["old"] is not None:
        moment = Snapshot.parse(found["old"])
        reach, removed = await _remove(connection, number, reach, moment, found["last"])
    upto = found["last"] - (rows_max - rows_max // RAISE_PARTS)
    if found["first_n"] <= upto:
        # Beyond the bound, whatever their age: of those that running nodes have seen for a while, as long as
        # the limit is not near.
        is_urgent = found["limit_now"] - found["last"] < rows_max // RAISE_PARTS // 2
        seen = found["now"] if is_urgent or found["recent"] is None else found["recent"]
        reach, more = await _remove(connection, number, reach, Snapshot.parse(seen), upto)
        removed += more
    if removed:
        # With the lines, or somebody could ask for what is gone.
        of = {"n": number, "below": reach.pruned_below, "at": reach.pruned_at}
        await connection.execute(filled(PRUNED, **of))
    await connection.execute(filled(MOMENTS_GONE, n=number, life_s=life_s))
    return removed


async def _remove(
    connection: Any, number: int, reach: LogReach, moment: Snapshot, upto: int
) -> tuple[LogReach, int]:
    gone = await connection.fetchrow(
        filled(
            PRUNE,
            n=number,
            xmax=moment.xmax,
            open="{" + ",".join(map(str, moment.open)) + "}",
            upto=upto,
            rows_max=RECORDS_PRUNE_ROWS_MAX,
        )
    )
    if not gone["rows"]:
        return reach, 0
    return reach.pruned(int(gone["xid"]), moment), gone["rows"]


async def _raise_limit(connection: Any, number: int) -> bool:
    """Whether lines were lost. Each statement is a transaction of its own, in this order."""
    bounds = await connection.fetchrow(filled(LOG_BOUNDS, n=number))
    if bounds is None:
        return False
    first, last = bounds["first_n"], bounds["log_n"]
    is_lost: bool = last > bounds["log_limit"]
    limit = last if first is None or is_lost else min(first - 1, last)
    limit = max(limit + bounds["log_rows_max"], bounds["limit_now"])
    if not is_lost and limit - bounds["log_limit"] < max(
        1, bounds["log_rows_max"] // RAISE_PARTS // 2
    ):
        return False
    await connection.execute(filled(LIMIT_RAISE, n=number, limit=limit))
    behind = (await connection.fetchrow(filled(LOG_BOUNDS, n=number)))["log_n"]
    is_lost = is_lost or behind > bounds["log_limit"]
    # Behind the move of the limit: who begins from here on is refused no line.
    below = await connection.fetchval(NEXT_XID) if is_lost else None
    async with connection.transaction(isolation="read_committed"):
        if below is not None:
            await connection.execute(filled(LOG_CLEAR, n=number, upto=behind))
            await connection.execute(filled(CLEARED, n=number, below=below))
        await connection.execute(filled(LIMIT_CONFIRM, n=number, limit=limit))
    return is_lost
