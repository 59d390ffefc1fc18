"""What a release has sent is heard by this one, field by field; what this one sends begins the same way."""

import base64
import json
from pathlib import Path
from types import GenericAlias
from typing import Any, get_args

import msgspec
import pytest
from tests.wire.kept_messages import ENDS, PAGES, RECORDS, VECTORS

from moorline.version import __version__
from moorline.wire import json_messages
from moorline.wire.message import Message
from moorline.wire.records import client_json, client_msgpack, node_json, node_msgpack

KEPT = sorted(VECTORS.glob("wire-*.json"))
TEXTS = sorted(VECTORS.glob("json-*.json"))
OF_RECORDS = sorted(VECTORS.glob("records-*.json"))
DECODERS: dict[str, tuple[Any, Any]] = {
    "node": (node_json, node_msgpack),
    "client": (client_json, client_msgpack),
}


def begins_alike(now: Any, then: Any) -> bool:
    """Fields may have come behind those of then, with their defaults; none was changed."""
    if isinstance(now, list) and isinstance(then, list):
        return len(now) >= len(then) and all(map(begins_alike, now, then))
    if isinstance(now, dict) and isinstance(then, dict):
        return now.keys() >= then.keys() and all(begins_alike(now[one], then[one]) for one in then)
    return bool(now == then)


def plain(value: Any) -> Any:
    """Bytes as JSON has them, so that both forms can be compared."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, list):
        return [plain(one) for one in value]
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    return value


def test_there_are_messages_of_a_release() -> None:
    assert KEPT
    assert len(KEPT) == len(TEXTS) == len(OF_RECORDS)


@pytest.mark.parametrize("file", KEPT, ids=lambda file: file.stem)
@pytest.mark.parametrize("end", ENDS)
def test_messages_of_a_release_are_heard(file: Path, end: str) -> None:
    decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(
        GenericAlias(list, (ENDS[end],))
    )
    kept = json.loads(file.read_text())[end]
    assert kept
    for name, payloads in kept.items():
        assert payloads, name
        for payload in payloads:
            data = bytes.fromhex(payload)
            (heard,) = decoder.decode(data)
            assert isinstance(heard, Message)
            assert type(heard).__name__ == name
            (now,) = msgspec.msgpack.decode(msgspec.msgpack.encode([heard]))
            (then,) = msgspec.msgpack.decode(data)
            assert begins_alike(now, then), name


@pytest.mark.parametrize("file", TEXTS, ids=lambda file: file.stem)
@pytest.mark.parametrize("end", PAGES)
def test_what_pages_of_a_release_say_and_hear_is_understood(file: Path, end: str) -> None:
    decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(GenericAlias(list, (ENDS[end],)))
    for name, texts in json.loads(file.read_text())[end].items():
        for text in texts:
            if end == "node":
                (heard,) = json_messages.node_decoder.decode(text.encode())
            else:
                (heard,) = decoder.decode(text)
            assert type(heard).__name__ == name
            (now,), _ = json_messages.encode([heard])
            assert begins_alike(json.loads(now), json.loads(text)), name


@pytest.mark.parametrize("file", OF_RECORDS, ids=lambda file: file.stem)
@pytest.mark.parametrize("end", RECORDS)
def test_what_a_release_said_of_rows_is_heard_in_both_forms(file: Path, end: str) -> None:
    in_json, in_msgpack = DECODERS[end]
    kept = json.loads(file.read_text())[end]
    assert kept
    for name, forms in kept.items():
        (one,) = in_json.decode(forms["json"])
        (other,) = in_msgpack.decode(bytes.fromhex(forms["msgpack"]))
        assert one.__struct_config__.tag == other.__struct_config__.tag == name
        then = json.loads(forms["json"])
        assert begins_alike(json.loads(msgspec.json.encode([one])), then), name
        (packed,) = msgspec.msgpack.decode(bytes.fromhex(forms["msgpack"]))
        now = msgspec.msgpack.decode(msgspec.msgpack.encode(other))
        assert begins_alike(plain(now), plain(packed)), name
        assert begins_alike(plain(packed), then[0]), f"{name}: the two forms say the same"


def test_every_message_is_kept() -> None:
    """`python -m tests.wire.kept_messages` adds those that are missing, and changes no other."""
    kept = json.loads((VECTORS / f"wire-{__version__}.json").read_text())
    texts = json.loads((VECTORS / f"json-{__version__}.json").read_text())
    for end, heard in ENDS.items():
        names = {kind.__name__ for kind in get_args(heard)}
        assert names <= kept[end].keys()
        assert end not in PAGES or names <= texts[end].keys()
    of_records = json.loads((VECTORS / f"records-{__version__}.json").read_text())
    for end, heard in RECORDS.items():
        assert {kind.__struct_config__.tag for kind in get_args(heard)} <= of_records[end].keys()


def test_a_field_that_moved_would_be_seen() -> None:
    assert not begins_alike([1, "a", 2], [1, 2, "a"])
    assert not begins_alike([1, "a"], [1, "a", 3])
    assert begins_alike([1, ["a", 4], 9], [1, ["a"]])
    assert begins_alike({"a": 1, "b": 2}, {"a": 1})
    assert not begins_alike({"b": 2}, {"a": 1})
