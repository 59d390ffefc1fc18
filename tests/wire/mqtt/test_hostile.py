"""Whatever bytes come, packets or a violation come out: nothing else, and within the memory allowed."""

import random
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.wire.mqtt.corpus import encoded, of_client

from moorline.core.mqtt.packets import Connect, Packet, Publish
from moorline.core.mqtt.reason import ReasonCode, Violation
from moorline.limits import MQTT_CONNECT_BYTES_MAX
from moorline.wire.mqtt import Decoder, encode
from moorline.wire.mqtt.properties import TABLE, Carrier

MAX = 1 << 16
MUTATED = 100_000
R = ReasonCode


def reason_for(data: bytes, level: int = 5, *, hears_server: bool = False, most: int = MAX) -> R:
    with pytest.raises(Violation) as caught:
        Decoder(most, level, hears_server=hears_server).feed(data)
    return caught.value.reason


def outcome(decoder: Decoder, data: bytes) -> tuple[list[Packet], R | None]:
    """What comes out: packets, or why not."""
    try:
        return decoder.feed(data), None
    except Violation as violation:
        return violation.before, violation.reason


def body(first: int, *parts: bytes) -> bytes:
    inner = b"".join(parts)
    assert len(inner) < 128
    return bytes((first, len(inner))) + inner


# --- lengths --------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", [0, 3, 4, 5])
def test_q40_a_remaining_length_of_five_bytes(level: int) -> None:
    first = b"\x10" if not level else b"\x30"
    assert reason_for(first + b"\xff\xff\xff\xff\x01", level) is R.MALFORMED_PACKET
    # Seen with its fourth byte: the fifth is not waited for.
    assert reason_for(first + b"\xff\xff\xff\xff", level) is R.MALFORMED_PACKET


def test_q40_a_remaining_length_of_256_mib_is_refused_before_its_bytes_come() -> None:
    assert reason_for(b"\x30\xff\xff\xff\x7f") is R.PACKET_TOO_LARGE
    decoder = Decoder(MAX, 5)
    with pytest.raises(Violation):
        decoder.feed(b"\x30\xff\xff\xff\x7f" + b"x" * 1_000)
    assert decoder.waiting_bytes == 0


def test_q07_a_packet_may_be_as_large_as_was_said_and_no_larger() -> None:
    one = Publish("a", b"x" * 91, 0)
    data = encode(one, 5)
    assert Decoder(len(data), 5).feed(data) == [one]
    assert reason_for(data, most=len(data) - 1) is R.PACKET_TOO_LARGE
    long = Publish("a", b"x" * 1_000, 0)
    assert reason_for(encode(long, 5), most=1_000) is R.PACKET_TOO_LARGE


def test_a_connect_has_at_most_what_strangers_may_send() -> None:
    decoder = Decoder(2 * MQTT_CONNECT_BYTES_MAX)
    with pytest.raises(Violation) as found:
        decoder.feed(b"\x10\x80\x80\x08")
    assert found.value.reason is R.PACKET_TOO_LARGE
    assert decoder.waiting_bytes == 0
    # The same length of a client that has said who it is.
    assert Decoder(2 * MQTT_CONNECT_BYTES_MAX, 5).feed(b"\x30\x80\x80\x08") == []


def test_a_length_that_has_more_bytes_than_it_needs() -> None:
    assert reason_for(b"\xc0\x80\x00") is R.MALFORMED_PACKET
    assert reason_for(b"\x30\x85\x00" + b"\0\1a\0x") is R.MALFORMED_PACKET
    assert reason_for(body(0x30, b"\0\1a", b"\x80\0")) is R.MALFORMED_PACKET


@pytest.mark.parametrize("level", [4, 5])
@pytest.mark.parametrize("hears_server", [False, True])
def test_q40_a_packet_that_says_it_is_shorter_or_longer_than_it_is(
    level: int, hears_server: bool
) -> None:
    for data in encoded(level, hears_server):
        if data[1] >= 0x80:
            continue
        for size in range(128):
            changed = bytes((data[0], size)) + data[2:]
            _, reason = outcome(Decoder(MAX, level, hears_server=hears_server), changed)
            assert reason is None or reason.is_failure


