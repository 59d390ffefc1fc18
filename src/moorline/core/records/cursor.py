"""Room: core/records. What a client brings back to go on where it was: opaque, and signed.

     0         1        5         21
    ┌─────────┬────────┬─────────┬──────────────────────────────────────────────┐
    │ version │ key id │ HMAC    │ msgpack [table, epoch, snapshot, filter,     │   all of it base64url,
    │ u8      │ u32    │ 16      │          permit, digest, issued at s]        │   without padding
    └─────────┴────────┴─────────┴──────────────────────────────────────────────┘

The HMAC (SHA-256, its first 16 bytes) is of the version, the key id and what follows. A snapshot is its
xmin, then differences: to xmax, and from one open transaction to the next. With too many of them it is
left out, and the cursor says "no replay".

A cursor that is not taken is no error: the client resyncs by digest, and `Why` names the reason. Whatever
bytes come, `open_cursor` gives a cursor or a reason.
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Iterable
from enum import Enum
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from moorline.core.records.snapshot import Snapshot
from moorline.core.records.table import Table
from moorline.core.sets.digest import DIGEST_BYTES, Digest
from moorline.limits import (
    RECORD_CURSOR_CHARACTERS_MAX,
    RECORD_CURSOR_OPEN_MAX,
    RECORD_EPOCH_CHARACTERS_MAX,
    RECORD_IDENTIFIER_CHARACTERS_MAX,
)

VERSION: Final = 1
MAC_BYTES: Final = 16
HEAD_BYTES: Final = 5 + MAC_BYTES
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


class Cursor(msgspec.Struct, frozen=True):
    table: str
    epoch: str
    snapshot: Snapshot | None
    """None: no replay."""
    filter_hash: bytes
    permit_hash: bytes
    digest: Digest
    issued_s: int


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

    def sign(self, cursor: Cursor) -> str:
        body = _encoder.encode(_to_wire(cursor))
        head = bytes((VERSION,)) + self._newest.id.to_bytes(4, "big")
        data = head + _mac(self._newest, head, body) + body
        return base64.urlsafe_b64encode(data).rstrip(b"=").decode()

    def open_cursor(self, text: str, now_s: int) -> Cursor | Why:
        if len(text) > RECORD_CURSOR_CHARACTERS_MAX or len(text) % 4 == 1:
            return Why.MALFORMED
        try:
            # Strictly: without `validate` foreign signs are passed over, and many texts are one cursor.
            padded = text.translate(_SIGNS).encode("ascii") + b"=" * (-len(text) % 4)
            data = base64.b64decode(padded, validate=True)
        except (ValueError, binascii.Error):
            return Why.MALFORMED
        if len(data) < HEAD_BYTES or data[0] != VERSION:
            return Why.MALFORMED
        head, mac, body = data[:5], data[5:HEAD_BYTES], data[HEAD_BYTES:]
        key = self._by_id.get(int.from_bytes(head[1:], "big"))
        if key is None or key.valid_until_s <= now_s:
            return Why.UNKNOWN_KEY
        # In constant time, and before a byte of the body is looked at.
        if not hmac.compare_digest(mac, _mac(key, head, body)):
            return Why.FORGED
        try:
            return _from_wire(_decoder.decode(body))
        except (msgspec.MsgspecError, ValueError):
            return Why.MALFORMED


def misfit(cursor: Cursor, table: Table, filter_hash: bytes, permit_hash: bytes) -> Why | None:
    """Why this cursor leads to no replay of this subscription; None if it does."""
    if cursor.table != table.name:
        return Why.OTHER_TABLE
    if cursor.epoch != table.epoch:
        return Why.OTHER_EPOCH
    if cursor.filter_hash != filter_hash:
        return Why.OTHER_FILTER
    if cursor.permit_hash != permit_hash:
        return Why.OTHER_PERMIT
    if cursor.snapshot is None:
        return Why.NO_SNAPSHOT
    if cursor.snapshot.xmin < table.good_from:
        return Why.OLD
    return None


class _Wire(msgspec.Struct, array_like=True, frozen=True, gc=False):
    table: Annotated[str, Meta(max_length=RECORD_IDENTIFIER_CHARACTERS_MAX)]
    epoch: Annotated[str, Meta(max_length=RECORD_EPOCH_CHARACTERS_MAX)]
    snapshot: Annotated[list[_Number], Meta(max_length=2 + RECORD_CURSOR_OPEN_MAX)]
    """Nothing in it: no replay."""
    filter_hash: _Hash
    permit_hash: _Hash
    digest: Annotated[bytes, Meta(min_length=DIGEST_BYTES, max_length=DIGEST_BYTES)]
    issued_s: _Number


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Wire)
_SIGNS = str.maketrans("-_+/", "+/??")


def _mac(key: SigningKey, head: bytes, body: bytes) -> bytes:
    return hmac.digest(key.secret, head + body, hashlib.sha256)[:MAC_BYTES]


def _to_wire(cursor: Cursor) -> _Wire:
    numbers: list[int] = []
    snapshot = cursor.snapshot
    if snapshot is not None and len(snapshot.open) <= RECORD_CURSOR_OPEN_MAX:
        numbers = [snapshot.xmin, snapshot.xmax - snapshot.xmin]
        before = snapshot.xmin
        for xid in snapshot.open:
            numbers.append(xid - before)
            before = xid
    return _Wire(
        cursor.table,
        cursor.epoch,
        numbers,
        cursor.filter_hash,
        cursor.permit_hash,
        bytes(cursor.digest),
        cursor.issued_s,
    )


def _from_wire(wire: _Wire) -> Cursor:
    snapshot = None
    if wire.snapshot:
        xmin, width, *steps = wire.snapshot
        open_, at = [], xmin
        for step in steps:
            at += step
            open_.append(at)
        # By way of its text, which checks what a snapshot has to be.
        snapshot = Snapshot.parse(f"{xmin}:{xmin + width}:{','.join(map(str, open_))}")
    digest = Digest.from_bytes(wire.digest)
    return Cursor(
        wire.table, wire.epoch, snapshot, wire.filter_hash, wire.permit_hash, digest, wire.issued_s
    )
