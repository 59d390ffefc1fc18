"""Room: net. Answers that may be longer than a frame, asked for page by page."""

from functools import partial

from moorline.errors import Malformed
from moorline.limits import GROUP_ROWS_PER_PAGE_MAX
from moorline.net.caller import Caller
from moorline.wire.group import NO_PLACE, DescribeGroup, GroupDescribed, MemberFacts, PlaceFacts


async def described_group(
    caller: Caller, group: str, count: int = GROUP_ROWS_PER_PAGE_MAX
) -> GroupDescribed:
    """All members and places of a group. Its pages are of one moment each, and not all of the same."""
    members: list[MemberFacts] = []
    places: list[PlaceFacts] = []
    while True:
        after = (places[-1].node, places[-1].shard) if places else NO_PLACE
        member_after = members[-1].borrower if members else ""
        asked = partial(
            DescribeGroup, group=group, after=after, member_after=member_after, count=count
        )
        told = await caller.call(asked, GroupDescribed)
        members += told.members
        places += told.places
        if told.is_more and not (told.members or told.places):
            raise Malformed("a page without rows says that there are more of them")
        if not told.is_more:
            return GroupDescribed(told.call, told.group, members, places)
