"""Room: wire/mqtt. Packets to bytes.

data = encode(packet, level)              any packet
data = encode_acks(acks, level)           many at once; those that succeed take the short way
data, dropped = writer.write(publishes)   many PUBLISHes in one buffer (wire/mqtt/publish_writer.py)
"""

import struct
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from moorline.core.mqtt.effects import Ack
from moorline.core.mqtt.packets import (
    MQTT_5,
    NONE,
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
)
from moorline.core.mqtt.reason import ReasonCode
from moorline.wire.mqtt.connect import connect_body
from moorline.wire.mqtt.fields import text_bytes, u16_bytes, varint_bytes
from moorline.wire.mqtt.properties import encode_properties
from moorline.wire.mqtt.reasons import old_connack, old_suback

_FIRST: Final[dict[type[Ack], int]] = {
    Puback: 0x40,
    Pubrec: 0x50,
    Pubrel: 0x62,
    Pubcomp: 0x70,
}
_SHORT_ACK: Final = {kind: first << 24 | 2 << 16 for kind, first in _FIRST.items()}
"""The four bytes of one that succeeds, but for its packet id."""
_ALWAYS_TOLD: Final = (Connack, Publish, Disconnect, Connect, Auth)


def encode(
    packet: Packet, level: int, packet_bytes_max: int = 0, problem_information: bool = True
) -> bytes:
    """With a bound, reason strings and user properties that do not fit are left out (MQTT 5, 3.2.2.3.9 and
    the like); without `problem_information` they are left out of all but CONNACK, PUBLISH and DISCONNECT."""
    if not problem_information and not isinstance(packet, _ALWAYS_TOLD):
        packet = _without_words(packet)
    data = _encoded(packet, level)
    if packet_bytes_max and len(data) > packet_bytes_max and not isinstance(packet, Publish):
        # The user properties of the node's answers are words for people too: no client depends on them.
        data = _encoded(_without_words(packet), level)
    return data


def encode_acks(acks: Sequence[Ack], level: int) -> bytes:
    """In this order."""
    short = _SHORT_ACK
    # One call for all: mostly they have nothing to say but their packet ids.
    words = [
        short[type(ack)] | ack.packet_id
        for ack in acks
        if (not ack.reason and ack.properties is NONE) or level != MQTT_5
    ]
    if len(words) == len(acks):
        return struct.pack(f">{len(words)}I", *words)
    return b"".join(_ack(ack, level) for ack in acks)


def _without_words(packet: Packet) -> Packet:
    if isinstance(packet, Pingreq | Pingresp) or packet.properties is NONE:
        return packet
    properties = msgspec.structs.replace(packet.properties, reason_string=None, user=())
    return msgspec.structs.replace(packet, properties=NONE if properties == NONE else properties)


def _encoded(packet: Packet, level: int) -> bytes:
    first, body = _BODIES[type(packet)](packet, level)
    return b"".join((bytes((first,)), varint_bytes(len(body)), body))


def _ack(ack: Ack, level: int) -> bytes:
    return _encoded(ack, level)


def _properties(properties: Properties, level: int) -> bytes:
    return encode_properties(properties) if level == MQTT_5 else b""


def _reason_and_properties(reason: ReasonCode, properties: Properties, level: int) -> bytes:
    """Left out where it says nothing."""
    if level != MQTT_5 or (not reason and properties is NONE):
        return b""
    if properties is NONE:
        return bytes((reason,))
    return bytes((reason,)) + encode_properties(properties)


def _ack_body(ack: Ack, level: int) -> tuple[int, bytes]:
    rest = _reason_and_properties(ack.reason, ack.properties, level)
    return _FIRST[type(ack)], u16_bytes(ack.packet_id) + rest


def _connect(packet: Connect, _: int) -> tuple[int, bytes]:
    return 0x10, connect_body(packet)


def _connack(packet: Connack, level: int) -> tuple[int, bytes]:
    flags = int(packet.session_present)
    if level != MQTT_5:
        return 0x20, bytes((flags, old_connack(packet.reason)))
    return 0x20, bytes((flags, packet.reason)) + encode_properties(packet.properties)


def publish_first(packet: Publish) -> int:
    return 0x30 | packet.dup << 3 | packet.qos << 1 | packet.retain


def _publish(packet: Publish, level: int) -> tuple[int, bytes]:
    packet_id = u16_bytes(packet.packet_id) if packet.qos else b""
    properties = _properties(packet.properties, level)
    body = b"".join((text_bytes(packet.topic), packet_id, properties, packet.payload))
    return publish_first(packet), body


def _options(one: Subscription, level: int) -> int:
    if level != MQTT_5:
        return one.qos
    return one.qos | one.no_local << 2 | one.retain_as_published << 3 | one.retain_handling << 4


def _subscribe(packet: Subscribe, level: int) -> tuple[int, bytes]:
    parts = [u16_bytes(packet.packet_id), _properties(packet.properties, level)]
    for one in packet.subscriptions:
        parts += (text_bytes(one.filter), bytes((_options(one, level),)))
    return 0x82, b"".join(parts)


def _suback(packet: Suback, level: int) -> tuple[int, bytes]:
    codes = packet.reasons if level == MQTT_5 else map(old_suback, packet.reasons)
    properties = _properties(packet.properties, level)
    return 0x90, b"".join((u16_bytes(packet.packet_id), properties, bytes(codes)))


def _unsubscribe(packet: Unsubscribe, level: int) -> tuple[int, bytes]:
    head = u16_bytes(packet.packet_id) + _properties(packet.properties, level)
    return 0xA2, b"".join((head, *map(text_bytes, packet.filters)))


def _unsuback(packet: Unsuback, level: int) -> tuple[int, bytes]:
    if level != MQTT_5:
        return 0xB0, u16_bytes(packet.packet_id)
    head = u16_bytes(packet.packet_id) + encode_properties(packet.properties)
    return 0xB0, head + bytes(packet.reasons)


def _disconnect(packet: Disconnect, level: int) -> tuple[int, bytes]:
    return 0xE0, _reason_and_properties(packet.reason, packet.properties, level)


def _auth(packet: Auth, level: int) -> tuple[int, bytes]:
    assert level == MQTT_5, "AUTH came with MQTT 5"
    if not packet.reason and packet.properties is NONE:
        return 0xF0, b""
    return 0xF0, bytes((packet.reason,)) + encode_properties(packet.properties)


_BODIES: Final[dict[type[Packet], Callable[[Any, int], tuple[int, bytes]]]] = {
    Connect: _connect,
    Connack: _connack,
    Publish: _publish,
    Puback: _ack_body,
    Pubrec: _ack_body,
    Pubrel: _ack_body,
    Pubcomp: _ack_body,
    Subscribe: _subscribe,
    Suback: _suback,
    Unsubscribe: _unsubscribe,
    Unsuback: _unsuback,
    Pingreq: lambda _, __: (0xC0, b""),
    Pingresp: lambda _, __: (0xD0, b""),
    Disconnect: _disconnect,
    Auth: _auth,
}
