"""Room: client. Groups as their operator sees them: declared, looked at, moved, ended.

group = moor.group("$shared/billing/orders/#")
await group.create(start="beginning")
print(await group.info())
"""

from datetime import datetime
from functools import partial

from moorline.client.record import check_filter_text
from moorline.client.topic import start_text
from moorline.errors import ConfigError, NotFound
from moorline.limits import DELIVERIES_MAX, GROUPS_PER_PAGE_MAX, MEMBER_LENGTH_MAX
from moorline.net.caller import Calls
from moorline.net.pages import described_group
from moorline.wire.group import (
    ChangeGroup,
    CreateGroup,
    DeleteGroup,
    GroupCreated,
    GroupDescribed,
    GroupFacts,
    GroupsListed,
    KickMember,
    ListGroups,
    PlanSeek,
    SeekGroup,
    SeekPlanned,
)
from moorline.wire.queue import Done


class Group:
    """One group, by its name.

    A call that changes it and raises a `CallFailed` has changed nothing, and will not. Only after
    `OutcomeUnknown`, or a `ConnectionLost` while it waits, nobody knows: look with `info` before you ask
    again.
    """

    def __init__(self, caller: Calls, name: str) -> None:
        check_filter_text(name)
        self.name = name
        self._caller = caller

    async def create(
        self, *, start: str | int | datetime = "now", deliveries_max: int | None = None
    ) -> bool:
        """Declares it: from now on nothing that it should read is missed. False if it was there.

        After `deliveries_max` failed deliveries (0 is never) a message goes to `$dead`; without it the
        node's `groups.deliveries_max` counts.
        """
        if deliveries_max is not None:
            _check_deliveries(deliveries_max)
        limit = -1 if deliveries_max is None else deliveries_max
        made = await self._caller.call(
            lambda call: CreateGroup(call, self.name, start_text(start), limit),
            GroupCreated,
        )
        return made.created

    async def info(self) -> GroupDescribed:
        """Its members, and its place and lag in every stream; page by page, so not all of one moment."""
        return await described_group(self._caller, self.name)

    async def seek(self, start: str | int | datetime) -> None:
        """Moves it, running or not; its members begin anew from there."""
        await self._caller.call(lambda call: SeekGroup(call, self.name, start_text(start)), Done)

    async def plan_seek(self, start: str | int | datetime) -> SeekPlanned:
        """What such a move would do, stream by stream; changes nothing."""
        text = start_text(start)
        return await self._caller.call(lambda call: PlanSeek(call, self.name, text), SeekPlanned)

    async def kick(self, member: str) -> None:
        """Ends the part of a member; what it held goes to the others."""
        if not 1 <= len(member) <= MEMBER_LENGTH_MAX:
            raise NotFound(f"no member has a name of {len(member)} characters")
        await self._caller.call(lambda call: KickMember(call, self.name, member), Done)

    async def change(self, *, deliveries_max: int) -> None:
        """Changes its limits, running or not: from how many failed deliveries on a message goes to `$dead`.

        0 is never. Members finish what they have in hand first.
        """
        _check_deliveries(deliveries_max)
        await self._caller.call(lambda call: ChangeGroup(call, self.name, deliveries_max), Done)

    async def delete(self) -> None:
        """Ends it for good; its members are told."""
        await self._caller.call(lambda call: DeleteGroup(call, self.name), Done)


def _check_deliveries(deliveries_max: int) -> None:
    if not 0 <= deliveries_max <= DELIVERIES_MAX:
        raise ConfigError(f"deliveries_max is 0 to {DELIVERIES_MAX}, not {deliveries_max}")


async def list_groups(caller: Calls) -> list[GroupFacts]:
    """All groups of the cluster, page by page."""
    found: list[GroupFacts] = []
    while True:
        after = found[-1].name if found else ""
        asked = partial(ListGroups, after=after, count=GROUPS_PER_PAGE_MAX)
        page = (await caller.call(asked, GroupsListed)).groups
        found += page
        if len(page) < GROUPS_PER_PAGE_MAX:
            return found