# --- types and flags ------------------------------------------------------------------------------


def _is_known(first: int, hears_server: bool) -> bool:
    kind, flags = first >> 4, first & 15
    if kind == 3:
        return flags >> 1 & 3 != 3 and not (flags & 8 and not flags & 6)
    ends = {2, 9, 11, 13} if hears_server else {1, 8, 10, 12}
    if kind not in ends | {4, 5, 6, 7, 14, 15}:
        return False
    return flags == (2 if kind in (6, 8, 10) else 0)


@pytest.mark.parametrize("hears_server", [False, True])
def test_q40_every_packet_type_with_every_flag(hears_server: bool) -> None:
    for first in range(256):
        decoder = Decoder(MAX, 5, hears_server=hears_server)
        found, reason = outcome(decoder, bytes((first,)))
        assert found == []
        if _is_known(first, hears_server):
            assert reason is None, f"{first:#x}"
            assert decoder.waiting_bytes == 1
        else:
            # Known by its first byte: nothing is waited for.
            assert reason in (R.MALFORMED_PACKET, R.PROTOCOL_ERROR), f"{first:#x}"


def test_q01_the_first_packet_is_a_connect() -> None:
    for data in encoded(5):
        if data[0] != 0x10:
            assert reason_for(data, 0) is R.PROTOCOL_ERROR
    assert reason_for(b"GET / HTTP/1.1\r\n", 0) is R.PROTOCOL_ERROR
    assert reason_for(b"\x16\x03\x01", 0) is R.PROTOCOL_ERROR


def test_packets_of_a_server_do_not_come_from_a_client() -> None:
    for first in (0x20, 0x90, 0xB0, 0xD0):
        assert reason_for(bytes((first, 0))) is R.PROTOCOL_ERROR
    for first in (0x10, 0x82, 0xA2, 0xC0):
        assert reason_for(bytes((first, 0)), hears_server=True) is R.PROTOCOL_ERROR
    # MQTT-4.12.0-1: 3.1.1 has no AUTH.
    assert reason_for(b"\xf0\x00", 4) is R.MALFORMED_PACKET


def test_what_was_whole_before_a_mistake_is_not_lost() -> None:
    good = [Publish("a", b"1"), Publish("a", b"2", 1, packet_id=3)]
    data = b"".join(encode(one, 5) for one in good)
    with pytest.raises(Violation) as caught:
        Decoder(MAX, 5).feed(data + b"\x31\x04\0\2a+" + data)
    assert caught.value.before == good


# --- CONNECT --------------------------------------------------------------------------------------


def connect(name: bytes = b"\0\4MQTT", level: int = 5, flags: int = 2, rest: bytes = b"") -> bytes:
    properties = b"\0" if level & 0x7F == 5 else b""
    return body(0x10, name, bytes((level, flags)), b"\0\x1e", properties, b"\0\2id", rest)


@pytest.mark.parametrize(
    ("name", "level", "heard"),
    [
        (b"\0\4MQTT", 5, (5, False)),
        (b"\0\4MQTT", 4, (4, False)),
        (b"\0\4MQTT", 0x84, (4, True)),
        (b"\0\6MQIsdp", 3, (3, False)),
        (b"\0\6MQIsdp", 0x83, (3, True)),
    ],
)
def test_the_versions_that_are_spoken_and_those_of_bridges(
    name: bytes, level: int, heard: tuple[int, bool]
) -> None:
    decoder = Decoder(MAX)
    (packet,) = decoder.feed(connect(name, level))
    assert isinstance(packet, Connect)
    assert (packet.level, packet.is_bridge) == heard
    assert decoder.level == heard[0]
    assert encode(packet, packet.level) == connect(name, level)


