"""Room: wire. What a member says that holds streams and reads them by itself (`SubscribeTopic.hold`)."""

from typing import Annotated

from msgspec import Meta

from moorline.limits import RANGES_PER_TAKE_MAX
from moorline.wire.message import Answer, Call
from moorline.wire.topic import Number, OffsetRange


class TakeMessages(Call, frozen=True, gc=False, tag=147):
    """Takes what is open of a feed below `upto`, at most `count` messages."""

    feed: Number
    upto: Number
    count: Number


class MessagesTaken(Answer, frozen=True, gc=False, tag=148):
    """These are out until they are acknowledged; below `upto` everything is taken or done."""

    ranges: Annotated[list[OffsetRange], Meta(max_length=RANGES_PER_TAKE_MAX)]
    upto: int


COMMANDS = TakeMessages
EVENTS = MessagesTaken
