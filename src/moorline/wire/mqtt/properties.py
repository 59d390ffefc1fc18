"""Room: wire/mqtt. The properties of MQTT 5 (2.2.2): their numbers, types, and where they stand."""

from collections.abc import Callable
from enum import IntFlag
from typing import Any, Final, NamedTuple

from moorline.core.mqtt.packets import NONE, Properties
from moorline.core.mqtt.reason import ReasonCode, Violation
from moorline.limits import MQTT_USER_PROPERTIES_MAX
from moorline.wire.mqtt.fields import (
    Fields,
    binary_bytes,
    malformed,
    protocol_error,
    text_bytes,
    u16_bytes,
    u32_bytes,
    varint_bytes,
)


class Carrier(IntFlag):
    """What carries properties. A PUBLISH of a server may have what that of a client may not."""

    CONNECT = 1
    CONNACK = 2
    PUBLISH = 4
    PUBACK = 8
    PUBREC = 16
    PUBREL = 32
    PUBCOMP = 64
    SUBSCRIBE = 128
    SUBACK = 256
    UNSUBSCRIBE = 512
    UNSUBACK = 1024
    DISCONNECT = 2048
    AUTH = 4096
    WILL = 8192
    DELIVERED = 16384
    """A PUBLISH of a server."""


P = Carrier
_ACKS = P.PUBACK | P.PUBREC | P.PUBREL | P.PUBCOMP | P.SUBACK | P.UNSUBACK
_MESSAGES = P.PUBLISH | P.DELIVERED | P.WILL
_EVERYWHERE = Carrier((1 << 15) - 1)


class _Kind(NamedTuple):
    read: Callable[[Fields, str], Any]
    write: Callable[[Any], bytes]
    fault: Callable[[Any], bool]
    """Whether a value breaks the protocol."""


def _pair(fields: Fields, what: str) -> tuple[str, str]:
    return fields.text(what), fields.text(what)


def _pair_bytes(pair: tuple[str, str]) -> bytes:
    return text_bytes(pair[0]) + text_bytes(pair[1])


def _is_fine(_: Any) -> bool:
    return False


def _is_zero(number: int) -> bool:
    return not number


def _is_no_flag(number: int) -> bool:
    return number > 1


_FLAG: Final = _Kind(Fields.byte, lambda number: bytes((number,)), _is_no_flag)
_U16: Final = _Kind(Fields.u16, u16_bytes, _is_fine)
_U16_ABOVE_0: Final = _Kind(Fields.u16, u16_bytes, _is_zero)
_U32: Final = _Kind(Fields.u32, u32_bytes, _is_fine)
_U32_ABOVE_0: Final = _Kind(Fields.u32, u32_bytes, _is_zero)
_VARINT_ABOVE_0: Final = _Kind(Fields.varint, varint_bytes, _is_zero)
_TEXT: Final = _Kind(Fields.text, text_bytes, _is_fine)
_TOPIC: Final = _Kind(Fields.text, text_bytes, lambda text: not text or "+" in text or "#" in text)
_BINARY: Final = _Kind(Fields.binary, binary_bytes, _is_fine)
_PAIR: Final = _Kind(_pair, _pair_bytes, _is_fine)


class Property(NamedTuple):
    number: int
    name: str
    kind: _Kind
    carriers: Carrier
    repeats: Carrier = Carrier(0)
    """Where it may stand more than once."""