@pytest.mark.parametrize(
    ("name", "level", "answered_in"),
    [
        (b"\0\4MQTT", 6, 5),
        (b"\0\4MQTT", 0, 4),
        (b"\0\4MQTT", 3, 4),
        (b"\0\4MQTT", 0x85, 4),
        (b"\0\6MQIsdp", 4, 4),
        (b"\0\6MQIsdp", 5, 5),
        (b"\0\4mqtt", 5, 5),
        (b"\0\4HTTP", 4, 5),
    ],
)
def test_q01_a_protocol_name_or_level_that_is_not_spoken(
    name: bytes, level: int, answered_in: int
) -> None:
    decoder = Decoder(MAX)
    with pytest.raises(Violation) as caught:
        decoder.feed(connect(name, level))
    assert caught.value.reason is R.UNSUPPORTED_PROTOCOL_VERSION
    assert decoder.level == answered_in


@pytest.mark.parametrize("level", [4, 5])
def test_q01_reserved_bits_of_connect(level: int) -> None:
    decoder = Decoder(MAX)
    with pytest.raises(Violation) as caught:
        decoder.feed(connect(level=level, flags=3))
    assert caught.value.reason is R.MALFORMED_PACKET
    # Known nonetheless, so that it can be told in its own version.
    assert decoder.level == level


@pytest.mark.parametrize("flags", [0x08, 0x10, 0x20, 0x1C, 0x04 | 0x18])
def test_flags_of_a_will_that_cannot_be(flags: int) -> None:
    will = b"\0\0\1w\0\1x" if flags & 4 else b""
    assert reason_for(connect(flags=flags, rest=will), 0) is R.MALFORMED_PACKET


def test_a_password_without_a_user_name_is_mqtt_5s() -> None:
    assert Decoder(MAX).feed(connect(level=5, flags=0x40, rest=b"\0\1p"))
    assert reason_for(connect(level=4, flags=0x40, rest=b"\0\1p"), 0) is R.MALFORMED_PACKET


def test_a_connect_says_no_more_and_no_less_than_its_flags() -> None:
    assert reason_for(connect(rest=b"\0\1x"), 0) is R.MALFORMED_PACKET
    for flags in (0x80, 0x40, 0x04):
        assert reason_for(connect(flags=flags), 0) is R.MALFORMED_PACKET


def test_the_topic_of_a_will_has_no_wildcard() -> None:
    for topic in (b"\0\0", b"\0\3a/#", b"\0\1+"):
        assert (
            reason_for(connect(flags=4, rest=b"\0" + topic + b"\0\1x"), 0) is R.TOPIC_NAME_INVALID
        )


def test_authentication_data_needs_a_method() -> None:
    data = body(0x10, b"\0\4MQTT\5\2\0\0", b"\4\x16\0\1x", b"\0\0")
    assert reason_for(data, 0) is R.PROTOCOL_ERROR


# --- texts, topics, packet ids ----------------------------------------------------------------------

BAD_TEXTS = [
    b"\xff",
    b"\xc0\x80",
    b"\xed\xa0\x80",
    b"\xed\xbf\xbf",
    b"a\0b",
    b"\xf4\x90\x80\x80",
    b"\xe2\x82",
]


@pytest.mark.parametrize("text", BAD_TEXTS)
def test_q16_texts_that_are_none(text: bytes) -> None:
    field = len(text).to_bytes(2, "big") + text
    assert reason_for(body(0x30, field, b"\0")) is R.MALFORMED_PACKET
    assert reason_for(body(0x82, b"\0\1\0", field, b"\0")) is R.MALFORMED_PACKET
    assert reason_for(body(0xA2, b"\0\1\0", field)) is R.MALFORMED_PACKET
    assert reason_for(body(0x10, b"\0\4MQTT\5\2\0\0\0", field), 0) is R.MALFORMED_PACKET
    user = b"\x26" + field + b"\0\0"
    assert reason_for(body(0xE0, b"\0", bytes((len(user),)), user)) is R.MALFORMED_PACKET


def test_the_mark_of_byte_order_is_a_character_like_others() -> None:
    """MQTT-1.5.4-3"""
    one = Publish("\ufeffa", b"")
    assert Decoder(MAX, 5).feed(encode(one, 5)) == [one]


