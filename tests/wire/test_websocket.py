"""Frames that a server sends, read by a parser of somebody else; and the heads of an upgrade."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.wire.bearer import bearer_item
from wsproto import ConnectionType
from wsproto.connection import Connection
from wsproto.events import BytesMessage, CloseConnection, Event, Ping, TextMessage

from moorline.wire.websocket import (
    BadOffer,
    accept_of,
    frame_binary,
    frame_close,
    frame_ping,
    frame_text,
    has_item,
    subprotocols_of,
)


def heard(frame: bytes) -> list[Event]:
    client = Connection(ConnectionType.CLIENT)
    client.receive_data(frame)
    return list(client.events())


@pytest.mark.parametrize("size", [0, 1, 125, 126, 127, 65_535, 65_536, 200_000])
def test_frames_of_every_form_of_length_are_read_as_they_were(size: int) -> None:
    (event,) = heard(frame_binary(b"x" * size))
    assert isinstance(event, BytesMessage)
    assert (event.data, event.message_finished) == (b"x" * size, True)


@given(st.text())
def test_a_text_is_read_as_it_was(text: str) -> None:
    (event,) = heard(frame_text(text.encode()))
    assert isinstance(event, TextMessage)
    assert event.data == text


@given(st.text(), st.sampled_from([1000, 1008, 4_000]))
def test_a_reason_is_cut_between_characters(reason: str, code: int) -> None:
    frame = frame_close(code, reason)
    (event,) = heard(frame)
    assert isinstance(event, CloseConnection)
    assert event.code == code
    assert reason.startswith(event.reason or "")
    assert len(frame) <= 127


def test_a_ping_is_one() -> None:
    assert heard(frame_ping(b"abc")) == [Ping(payload=b"abc")]


def test_the_answer_to_a_key_is_that_of_the_standard() -> None:
    assert accept_of(b"dGhlIHNhbXBsZSBub25jZQ==") == b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo="


@pytest.mark.parametrize("key", [b"", b"abc", b"dGhlIHNhbXBsZSBub25jZQ", b"AAAA", b"!" * 24])
def test_what_is_no_key_has_no_answer(key: bytes) -> None:
    assert accept_of(key) is None


def test_a_token_comes_among_the_subprotocols() -> None:
    item = bearer_item("moor_abc-_=")
    assert "=" not in item
    offered = f"moorline.records, {item} ,mqtt,,".encode()
    assert subprotocols_of(offered) == (["moorline.records", "mqtt"], "moor_abc-_=")
    assert subprotocols_of(b"") == ([], "")


@pytest.mark.parametrize(
    "header",
    [
        b"moorline.bearer.",
        b"moorline.bearer.%%%",
        b"moorline.bearer.a",
        b"moorline.bearer.YQ, moorline.bearer.Yg",
        ", ".join(f"p{number}" for number in range(17)).encode(),
        b"caf\xc3\xa9",
    ],
)
def test_offers_that_cannot_be_are_refused(header: bytes) -> None:
    with pytest.raises(BadOffer):
        subprotocols_of(header)


def test_items_are_the_same_in_capitals() -> None:
    assert has_item(b"keep-alive, Upgrade", b"upgrade")
    assert not has_item(b"upgrades", b"upgrade")
