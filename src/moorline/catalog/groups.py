"""Room: catalog. Groups, and which node leads each of them.

A group is led by the node that claimed it last, for as long as it renews its lease. The lease says when
others may claim; it is the epoch that keeps a Leader out who does not know yet that it was replaced. All
times are the catalog's clock, so the nodes' clocks may differ.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from moorline.catalog.outcome import unsure
from moorline.catalog.readers import CursorRow, Readers
from moorline.catalog.statements import statement
from moorline.core.topic import Mode, SharedName

__all__ = ["Claim", "CursorRow", "GroupRow", "Groups"]

DECLARE = statement("group_declare")
FIND = statement("group_find")
OF = statement("group_of")
OWNED = statement("group_owned")
LIST = statement("group_list")
CLAIM = statement("group_claim")
LEADER = statement("group_leader")
RENEW = statement("group_renew")
RESIGN = statement("group_resign")


class GroupRow(msgspec.Struct, frozen=True):
    reader: int
    name: SharedName
    deliveries_max: int
    start_us: int
    start_offset: int | None
    """Where it begins in shards that it has no place in: at `start_us`, or here if that is earlier."""
    epoch: int
    """0 if nobody has ever led it."""
    leader: str
    """Empty if nobody leads it."""
    lease_left_ms: int
    created_us: int
    owner: str = ""
    """The principal that made it; empty where nobody knows."""


class Claim(msgspec.Struct, frozen=True):
    """A group is ours to lead."""

    epoch: int


class Groups(Readers):
    """The part of the catalog that knows groups."""

    async def declare(
        self,
        name: SharedName,
        *,
        deliveries_max: int,
        start_us: int,
        start_offset: int | None = None,
        cursors: Sequence[CursorRow] = (),
        owner: str = "",
    ) -> tuple[GroupRow, bool]:
        """The group and whether this call made it; one that is there stays as it is, its owner too.

        One that is made begins at `places`, and at the start in every shard that is not among them.
        """
        # Looked for first: a group is declared whenever a member comes, and made once.
        found = await self.find(name)
        if found is not None:
            return found, False
        with unsure("the group was made"):
            row = await self._catalog.fetchrow(
                DECLARE,
                name.mode.value,
                name.group,
                name.filter,
                deliveries_max,
                start_us,
                [cursor.home for cursor in cursors],
                [cursor.shard for cursor in cursors],
                [cursor.offset for cursor in cursors],
                [cursor.acked for cursor in cursors],
                [cursor.failures for cursor in cursors],
                start_offset,
                *self._catalog.acting_as,
                owner,
            )
        if row is None:
            raise self._catalog.identity_taken()
        return _group(row), row["is_created"]

    async def owned_by(self, owner: str) -> int:
        """How many groups a principal has made, in the whole cluster."""
        return int(await self._catalog.fetchval(OWNED, owner))

    async def find(self, name: SharedName) -> GroupRow | None:
        row = await self._catalog.fetchrow(FIND, name.mode.value, name.group, name.filter)
        return None if row is None else _group(row)

    async def of(self, reader: int) -> GroupRow | None:
        """The group of a reader; None if it is gone."""
        row = await self._catalog.fetchrow(OF, reader)
        return None if row is None else _group(row)

    async def claim(self, reader: int, node: str, lease_ms: int) -> Claim | None:
        """Leads the group from now on; None if another node does, the group is gone, or we lost our identity.

        It is granted if nobody leads, if the lease is over, and to the node that leads already.
        """
        epoch = await self._catalog.fetchval(
            CLAIM, reader, node, lease_ms, *self._catalog.acting_as
        )
        return None if epoch is None else Claim(epoch)

    async def leader(self, reader: int) -> tuple[str, int] | None:
        """The node that leads and its epoch; None if nobody does."""
        row = await self._catalog.fetchrow(LEADER, reader)
        return None if row is None else (row["holder"], row["epoch"])

    async def renew(self, reader: int, epoch: int, lease_ms: int) -> bool:
        """Leads for another `lease_ms` from now; False if the group has another epoch or was resigned."""
        return bool(await self.renew_all([(reader, epoch)], lease_ms))

    async def renew_all(self, held: Sequence[tuple[int, int]], lease_ms: int) -> set[int]:
        """Renews (reader, epoch) at once; the readers that are still held."""
        readers, epochs = [reader for reader, _ in held], [epoch for _, epoch in held]
        rows = await self._catalog.fetch(RENEW, readers, epochs, lease_ms)
        return {row["number"] for row in rows}

    async def resign(self, reader: int, epoch: int) -> None:
        """Ends the lease, so that the next claim succeeds at once. Until then the epoch may still commit."""
        await self._catalog.execute(RESIGN, reader, epoch)

    async def list(
        self, after: SharedName | None = None, count: int | None = None
    ) -> list[GroupRow]:
        """The groups behind that one, by their names: at most so many, or all."""
        place: tuple[str | None, ...] = (None, None, None)
        if after is not None:
            place = (after.mode.value, after.group, after.filter)
        return [_group(row) for row in await self._catalog.fetch(LIST, *place, count)]


def _group(row: Any) -> GroupRow:
    return GroupRow(
        reader=row["reader"],
        name=SharedName(Mode(row["mode"]), row["name"], row["filter"]),
        deliveries_max=row["deliveries_max"],
        start_us=row["start_us"],
        start_offset=row["start_offset"],
        epoch=row["epoch"],
        leader=row["leader"],
        lease_left_ms=row["lease_left_ms"],
        created_us=row["created_us"],
        owner=row["owner"],
    )