def test_q16_topics_that_are_none() -> None:
    for topic in (b"a/#", b"+", b"a/+/b", b"#"):
        field = len(topic).to_bytes(2, "big") + topic
        assert reason_for(body(0x30, field, b"\0")) is R.TOPIC_NAME_INVALID
        assert reason_for(body(0x30, field), 4) is R.TOPIC_NAME_INVALID
        # And among properties, as where an answer is to go.
        response = b"\x08" + field
        data = body(0x30, b"\0\1a", bytes((len(response),)), response)
        assert reason_for(data) is R.PROTOCOL_ERROR
    assert reason_for(body(0x30, b"\0\0", b"\0")) is R.PROTOCOL_ERROR
    assert reason_for(body(0x30, b"\0\0x"), 4) is R.MALFORMED_PACKET
    assert reason_for(body(0x30, b"\0\0", b"\3\x23\0\0")) is R.TOPIC_ALIAS_INVALID


def test_packet_id_0() -> None:
    for data in (
        body(0x32, b"\0\1a", b"\0\0", b"\0"),
        body(0x34, b"\0\1a", b"\0\0", b"\0", b"x" * 100),
        body(0x40, b"\0\0"),
        body(0x50, b"\0\0"),
        body(0x62, b"\0\0"),
        body(0x70, b"\0\0"),
        body(0x82, b"\0\0\0\0\1a\0"),
        body(0xA2, b"\0\0\0\0\1a"),
    ):
        assert reason_for(data) is R.PROTOCOL_ERROR


def test_a_publish_of_qos_3_and_one_of_qos_0_that_is_sent_again() -> None:
    for level, first in product((4, 5), (0x36, 0x37, 0x3E, 0x38, 0x39)):
        assert reason_for(body(first, b"\0\1a", b"\0\1\0"), level) is R.MALFORMED_PACKET


# --- SUBSCRIBE and UNSUBSCRIBE ------------------------------------------------------------------------


def subscribe(filter_text: bytes, options: int, level: int = 5) -> bytes:
    field = len(filter_text).to_bytes(2, "big") + filter_text
    return body(0x82, b"\0\1", b"\0" if level == 5 else b"", field, bytes((options,)))


def test_options_of_filters_that_cannot_be() -> None:
    for options, reason in (
        (0x40, R.MALFORMED_PACKET),
        (0x80, R.MALFORMED_PACKET),
        (0x03, R.PROTOCOL_ERROR),
        (0x30, R.PROTOCOL_ERROR),
    ):
        assert reason_for(subscribe(b"a", options)) is reason
    for options in (0x04, 0x08, 0x10, 0x80):
        assert reason_for(subscribe(b"a", options, 4), 4) is R.MALFORMED_PACKET


def test_q30_no_local_is_refused_for_a_shared_subscription() -> None:
    for name in (b"$share/g/a", b"$shared/g/a", b"$queue/g/a"):
        assert reason_for(subscribe(name, 5)) is R.PROTOCOL_ERROR
        assert Decoder(MAX, 5).feed(subscribe(name, 1))


def test_packets_without_a_filter_and_filters_without_a_character() -> None:
    assert reason_for(body(0x82, b"\0\1\0")) is R.PROTOCOL_ERROR
    assert reason_for(body(0xA2, b"\0\1\0")) is R.PROTOCOL_ERROR
    assert reason_for(body(0x82, b"\0\1"), 4) is R.PROTOCOL_ERROR
    assert reason_for(subscribe(b"", 0)) is R.TOPIC_FILTER_INVALID


def test_as_many_filters_as_a_packet_may_have() -> None:
    head, one = b"\0\1\0", b"\0\1a\0"

    def said(count: int) -> bytes:
        inner = head + one * count
        size = bytes((len(inner) & 127 | 128, len(inner) >> 7 & 127 | 128, len(inner) >> 14))
        return b"\x82" + size + inner

    assert Decoder(MAX, 5).feed(said(10_000))
    assert reason_for(said(10_001)) is R.QUOTA_EXCEEDED


# --- properties -------------------------------------------------------------------------------------

