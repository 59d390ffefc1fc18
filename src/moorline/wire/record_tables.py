"""Room: wire. Which tables of records a node serves, and who is subscribed to them: for people."""

from typing import Annotated

import msgspec
from msgspec import Meta

from moorline.limits import (
    PRINCIPAL_CHARACTERS_MAX,
    RECORD_SUBSCRIBERS_PER_PAGE,
    RECORD_TABLES_PER_PAGE,
    RECORDS_NAME_CHARACTERS_MAX,
)
from moorline.wire.bounds import Code, Words
from moorline.wire.message import Answer, Call
from moorline.wire.topic import Number

TableText = Annotated[str, Meta(max_length=RECORDS_NAME_CHARACTERS_MAX)]
"""Perhaps empty."""


class RecordTableFacts(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A registered table. `away` says why its database does not answer, and is empty if it does."""

    name: TableText
    place: Words
    """Schema and table as they are called now; empty for one that was dropped."""
    capture: Code
    key: Words
    owner: Words
    """The column that says whose a row is; empty without one."""
    subscribers: int
    """At this node."""
    scans: int
    away: Words


class RecordSubscriberFacts(msgspec.Struct, frozen=True, array_like=True, gc=False):
    number: int
    principal: Annotated[str, Meta(max_length=PRINCIPAL_CHARACTERS_MAX)]
    form: Code
    """What it speaks."""
    standing: Code
    filter: Words
    columns: int
    """How many it asked for; 0 for all."""
    behind: int
    """Steps of the table that it has not been sent."""


class ListRecordTables(Call, frozen=True, gc=False, tag=617):
    """A page of the registered tables behind `after`; or, with a `table`, who is subscribed to it at this
    node, behind that number."""

    table: TableText = ""
    after: TableText = ""
    after_subscriber: Number = 0


class RecordTablesListed(Answer, frozen=True, gc=False, tag=618):
    """With a `table` it is the only one in `tables`, if it is registered here."""

    tables: Annotated[list[RecordTableFacts], Meta(max_length=RECORD_TABLES_PER_PAGE)]
    subscribers: Annotated[
        list[RecordSubscriberFacts], Meta(max_length=RECORD_SUBSCRIBERS_PER_PAGE)
    ]
    is_last: bool


COMMANDS = ListRecordTables
EVENTS = RecordTablesListed
