"""Many PUBLISHes in one buffer: aliases that a client understands, nothing that is larger than it takes."""

from hypothesis import given
from hypothesis import strategies as st
from tests.wire.mqtt.any_packet import publishes

from moorline.core.mqtt.aliases import Aliases
from moorline.core.mqtt.packets import Packet, Properties, Publish
from moorline.wire.mqtt import Decoder, PublishWriter, encode

MAX = 1 << 20


def heard(data: bytes, aliases: Aliases) -> list[Publish]:
    """As a client that took so many aliases hears it."""
    packets: list[Packet] = Decoder(MAX, 5, hears_server=True).feed(data)
    return aliases.resolve([one for one in packets if isinstance(one, Publish)])


def without(some: list[Publish], dropped: list[Publish]) -> list[Publish]:
    return [one for one in some if not any(one is other for other in dropped)]


@given(
    st.lists(
        st.builds(
            Publish,
            st.sampled_from(["long/topic/1", "long/topic/2", "long/topic/3", "a"]),
            st.binary(max_size=40),
            st.integers(0, 2),
            packet_id=st.just(7),
        ),
        max_size=20,
    ),
    st.integers(0, 3),
    st.sampled_from([0, 20, 30, 40]),
)
def test_q15_what_is_written_with_aliases_is_what_was_said(
    some: list[Publish], aliases: int, most: int
) -> None:
    some = [Publish(one.topic, one.payload, one.qos, packet_id=7 if one.qos else 0) for one in some]
    writer = PublishWriter(5, most, aliases)
    data, dropped = writer.write(some)
    again, dropped_again = writer.write(some)
    client = Aliases(aliases)
    assert heard(data, client) == without(some, dropped)
    # What could not name its topic may fit once its alias is known; of two that are equal too.
    assert heard(again, client) == without(some, dropped_again)
    if most:
        for one in some:
            assert (one in dropped) <= (len(encode(one, 5)) > most)


def test_q15_a_topic_is_said_once_and_then_its_alias() -> None:
    writer = PublishWriter(5, topic_alias_max=1)
    first, second = Publish("plant/boiler/1", b"1"), Publish("plant/boiler/2", b"2")
    long, _ = writer.write([first])
    short, _ = writer.write([first])
    assert len(short) == len(long) - len("plant/boiler/1")
    # No alias is left: it is said in full.
    assert writer.write([second])[0] == encode(second, 5)
    # A topic that is shorter than an alias is not worth one.
    one = Publish("ab", b"")
    assert PublishWriter(5, topic_alias_max=9).write([one])[0] == encode(one, 5)


def test_q15_no_aliases_before_mqtt_5_nor_where_none_are_taken() -> None:
    one = Publish("plant/boiler/1", b"1")
    for writer in (PublishWriter(4, topic_alias_max=9), PublishWriter(5)):
        assert writer.write([one, one])[0] == encode(one, writer.level) * 2


@given(st.lists(publishes(5), max_size=6), st.integers(1, 200))
def test_q07_nothing_larger_than_the_client_takes_is_written(
    some: list[Publish], most: int
) -> None:
    """MQTT-3.1.2-24"""
    data, dropped = PublishWriter(5, most).write(some)
    fits = [one for one in some if len(encode(one, 5)) <= most]
    assert data == b"".join(encode(one, 5) for one in fits)
    assert dropped == [one for one in some if len(encode(one, 5)) > most]


def test_q07_at_each_length_around_one_and_two_bytes() -> None:
    for size in (110, 121, 122, 123, 124, 16_370, 16_380, 16_390):
        one = Publish("a", b"x" * size)
        whole = len(encode(one, 5))
        assert PublishWriter(5, whole).write([one]) == (encode(one, 5), [])
        assert PublishWriter(5, whole - 1).write([one]) == (b"", [one])


def test_properties_that_change_from_one_message_to_the_next() -> None:
    some = [
        Publish("a", b"x", 1, packet_id=1, properties=Properties(content_type=f"t{number % 2}"))
        for number in range(4)
    ]
    assert PublishWriter(5).write(some)[0] == b"".join(encode(one, 5) for one in some)
    # Before MQTT 5 there is no room for any.
    plain = [Publish("a", b"x", 1, packet_id=1)] * 4
    assert PublishWriter(4).write(some)[0] == PublishWriter(4).write(plain)[0]


def test_more_topics_than_are_remembered() -> None:
    some = [Publish(f"t/{number}", b"") for number in range(1_000)]
    writer = PublishWriter(5)
    data, _ = writer.write(some)
    assert Decoder(MAX, 5).feed(data) == some
    assert len(writer._names) <= 256