# A value of each property's type.
VALUES = {
    "user": b"\0\1a\0\1b",
    "subscription_identifiers": b"\1",
    "correlation_data": b"\0\1x",
    "authentication_data": b"\0\1x",
}
HEADS = {
    Carrier.PUBLISH: (False, 0x30, b"\0\1a", b""),
    Carrier.DELIVERED: (True, 0x30, b"\0\1a", b""),
    Carrier.PUBACK: (False, 0x40, b"\0\1\0", b""),
    Carrier.PUBREC: (False, 0x50, b"\0\1\0", b""),
    Carrier.PUBREL: (False, 0x62, b"\0\1\0", b""),
    Carrier.PUBCOMP: (False, 0x70, b"\0\1\0", b""),
    Carrier.SUBSCRIBE: (False, 0x82, b"\0\1", b"\0\1a\0"),
    Carrier.UNSUBSCRIBE: (False, 0xA2, b"\0\1", b"\0\1a"),
    Carrier.DISCONNECT: (False, 0xE0, b"\0", b""),
    Carrier.AUTH: (False, 0xF0, b"\x18", b""),
    Carrier.CONNECT: (False, 0x10, b"\0\4MQTT\5\2\0\0", b"\0\1a"),
    Carrier.WILL: (False, 0x10, b"\0\4MQTT\5\6\0\0\0\0\1a", b"\0\1a\0\1b"),
    Carrier.CONNACK: (True, 0x20, b"\0\0", b""),
    Carrier.SUBACK: (True, 0x90, b"\0\1", b"\0"),
    Carrier.UNSUBACK: (True, 0xB0, b"\0\1", b"\0"),
}


def value_of(name: str) -> bytes:
    for one in TABLE:
        if one.name == name:
            if name in VALUES:
                return VALUES[name]
            # As many bytes as its type takes, of a value that all of them take.
            return one.kind.write("a" if one.kind.write.__name__ == "text_bytes" else 1)
    raise AssertionError(name)


def with_properties(carrier: Carrier, inner: bytes) -> tuple[bytes, bool]:
    hears_server, first, head, rest = HEADS[carrier]
    return body(first, head, bytes((len(inner),)), inner, rest), hears_server


@pytest.mark.parametrize("carrier", list(HEADS), ids=lambda carrier: str(carrier.name))
def test_q40_every_property_in_every_packet_once_twice_and_cut(carrier: Carrier) -> None:
    for one in TABLE:
        raw = bytes((one.number,)) + value_of(one.name)
        data, hears_server = with_properties(carrier, raw)
        decoder = Decoder(MAX, 5, hears_server=hears_server)
        if not one.carriers & carrier:
            with pytest.raises(Violation) as caught:
                decoder.feed(data)
            assert caught.value.reason is R.PROTOCOL_ERROR, one.name
            continue
        if one.name == "authentication_data" and carrier is Carrier.CONNECT:
            continue
        assert len(decoder.feed(data)) == 1, one.name
        for cut in range(1, len(raw)):
            data, _ = with_properties(carrier, raw[:cut])
            assert reason_for(data, hears_server=hears_server) is R.MALFORMED_PACKET, one.name
        twice, _ = with_properties(carrier, raw * 2)
        if one.repeats & carrier:
            assert len(Decoder(MAX, 5, hears_server=hears_server).feed(twice)) == 1
        else:
            assert reason_for(twice, hears_server=hears_server) is R.PROTOCOL_ERROR, one.name


def test_q40_properties_that_are_unknown() -> None:
    known = {one.number for one in TABLE}
    for number in set(range(128)) - known:
        data, _ = with_properties(Carrier.PUBLISH, bytes((number, 0)))
        assert reason_for(data) is R.MALFORMED_PACKET
    assert reason_for(with_properties(Carrier.PUBLISH, b"\x81\x01\0")[0]) is R.MALFORMED_PACKET


def test_values_of_properties_that_cannot_be() -> None:
    for carrier, raw, reason in (
        (Carrier.PUBLISH, b"\x01\x02", R.PROTOCOL_ERROR),
        (Carrier.SUBSCRIBE, b"\x0b\x00", R.PROTOCOL_ERROR),
        (Carrier.CONNECT, b"\x17\x02", R.PROTOCOL_ERROR),
        (Carrier.CONNECT, b"\x19\x02", R.PROTOCOL_ERROR),
        (Carrier.CONNECT, b"\x21\0\0", R.PROTOCOL_ERROR),
        (Carrier.CONNECT, b"\x27\0\0\0\0", R.PROTOCOL_ERROR),
        (Carrier.CONNACK, b"\x24\x02", R.PROTOCOL_ERROR),
        (Carrier.CONNACK, b"\x25\x02", R.PROTOCOL_ERROR),
    ):
        data, hears_server = with_properties(carrier, raw)
        assert reason_for(data, hears_server=hears_server) is reason, raw


