"""SUBSCRIBE and UNSUBSCRIBE against a real node: what changes, what goes on, and what is refused."""

import pytest
from tests.mqtt.conftest import Join
from tests.mqtt.wire_client import WireClient

from moorline.core.mqtt.packets import (
    Connack,
    Connect,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
)
from moorline.core.mqtt.reason import ReasonCode


def test_q22_a_filter_that_comes_again_loses_nothing_and_brings_what_is_retained(
    join: Join, name: str
) -> None:
    """MQTT-3.8.4-4: while it is replaced, again and again, messages flow."""
    reader, writer = join(), join()
    writer.publish(f"{name}/kept", b"kept", 1, retain=True)
    reader.subscribe(f"{name}/#")
    assert reader.message().payload == b"kept"
    count = 60
    for number in range(count):
        writer.publish(f"{name}/live", b"%d" % number, 1)
        if number % 6 == 0:
            again = Subscription(f"{name}/#", 1 + number % 2)
            reader.say(Subscribe(1_000 + number, (again,)))
    live: list[int] = []
    retained = 0
    while len(live) < count or retained < count // 6:
        found = reader.message()
        if found.qos == 2:
            reader.say(Pubrec(found.packet_id), Pubcomp(found.packet_id))
        if found.retain:
            retained += 1
        else:
            live.append(int(found.payload))
    assert live == list(range(count))
    assert retained == count // 6


@pytest.mark.parametrize("qos", [1, 2])
def test_q22_what_is_out_when_its_filter_is_left_is_completed(
    join: Join, name: str, qos: int
) -> None:
    """MQTT-3.10.4-3"""
    reader, writer = join(), join()
    reader.subscribe(name, qos=qos)
    writer.publish(name, b"x", qos)
    if qos == 2:
        writer.say(Pubrel(writer._ids))
    found = reader.hear(Publish)
    reader.say(Unsubscribe(9, (name,)))
    assert reader.hear(Unsuback).reasons == (ReasonCode.SUCCESS,)
    if qos == 1:
        reader.say(Puback(found.packet_id))
    else:
        reader.say(Pubrec(found.packet_id))
        assert reader.hear(Pubrel).reason is ReasonCode.SUCCESS
        reader.say(Pubcomp(found.packet_id))
    assert reader.is_silent(Publish)


def test_several_filters_are_left_by_one_packet_and_answered_in_their_order(
    join: Join, name: str
) -> None:
    """MQTT-3.10.4-6 and 3.11.3-1"""
    client = join()
    client.subscribe(f"{name}/a", f"{name}/c")
    client.say(Unsubscribe(7, (f"{name}/a", f"{name}/b", f"{name}/c", f"{name}/a")))
    said = client.hear(Unsuback)
    gone, none = ReasonCode.SUCCESS, ReasonCode.NO_SUBSCRIPTION_EXISTED
    assert (said.packet_id, said.reasons) == (7, (gone, none, gone, none))
    assert client.is_silent(Unsuback)


@pytest.mark.parametrize("prefix", ["$share", "$shared", "$queue"])
@pytest.mark.parametrize("rest", ["", "/", "/g", "/g/", "//t", "/g+/t", "/g#/t", "/+/t", "/#"])
def test_names_of_groups_that_are_none(join: Join, prefix: str, rest: str) -> None:
    """MQTT-4.8.2-1 and 4.8.2-2"""
    assert join().subscribe(prefix + rest).reasons == (ReasonCode.TOPIC_FILTER_INVALID,)


@pytest.mark.parametrize("granted", [0, 1, 2])
def test_the_qos_of_a_member_counts(join: Join, name: str, granted: int) -> None:
    """MQTT-4.8.2-3"""
    member, writer = join(), join()
    assert member.subscribe(f"$share/{name}/{name}", qos=granted).reasons == (granted,)
    for published in (0, 1, 2):
        writer.publish(name, b"%d" % published, published)
        found = member.hear(Publish)
        assert (int(found.payload), found.qos) == (published, min(granted, published))
        if found.qos == 1:
            member.say(Puback(found.packet_id))
        elif found.qos == 2:
            member.say(Pubrec(found.packet_id), Pubcomp(found.packet_id))


