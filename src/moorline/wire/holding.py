"""Room: wire. What a member says that holds streams and reads them by itself (`SubscribeTopic.hold`)."""

from moorline.wire.message import Answer, Call
from moorline.wire.topic import Number, OffsetRange


class TakeMessages(Call, frozen=True, gc=False, tag=147):
    """Takes what is open of a feed below `upto`, at most `count` messages."""

    feed: Number
    upto: Number
    count: Number


class MessagesTaken(Answer, frozen=True, gc=False, tag=148):
    """These are out until they are acknowledged; below `upto` everything is taken or done."""

    ranges: list[OffsetRange]
    upto: int


COMMANDS = TakeMessages
EVENTS = MessagesTaken
