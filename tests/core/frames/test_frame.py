"""The bytes of a stored message: what goes in comes out, and a changed byte does not pass."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorline.core.frames.frame import (
    CONTENT,
    FRAME,
    HEAD,
    KEYED,
    PRODUCER,
    RETAIN,
    Stored,
    all_stored,
    check_of,
    decode_headers,
    encode_headers,
    frame_of,
    stored_at,
    without,
)
from moorline.errors import Malformed

U64 = st.integers(0, (1 << 64) - 1)


@st.composite
def stored(draw: st.DrawFn) -> Stored:
    key = draw(st.none() | st.binary(max_size=20))
    flags = (0 if key is None else KEYED) | draw(st.sampled_from([0, RETAIN]))
    producer, sequence = 0, 0
    if draw(st.booleans()):
        flags |= PRODUCER
        producer, sequence = draw(U64), draw(U64)
    return Stored(
        draw(U64),
        draw(U64),
        draw(st.integers(0, (1 << 32) - 1)),
        flags,
        draw(st.text(max_size=20)),
        key,
        draw(st.binary(max_size=20)),
        producer,
        sequence,
        draw(st.binary(max_size=50)),
    )


@given(st.lists(stored(), max_size=5), st.integers(0, 9))
def test_frames_come_out_as_they_went_in(messages: list[Stored], seed: int) -> None:
    data = b"".join(frame_of(one, seed) for one in messages)
    assert list(all_stored(data)) == messages
    if messages:
        assert stored_at(b"before" + data, 6) == messages[0]


@given(stored(), st.data())
def test_a_changed_byte_fails_the_check(message: Stored, data: st.DataObject) -> None:
    frame = bytearray(frame_of(message, 3))
    length, check = HEAD.unpack_from(frame)
    assert length == len(frame) - HEAD.size
    assert check_of(bytes(frame[HEAD.size :]), 3) == check
    at = data.draw(st.integers(HEAD.size, len(frame) - 1))
    frame[at] ^= data.draw(st.integers(1, 255))
    assert check_of(bytes(frame[HEAD.size :]), 3) != check


def test_the_same_bytes_of_another_stream_fail_the_check() -> None:
    message = Stored(1, 2, 0, 0, "t", None, b"", 0, 0, b"body")
    assert frame_of(message, 1) != frame_of(message, 2)


def test_the_whole_head_is_the_two_parts_of_it() -> None:
    assert FRAME.size == HEAD.size + CONTENT.size == 36


@given(st.lists(st.tuples(st.text(max_size=9), st.binary(max_size=9)), max_size=5))
def test_headers_come_out_as_they_went_in(headers: list[tuple[str, bytes]]) -> None:
    assert decode_headers(encode_headers(headers)) == headers


def test_no_headers_are_no_bytes() -> None:
    assert encode_headers(None) == encode_headers([]) == b""


@pytest.mark.parametrize("data", [b"\xc1", b"\x91\x01", b"\x91\x92\xa1\xff\xc4\x00"])
def test_what_are_not_headers_is_refused(data: bytes) -> None:
    with pytest.raises(Malformed, match="these are not headers"):
        decode_headers(data)


@given(st.lists(stored(), max_size=5), st.sets(st.integers(0, 9)))
def test_frames_without_some_are_those_of_the_others(
    messages: list[Stored], offsets: set[int]
) -> None:
    messages = [one._replace(offset=at) for at, one in enumerate(messages)]
    data = b"".join(frame_of(one, 3) for one in messages)
    left = [one for one in messages if one.offset not in offsets]
    assert without(data, offsets) == b"".join(frame_of(one, 3) for one in left)
