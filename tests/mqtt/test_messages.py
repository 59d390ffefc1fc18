"""Messages in and out, by clients over plain sockets, against a real node."""

import pytest
from tests.mqtt.conftest import Join
from tests.process.nodes import NodeProcess

import moorline
from moorline.core.mqtt.packets import (
    MQTT_5,
    Connack,
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Subscription,
    Unsuback,
    Unsubscribe,
)
from moorline.core.mqtt.reason import ReasonCode


def test_a_message_of_each_qos_comes_as_the_lower_of_both(
    join: Join, name: str, level: int
) -> None:
    """Q10."""
    for granted in (0, 1, 2):
        reader, writer = join(level=level), join(level=level)
        assert reader.subscribe(f"{name}/{granted}", qos=granted).reasons == (granted,)
        for published in (0, 1, 2):
            writer.publish(f"{name}/{granted}", b"%d" % published, published)
            if published == 2:
                writer.say(Pubrel(writer._ids))
                assert writer.hear(Pubcomp).reason is ReasonCode.SUCCESS
            found = reader.hear(Publish)
            assert (found.payload, found.qos) == (b"%d" % published, min(granted, published))
            if found.qos == 1:
                reader.say(Puback(found.packet_id))
            if found.qos == 2:
                reader.say(Pubrec(found.packet_id))
                assert reader.hear(Pubrel).packet_id == found.packet_id
                reader.say(Pubcomp(found.packet_id))


def test_messages_of_a_topic_come_in_their_order(join: Join, name: str, level: int) -> None:
    """Q10."""
    reader, writer = join(level=level), join(level=level)
    reader.subscribe(name)
    count = 500
    writer.say(*(Publish(name, b"%d" % n, 1, packet_id=n + 1) for n in range(count)))
    assert [writer.hear(Puback).packet_id for _ in range(count)] == list(range(1, count + 1))
    assert [int(reader.message().payload) for _ in range(count)] == list(range(count))


def test_a_ping_is_answered(join: Join, level: int) -> None:
    client = join(level=level)
    client.say(Pingreq())
    client.hear(Pingresp)


def test_a_filter_that_is_left_lets_nothing_through(join: Join, name: str) -> None:
    reader, writer = join(), join()
    reader.subscribe(f"{name}/#")
    reader.say(Unsubscribe(9, (f"{name}/#", "never/subscribed")))
    said = reader.hear(Unsuback)
    assert said.reasons == (ReasonCode.SUCCESS, ReasonCode.NO_SUBSCRIPTION_EXISTED)
    writer.publish(f"{name}/a", b"x", 1)
    assert reader.is_silent(Publish)


def test_a_message_that_several_filters_match_comes_once_with_all_their_identifiers(
    join: Join, name: str
) -> None:
    """Q20."""
    reader, writer = join(), join()
    reader.subscribe(f"{name}/#", qos=0, subscription_identifiers=(7,))
    reader.subscribe(f"{name}/+", qos=1, subscription_identifiers=(8,))
    reader.subscribe(f"{name}/other", qos=2, subscription_identifiers=(9,))
    writer.publish(f"{name}/a", b"x", 1)
    found = reader.message()
    assert (found.qos, sorted(found.properties.subscription_identifiers)) == (1, [7, 8])
    assert reader.is_silent(Publish)


def test_what_a_client_published_itself_does_not_come_where_it_wants_no_local(
    join: Join, name: str
) -> None:
    """Q21."""
    client, other = join(), join()
    client.subscribe(Subscription(f"{name}/#", 1, no_local=True))
    client.publish(f"{name}/own", b"own", 1)
    other.publish(f"{name}/foreign", b"foreign", 1)
    assert client.message().payload == b"foreign"
    assert client.is_silent(Publish)


def test_a_new_filter_does_not_bring_what_was_there_before_it(join: Join, name: str) -> None:
    reader, writer = join(), join()
    reader.subscribe(f"{name}/slow")
    writer.publish(f"{name}/slow", b"1", 1)
    writer.publish(f"{name}/late", b"before", 1)
    reader.hear(Publish)  # not acknowledged: the client's place stands before `late`
    reader.subscribe(f"{name}/late")
    writer.publish(f"{name}/late", b"behind", 1)
    assert reader.message().payload == b"behind"
    assert reader.is_silent(Publish)


async def test_properties_arrive_unchanged_also_at_a_native_reader(
    node: NodeProcess, join: Join, name: str
) -> None:
    """Q17."""
    reader, writer = join(), join()
    reader.subscribe(name)
    user = (("b", "1"), ("a", "2"), ("b", "3"), ("mqtt.qos", "mine"), ("user.mqtt.x", "too"))
    moor = await moorline.connect(node.address)
    try:
        native = await moor.subscribe(name)
        writer.publish(
            name,
            b"payload",
            1,
            payload_format=1,
            content_type="text/plain",
            response_topic="reply/here",
            correlation_data=b"\x00\x01",
            message_expiry_s=600,
            user=user,
        )
        found = reader.message().properties
        assert (found.payload_format, found.content_type) == (1, "text/plain")
        assert (found.response_topic, found.correlation_data) == ("reply/here", b"\x00\x01")
        assert found.user == user
        assert found.message_expiry_s is not None
        assert 590 <= found.message_expiry_s <= 600
        message = await anext(aiter(native))
        assert message.body == b"payload"
        names = [header for header, _ in message.headers]
        assert names[:4] == [
            "mqtt.payload-format",
            "mqtt.content-type",
            "mqtt.response-topic",
            "mqtt.correlation-data",
        ]
        assert names[4:] == ["b", "a", "b", "user.mqtt.qos", "user.user.mqtt.x"]
    finally:
        await moor.close()


