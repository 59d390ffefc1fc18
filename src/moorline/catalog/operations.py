"""Room: catalog. Tickets of what operators ask of groups, and the effects that take one.

A ticket is taken in the transaction of its effect, by a Leader whose epoch is the newest, before it is over
by the catalog's clock. Whoever asked withdraws it before it says that nothing was done. So one of the two is
first, and both know which.
"""

from collections.abc import Sequence
from enum import Enum

import msgspec

from moorline.catalog.catalog import Catalog
from moorline.catalog.readers import CursorRow
from moorline.catalog.statements import statement

OPEN = statement("operation_open")
TAKE = statement("operation_take")
WITHDRAW = statement("operation_withdraw")
DELETE = statement("group_delete")
SEEK = statement("group_seek")
CHANGE = statement("group_change")


class Taking(Enum):
    """What became of an attempt to take a ticket; only TAKEN had an effect."""

    TAKEN = "TAKEN"
    FENCED = "FENCED"
    """Another one leads the group, or it is gone."""
    TOO_LATE = "TOO_LATE"
    """It was withdrawn, was taken before, or is over."""


class Ticket(msgspec.Struct, frozen=True):
    """A call, the group that it is for by its own number, and the epoch of whoever is to perform it."""

    number: int
    reader: int
    epoch: int


class Tickets:
    """The part of the catalog that knows what operators ask for."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    async def open(
        self, reader: int, work: str, *, asked_by: str, asked_at: str, within_ms: int
    ) -> int:
        """The number of a ticket that can be taken within that time."""
        return int(await self._catalog.fetchval(OPEN, reader, work, asked_by, asked_at, within_ms))

    async def withdraw(self, number: int) -> bool | None:
        """Nobody takes it from now on; whether it was taken before, None if nobody knows any more."""
        is_done: bool | None = await self._catalog.fetchval(WITHDRAW, number)
        return is_done

    async def take(self, ticket: Ticket) -> Taking:
        """For an effect that is not in the catalog."""
        return await self._take(TAKE, ticket)

    async def delete(self, ticket: Ticket) -> Taking:
        """Removes the group with its places."""
        return await self._take(DELETE, ticket)

    async def seek(
        self,
        ticket: Ticket,
        *,
        start_us: int,
        start_offset: int | None,
        cursors: Sequence[CursorRow],
    ) -> Taking:
        """The group has these places and no others, and begins at the start wherever it has none.

        Its epoch rises and nobody leads it.
        """
        return await self._take(
            SEEK,
            ticket,
            start_us,
            start_offset,
            [cursor.home for cursor in cursors],
            [cursor.shard for cursor in cursors],
            [cursor.offset for cursor in cursors],
        )

    async def change(self, ticket: Ticket, *, deliveries_max: int) -> Taking:
        return await self._take(CHANGE, ticket, deliveries_max)

    async def _take(self, statement_text: str, ticket: Ticket, *values: object) -> Taking:
        return Taking(
            await self._catalog.fetchval(
                statement_text, ticket.number, ticket.reader, ticket.epoch, *values
            )
        )
