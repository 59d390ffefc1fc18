"""Room: groups. How a group comes to be: declared once, with an exact place in every stream there is."""

import asyncio
from typing import Final

from moorline.catalog.groups import GroupRow
from moorline.core.access.quota import UNBOUNDED, Quota
from moorline.core.delivery.progress import Cursor
from moorline.core.stream import Shard
from moorline.core.topic import SharedName
from moorline.errors import MoorlineError
from moorline.groups.cursor_commits import row_of
from moorline.groups.leaders import Leaders
from moorline.groups.rights import demand_member
from moorline.limits import FAR_FUTURE_US, HELLO_TIMEOUT_MS
from moorline.net.session_rights import SessionAllowance, SessionRights
from moorline.topics.directory import StreamDirectory, by_offset
from moorline.topics.start import Start

GROUP: Final = (Quota.GROUPS, 1)


async def find_or_create(
    leaders: Leaders,
    name: SharedName,
    start: Start,
    deliveries_max: int,
    rights: SessionRights,
    allowance: SessionAllowance | None = None,
) -> tuple[GroupRow, bool]:
    """The group of that name, and whether it was made now, by whoever has these rights."""
    known = await leaders.groups.find(name)
    demand_member(rights, name, known)
    if known is not None:
        return known, False
    if allowance is not None:
        allowance.take_made(Quota.GROUPS)
    if allowance is None or allowance.bound(Quota.GROUPS) >= UNBOUNDED:
        return await _made(leaders, name, start, deliveries_max, rights)
    # Held until the catalog counts it: so those that are made side by side do not pass the bound together.
    allowance.take(GROUP)
    try:
        allowance.check_room(Quota.GROUPS, await leaders.groups.owned_by(rights.principal), 0)
        return await _made(leaders, name, start, deliveries_max, rights)
    finally:
        allowance.give_back(GROUP)


async def _made(
    leaders: Leaders, name: SharedName, start: Start, deliveries_max: int, rights: SessionRights
) -> tuple[GroupRow, bool]:
    # Looked up before the group is declared: what is published from then on is surely behind.
    start_us = start.kept_us(leaders.directory.local.clock.start_us())
    cursors = await cursors_at(leaders.directory, start)
    row, is_created = await leaders.groups.declare(
        name,
        deliveries_max=deliveries_max,
        start_us=start_us,
        start_offset=start.offset,
        cursors=[row_of(shard, cursor) for shard, cursor in cursors],
        owner=rights.principal,
    )
    # Another may have been faster, whose group it is then.
    demand_member(rights, name, row)
    return row, is_created


async def cursors_at(
    directory: StreamDirectory, start: Start, *, within_ms: int = HELLO_TIMEOUT_MS
) -> list[tuple[Shard, Cursor]]:
    """The place of a start in every shard of the nodes that answer within that time."""
    shard_extents = directory.shard_extents()
    if start.offset is not None or not (start.is_now or start.time_us):
        return [
            (shard, Cursor(offset)) for shard, offset in by_offset(shard_extents, start.offset or 0)
        ]
    time_us = FAR_FUTURE_US if start.is_now else start.time_us
    answers = await asyncio.gather(
        *(directory.offsets_at(node, time_us, within_ms=within_ms) for node in directory.nodes()),
        return_exceptions=True,
    )
    cursors: list[tuple[Shard, Cursor]] = []
    for answer in answers:
        if isinstance(answer, dict):
            cursors += [(shard, Cursor(offset)) for shard, offset in answer.items()]
        elif not isinstance(answer, MoorlineError | OSError):
            raise answer
    return cursors
