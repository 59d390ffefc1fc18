"""Records of a wrapped link, with keys that are none: how frames are joined, cut and put together again."""

import random

import pytest

from moorline.errors import FrameTooLarge, Tampered
from moorline.limits import FRAME_BYTES_MAX, RECORD_BYTES_MAX, RECORD_DATA_BYTES_MAX
from moorline.net.records import Records
from moorline.wire.frame import LENGTH, Splitter


class Numbered:
    """Turns bits around, and numbers what it wraps."""

    def __init__(self) -> None:
        self.wrapped = self.unwrapped = 0

    def wrap(self, data: bytes, /) -> bytes:
        self.wrapped += 1
        return self.wrapped.to_bytes(4) + bytes(data)[::-1]

    def unwrap(self, token: bytes, /) -> bytes:
        self.unwrapped += 1
        if token[:4] != self.unwrapped.to_bytes(4):
            raise Tampered("not the next")
        return token[4:][::-1]


def frame_of(payload: bytes) -> bytes:
    return LENGTH.pack(len(payload)) + payload


def pair(frame_bytes_max: int = FRAME_BYTES_MAX) -> tuple[Records, Records, Splitter]:
    return (
        Records(Numbered(), Splitter(9).feed),
        Records(Numbered(), Splitter(frame_bytes_max).feed),
        Splitter(RECORD_BYTES_MAX),
    )


def heard(records: Records, outer: Splitter, data: bytes) -> list[bytes]:
    return [bytes(frame) for record in outer.feed(data) for frame in records.frames(record)]


def test_frames_of_any_size_come_through_in_any_pieces() -> None:
    chance = random.Random(7)
    near, far, outer = pair()
    sent, got = [], []
    for _ in range(60):
        sizes = [chance.choice([0, 1, 100, RECORD_DATA_BYTES_MAX - 4, 70_000]) for _ in range(5)]
        payloads = [chance.randbytes(size) for size in sizes]
        sent += payloads
        data = b"".join(near.wrapped([frame_of(payload) for payload in payloads]))
        while data:
            cut = chance.randint(1, 200_000)
            got += heard(far, outer, data[:cut])
            data = data[cut:]
    assert got == sent


def test_what_is_written_together_is_wrapped_together() -> None:
    near, far, outer = pair()
    records = near.wrapped([frame_of(bytes([n])) for n in range(200)])
    assert len(records) == 2  # a length, and one token
    assert len(heard(far, outer, b"".join(records))) == 200


def test_a_record_is_never_above_its_bound() -> None:
    near, _, _ = pair()
    records = near.wrapped([frame_of(bytes(FRAME_BYTES_MAX))])
    assert max(len(one) for one in records) <= RECORD_BYTES_MAX
    assert len(records) // 2 == FRAME_BYTES_MAX // RECORD_DATA_BYTES_MAX + 1


def test_records_that_are_left_out_or_moved_are_refused() -> None:
    near, far, outer = pair()
    first, second = (b"".join(near.wrapped([frame_of(body)])) for body in (b"1", b"2"))
    with pytest.raises(Tampered):
        heard(far, outer, second + first)


def test_a_frame_within_records_has_its_own_bound() -> None:
    near, far, outer = pair(frame_bytes_max=1_000)
    with pytest.raises(FrameTooLarge):
        heard(far, outer, b"".join(near.wrapped([frame_of(bytes(1_001))])))