def test_a_client_names_no_subscription_in_what_it_publishes() -> None:
    """MQTT-3.3.4-6"""
    data, _ = with_properties(Carrier.PUBLISH, b"\x0b\1")
    assert reason_for(data) is R.PROTOCOL_ERROR
    assert Decoder(MAX, 5, hears_server=True).feed(data)


def test_reasons_that_a_packet_cannot_have() -> None:
    for data in (b"\x40\x03\0\1\x92", b"\x62\x03\0\1\x91", b"\xe0\x01\x8d", b"\xf0\x02\x00\0"):
        assert reason_for(data) is R.PROTOCOL_ERROR
    assert reason_for(b"\x20\x03\0\x8e\0", hears_server=True) is R.PROTOCOL_ERROR
    assert reason_for(b"\x20\x02\0\x06", 4, hears_server=True) is R.MALFORMED_PACKET
    assert reason_for(b"\x20\x03\2\0\0", hears_server=True) is R.MALFORMED_PACKET


# --- anything ---------------------------------------------------------------------------------------


@given(st.binary(max_size=200), st.sampled_from([0, 3, 4, 5]), st.booleans())
def test_any_bytes_are_packets_or_a_violation(data: bytes, level: int, hears_server: bool) -> None:
    _, reason = outcome(Decoder(1_000, level, hears_server=hears_server), data)
    assert reason is None or reason.is_failure


def mutated(chance: random.Random, data: bytes, others: list[bytes]) -> bytes:
    """One, two or three changes: a bit, a byte, some bytes less or more, the half of another packet."""
    changed = bytearray(data)
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(len(changed)) if changed else 0
        match chance.randrange(6):
            case 0 if changed:
                changed[at] ^= 1 << chance.randrange(8)
            case 1 if changed:
                changed[at] = chance.choice([0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)])
            case 2:
                del changed[at : at + chance.randint(1, 4)]
            case 3:
                changed[at:at] = chance.randbytes(chance.randint(1, 4))
            case 4:
                other = chance.choice(others)
                changed[at:] = other[chance.randrange(len(other)) :]
            case _:
                changed[at:at] = changed[at : at + chance.randint(1, 8)]
    return bytes(changed)


@pytest.mark.parametrize("hears_server", [False, True])
def test_q40_a_hundred_thousand_mutated_packets(hears_server: bool) -> None:
    chance = random.Random(40)
    of_level = {level: encoded(level, hears_server) for level in (4, 5)}
    whole = broken = 0
    for _ in range(MUTATED // 2):
        level = chance.choice((4, 5))
        data = mutated(chance, chance.choice(of_level[level]), of_level[level])
        # As a stranger's, or as a client's that was let in; and in two reads, as a net may cut it.
        decoder = Decoder(
            256, level if hears_server or data[:1] != b"\x10" else 0, hears_server=hears_server
        )
        try:
            cut = chance.randrange(len(data) + 1)
            decoder.feed(data[:cut])
            decoder.feed(data[cut:])
            whole += 1
        except Violation:
            broken += 1
        assert decoder.waiting_bytes <= 256 + len(data)
    assert whole > MUTATED // 20, "they are broken so badly that nothing behind the head is read"
    assert broken > MUTATED // 20


def test_the_same_bytes_are_the_same_packets_by_the_short_way_and_the_long_one() -> None:
    """A packet alone at the end of what was read goes the long way where it is at its bounds."""
    for level in (4, 5):
        for packet in of_client(level):
            data = encode(packet, level)
            alone = Decoder(MAX, level).feed(data)
            among = Decoder(MAX, level).feed(encode(Publish("q", b"1234567"), level) * 2 + data * 2)
            assert among[2:] == alone * 2
