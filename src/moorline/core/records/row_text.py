r"""Room: core/records. The text of a row, JSON as Postgres writes it: its columns apart, and in msgpack.

    columns_of(b'{"id":1,"config":{"a":2}}')        {"id": b"1", "config": b'{"a":2}'}
    packed(row)                                     the same row in msgpack

Postgres takes more for JSON than others do: whole numbers of any length, numbers beyond a double, thousands
of levels, halves of surrogate pairs (in `json`). Whoever may write one row must not be able to stop those who
read its table, so nothing here fails on what Postgres has written: a column that msgpack cannot hold comes as
the text of its JSON.

Of both, in test_row_text.py for rows that are drawn: every column of a row is in what is made of it; what
msgpack can hold is the value itself (a number with a point is a double, as everywhere), what it cannot is its
text.
"""

import re
from typing import Final

import msgspec
import numpy as np

from moorline.limits import RECORD_LEVELS_MAX

# A text as one thing, whatever is in it; then what opens, closes and parts. What is left over is a number,
# true, false or null, and space.
_TEXT: Final = rb'"[^"\\]*(?:\\.[^"\\]*)*"'
_TEXTS: Final = re.compile(_TEXT, re.DOTALL)
_SIGNS: Final = re.compile(_TEXT + rb"|[\[\]{},:]", re.DOTALL)

_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
_name = msgspec.json.Decoder(str)
_msgpack = msgspec.msgpack.Encoder()

_UNFIT: Final = (msgspec.MsgspecError, UnicodeError, OverflowError, RecursionError)

_STEPS: Final = np.zeros(256, np.int8)
_STEPS[[ord("["), ord("{")]] = 1
_STEPS[[ord("]"), ord("}")]] = -1


def columns_of(row: bytes) -> dict[str, bytes]:
    """Each column and the text of its value, in the order of the row."""
    try:
        return {name: bytes(value) for name, value in _fields.decode(row).items()}
    except _UNFIT:
        return _split(row)


def packed(row: bytes) -> bytes:
    """In msgpack, which every client can read to its last level."""
    # The row itself is one level more.
    found = _packed_value(row, RECORD_LEVELS_MAX + 1)
    if found is not None:
        return found
    columns = columns_of(row)
    parts = [_map_head(len(columns))]
    for name, value in columns.items():
        parts.append(_msgpack.encode(name))
        parts.append(_packed_value(value, RECORD_LEVELS_MAX) or _msgpack.encode(value.decode()))
    return b"".join(parts)


def _packed_value(text: bytes, levels_max: int) -> bytes | None:
    if _levels(text, levels_max) > levels_max:
        return None
    try:
        return _msgpack.encode(msgspec.json.decode(text))
    except _UNFIT:
        return None


def _levels(text: bytes, levels_max: int) -> int:
    """No fewer than there are; exactly so many, where it opens more than may be."""
    opened = text.count(b"[") + text.count(b"{")
    if opened <= levels_max:
        return opened
    # Without texts, in which brackets are letters.
    signs = np.frombuffer(_TEXTS.sub(b"", text), np.uint8)
    return int(np.cumsum(_STEPS[signs], dtype=np.int64).max(initial=0))


def _split(row: bytes) -> dict[str, bytes]:
    """Level by level in a loop: a recursion would end where that of others does."""
    found: dict[str, bytes] = {}
    name, start, level = "", -1, 0
    for sign in _SIGNS.finditer(row):
        match sign[0]:
            case b"[" | b"{":
                level += 1
            case b"]" | b"}":
                level -= 1
                if level == 0 and start >= 0:
                    found[name] = row[start : sign.start()].strip()
            case b"," if level == 1:
                found[name] = row[start : sign.start()].strip()
                start = -1
            case b":" if level == 1:
                start = sign.end()
            case text if level == 1 and start < 0:
                name = _name.decode(text)
    return found


def _map_head(count: int) -> bytes:
    if count < 16:
        return bytes((0x80 | count,))
    return b"\xde" + count.to_bytes(2, "big")
