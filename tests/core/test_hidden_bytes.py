"""What is shown of structs that hold secrets."""

import msgspec

from moorline.core.hidden_bytes import without_bytes


class Shown(msgspec.Struct):
    name: str
    secret: bytes
    count: int = 0


def test_bytes_are_counted_and_never_shown() -> None:
    text = without_bytes(Shown("alice", b"hunter2", 3))
    assert text == "Shown(name='alice', secret=<7 bytes>, count=3)"
    assert "hunter2" not in text


def test_no_bytes_are_told_too() -> None:
    assert without_bytes(Shown("", b"")) == "Shown(name='', secret=<0 bytes>, count=0)"
