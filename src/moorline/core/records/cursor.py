"""Room: core/records. What a client brings back to go on where it was: opaque, and signed.

     0         1       3        7         23      27                             brief
    ┌─────────┬───────┬────────┬─────────┬───────┬──────────────────────────────┬──────────────────────┐
    │ version │ brief │ key id │ HMAC    │ facts │ msgpack [snapshot …]         │ msgpack [table,      │
    │ u8      │ u16   │ u32    │ 16      │ 4     │                              │ epoch, filter,       │
    │         │       │        │         │       │                              │ permit, digest]      │
    └─────────┴───────┴────────┴─────────┴───────┴──────────────────────────────┴──────────────────────┘

All of it is base64url, without padding. The HMAC (SHA-256, its first 16 bytes) is of all but itself. `facts`
is a hash of the epoch, of what clients were told of the table, and of who described its columns. A snapshot
is its xmin, then differences: to xmax, and from one open transaction to the next. With too many of them it is
left out, and the cursor says "no replay".

The cursor of a page has the version 3, and a sixth field in its last part: the key up to which the client has
the rows. It leads to the next page and to no replay: who knows no pages must not take it for another one.

Its first `brief` bytes are enough for who says all the rest by asking for the same again, with the digest of
the same rows: the rest is put together anew, and the HMAC proves that it is what was signed.

A cursor that is not taken is no error: the client resyncs by digest, and `Why` names the reason. Whatever
bytes come, `open_cursor` gives a cursor or a reason.
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Annotated, Final, NamedTuple

import msgspec
import xxhash
from msgspec import Meta

from moorline.core.records.row_hash import NAME
from moorline.core.records.snapshot import Snapshot
from moorline.core.records.table import Key, Table
from moorline.core.sets.digest import DIGEST_BYTES, Digest
from moorline.limits import (
    RECORD_CURSOR_CHARACTERS_MAX,
    RECORD_CURSOR_OPEN_MAX,
    RECORD_EPOCH_CHARACTERS_MAX,
    RECORD_IDENTIFIER_CHARACTERS_MAX,
    RECORD_KEY_COLUMNS_MAX,
)

VERSION: Final = 2
VERSION_OF_PAGES: Final = 3
MAC_BYTES: Final = 16
MAC_AT: Final = 7
HEAD_BYTES: Final = MAC_AT + MAC_BYTES
FACTS_BYTES: Final = 4
"""They save bytes, and decide nothing that another node or a later sync would not set right."""
SECRET_BYTES: Final = 32

_Number = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
_Hash = Annotated[bytes, Meta(min_length=16, max_length=16)]


class Why(Enum):
    """Why a cursor leads to no replay; the texts are told to clients."""

    MALFORMED = "it is no cursor"
    UNKNOWN_KEY = "it is signed with a key that is not valid any more"
    FORGED = "its signature is wrong"
    OTHER_TABLE = "it is of another table"
    OTHER_EPOCH = "the table was restored, moved or registered anew since"
    OTHER_FILTER = "it is of another filter, or other columns"
    OTHER_PERMIT = "the rights are others since"
    NO_SNAPSHOT = "too many transactions were open when it was made"
    OLD = "the log does not reach back to it"
    PAGE = "it is of a part of the rows"


class TableCursor(msgspec.Struct, frozen=True):
    table: str
    epoch: str
    snapshot: Snapshot | None
    """None: no replay."""
    filter_hash: bytes
    permit_hash: bytes
    digest: Digest
    facts: bytes = bytes(FACTS_BYTES)
    upto: Key = ()
    """Of a page: the digest is that of the rows up to this key. Empty: of all rows."""


class Asked(NamedTuple):
    """What a brief cursor has to be of: said by who asks, and by what is there now."""

    table: str
    epoch: str
    filter_hash: bytes
    permit_hash: bytes
    digest: Digest


class SigningKey(msgspec.Struct, frozen=True):
    id: int
    secret: bytes
    valid_until_s: int

    def __repr__(self) -> str:
        return f"SigningKey({self.id})"


class SigningKeys:
    """Those that are valid. The newest signs, which is the one with the highest id."""

    def __init__(self, keys: Iterable[SigningKey]) -> None:
        self._by_id = {key.id: key for key in keys}
        assert self._by_id, "nothing to sign with"
        assert all(len(key.secret) >= SECRET_BYTES for key in self._by_id.values()), "short secrets"
        self._newest = self._by_id[max(self._by_id)]

    def sign(self, cursor: TableCursor) -> str:
        place = cursor.facts + _encoder.encode(_numbers(cursor.snapshot))
        length = (HEAD_BYTES + len(place)).to_bytes(2, "big")
        version = VERSION_OF_PAGES if cursor.upto else VERSION
        head = bytes((version,)) + length + self._newest.id.to_bytes(4, "big")
        of_what = _of_what(cursor, cursor.upto)
        body = place + _encoder.encode(of_what)
        data = head + _mac(self._newest, head, body) + body
        return text_of(data)

    def open_cursor(self, text: str, now_s: int) -> TableCursor | Why:
        data = _data_of(text)
        return Why.MALFORMED if data is None else self._opened(data, now_s)

    def open_brief(self, brief: bytes, asked: Asked, now_s: int) -> TableCursor | Why:
        """FORGED where it is of anything else than what is asked for."""
        if len(brief) < HEAD_BYTES or _brief_length(brief) != len(brief):
            return Why.MALFORMED
        return self._opened(brief + _encoder.encode(_of_what(asked)), now_s)

    def knows(self, brief: bytes, now_s: int) -> bool:
        """Whether it has the key of a brief cursor, if that is one."""
        key = self._by_id.get(int.from_bytes(brief[3:MAC_AT], "big"))
        return len(brief) < HEAD_BYTES or (key is not None and key.valid_until_s > now_s)

    def _opened(self, data: bytes, now_s: int) -> TableCursor | Why:
        if len(data) < HEAD_BYTES or data[0] not in (VERSION, VERSION_OF_PAGES):
            return Why.MALFORMED
        head, mac, body = data[:MAC_AT], data[MAC_AT:HEAD_BYTES], data[HEAD_BYTES:]
        key = self._by_id.get(int.from_bytes(head[3:], "big"))
        if key is None or key.valid_until_s <= now_s:
            return Why.UNKNOWN_KEY
        # In constant time, and before a byte of the body is looked at.
        if not hmac.compare_digest(mac, _mac(key, head, body)):
            return Why.FORGED
        try:
            return _cursor_of(data[0], body, _brief_length(head) - HEAD_BYTES)
        except (msgspec.MsgspecError, ValueError):
            return Why.MALFORMED


def brief_of(text: str) -> bytes:
    """The part of a cursor that is enough for who asks for the same; empty if there is none. For clients."""
    data = _data_of(text) or b""
    length = _brief_length(data) if len(data) > HEAD_BYTES else 0
    return data[:length] if HEAD_BYTES < length <= len(data) else b""


def text_of(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def facts_hash(
    key: Sequence[str], columns: Iterable[tuple[str, str]], salt: int, epoch: str = ""
) -> bytes:
    """Of what clients are told of a table; of the epoch too, where a node says it to itself."""
    said = _encoder.encode((tuple(key), tuple(columns), f"{salt:016x}", NAME, epoch))
    return xxhash.xxh3_64_digest(said)[:FACTS_BYTES]


def _data_of(text: str) -> bytes | None:
    if len(text) > RECORD_CURSOR_CHARACTERS_MAX or len(text) % 4 == 1:
        return None
    try:
        # Strictly: without `validate` foreign signs are passed over, and many texts are one cursor.
        padded = text.translate(_SIGNS).encode("ascii") + b"=" * (-len(text) % 4)
        return base64.b64decode(padded, validate=True)
    except (ValueError, binascii.Error):
        return None


def misfit(
    cursor: TableCursor,
    table: Table,
    filter_hash: bytes,
    permit_hash: bytes,
    until: Snapshot | None = None,
) -> Why | None:
    """Why this cursor leads to no replay of this subscription, up to there; None if it does."""
    if cursor.table != table.name:
        return Why.OTHER_TABLE
    if cursor.epoch != table.epoch:
        return Why.OTHER_EPOCH
    if cursor.filter_hash != filter_hash:
        return Why.OTHER_FILTER
    if cursor.permit_hash != permit_hash:
        return Why.OTHER_PERMIT
    if cursor.upto:
        return Why.PAGE
    if cursor.snapshot is None:
        return Why.NO_SNAPSHOT
    if not table.reach.reaches(cursor.snapshot, until):
        return Why.OLD
    return None


class _OfWhat(msgspec.Struct, array_like=True, frozen=True, gc=False):
    table: Annotated[str, Meta(max_length=RECORD_IDENTIFIER_CHARACTERS_MAX)]
    epoch: Annotated[str, Meta(max_length=RECORD_EPOCH_CHARACTERS_MAX)]
    filter_hash: _Hash
    permit_hash: _Hash
    digest: Annotated[bytes, Meta(min_length=DIGEST_BYTES, max_length=DIGEST_BYTES)]


class _OfPage(_OfWhat, array_like=True, frozen=True, gc=False):
    upto: Annotated[list[str], Meta(min_length=1, max_length=RECORD_KEY_COLUMNS_MAX)]


_PLACE_MAX: Final = 2 + RECORD_CURSOR_OPEN_MAX
"""xmin, width, open transactions. Nothing in it: no replay."""
_encoder = msgspec.msgpack.Encoder()
_place_decoder = msgspec.msgpack.Decoder(Annotated[list[_Number], Meta(max_length=_PLACE_MAX)])
_of_what_decoder = msgspec.msgpack.Decoder(_OfWhat)
_of_page_decoder = msgspec.msgpack.Decoder(_OfPage)
_SIGNS = str.maketrans("-_+/", "+/??")


def _mac(key: SigningKey, head: bytes, body: bytes) -> bytes:
    return hmac.digest(key.secret, head + body, hashlib.sha256)[:MAC_BYTES]


def _of_what(one: TableCursor | Asked, upto: Key = ()) -> _OfWhat:
    of = one.table, one.epoch, one.filter_hash, one.permit_hash, bytes(one.digest)
    return _OfPage(*of, list(upto)) if upto else _OfWhat(*of)


def _numbers(snapshot: Snapshot | None) -> list[int]:
    if snapshot is None or len(snapshot.open) > RECORD_CURSOR_OPEN_MAX:
        return []
    numbers = [snapshot.xmin, snapshot.xmax - snapshot.xmin]
    before = snapshot.xmin
    for xid in snapshot.open:
        numbers.append(xid - before)
        before = xid
    return numbers


def _brief_length(data: bytes) -> int:
    return int.from_bytes(data[1:3], "big")


def _cursor_of(version: int, body: bytes, length: int) -> TableCursor:
    facts, place, rest = body[:FACTS_BYTES], body[FACTS_BYTES:length], body[length:]
    numbers = _place_decoder.decode(place)
    of = (_of_page_decoder if version == VERSION_OF_PAGES else _of_what_decoder).decode(rest)
    upto = tuple(of.upto) if isinstance(of, _OfPage) else ()
    snapshot = None
    if numbers:
        xmin, width, *steps = numbers
        open_, at = [], xmin
        for step in steps:
            at += step
            open_.append(at)
        # By way of its text, which checks what a snapshot has to be.
        snapshot = Snapshot.parse(f"{xmin}:{xmin + width}:{','.join(map(str, open_))}")
    digest = Digest.from_bytes(of.digest)
    of_what = of.filter_hash, of.permit_hash, digest, facts
    return TableCursor(of.table, of.epoch, snapshot, *of_what, upto)
