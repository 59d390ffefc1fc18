"""Room: wire. What is said between a client and a node about the rows of Postgres tables.

The same messages travel as JSON text or msgpack in WebSocket messages, each a list of them, and as msgpack
inside `RecordMessages` of the native protocol. Bytes are base64 in JSON. Numbers of 64 bits are hexadecimal
texts wherever a browser would round them: a prefix is its digits, four bits each, and `""` is everything.

    client   subscribe · verify · ranges · lists · fetch · login
    node     sync_start · record · deletion · answer · sync_end · refused

The order of messages and their meaning: docs/protocols/records.md.
"""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from moorline.core.hidden_bytes import without_bytes
from moorline.limits import (
    FRAME_BYTES_MAX,
    RECORD_COLUMNS_MAX,
    RECORD_CURSOR_CHARACTERS_MAX,
    RECORD_IDENTIFIER_CHARACTERS_MAX,
    RECORD_KEY_CHARACTERS_MAX,
    RECORD_KEY_COLUMNS_MAX,
    RECORD_KNOWN_CHARACTERS_MAX,
    RECORD_MESSAGES_MAX,
    RECORD_PREFIXES_MAX,
    RECORD_RESUME_BYTES_MAX,
    RECORD_TABLES_MAX,
    RECORD_WHERE_COLUMNS_MAX,
    TEXT_LENGTH_MAX,
)
from moorline.wire.bounds import Body, Code, Words
from moorline.wire.message import Message
from moorline.wire.service import EstimateBytes

Sync = Annotated[int, Meta(ge=0, le=1 << 53)]
Identifier = Annotated[str, Meta(max_length=RECORD_IDENTIFIER_CHARACTERS_MAX)]
CursorText = Annotated[str, Meta(max_length=RECORD_CURSOR_CHARACTERS_MAX)]
DigestBytes = Annotated[bytes, Meta(min_length=24, max_length=24)]
Hexadecimal = Annotated[str, Meta(pattern="^[0-9a-f]{0,16}$", max_length=16)]
Prefixes = Annotated[list[Hexadecimal], Meta(max_length=RECORD_PREFIXES_MAX)]
Where = Annotated[dict[Identifier, Any], Meta(max_length=RECORD_WHERE_COLUMNS_MAX)]
"""What may stand behind a column is judged by core/records/filter.py, which bounds it as well."""
KeyText = Annotated[str, Meta(max_length=RECORD_KEY_CHARACTERS_MAX)]
KeyTexts = Annotated[list[KeyText], Meta(max_length=RECORD_KEY_COLUMNS_MAX)]
Columns = Annotated[list[Identifier], Meta(max_length=RECORD_COLUMNS_MAX)]


class RecordMessage(msgspec.Struct, frozen=True, gc=False, tag_field="type", omit_defaults=True):
    """Base of them all: an object with its `type`."""


