"""A packet of every type in every version, as bytes: what fuzzing begins with."""

from moorline.core.mqtt.packets import (
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Properties,
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
    Will,
)
from moorline.core.mqtt.reason import ReasonCode
from moorline.wire.mqtt import encode

WORDS = Properties(reason_string="because", user=(("a", "1"), ("a", "1"), ("b", "2")))
MESSAGE = Properties(
    payload_format=1,
    message_expiry_s=60,
    content_type="text/plain",
    response_topic="answers/1",
    correlation_data=b"\0\1",
    user=(("a", "1"), ("a", "2")),
)


def of_client(level: int) -> list[Packet]:
    will = Will("wills/1", b"gone", 1, True)
    packets: list[Packet] = [
        Connect(level, "id", True, 30),
        Connect(level, "id", False, 0, will, "user", b"password"),
        Publish("a/b", b"payload"),
        Publish("a/b", b"payload", 1, True, True, 7),
        Publish("a/b", b"x" * 200, 2, False, False, 65_535),
        Puback(1),
        Pubrec(2),
        Pubrel(3),
        Pubcomp(4),
        Subscribe(5, (Subscription("a/#", 1), Subscription("+/b", 2))),
        Unsubscribe(6, ("a/#", "+/b")),
        Pingreq(),
        Disconnect(),
    ]
    if level == 5:
        packets += [
            Connect(
                5,
                "id",
                False,
                0,
                Will("wills/1", b"gone", 2, False, Properties(will_delay_s=5, content_type="x")),
                None,
                b"password",
                Properties(
                    session_expiry_s=60,
                    receive_max=10,
                    topic_alias_max=4,
                    authentication_method="M",
                    authentication_data=b"d",
                    user=(("a", "1"),),
                ),
            ),
            Publish("a/b", b"payload", 1, False, False, 9, MESSAGE),
            Publish("a/b", b"payload", 0, False, False, 0, Properties(topic_alias=1)),
            Puback(1, ReasonCode.NOT_AUTHORIZED, WORDS),
            Pubrel(3, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND),
            Subscribe(
                5,
                (Subscription("a/#", 2, True, True, 2),),
                Properties(subscription_identifiers=(200,)),
            ),
            Disconnect(ReasonCode.DISCONNECT_WITH_WILL_MESSAGE, Properties(session_expiry_s=0)),
            Auth(ReasonCode.RE_AUTHENTICATE, Properties(authentication_method="M")),
        ]
    return packets


def of_server(level: int) -> list[Packet]:
    packets: list[Packet] = [
        Connack(ReasonCode.SUCCESS, True),
        Connack(ReasonCode.BAD_USER_NAME_OR_PASSWORD),
        Suback(5, (ReasonCode.GRANTED_QOS_1, ReasonCode.UNSPECIFIED_ERROR)),
        Unsuback(6, (ReasonCode.SUCCESS,) if level == 5 else ()),
        Pingresp(),
        Publish("a/b", b"payload", 2, False, True, 8),
        Pubcomp(4),
    ]
    if level == 5:
        packets += [
            Connack(ReasonCode.SUCCESS, False, Properties(assigned_client_id="x", qos_max=1)),
            Publish("a/b", b"", 1, True, False, 8, Properties(subscription_identifiers=(1, 200))),
            Disconnect(ReasonCode.SESSION_TAKEN_OVER, WORDS),
            Auth(ReasonCode.CONTINUE_AUTHENTICATION, Properties(authentication_method="M")),
        ]
    return packets


def encoded(level: int, hears_server: bool = False) -> list[bytes]:
    packets = of_server(level) if hears_server else of_client(level)
    return [encode(packet, level) for packet in packets]
