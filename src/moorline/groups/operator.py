"""Room: groups. What operators ask of groups: see them, declare, seek, change, delete, remove a member.

A command goes to the node that leads the group, whichever node it was given to.
"""

import logging
from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import Any, TypeVar

import msgspec

from moorline.access.demands import Demands
from moorline.access.guard import Declarations, demand, demanded, heavy, needs, nodes_only
from moorline.catalog.groups import GroupRow
from moorline.config.settings import Groups as Settings
from moorline.core.access.right import LIST, PUBLISH, SUBSCRIBE
from moorline.core.stream import Shard
from moorline.core.topic import SharedName, shared_name
from moorline.errors import BadTopic, ConnectionLost, NotFound, TooLarge
from moorline.groups.find_or_create import cursors_at, find_or_create
from moorline.groups.lag import in_order, led_cursors, stored_cursors
from moorline.groups.leader_host import LeaderHost
from moorline.groups.leaders import Leaders
from moorline.groups.operations import Operations
from moorline.groups.rights import Judge, originator_of, rights_of_originator
from moorline.limits import GROUP_PAGE_BYTES_MAX, GROUPS_AT_ONCE_MAX, GROUPS_PER_PAGE_MAX
from moorline.net.clock import monotonic_ms
from moorline.net.session import Session
from moorline.net.turns import Turns
from moorline.topics.paths import TOPICS, all_groups, filter_read, path_of_group, path_of_topic
from moorline.topics.start import start_of
from moorline.wire.group import (
    AskLeader,
    ChangeGroup,
    CreateGroup,
    CursorFacts,
    DeleteGroup,
    DescribeGroup,
    GroupCreated,
    GroupDescribed,
    GroupFacts,
    GroupsListed,
    KickMember,
    ListGroups,
    MemberFacts,
    PlanSeek,
    SeekGroup,
    SeekPlanned,
    SeekStep,
    Work,
)
from moorline.wire.message import Answer
from moorline.wire.queue import Done

log = logging.getLogger("moorline.groups")

Key = TypeVar("Key", str, Shard)
Row = TypeVar("Row")

_encoder = msgspec.msgpack.Encoder()


