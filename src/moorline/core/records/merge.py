"""Room: core/records. The current state of a table, out of the messages of its topic. Pure.

    told = read_message(body, sequence)     a message of the topic, or None for what is none of ours
    merge(old, told, snapshot)              what stays of the rows before, and what is put in

Which of two messages of a key is the newer one is said by their position: the number of the snapshot that
they build on, then the number that the publication gave them. Not by `seq`, and not by offsets: why is in
docs/decisions/0096-the-newest-state-is-by-position.md.

Of each key the message with the highest position counts, in whatever order and how often they come, and a
merge in parts is the merge of the whole.

    MT1  nothing is of a higher snapshot than the one that is merged: what is of a lower one is left out
"""

from collections.abc import Iterable, Sequence
from typing import Annotated, Final, Literal, NamedTuple

import msgspec
from msgspec import Meta

from moorline.core.records.row_text import columns_of
from moorline.core.records.table import Key
from moorline.limits import RECORD_KEY_COLUMNS_MAX

RECORD: Final = "record"
DELETION: Final = "deletion"
MARKER: Final = "snapshot"


class Position(NamedTuple):
    snapshot: int
    sequence: int


class Told(NamedTuple):
    """What one message says of one key."""

    key: Key
    position: Position
    seq: int
    row: bytes | None
    """A JSON object; None of a deletion, and of a row that fits no message."""
    is_deletion: bool


class Begun(NamedTuple):
    """The state begins anew."""

    snapshot: int
    table: str


class Merged(NamedTuple):
    kept: list[int]
    """Places of the rows before that stay as they are."""
    put: list[Told]


_Whole = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]


class _Wire(msgspec.Struct, gc=False):
    kind: Literal["record", "deletion", "snapshot"]
    snapshot: _Whole
    key: Annotated[list[str], Meta(max_length=RECORD_KEY_COLUMNS_MAX)] = []
    seq: _Whole = 0
    row: msgspec.Raw = msgspec.Raw(b"null")
    table: str = ""


_decoder = msgspec.json.Decoder(_Wire)
_encoder = msgspec.json.Encoder()


def read_message(body: bytes, sequence: int) -> Told | Begun | None:
    """None: it is no message of a published table. Others may write to the topic too."""
    wire = _read(body)
    if wire is None:
        return None
    if wire.kind == MARKER:
        return Begun(wire.snapshot, wire.table) if wire.table else None
    if not wire.key:
        return None
    row = bytes(wire.row) if wire.kind == RECORD else b"null"
    if row != b"null" and not row.startswith(b"{"):
        return None
    return Told(
        tuple(wire.key),
        Position(wire.snapshot, sequence),
        wire.seq,
        None if row == b"null" else row,
        wire.kind == DELETION,
    )


def _read(body: bytes) -> _Wire | None:
    try:
        return _decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        pass
    try:
        # A row may hold what Postgres takes for JSON and others do not: all but the row is read.
        body.decode()
        fields = {name: msgspec.Raw(text) for name, text in columns_of(body).items()}
        row = fields.pop("row", None)
        if row is None:
            return None
        return msgspec.structs.replace(_decoder.decode(_encoder.encode(fields)), row=row)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def newest(told: Iterable[Told], snapshot: int) -> dict[Key, Told]:
    """Of each key the newest message of this snapshot; deletions too, which may meet a row of before."""
    found: dict[Key, Told] = {}
    for one in told:
        assert one.position.snapshot <= snapshot, "MT1: the highest is known before any merge"
        if one.position.snapshot < snapshot:
            continue
        held = found.get(one.key)
        if held is None or held.position < one.position:
            found[one.key] = one
    return found


def merge(old: Sequence[tuple[Key, Position]], told: Iterable[Told], snapshot: int) -> Merged:
    """Rows as they were, and what was said since, in any order."""
    found = newest(told, snapshot)
    kept: list[int] = []
    for place, (key, position) in enumerate(old):
        if position.snapshot != snapshot:
            continue
        change = found.get(key)
        if change is not None and change.position <= position:
            # It was merged before: a step that is read again changes nothing.
            del found[key]
            change = None
        if change is None:
            kept.append(place)
    return Merged(kept, [one for one in found.values() if not one.is_deletion])
