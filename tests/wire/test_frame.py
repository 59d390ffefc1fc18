"""Frames: cut anywhere, bounded everywhere."""

import contextlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorline.errors import FrameTooLarge, Malformed
from moorline.limits import FRAME_BYTES_MAX, MESSAGES_PER_FRAME_MAX
from moorline.wire.frame import LENGTH, Splitter, frame, frames
from moorline.wire.link import Goodbye, Hello, Ping, Welcome
from moorline.wire.message import Failed, Message
from moorline.wire.node import Echo, Echoed
from moorline.wire.protocol import client_decoder, node_decoder

bodies = st.lists(st.binary(max_size=300), max_size=20)


@given(st.lists(bodies, min_size=1, max_size=6), st.lists(st.integers(1, 400), min_size=1))
def test_any_cut_of_the_bytes_gives_the_same_messages(
    batches: list[list[bytes]], cuts: list[int]
) -> None:
    sent = [[Echo(place, body) for place, body in enumerate(batch)] for batch in batches]
    data = b"".join(bytes(frame(batch)) for batch in sent)
    splitter = Splitter(FRAME_BYTES_MAX)
    heard, start, turn = [], 0, 0
    while start < len(data):
        size = cuts[turn % len(cuts)]
        heard += [node_decoder.decode(p) for p in splitter.feed(data[start : start + size])]
        start, turn = start + size, turn + 1
    assert heard == sent
    assert splitter.waiting_bytes == 0


def test_a_length_over_the_bound_is_refused_before_its_bytes_come() -> None:
    splitter = Splitter(1_000)
    assert list(splitter.feed(LENGTH.pack(1_000))) == []
    splitter = Splitter(1_000)
    with pytest.raises(FrameTooLarge, match="1001 bytes; at most 1000"):
        list(splitter.feed(LENGTH.pack(1_001)))


def test_a_payload_may_raise_the_bound_for_the_next() -> None:
    """A welcome and a large frame behind it may come in one read."""
    splitter = Splitter(100)
    data = bytes(frame([Welcome(1, "n")])) + bytes(frame([Echo(1, bytes(5_000))]))
    payloads = splitter.feed(data)
    assert next(payloads)
    splitter.payload_bytes_max = FRAME_BYTES_MAX
    assert len(next(payloads)) > 5_000


def test_an_http_request_is_an_oversize_frame() -> None:
    with pytest.raises(FrameTooLarge):
        list(Splitter(FRAME_BYTES_MAX).feed(b"GET / HTTP/1.1\r\n"))


def test_the_splitter_never_holds_more_than_one_frame() -> None:
    splitter = Splitter(1_000)
    data = bytes(frame([Echo(1, bytes(900))])) * 50
    for start in range(0, len(data), 333):
        list(splitter.feed(data[start : start + 333]))
        assert splitter.waiting_bytes < 1_000 + LENGTH.size


@pytest.mark.parametrize(
    "garbage",
    [
        b"",
        b"\xc1",
        b"\x90\x00",
        b"\x91\x91\xcc\xff",
        b"\x91\x92\x07\xa1x",
        b"\x91" * 5_000,
        b"\xdd\xff\xff\xff\xff",
        msgspec.msgpack.encode([[7, 1, b""]] * (MESSAGES_PER_FRAME_MAX + 1)),
    ],
)
def test_garbage_is_malformed_and_nothing_worse(garbage: bytes) -> None:
    with pytest.raises(Malformed):
        node_decoder.decode(memoryview(garbage))


@given(st.binary(max_size=200))
def test_any_bytes_decode_or_are_malformed(data: bytes) -> None:
    with contextlib.suppress(Malformed):
        assert isinstance(node_decoder.decode(memoryview(data)), list)


def test_many_messages_are_split_by_count_and_by_size_in_order() -> None:
    many: list[Message] = [Echo(n, b"") for n in range(2 * MESSAGES_PER_FRAME_MAX + 5)]
    made, unsendable = frames(many)
    assert len(made) == 3
    assert unsendable == []
    large: list[Message] = [Echo(n, bytes(FRAME_BYTES_MAX // 3)) for n in range(7)]
    made, _ = frames(large)
    assert all(len(one) <= FRAME_BYTES_MAX + LENGTH.size for one in made)
    heard = [m for one in made for m in node_decoder.decode(memoryview(one)[LENGTH.size :])]
    assert heard == large


def test_one_message_too_large_does_not_take_the_others_with_it() -> None:
    giant = Echo(2, bytes(FRAME_BYTES_MAX + 1))
    made, unsendable = frames([Echo(1, b"a"), giant, Echo(3, b"c")])
    assert unsendable == [giant]
    heard = [m for one in made for m in node_decoder.decode(memoryview(one)[LENGTH.size :])]
    assert heard == [Echo(1, b"a"), Echo(3, b"c")]


def test_a_newer_peer_may_add_fields_at_the_end() -> None:
    data = msgspec.msgpack.encode(
        [[1, "moorline", 1, 9, "newer", "", b"", False, "a field of the future"]]
    )
    assert node_decoder.decode(memoryview(data)) == [Hello("moorline", 1, 9, "newer")]
    older = msgspec.msgpack.encode([[1, "moorline", 1, 1, "older"]])
    assert node_decoder.decode(memoryview(older)) == [Hello("moorline", 1, 1, "older", "", b"")]


def test_each_end_hears_only_what_is_meant_for_it() -> None:
    with pytest.raises(Malformed):
        node_decoder.decode(memoryview(frame([Echoed(1, b"")]))[LENGTH.size :])
    said: list[Message] = [Welcome(1, "n"), Ping(3), Goodbye("A", "b"), Failed(1, "C", "d")]
    assert client_decoder.decode(memoryview(frame(said))[LENGTH.size :]) == said