def test_q24_a_refused_filter_among_allowed_ones(join: Join, name: str, level: int) -> None:
    """The others are granted, and work."""
    client, writer = join(level=level), join()
    said = client.subscribe(f"{name}/a", "$share//x", f"{name}/b")
    refused = ReasonCode.TOPIC_FILTER_INVALID if level == 5 else ReasonCode.UNSPECIFIED_ERROR
    granted = ReasonCode.GRANTED_QOS_1
    assert said.reasons == (granted, refused, granted)
    for topic in ("a", "b"):
        writer.publish(f"{name}/{topic}", topic.encode(), 1)
    assert [client.message().payload for _ in range(2)] == [b"a", b"b"]


def test_q05_an_empty_id_without_clean_session(join: Join) -> None:
    """3.1.1 would have it refused; devices do it, and are served under an id of their own."""
    client = join(level=4, connects=False)
    client.name = ""
    said = client.connect(clean=False)
    assert (said.reason, said.session_present) == (ReasonCode.SUCCESS, False)
    client.subscribe("t/empty-id")
    client.publish("t/empty-id", b"x", 1)
    assert client.message().payload == b"x"


def test_q15_an_alias_that_is_used_again_behind_a_reconnect(join: Join, name: str) -> None:
    """Those of the last connection mean nothing: who forgets that is told, and the next try works."""
    reader = join()
    reader.subscribe(f"{name}/#")
    client = join(name)
    assert client.publish(f"{name}/a", b"1", 1, topic_alias=3) is ReasonCode.SUCCESS
    assert client.publish("", b"2", 1, topic_alias=3) is ReasonCode.SUCCESS
    client.socket.close()
    again = join(name)
    from moorline.core.mqtt.packets import Disconnect, Properties

    again.say(Publish("", b"lost", 1, packet_id=1, properties=Properties(topic_alias=3)))
    assert again.hear(Disconnect).reason is ReasonCode.PROTOCOL_ERROR
    assert again.is_closed()
    third = join(name)
    assert third.publish(f"{name}/b", b"3", 1, topic_alias=3) is ReasonCode.SUCCESS
    assert third.publish("", b"4", 1, topic_alias=3) is ReasonCode.SUCCESS
    assert [reader.message().payload for _ in range(4)] == [b"1", b"2", b"3", b"4"]


def test_8000_subscribes_of_a_lasting_session_are_there_behind_a_reconnect(
    join: Join, name: str
) -> None:
    count = 8_000

    def subscribed(client: WireClient) -> None:
        client.say(*(Subscribe(n + 1, (Subscription(f"{name}/{n}", 1),)) for n in range(count)))
        assert [client.hear(Suback).packet_id for _ in range(count)] == list(range(1, count + 1))

    first = join(name, clean=False, expiry_s=600)
    subscribed(first)
    first.socket.close()
    again = join(name, connects=False)
    assert again.connect(clean=False, expiry_s=600).session_present
    # As such clients do: all of them once more.
    subscribed(again)
    writer = join()
    for number in (0, 4_000, count - 1):
        writer.publish(f"{name}/{number}", b"x", 1)
        assert again.message().topic == f"{name}/{number}"


@pytest.mark.parametrize("level", [3, 4])
def test_a_bridge_does_not_hear_itself_and_hears_what_is_retained_as_such(
    join: Join, name: str, level: int
) -> None:
    """Protocol levels 0x83 and 0x84: what a broker passed on here would go around for ever."""
    bridge, writer = join(level=level, connects=False), join()
    bridge.say(Connect(level, bridge.name, True, 0, is_bridge=True))
    assert bridge.hear(Connack).reason is ReasonCode.SUCCESS
    bridge.subscribe(f"{name}/#")
    assert bridge.publish(f"{name}/1", b"its own", 1) is ReasonCode.SUCCESS
    writer.publish(f"{name}/2", b"kept", 1, retain=True)
    found = bridge.message()
    assert (found.payload, found.retain) == (b"kept", True)
    other = join()
    other.subscribe(f"{name}/#")
    assert other.message().payload == b"kept"
