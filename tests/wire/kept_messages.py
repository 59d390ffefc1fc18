"""Messages as a release wrote them: `python -m tests.wire.kept_messages` keeps those of this one.

    tests/vectors/wire-0.2.0.json       by end and name of the message, some payloads in hexadecimal
    tests/vectors/json-0.2.0.json       the same as pages say and hear them, as JSON texts
    tests/vectors/records-0.2.0.json    what is said of rows, by end and type: as JSON, and as msgpack

They are drawn from a seed by the types of the fields, or written below. What was kept once is never made
anew: only messages that are not there yet are added.
"""

import json
import random
from pathlib import Path
from types import GenericAlias
from typing import Any, get_args

import msgspec
from tests.wire.any_message import Drawing

from moorline.version import __version__
from moorline.wire.message import Message
from moorline.wire.protocol import HeardByClient, HeardByNode
from moorline.wire.records import (
    ColumnFacts,
    Deletion,
    Fetch,
    FromClient,
    FromNode,
    Lists,
    Login,
    RangeFacts,
    Ranges,
    Record,
    RecordMessage,
    Refused,
    Subscribe,
    SyncEnd,
    SyncStart,
    TableSubscription,
    Told,
    Verify,
)
from moorline.wire.value import HeardByPublisher, HeardBySubscriber

VECTORS = Path(__file__).parents[1] / "vectors"
ENDS: dict[str, Any] = {
    "node": HeardByNode,
    "client": HeardByClient,
    "publisher": HeardByPublisher,
    "subscriber": HeardBySubscriber,
}
PAGES = ("node", "client")
"""The ends that speak JSON too."""
RECORDS: dict[str, Any] = {"node": FromClient, "client": FromNode}
SEED = 20_261_119
DRAWN, KEPT = 6, 2
"""Of so many the shortest are kept: what matters is each field, not how much is in it."""

_DIGEST = bytes(range(24))
_TABLE = TableSubscription(
    "things", {"id": [1, 2], "state": "NEW"}, ["id", "state"], "cursor", _DIGEST, "1-3"
)
SAID: tuple[RecordMessage, ...] = (
    Login("token", "anna", "password"),
    Subscribe(1, [_TABLE, TableSubscription("others")]),
    Verify(2, "things", _DIGEST, b"\x01\x02", 64, sketches=False),
    Ranges(3, "things", ["", "0a", "ff01"]),
    Lists(4, "things", ["0123456789abcdef"]),
    Fetch(5, "things", []),
    SyncStart(6, "things", "full", ["id"], [ColumnFacts("id", "bigint")], "00ff", "xxh3"),
    Record("things", 7, msgspec.Raw(b'{"id":1,"state":"NEW"}')),
    Deletion("things", ["1", "x"]),
    Told(8, "things", _DIGEST, 4, 64, b"\x00\xff", [RangeFacts(3, "0f")], [b"\x01\x02\x03\x04"]),
    SyncEnd(9, "things", "cursor", _DIGEST),
    Refused(10, "things", "NO_SUCH_TABLE", "there is no such table", 1_000),
)
"""One of each, with every field other than its default."""


def kept_of(kind: type[Message], drawing: Drawing) -> list[str]:
    drawn = {msgspec.msgpack.encode([drawing.message(kind)]).hex() for _ in range(DRAWN)}
    return sorted(drawn, key=lambda text: (len(text), text))[-KEPT - 1 : -1] or list(drawn)


def as_json(payload: str, end: str) -> str:
    """A payload as a page would say it."""
    decoder: Any = msgspec.msgpack.Decoder(GenericAlias(list, (ENDS[end],)))
    heard = decoder.decode(bytes.fromhex(payload))
    return msgspec.json.encode(heard).decode()


def both_forms(said: RecordMessage) -> dict[str, str]:
    text = msgspec.json.encode([said])
    packed = msgspec.msgpack.encode(msgspec.json.decode(text))
    if isinstance(said, Record):
        return {"json": text.decode(), "msgpack": packed.hex()}
    return {"json": text.decode(), "msgpack": msgspec.msgpack.encode([said]).hex()}


def known(kind: str) -> tuple[Path, dict[str, dict[str, Any]]]:
    path = VECTORS / f"{kind}-{__version__}.json"
    return path, json.loads(path.read_text()) if path.exists() else {}


def keep(path: Path, found: dict[str, dict[str, Any]]) -> None:
    path.write_text(json.dumps(found, indent=0, sort_keys=True) + "\n")


def main() -> None:
    drawing = Drawing(random.Random(SEED), {})
    path, wire = known("wire")
    for end, heard in ENDS.items():
        for kind in sorted(get_args(heard), key=lambda one: str(one.__name__)):
            if kind.__name__ not in wire.setdefault(end, {}):
                wire[end][kind.__name__] = kept_of(kind, drawing)
    keep(path, wire)
    path, texts = known("json")
    for end in PAGES:
        for name, payloads in wire[end].items():
            texts.setdefault(end, {}).setdefault(name, [as_json(one, end) for one in payloads])
    keep(path, texts)
    path, records = known("records")
    for said in SAID:
        end = "node" if isinstance(said, FromClient) else "client"
        name = str(said.__struct_config__.tag)
        records.setdefault(end, {}).setdefault(name, both_forms(said))
    keep(path, records)


if __name__ == "__main__":
    main()
