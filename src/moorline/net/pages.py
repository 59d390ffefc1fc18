"""Room: net. Answers that may be longer than a frame, asked for page by page."""

from functools import partial

from moorline.errors import Malformed
from moorline.limits import GROUP_ROWS_PER_PAGE_MAX
from moorline.net.caller import Calls
from moorline.wire.group import NO_SHARD, CursorFacts, DescribeGroup, GroupDescribed, MemberFacts


async def described_group(
    caller: Calls, group: str, count: int = GROUP_ROWS_PER_PAGE_MAX
) -> GroupDescribed:
    """All members and places of a group. Its pages are of one moment each, and not all of the same."""
    members: list[MemberFacts] = []
    cursors: list[CursorFacts] = []
    while True:
        after = (cursors[-1].node, cursors[-1].shard) if cursors else NO_SHARD
        member_after = members[-1].borrower if members else ""
        asked = partial(
            DescribeGroup, group=group, after=after, member_after=member_after, count=count
        )
        told = await caller.call(asked, GroupDescribed)
        members += told.members
        cursors += told.cursors
        if told.is_more and not (told.members or told.cursors):
            raise Malformed("a page without rows says that there are more of them")
        if not told.is_more:
            return GroupDescribed(told.call, told.group, members, cursors)