def test_a_topic_that_is_none_is_refused_and_the_connection_stays(join: Join) -> None:
    client = join()
    assert client.publish("$SYS/broker/version", b"x", 1) is ReasonCode.NOT_AUTHORIZED
    assert client.publish("t/" * 40 + "t", b"x", 1) is ReasonCode.TOPIC_NAME_INVALID
    assert client.publish("$share/g/t", b"x", 1) is ReasonCode.TOPIC_NAME_INVALID
    assert client.publish("fine", b"x", 1) is ReasonCode.SUCCESS


def test_a_filter_that_is_none_is_refused_among_others(join: Join, name: str) -> None:
    client = join()
    said = client.subscribe(f"{name}/a", "$share//x", f"{name}/b")
    assert said.reasons == (
        ReasonCode.GRANTED_QOS_1,
        ReasonCode.TOPIC_FILTER_INVALID,
        ReasonCode.GRANTED_QOS_1,
    )


def test_a_client_that_says_no_more_than_its_receive_maximum_is_sent_no_more(
    join: Join, name: str
) -> None:
    """Q07."""
    reader, writer = join(receive_max=3), join()
    reader.subscribe(name)
    for number in range(10):
        writer.publish(name, b"%d" % number, 1)
    first = [reader.hear(Publish) for _ in range(3)]
    assert reader.is_silent(Publish)
    for one in first:
        reader.say(Puback(one.packet_id))
    rest = [int(reader.message().payload) for _ in range(7)]
    assert rest == list(range(3, 10))


def test_8000_subscribes_at_a_start_are_answered_in_order(join: Join, name: str) -> None:
    from moorline.core.mqtt.packets import Suback, Subscribe

    client, writer = join(), join()
    count = 8_000
    client.say(*(Subscribe(n + 1, (Subscription(f"{name}/{n}", 1),)) for n in range(count)))
    assert [client.hear(Suback).packet_id for _ in range(count)] == list(range(1, count + 1))
    writer.publish(f"{name}/7999", b"x", 1)
    assert client.message().topic == f"{name}/7999"


@pytest.mark.parametrize("wanted", [b"\x10\x00", b"\xc0\x00", b"GET / HTTP/1.1\r\n\r\n"])
def test_whoever_does_not_begin_with_connect_is_cut(join: Join, wanted: bytes) -> None:
    client = join(connects=False)
    client.socket.sendall(wanted)
    assert client.is_closed()


def test_an_empty_client_id_is_given_one(join: Join) -> None:
    """Q05."""
    client = join(connects=False)
    client.name = ""
    said: Connack = client.connect()
    assert said.reason is ReasonCode.SUCCESS
    assert said.properties.assigned_client_id


def test_versions_share_their_messages(join: Join, name: str) -> None:
    old, new = join(level=4), join(level=MQTT_5)
    old.subscribe(name)
    new.subscribe(name)
    old.publish(name, b"old", 1)
    assert (old.message().payload, new.message().payload) == (b"old", b"old")


def test_a_body_that_is_too_large_is_refused_with_a_reason_that_puback_has(
    join: Join, name: str
) -> None:
    client = join()
    for qos in (1, 2):
        said = client.publish(name, bytes(300 * 1_024), qos)
        assert said is ReasonCode.QUOTA_EXCEEDED
    assert client.publish(name, b"small", 1) is ReasonCode.SUCCESS


def test_packets_of_thousands_of_filters_are_answered_in_order(join: Join, name: str) -> None:
    from moorline.core.mqtt.packets import Suback, Subscribe, Unsuback, Unsubscribe

    client, count = join(), 4_000
    client.say(
        *(
            Subscribe(of + 1, tuple(Subscription(f"{name}/{of}/{n}", 1) for n in range(count)))
            for of in range(2)
        ),
        *(Unsubscribe(of + 3, tuple(f"{name}/{of}/{n}" for n in range(count))) for of in range(2)),
        Subscribe(5, (Subscription(name, 1),)),
    )
    for packet_id in (1, 2):
        subscribed = client.hear(Suback)
        assert subscribed.packet_id == packet_id
        assert subscribed.reasons == (ReasonCode.GRANTED_QOS_1,) * count
    for packet_id in (3, 4):
        left = client.hear(Unsuback)
        assert left.packet_id == packet_id
        assert left.reasons == (ReasonCode.SUCCESS,) * count
    assert client.hear(Suback).packet_id == 5