TABLE: Final = (
    Property(0x01, "payload_format", _FLAG, _MESSAGES),
    Property(0x02, "message_expiry_s", _U32, _MESSAGES),
    Property(0x03, "content_type", _TEXT, _MESSAGES),
    Property(0x08, "response_topic", _TOPIC, _MESSAGES),
    Property(0x09, "correlation_data", _BINARY, _MESSAGES),
    Property(
        0x0B,
        "subscription_identifiers",
        _VARINT_ABOVE_0,
        P.DELIVERED | P.SUBSCRIBE,
        P.DELIVERED,
    ),
    Property(0x11, "session_expiry_s", _U32, P.CONNECT | P.CONNACK | P.DISCONNECT),
    Property(0x12, "assigned_client_id", _TEXT, P.CONNACK),
    Property(0x13, "server_keep_alive_s", _U16, P.CONNACK),
    Property(0x15, "authentication_method", _TEXT, P.CONNECT | P.CONNACK | P.AUTH),
    Property(0x16, "authentication_data", _BINARY, P.CONNECT | P.CONNACK | P.AUTH),
    Property(0x17, "request_problem_information", _FLAG, P.CONNECT),
    Property(0x18, "will_delay_s", _U32, P.WILL),
    Property(0x19, "request_response_information", _FLAG, P.CONNECT),
    Property(0x1A, "response_information", _TEXT, P.CONNACK),
    Property(0x1C, "server_reference", _TEXT, P.CONNACK | P.DISCONNECT),
    Property(0x1F, "reason_string", _TEXT, P.CONNACK | _ACKS | P.DISCONNECT | P.AUTH),
    Property(0x21, "receive_max", _U16_ABOVE_0, P.CONNECT | P.CONNACK),
    Property(0x22, "topic_alias_max", _U16, P.CONNECT | P.CONNACK),
    Property(0x23, "topic_alias", _U16_ABOVE_0, P.PUBLISH | P.DELIVERED),
    Property(0x24, "qos_max", _FLAG, P.CONNACK),
    Property(0x25, "retain_available", _FLAG, P.CONNACK),
    Property(0x26, "user", _PAIR, _EVERYWHERE, _EVERYWHERE),
    Property(0x27, "packet_bytes_max", _U32_ABOVE_0, P.CONNECT | P.CONNACK),
    Property(0x28, "wildcards_available", _FLAG, P.CONNACK),
    Property(0x29, "identifiers_available", _FLAG, P.CONNACK),
    Property(0x2A, "shared_available", _FLAG, P.CONNACK),
)
_BY_NUMBER: Final = {one.number: one for one in TABLE}
_OF_MESSAGES: Final = tuple(one for one in TABLE if one.carriers & P.DELIVERED)
_LISTS: Final = frozenset({"user", "subscription_identifiers"})


def decode_properties(fields: Fields, carrier: Carrier) -> Properties:
    """The length, and all that it counts."""
    size = fields.varint("the length of properties")
    if not size:
        return NONE
    stop = fields.take(size, "properties") + size
    inner = Fields(fields.data, stop - size, stop)
    found: dict[str, Any] = {}
    while inner.at < stop:
        # Every number that is known has one byte; the type is a varint nonetheless.
        number = inner.varint("a property")
        one = _BY_NUMBER.get(number)
        if one is None:
            raise malformed(f"no property has the number {number:#x}")
        if not one.carriers & carrier:
            raise protocol_error(f"{one.name} does not belong here")
        value = one.kind.read(inner, one.name)
        if one.kind.fault(value):
            reason = ReasonCode.PROTOCOL_ERROR
            if one.name == "topic_alias":
                reason = ReasonCode.TOPIC_ALIAS_INVALID
            raise Violation(reason, f"{one.name} cannot be {value!r}")
        if one.name in _LISTS:
            _add_to_list(found.setdefault(one.name, []), value, one, carrier)
        elif one.name in found:
            raise protocol_error(f"{one.name} stands there twice")
        else:
            found[one.name] = value
    for name in _LISTS & found.keys():
        found[name] = tuple(found[name])
    return Properties(**found)


def _add_to_list(values: list[Any], value: Any, one: Property, carrier: Carrier) -> None:
    if values and not one.repeats & carrier:
        raise protocol_error(f"{one.name} stands there twice")
    if len(values) == MQTT_USER_PROPERTIES_MAX:
        text = f"more than {MQTT_USER_PROPERTIES_MAX} properties of one kind"
        raise Violation(ReasonCode.QUOTA_EXCEEDED, text)
    values.append(value)


def encode_properties(properties: Properties) -> bytes:
    """The length, and those that are there; in the order of their numbers."""
    return _encoded(properties, TABLE) if properties is not NONE else b"\0"


def encode_message_properties(properties: Properties) -> bytes:
    """The same for those of a PUBLISH, without a look at what only other packets have."""
    return _encoded(properties, _OF_MESSAGES)


def _encoded(properties: Properties, table: tuple[Property, ...]) -> bytes:
    parts: list[bytes] = []
    for number, name, kind, _, _ in table:
        value = getattr(properties, name)
        if value is None or value == ():
            continue
        # A number below 0x80 is a varint of one byte.
        mark = bytes((number,))
        values = value if name in _LISTS else (value,)
        for one in values:
            parts += (mark, kind.write(one))
    inner = b"".join(parts)
    return varint_bytes(len(inner)) + inner
