"""Every packet comes out as it went in: each type, in each version, from each end."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.wire.mqtt.any_packet import LEVELS, OF_CLIENT, OF_SERVER, any_packet, kinds, publishes
from tests.wire.mqtt.corpus import encoded, of_client, of_server

from moorline.core.mqtt.effects import Ack
from moorline.core.mqtt.packets import (
    NONE,
    Connack,
    Packet,
    Properties,
    Puback,
    Publish,
    Pubrec,
    Suback,
)
from moorline.core.mqtt.reason import ReasonCode
from moorline.wire.mqtt import Decoder, PublishWriter, encode, encode_acks

MAX = 1 << 20
EVERY_TYPE = [
    pytest.param(level, hears_server, kind, id=f"{kind}-{level}-{'server' * hears_server}")
    for level in LEVELS
    for hears_server in (False, True)
    for kind in kinds(level, hears_server)
]


@pytest.mark.parametrize(("level", "hears_server", "kind"), EVERY_TYPE)
def test_a_packet_comes_out_as_it_went_in(level: int, hears_server: bool, kind: str) -> None:
    of_end = OF_SERVER if hears_server else OF_CLIENT

    @given(of_end[kind](level))
    def goes_around(packet: Packet) -> None:
        decoder = Decoder(MAX, level, hears_server=hears_server)
        assert decoder.feed(encode(packet, level)) == [packet]
        assert decoder.waiting_bytes == 0

    goes_around()


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("hears_server", [False, True])
def test_q40_packets_cut_at_every_byte_come_out_the_same(level: int, hears_server: bool) -> None:
    packets = of_server(level) if hears_server else of_client(level)
    data = b"".join(encode(packet, level) for packet in packets)
    for cut in range(len(data) + 1):
        decoder = Decoder(MAX, level, hears_server=hears_server)
        assert decoder.feed(data[:cut]) + decoder.feed(data[cut:]) == packets
    decoder = Decoder(MAX, level, hears_server=hears_server)
    assert [one for at in range(len(data)) for one in decoder.feed(data[at : at + 1])] == packets


@given(st.data())
def test_a_run_of_packets_comes_out_however_it_is_cut(data: st.DataObject) -> None:
    level = data.draw(st.sampled_from(LEVELS))
    packets = data.draw(st.lists(any_packet(level), max_size=6))
    said = b"".join(encode(packet, level) for packet in packets)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(said)), max_size=5)))
    decoder = Decoder(MAX, level)
    found = []
    for start, stop in zip([0, *cuts], [*cuts, len(said)], strict=True):
        found += decoder.feed(said[start:stop])
    assert found == packets


@given(st.lists(publishes(5), max_size=8), st.sampled_from(LEVELS))
def test_many_publishes_in_one_buffer_are_those_said_one_by_one(
    some: list[Publish], level: int
) -> None:
    data, dropped = PublishWriter(level).write(some)
    assert data == b"".join(encode(one, level) for one in some)
    assert not dropped


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("level", LEVELS)
def test_lengths_of_one_two_and_three_bytes(level: int, qos: int) -> None:
    for size in (0, 100, 110, 120, 121, 122, 123, 124, 125, 126, 127, 128, 16_360, 16_380, 16_400):
        one = Publish("a/b", b"x" * size, qos, False, False, 5 if qos else 0)
        data, _ = PublishWriter(level).write([one, one])
        assert data == encode(one, level) * 2
        assert Decoder(MAX, level).feed(data) == [one, one]


def test_q17_user_properties_keep_their_order_and_their_duplicates() -> None:
    pairs = (("b", "1"), ("a", "2"), ("b", "1"), ("", ""))
    one = Publish("a", b"", 0, properties=Properties(user=pairs))
    (found,) = Decoder(MAX, 5).feed(encode(one, 5))
    assert isinstance(found, Publish)
    assert found.properties.user == pairs


def test_a_topic_of_65535_bytes_and_one_message_of_a_megabyte() -> None:
    """Q16"""
    long = Publish("t" * 65_535, b"p" * 1_000_000, 1, packet_id=1)
    data = encode(long, 5)
    decoder = Decoder(2 * MAX, 5)
    found = [
        one for at in range(0, len(data), 50_000) for one in decoder.feed(data[at : at + 50_000])
    ]
    assert found == [long]


def test_acknowledgements_in_one_buffer() -> None:
    some: list[Ack] = [Puback(1), Pubrec(2, ReasonCode.NOT_AUTHORIZED), Puback(65_535)]
    assert encode_acks(some, 5) == b"".join(encode(one, 5) for one in some)
    assert encode_acks(some[::2], 5) == struct.pack(">HHHH", 0x4002, 1, 0x4002, 65_535)
    # 3.1.1 has no reasons: what is denied is acknowledged.
    assert encode_acks(some, 4) == b"\x40\x02\0\1\x50\x02\0\2\x40\x02\xff\xff"
    assert encode_acks([], 4) == b""


def test_words_are_left_out_where_they_do_not_fit() -> None:
    """MQTT-3.2.2-19, MQTT-3.2.2-20 and their like"""
    words = Properties(reason_string="r" * 100, user=(("a", "b" * 100),))
    said = Suback(1, (ReasonCode.NOT_AUTHORIZED,), words)
    assert len(encode(said, 5)) > 200
    short = encode(said, 5, packet_bytes_max=100)
    assert Decoder(MAX, 5, hears_server=True).feed(short) == [
        Suback(1, (ReasonCode.NOT_AUTHORIZED,))
    ]
    assert encode(said, 5, problem_information=False) == short


def test_q01_the_codes_of_older_versions() -> None:
    for reason, code in (
        (ReasonCode.SUCCESS, 0),
        (ReasonCode.UNSUPPORTED_PROTOCOL_VERSION, 1),
        (ReasonCode.CLIENT_IDENTIFIER_NOT_VALID, 2),
        (ReasonCode.SERVER_BUSY, 3),
        (ReasonCode.QUOTA_EXCEEDED, 3),
        (ReasonCode.BAD_USER_NAME_OR_PASSWORD, 4),
        (ReasonCode.NOT_AUTHORIZED, 5),
    ):
        assert encode(Connack(reason), 4) == bytes((0x20, 2, 0, code))
    refused = Suback(1, (ReasonCode.NOT_AUTHORIZED, ReasonCode.GRANTED_QOS_2))
    assert encode(refused, 4) == b"\x90\x04\0\1\x80\x02"


def test_the_corpus_has_every_type() -> None:
    first = {data[0] >> 4 for end in (False, True) for data in encoded(5, end)}
    assert first == set(range(1, 16))
    assert all(
        packet.properties is NONE
        for packet in Decoder(MAX, 4).feed(encoded(4)[3])
        if isinstance(packet, Publish)
    )