class TableSubscription(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """`columns` none: all. What is known already is told by a cursor, a digest, or ids in ranges. `pages`:
    a request takes its answer in pages, where that is too large for one."""

    table: Identifier
    where: Where = {}
    columns: Columns | None = None
    cursor: CursorText = ""
    digest: DigestBytes | None = None
    ids: Annotated[str, Meta(max_length=RECORD_KNOWN_CHARACTERS_MAX)] | None = None
    pages: bool = False


class Login(RecordMessage, frozen=True, gc=False, tag="login"):
    """For those who could show nothing before: a browser cannot set headers."""

    token: Annotated[str, Meta(max_length=TEXT_LENGTH_MAX)] = ""
    user: Annotated[str, Meta(max_length=TEXT_LENGTH_MAX)] = ""
    password: Annotated[str, Meta(max_length=TEXT_LENGTH_MAX)] = ""

    __repr__ = without_bytes


class Subscribe(RecordMessage, frozen=True, gc=False, tag="subscribe"):
    """The whole set of this connection from now on; what is not in it is unsubscribed."""

    sync: Sync
    tables: Annotated[list[TableSubscription], Meta(max_length=RECORD_TABLES_MAX)]


class Verify(RecordMessage, frozen=True, gc=False, tag="verify"):
    """In a sync by digest. `sketches` false: the client walks ranges, and wants none."""

    sync: Sync
    table: Identifier
    digest: DigestBytes
    estimate: EstimateBytes = b""
    cells_min: Annotated[int, Meta(ge=0, le=1 << 24)] = 0
    sketches: bool = True


class Ranges(RecordMessage, frozen=True, gc=False, tag="ranges"):
    sync: Sync
    table: Identifier
    prefixes: Prefixes


class Lists(RecordMessage, frozen=True, gc=False, tag="lists"):
    sync: Sync
    table: Identifier
    prefixes: Prefixes


class Fetch(RecordMessage, frozen=True, gc=False, tag="fetch"):
    """The rows with these hashes; an empty list ends the sync: `sync_end` is the answer."""

    sync: Sync
    table: Identifier
    prefixes: Prefixes


class ColumnFacts(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    name: Identifier
    type: Identifier


class SyncStart(RecordMessage, frozen=True, gc=False, tag="sync_start"):
    """`how`: replay, digest, ids, full or live. The facts of the table come with all but `live`."""

    sync: Sync
    table: Identifier
    how: Code
    key: Columns = []
    columns: Annotated[list[ColumnFacts], Meta(max_length=RECORD_COLUMNS_MAX)] = []
    salt: Hexadecimal = ""
    hash: Code = ""


class Record(RecordMessage, frozen=True, gc=False, tag="record"):
    """An upsert. `row` is an object as Postgres wrote it."""

    table: Identifier
    seq: Annotated[int, Meta(ge=0)]
    row: msgspec.Raw


class Deletion(RecordMessage, frozen=True, gc=False, tag="deletion"):
    """Deleted, not to be seen any more, or not within the filter: nobody can tell which."""

    table: Identifier
    key: KeyTexts


class RangeFacts(msgspec.Struct, frozen=True, gc=False, array_like=True):
    count: int
    hash: Hexadecimal


class Told(RecordMessage, frozen=True, gc=False, tag="answer"):
    """To verify (`digest`, `mode`, `cells`, `payload`), to ranges, or to lists (high halves of hashes)."""

    sync: Sync
    table: Identifier
    digest: DigestBytes | None = None
    mode: Annotated[int, Meta(ge=0, le=4)] = 0
    cells: Annotated[int, Meta(ge=0, le=1 << 24)] = 0
    payload: Annotated[bytes, Meta(max_length=FRAME_BYTES_MAX)] = b""
    ranges: Annotated[list[RangeFacts], Meta(max_length=RECORD_PREFIXES_MAX)] = []
    lists: Annotated[
        list[Annotated[bytes, Meta(max_length=FRAME_BYTES_MAX)]],
        Meta(max_length=RECORD_PREFIXES_MAX),
    ] = []

    __repr__ = without_bytes


class SyncEnd(RecordMessage, frozen=True, gc=False, tag="sync_end"):
    """`more`: the digest is of a part of the rows, and the cursor leads to the next one."""

    sync: Sync
    table: Identifier
    cursor: CursorText
    digest: DigestBytes
    more: bool = False


class Refused(RecordMessage, frozen=True, gc=False, tag="refused"):
    """This table of the set and no other. `return_ms`: come back then, not before."""

    sync: Sync
    table: Identifier
    code: Code
    why: Words
    return_ms: Annotated[int, Meta(ge=0, le=1 << 40)] = 0


class RecordMessages(Message, frozen=True, gc=False, tag=360):
    """Over the native protocol, in both directions: a msgpack list of the messages above.

    A node cuts a list that fits no frame into parts, which follow each other: `is_part` in all but the last.
    """

    messages: Body
    is_part: bool = False

    __repr__ = without_bytes


class ResumeRecords(Message, frozen=True, gc=False, tag=400):
    """A subscribe of one table in few bytes, over the native protocol alone: the set is this table.

    `known` ends with the digest of what the client holds. Before it is the brief part of its cursor, or, of
    one that has none, the hash of what it was told of the table (core/records/cursor.py). Where all of it is
    as it was, `RecordsUnchanged` is the answer; otherwise what a subscribe would be answered by.
    """

    sync: Sync
    table: Identifier
    known: Annotated[bytes, Meta(min_length=28, max_length=RECORD_RESUME_BYTES_MAX)]
    where: Body
    """The map of a subscribe, in msgpack; empty where it is."""
    columns: Columns | None

    __repr__ = without_bytes


class RecordsUnchanged(Message, frozen=True, gc=False, tag=401):
    """A sync by replay with nothing in it. `cursor`: a brief one, for who came without."""

    sync: Sync
    cursor: Annotated[bytes, Meta(max_length=RECORD_RESUME_BYTES_MAX)] = b""

    __repr__ = without_bytes


FromClient = Login | Subscribe | Verify | Ranges | Lists | Fetch
FromNode = SyncStart | Record | Deletion | Told | SyncEnd | Refused

_Batch = Meta(max_length=RECORD_MESSAGES_MAX)

where_msgpack = msgspec.msgpack.Decoder(Where)
node_json = msgspec.json.Decoder(Annotated[list[FromClient], _Batch])
node_msgpack = msgspec.msgpack.Decoder(Annotated[list[FromClient], _Batch])
client_json = msgspec.json.Decoder(Annotated[list[FromNode], _Batch])
client_msgpack = msgspec.msgpack.Decoder(Annotated[list[FromNode], _Batch])
