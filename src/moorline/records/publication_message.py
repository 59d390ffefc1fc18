"""Room: records. What a published table says in its topic. Pure: changes in, messages out.

    {"kind":"snapshot","snapshot":17,"table":"experiments"}                          the state begins anew
    {"kind":"record","key":["5"],"seq":91,"snapshot":17,"row":{…}}                   the row of a key
    {"kind":"record","key":["6"],"seq":92,"snapshot":17,"row":null,"bytes":700000}   one that fits no message
    {"kind":"deletion","key":["5"],"seq":91,"snapshot":17}                           that row is gone

Messages of one key are in one shard, in their order; those of different keys may be in several. So the marker
is not enough: each message has the number of the snapshot that it builds on. Of a higher number than the
last, all that was before is forgotten; one of a lower number is passed over.
"""

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from moorline.core.frames.frame import encode_headers
from moorline.core.records.table import After, Change, Key
from moorline.limits import RECORDS_PUBLISH_BYTES, RECORDS_PUBLISH_ROWS_MAX, TOPIC_KEY_BYTES_MAX
from moorline.records.capture import ScannedRow


class PublishedMessage(NamedTuple):
    key: bytes | None
    """None: it is about no row."""
    headers: bytes
    body: bytes


_decoder = msgspec.msgpack.Decoder(list[PublishedMessage])


def marker(table: str, number: int) -> PublishedMessage:
    body = msgspec.json.encode({"kind": "snapshot", "snapshot": number, "table": table})
    return PublishedMessage(None, _headers("snapshot", None, number), body)


def record(key: Key, after: After | ScannedRow, number: int, bytes_max: int) -> PublishedMessage:
    seq = after.seq
    start = _start("record", key, seq, number)
    body = start + b',"row":' + after.row + b"}"
    if after.whole_bytes or len(body) > bytes_max:
        # Neither left out, which would be another table, nor an end of the publication.
        body = start + b',"row":null,"bytes":%d}' % (after.whole_bytes or len(after.row))
    return PublishedMessage(key_bytes(key), _headers("record", seq, number), body)


def deletion(key: Key, seq: int, number: int) -> PublishedMessage:
    body = _start("deletion", key, seq, number) + b"}"
    return PublishedMessage(key_bytes(key), _headers("deletion", seq, number), body)


def of_change(change: Change, number: int, bytes_max: int) -> PublishedMessage:
    if change.after is not None:
        return record(change.key, change.after, number, bytes_max)
    assert change.before is not None, "a change has one of both"
    return deletion(change.key, change.before.seq, number)


def key_bytes(key: Key) -> bytes:
    """The key of its messages: that of the row as JSON, or its hash where that is longer than keys may be."""
    text = msgspec.json.encode(key)
    return text if len(text) <= TOPIC_KEY_BYTES_MAX else hashlib.blake2b(text).digest()


class Batch:
    """Messages up to a bound."""

    def __init__(self) -> None:
        self.messages: list[PublishedMessage] = []
        self._bytes = 0

    def add(self, message: PublishedMessage) -> None:
        self.messages.append(message)
        self._bytes += sum(len(part) for part in message if part is not None)

    @property
    def is_full(self) -> bool:
        return (
            len(self.messages) >= RECORDS_PUBLISH_ROWS_MAX or self._bytes >= RECORDS_PUBLISH_BYTES
        )


def packed(messages: Sequence[PublishedMessage]) -> bytes:
    return msgspec.msgpack.encode(messages)


def unpacked(body: bytes) -> list[PublishedMessage]:
    return _decoder.decode(body)


def _start(kind: str, key: Key, seq: int, number: int) -> bytes:
    return b'{"kind":"%s","key":%s,"seq":%d,"snapshot":%d' % (
        kind.encode(),
        msgspec.json.encode(key),
        seq,
        number,
    )


def _headers(kind: str, seq: int | None, number: int) -> bytes:
    found = [("kind", kind.encode()), ("snapshot", b"%d" % number)]
    if seq is not None:
        found.append(("seq", b"%d" % seq))
    return encode_headers(found)
