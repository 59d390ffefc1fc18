"""Room: wire/mqtt. CONNECT (3.1), of all versions, with the levels that bridges say.

name     text    "MQTT", or "MQIsdp" before 3.1.1
level    byte    3, 4, 5; + 0x80 for a bridge, at 3 and 4
flags    byte    128 user name, 64 password, 32 will retain, 24 will qos, 4 will, 2 clean start
keep     u16     seconds
then     [properties], client id, [will properties], [will topic, will payload], [user name], [password]
"""

from typing import Final

from moorline.core.mqtt.packets import MQTT_3_1, MQTT_3_1_1, MQTT_5, NONE, Connect, Will
from moorline.core.mqtt.reason import ReasonCode, Violation
from moorline.wire.mqtt.fields import (
    Fields,
    binary_bytes,
    malformed,
    protocol_error,
    text_bytes,
    u16_bytes,
)
from moorline.wire.mqtt.properties import Carrier, decode_properties, encode_properties

BRIDGE: Final = 0x80
_NAMES: Final = {"MQTT": (MQTT_3_1_1, MQTT_5), "MQIsdp": (MQTT_3_1,)}

_CLEAN: Final = 2
_WILL: Final = 4
_WILL_QOS: Final = 24
_WILL_RETAIN: Final = 32
_PASSWORD: Final = 64
_USER_NAME: Final = 128


class UnknownVersion(Violation):
    """`answer_level` is the version that is nearest to what the client speaks: it is told so in that."""

    def __init__(self, answer_level: int, text: str) -> None:
        super().__init__(ReasonCode.UNSUPPORTED_PROTOCOL_VERSION, text)
        self.answer_level = answer_level


def decode_connect(fields: Fields, level: int, is_bridge: bool) -> Connect:
    """What follows the level (`decode_level`)."""
    flags = fields.byte("the connect flags")
    _check_flags(flags, level)
    keep_alive_s = fields.u16("keep alive")
    properties = decode_properties(fields, Carrier.CONNECT) if level == MQTT_5 else NONE
    if properties.authentication_data is not None and properties.authentication_method is None:
        raise protocol_error("authentication data without a method")
    client_id = fields.text("the client id")
    will = _will(fields, flags, level) if flags & _WILL else None
    user_name = fields.text("the user name") if flags & _USER_NAME else None
    password = fields.binary("the password") if flags & _PASSWORD else None
    fields.end()
    clean_start = bool(flags & _CLEAN)
    return Connect(
        level,
        client_id,
        clean_start,
        keep_alive_s,
        will,
        user_name,
        password,
        properties,
        is_bridge,
    )


def decode_level(fields: Fields) -> tuple[int, bool]:
    """The version, and whether a bridge says so. `UnknownVersion` for one that is not spoken here."""
    name = fields.text("the protocol's name")
    said = fields.byte("the protocol's level")
    if name not in _NAMES:
        raise UnknownVersion(MQTT_5, f"{name[:16]!r} is no protocol that is spoken here")
    level, is_bridge = said, False
    if said in (BRIDGE | MQTT_3_1, BRIDGE | MQTT_3_1_1):
        level, is_bridge = said & ~BRIDGE, True
    if level not in _NAMES[name]:
        answer = MQTT_5 if said > MQTT_3_1_1 and not said & BRIDGE else MQTT_3_1_1
        raise UnknownVersion(answer, f"level {said} of {name} is not spoken here")
    return level, is_bridge


def _check_flags(flags: int, level: int) -> None:
    if flags & 1:
        raise malformed("the reserved connect flag is set")
    if not flags & _WILL and flags & (_WILL_QOS | _WILL_RETAIN):
        raise malformed("flags of a will, and no will")
    if flags & _WILL_QOS == _WILL_QOS:
        raise malformed("a will of qos 3")
    if level != MQTT_5 and flags & _PASSWORD and not flags & _USER_NAME:
        raise malformed("a password without a user name")


def _will(fields: Fields, flags: int, level: int) -> Will:
    properties = decode_properties(fields, Carrier.WILL) if level == MQTT_5 else NONE
    topic = fields.text("the will's topic")
    if not topic or "+" in topic or "#" in topic:
        raise Violation(
            ReasonCode.TOPIC_NAME_INVALID, "the will's topic is empty or has a wildcard"
        )
    payload = fields.binary("the will's payload")
    return Will(topic, payload, (flags & _WILL_QOS) >> 3, bool(flags & _WILL_RETAIN), properties)


def connect_body(connect: Connect) -> bytes:
    """Everything behind the fixed header."""
    level, will = connect.level, connect.will
    name = next(name for name, levels in _NAMES.items() if level in levels)
    flags = _CLEAN * connect.clean_start
    flags |= _USER_NAME * (connect.user_name is not None) | _PASSWORD * (
        connect.password is not None
    )
    if will is not None:
        flags |= _WILL | will.qos << 3 | _WILL_RETAIN * will.retain
    said = level | BRIDGE * connect.is_bridge
    parts = [text_bytes(name), bytes((said, flags)), u16_bytes(connect.keep_alive_s)]
    if level == MQTT_5:
        parts.append(encode_properties(connect.properties))
    parts.append(text_bytes(connect.client_id))
    if will is not None:
        if level == MQTT_5:
            parts.append(encode_properties(will.properties))
        parts += (text_bytes(will.topic), binary_bytes(will.payload))
    if connect.user_name is not None:
        parts.append(text_bytes(connect.user_name))
    if connect.password is not None:
        parts.append(binary_bytes(connect.password))
    return b"".join(parts)