class GroupBroker:
    def __init__(
        self,
        leaders: Leaders,
        operations: Operations,
        settings: Settings,
        judge: Judge,
        demands: Demands,
    ) -> None:
        self._leaders = leaders
        self._demands = demands
        self._operations = operations
        self._settings = settings
        self._judge = judge
        self._turns = Turns()

    def declared(self) -> Declarations:
        later, telling = self._turns.later, self._demands.telling
        operate = demanded(later(telling(self._operate, _path_of)))
        return {
            ListGroups: heavy(needs(LIST, all_groups, later(self.list_groups))),
            # Of the others the catalog knows the owner.
            DescribeGroup: heavy(demanded(later(telling(self.describe, _path_of)))),
            CreateGroup: needs(SUBSCRIBE, _topics_read, later(telling(self._create)), below=TOPICS),
            DeleteGroup: operate,
            SeekGroup: demanded(later(telling(self._seek, _path_of))),
            PlanSeek: heavy(demanded(later(telling(self._plan_seek, _path_of)))),
            KickMember: operate,
            ChangeGroup: operate,
            AskLeader: nodes_only(later(telling(self._operations.asked))),
        }

    def close(self) -> None:
        self._turns.close()

    # --- looking ----------------------------------------------------------------------------------

    async def list_groups(self, session: Session, call: ListGroups) -> Answer:  # noqa: ARG002
        after = _name(call.after) if call.after else None
        rows = await self._leaders.groups.list(after, call.count or GROUPS_AT_ONCE_MAX + 1)
        if not call.count and len(rows) > GROUPS_AT_ONCE_MAX:
            raise TooLarge(
                f"the answer does not fit a frame: there are more than {GROUPS_AT_ONCE_MAX} groups, ask for "
                f"pages of at most {GROUPS_PER_PAGE_MAX}"
            )
        return GroupsListed(call.call, [_facts(row) for row in rows])

    async def describe(self, session: Session, call: DescribeGroup) -> Answer:
        """Or raises what it is refused with, of which the audit is still to be told."""
        rights = session.rights
        if rights.is_node:
            path = path_of_group(_name(call.group).group)
            rights = rights_of_originator(self._judge, call.originator, path)
        name = _name(call.group)
        row = await self._leaders.groups.find(name)
        # First: whoever has no right does not hear whether there is such a group.
        demand(rights, LIST, path_of_group(name.group), _owner(row))
        if row is None:
            raise _not_there(name)
        host = self._leaders.led.get(row.reader)
        if host is not None:
            return self._described(call, row, host)
        held = await self._leaders.groups.leader(row.reader)
        if held is not None and held[0] != self._leaders.links.node:
            try:
                answer = await self._ask(
                    held[0],
                    lambda number: msgspec.structs.replace(
                        call, call=number, originator=originator_of(rights)
                    ),
                    GroupDescribed,
                )
            except ConnectionLost as error:
                log.info("a Leader cannot be asked", extra={"node": held[0], "error": str(error)})
            else:
                return msgspec.structs.replace(answer, call=call.call)  # type: ignore[no-any-return]
        return await self._from_catalog(call, row)

    def _described(self, call: DescribeGroup, row: GroupRow, host: LeaderHost) -> Answer:
        host.see(self._leaders.directory.shard_extents())
        leader, now_ms = host.leader, monotonic_ms()
        members = (
            MemberFacts(view.id, view.member, len(view.leases), now_ms - view.heard_ms)
            for _, view in _behind(call.member_after, leader.borrowers.items())
        )
        known = led_cursors(leader, self._leaders.directory.shard_extents())
        cursors = (cursor for _, cursor in _behind(call.after, in_order(known)))
        return _answer(call, _facts(row, leader.node, leader.epoch), members, cursors)

    async def _from_catalog(self, call: DescribeGroup, row: GroupRow) -> Answer:
        """Nobody who can be asked leads it: its places as they are stored."""
        stored = await stored_cursors(self._leaders, row)
        cursors = (cursor for _, cursor in _behind(call.after, in_order(stored)))
        return _answer(call, _facts(row), (), cursors)

    # --- changing ---------------------------------------------------------------------------------

    async def _create(self, session: Session, call: CreateGroup) -> Answer:
        name, start = _name(call.group), start_of(call.start)
        demand(session.rights, PUBLISH, path_of_group(name.group))
        deliveries_max = call.deliveries_max
        if deliveries_max < 0:
            deliveries_max = self._settings.deliveries_max
        _, created = await find_or_create(
            self._leaders, name, start, deliveries_max, session.rights, session.allowance
        )
        return GroupCreated(call.call, created)

    async def _operate(self, session: Session, call: Work) -> Answer:
        name = _name(call.group)
        row = await self._leaders.groups.find(name)
        await self._demands.operate(session, call, path_of_group(name.group), _owner(row))
        if row is None:
            raise _not_there(name)
        await self._operations.ask(session, row, call)
        return Done(call.call)

    async def _seek(self, session: Session, call: SeekGroup) -> Answer:
        start_of(call.start)  # a mistake in it is told at once
        return await self._operate(session, call)

    async def _plan_seek(self, session: Session, call: PlanSeek) -> Answer:
        """For whoever may look at the group: where it is now, beside where the start is."""
        start = start_of(call.start)
        told = await self.describe(session, DescribeGroup(call.call, call.group))
        if not isinstance(told, GroupDescribed):
            return told
        directory = self._leaders.directory
        within_ms = max(1, self._settings.lease_ms // 2)
        found = dict(await cursors_at(directory, start, within_ms=within_ms))
        steps, again, passed = list[SeekStep](), 0, 0
        away = set[str]()
        for cursor in told.cursors:
            target = found.get(Shard(cursor.node, cursor.shard))
            if target is None:
                away.add(cursor.node)
                continue
            steps.append(SeekStep(cursor.node, cursor.shard, cursor.offset, target.offset))
            again += max(0, cursor.offset - target.offset)
            passed += max(0, target.offset - cursor.offset)
        return SeekPlanned(call.call, again, passed, steps, sorted(away))

    # --- inside -----------------------------------------------------------------------------------

    async def _ask(self, node: str, make: Callable[[int], Any], reply: type[Any]) -> Any:
        # A Leader that says nothing for as long as its lease is none any more.
        lease_ms = self._settings.lease_ms
        return await self._leaders.links.ask(node, make, reply, within_ms=lease_ms)


def _topics_read(call: CreateGroup) -> Iterable[str]:
    return (path_of_topic(filter_read(call.group)),)


def _name(text: str) -> SharedName:
    name = shared_name(text)
    if name is None:
        raise BadTopic(
            f"{text!r} names no group: write $shared/GROUP/FILTER or $queue/GROUP/FILTER"
        )
    return name


def _path_of(call: DescribeGroup | PlanSeek | Work) -> str:
    return path_of_group(_name(call.group).group)


def _owner(row: GroupRow | None) -> str | None:
    return None if row is None else row.owner


def _not_there(name: SharedName) -> NotFound:
    return NotFound(f"there is no group {name}: `moor group list` shows those there are")


def _behind(after: Any, rows: Iterable[tuple[Key, Row]]) -> list[tuple[Key, Row]]:
    """Rows behind the last one of the page before, by their keys."""
    return sorted((row for row in rows if row[0] > after), key=itemgetter(0))


def _answer(
    call: DescribeGroup,
    facts: GroupFacts,
    members: Iterable[MemberFacts],
    cursors: Iterable[CursorFacts],
) -> GroupDescribed:
    some, more_members = _cut(members, call.count)
    others, more_places = _cut(cursors, call.count)
    return GroupDescribed(call.call, facts, some, others, more_members or more_places)


def _cut(rows: Iterable[Row], count: int) -> tuple[list[Row], bool]:
    """As many as a page takes, and whether there are more; without a count all of them."""
    page: list[Row] = []
    size = 0
    for row in rows:
        if count and (len(page) == count or size > GROUP_PAGE_BYTES_MAX):
            return page, True
        page.append(row)
        if count:
            size += len(_encoder.encode(row))
    return page, False


def _facts(row: GroupRow, leader: str | None = None, epoch: int | None = None) -> GroupFacts:
    return GroupFacts(
        str(row.name),
        row.leader if leader is None else leader,
        row.epoch if epoch is None else epoch,
        row.deliveries_max,
        row.created_us,
    )
