"""Room: records. The life of a log: lines that are old go, and the limit moves up.

Writers compare the number of a line with the sequence `log_limit_N`, and write it only up to there. The
registration has a limit of its own, below or equal: up to it all lines are known to be written. The two are
moved like
this:

    1. the sequence is set to the new limit
    2. the number of the last line is read: who was refused by the old limit had taken its number before
    3. is it at or below the old limit, nobody was refused: the registration has the new limit
    4. is it above, lines are lost: the log is cleared, and is good from a transaction that begins now

A node that dies in between leaves the registration's limit where it was, which is the careful side.
"""

from typing import Any, NamedTuple

from moorline.limits import RECORDS_LOG_LIFE_S, RECORDS_PRUNE_ROWS_MAX
from moorline.records.definition import LOCK_CLASS
from moorline.records.naming import filled, sql
from moorline.records.registration import Registration

PRUNE = sql("prune")
PRUNE_LOCK = sql("prune_lock")
PRUNE_UNLOCK = sql("prune_unlock")
NEXT_XID = sql("next_xid")
GOOD_FROM = sql("good_from")
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
        rows_kept = registration.log_rows_max - registration.log_rows_max // RAISE_PARTS
        async with connection.transaction(isolation="read_committed"):
            gone = await connection.fetchrow(
                filled(
                    PRUNE,
                    n=number,
                    life_s=int(life_s),
                    rows_kept=rows_kept,
                    rows_max=RECORDS_PRUNE_ROWS_MAX,
                )
            )
            if gone["rows"]:
                # With the lines, or somebody could ask for what is gone.
                await connection.execute(
                    filled(GOOD_FROM, n=number, good_from=int(gone["xid"]) + 1)
                )
        return Pruned(gone["rows"], await _raise_limit(connection, number))
    finally:
        if not connection.is_closed():
            await connection.execute(filled(PRUNE_UNLOCK, lock_class=LOCK_CLASS, n=number))


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
    good_from = await connection.fetchval(NEXT_XID) if is_lost else None
    async with connection.transaction(isolation="read_committed"):
        if good_from is not None:
            await connection.execute(filled(LOG_CLEAR, n=number, upto=behind))
            await connection.execute(filled(GOOD_FROM, n=number, good_from=good_from))
        await connection.execute(filled(LIMIT_CONFIRM, n=number, limit=limit))
    return is_lost
