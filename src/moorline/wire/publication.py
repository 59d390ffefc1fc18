"""Room: wire. Tables of records that feed a topic: to begin with it, and to end it."""

from typing import Annotated

from msgspec import Meta

from moorline.limits import RECORDS_NAME_CHARACTERS_MAX
from moorline.wire.bounds import Name
from moorline.wire.message import Answer, Call
from moorline.wire.topic import Topic

TableName = Annotated[str, Meta(min_length=1, max_length=RECORDS_NAME_CHARACTERS_MAX)]


class PublishTable(Call, frozen=True, gc=False, tag=370):
    """The node that hears it publishes the table to the topic from now on, its rows first."""

    table: TableName
    topic: Topic


class TablePublished(Answer, frozen=True, gc=False, tag=371):
    """`home` is the node that publishes."""

    home: Name


class StopTable(Call, frozen=True, gc=False, tag=372):
    """Any node ends it. What is in the topic stays there."""

    table: TableName


class TableStopped(Answer, frozen=True, gc=False, tag=373):
    """The topic that it fed."""

    topic: Topic


COMMANDS = PublishTable | StopTable
EVENTS = TablePublished | TableStopped
