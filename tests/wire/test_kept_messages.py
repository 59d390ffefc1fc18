"""What a release has sent is heard by this one, field by field; what this one sends begins the same way."""

import json
from pathlib import Path
from types import GenericAlias
from typing import Any

import msgspec
import pytest
from tests.wire.kept_messages import ENDS, VECTORS

from moorline.wire.message import Message

KEPT = sorted(VECTORS.glob("wire-*.json"))


def begins_alike(now: Any, then: Any) -> bool:
    """Fields may have come behind those of then, with their defaults; none was changed."""
    if isinstance(now, list) and isinstance(then, list):
        return len(now) >= len(then) and all(map(begins_alike, now, then))
    return bool(now == then)


def test_there_are_messages_of_a_release() -> None:
    assert KEPT


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


def test_a_field_that_moved_would_be_seen() -> None:
    assert not begins_alike([1, "a", 2], [1, 2, "a"])
    assert not begins_alike([1, "a"], [1, "a", 3])
    assert begins_alike([1, ["a", 4], 9], [1, ["a"]])
