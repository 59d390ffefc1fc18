"""Room: records. How messages to clients are written: once for all who read them in the same way.

    form.message(SyncEnd(…)), form.record("experiments", after, columns)      one message, as bytes
    form.packet(parts)                                                        some of them, as it is sent

A packet names nobody: the same object goes to every receiver of its form.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

import msgspec

from moorline.core.records.row_text import columns_of, packed
from moorline.core.records.table import After
from moorline.limits import (
    RECORD_MESSAGES_MAX,
    RECORD_ROW_BYTES_MAX,
    RECORD_SOCKET_ROW_BYTES_MAX,
    RECORDS_FRAME_BYTES,
)
from moorline.wire.records import Record, RecordMessage, RecordMessages
from moorline.wire.websocket import frame_binary, frame_text

_json = msgspec.json.Encoder()
_msgpack = msgspec.msgpack.Encoder()


class Form(Protocol):
    @property
    def name(self) -> str:
        """What a client speaks, for people."""

    @property
    def row_bytes_max(self) -> int:
        """Of a row in JSON, and of the message that it becomes: what its readers take at most."""

    def message(self, message: RecordMessage) -> bytes: ...

    def record(self, table: str, after: After, columns: Sequence[str] | None) -> bytes | None:
        """With those columns of the row only, or with all; None if that is more than its readers take."""

    def packet(self, parts: Sequence[bytes]) -> Any: ...


class JsonForm:
    """WebSocket text messages."""

    name = "json"
    row_bytes_max = RECORD_SOCKET_ROW_BYTES_MAX

    def message(self, message: RecordMessage) -> bytes:
        return _json.encode(message)

    def record(self, table: str, after: After, columns: Sequence[str] | None) -> bytes | None:
        row = _row(after, columns)
        if row is None or len(row) > self.row_bytes_max:
            return None
        return _json.encode(Record(table, after.seq, msgspec.Raw(row)))

    def packet(self, parts: Sequence[bytes]) -> Any:
        return frame_text(b"[" + b",".join(parts) + b"]")


class PollForm(JsonForm):
    """The same without a frame: the answer to a request is put together from them."""

    name = "requests"

    def packet(self, parts: Sequence[bytes]) -> Any:
        return b",".join(parts)


class MsgpackForm:
    """WebSocket binary messages."""

    name = "msgpack"
    row_bytes_max = RECORD_SOCKET_ROW_BYTES_MAX

    def message(self, message: RecordMessage) -> bytes:
        return _msgpack.encode(message)

    def record(self, table: str, after: After, columns: Sequence[str] | None) -> bytes | None:
        row = _row(after, columns)
        if row is None or len(row) > self.row_bytes_max:
            return None  # before it is read: that of a gigabyte would hold everybody up
        written = _msgpack.encode(Record(table, after.seq, msgspec.Raw(packed(row))))
        # A short number may be nine bytes.
        return written if len(written) <= self.row_bytes_max else None

    def packet(self, parts: Sequence[bytes]) -> Any:
        return frame_binary(_list(parts))


class NativeForm(MsgpackForm):
    """Messages of the native protocol."""

    name = "native"
    row_bytes_max = RECORD_ROW_BYTES_MAX

    def packet(self, parts: Sequence[bytes]) -> Any:
        return RecordMessages(_list(parts))


JSON = JsonForm()
POLL = PollForm()
MSGPACK = MsgpackForm()
NATIVE = NativeForm()


def packets(form: Form, parts: Iterable[bytes]) -> Iterator[Any]:
    """As many as it takes, each bounded in bytes and messages."""
    some: list[bytes] = []
    size = 0
    for part in parts:
        some.append(part)
        size += len(part)
        if size >= RECORDS_FRAME_BYTES or len(some) >= RECORD_MESSAGES_MAX:
            yield form.packet(some)
            some, size = [], 0
    if some:
        yield form.packet(some)


def _row(after: After, columns: Sequence[str] | None) -> bytes | None:
    """None of one that is cut, unless all that is wanted of it is there."""
    if columns is None:
        return None if after.whole_bytes else after.row
    found = columns_of(after.row)
    if after.whole_bytes and not found.keys() >= set(columns):
        return None
    # One that is not there any more is left out: a change of the schema is on its way to the client.
    return _json.encode({name: msgspec.Raw(found[name]) for name in columns if name in found})


def _list(parts: Sequence[bytes]) -> bytes:
    """A list of msgpack of values that are written already."""
    count = len(parts)
    if count < 16:
        head = bytes((0x90 | count,))
    elif count < 1 << 16:
        head = b"\xdc" + count.to_bytes(2, "big")
    else:
        head = b"\xdd" + count.to_bytes(4, "big")
    return head + b"".join(parts)
