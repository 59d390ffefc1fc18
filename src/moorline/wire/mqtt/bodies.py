"""Room: wire/mqtt. The bodies of all packets but CONNECT and PUBLISH, read by their first byte.

    PUBACK, PUBREC, PUBREL, PUBCOMP   packet id, [reason, [properties]]
    SUBSCRIBE                         packet id, properties, (filter, options) …
    SUBACK, UNSUBACK                  packet id, properties, reason …
    UNSUBSCRIBE                       packet id, properties, filter …
    CONNACK                           flags, reason, properties
    DISCONNECT, AUTH                  [reason, [properties]]

Before MQTT 5 there are neither properties nor, but for CONNACK and SUBACK, reasons. Options of a filter: 48
retain handling, 8 retain as published, 4 no local, 3 qos.
"""

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from moorline.core.mqtt.packets import (
    MQTT_5,
    NONE,
    Auth,
    Connack,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Properties,
    Puback,
    Pubcomp,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
)
from moorline.core.mqtt.reason import ReasonCode, Violation
from moorline.limits import MQTT_FILTERS_PER_PACKET_MAX
from moorline.wire.mqtt import reasons
from moorline.wire.mqtt.fields import Fields, malformed, protocol_error
from moorline.wire.mqtt.properties import Carrier, decode_properties

Body: TypeAlias = Callable[[Fields, int], Packet]
_SHARED: Final = ("$share/", "$shared/", "$queue/")
_Reasons: TypeAlias = dict[int, ReasonCode]


def _reason_and_properties(
    fields: Fields, level: int, among: _Reasons, carrier: Carrier
) -> tuple[ReasonCode, Properties]:
    """What stands at the end of a packet that succeeds mostly: left out, if there is nothing to say."""
    if level != MQTT_5 or fields.at == fields.stop:
        return ReasonCode.SUCCESS, NONE
    reason = reasons.reason_of(fields.byte("the reason"), among, carrier.name or "")
    if fields.at == fields.stop:
        return reason, NONE
    return reason, decode_properties(fields, carrier)


def _puback(fields: Fields, level: int) -> Puback:
    packet_id = fields.packet_id()
    return Puback(packet_id, *_reason_and_properties(fields, level, reasons.STORED, Carrier.PUBACK))


def _pubrec(fields: Fields, level: int) -> Pubrec:
    packet_id = fields.packet_id()
    return Pubrec(packet_id, *_reason_and_properties(fields, level, reasons.STORED, Carrier.PUBREC))


def _pubrel(fields: Fields, level: int) -> Pubrel:
    packet_id = fields.packet_id()
    return Pubrel(
        packet_id, *_reason_and_properties(fields, level, reasons.RELEASED, Carrier.PUBREL)
    )


def _pubcomp(fields: Fields, level: int) -> Pubcomp:
    packet_id = fields.packet_id()
    return Pubcomp(
        packet_id, *_reason_and_properties(fields, level, reasons.RELEASED, Carrier.PUBCOMP)
    )


def _properties(fields: Fields, level: int, carrier: Carrier) -> Properties:
    return decode_properties(fields, carrier) if level == MQTT_5 else NONE


def _filter(fields: Fields) -> str:
    text = fields.text("a filter")
    if not text:
        raise Violation(ReasonCode.TOPIC_FILTER_INVALID, "a filter is empty")
    return text


def _check_count(count: int) -> None:
    if count == MQTT_FILTERS_PER_PACKET_MAX:
        text = f"more than {MQTT_FILTERS_PER_PACKET_MAX} filters in one packet"
        raise Violation(ReasonCode.QUOTA_EXCEEDED, text)


def _subscribe(fields: Fields, level: int) -> Subscribe:
    packet_id = fields.packet_id()
    properties = _properties(fields, level, Carrier.SUBSCRIBE)
    found: list[Subscription] = []
    while fields.at < fields.stop:
        _check_count(len(found))
        text = _filter(fields)
        found.append(_subscription(text, fields.byte("the options of a filter"), level))
    if not found:
        raise protocol_error("a SUBSCRIBE without a filter")
    return Subscribe(packet_id, tuple(found), properties)


def _subscription(text: str, options: int, level: int) -> Subscription:
    qos, handling = options & 3, options >> 4 & 3
    if options & (0xC0 if level == MQTT_5 else 0xFC):
        raise malformed("reserved options of a filter are set")
    if qos == 3 or handling == 3:
        raise protocol_error("an option of a filter is 3")
    no_local = bool(options & 4)
    if no_local and text.startswith(_SHARED):
        raise protocol_error("no local is not for shared subscriptions")
    return Subscription(text, qos, no_local, bool(options & 8), handling)


def _unsubscribe(fields: Fields, level: int) -> Unsubscribe:
    packet_id = fields.packet_id()
    properties = _properties(fields, level, Carrier.UNSUBSCRIBE)
    found: list[str] = []
    while fields.at < fields.stop:
        _check_count(len(found))
        found.append(_filter(fields))
    if not found:
        raise protocol_error("an UNSUBSCRIBE without a filter")
    return Unsubscribe(packet_id, tuple(found), properties)


def _rest(fields: Fields) -> bytes:
    at, fields.at = fields.at, fields.stop
    return fields.data[at : fields.stop]


def _suback(fields: Fields, level: int) -> Suback:
    packet_id = fields.packet_id()
    properties = _properties(fields, level, Carrier.SUBACK)
    codes = _rest(fields)
    if level != MQTT_5:
        return Suback(packet_id, tuple(map(reasons.suback_of_old, codes)))
    said = tuple(reasons.reason_of(code, reasons.SUBSCRIBED, "SUBACK") for code in codes)
    return Suback(packet_id, said, properties)


def _unsuback(fields: Fields, level: int) -> Unsuback:
    packet_id = fields.packet_id()
    if level != MQTT_5:
        return Unsuback(packet_id)
    properties = decode_properties(fields, Carrier.UNSUBACK)
    codes = _rest(fields)
    said = tuple(reasons.reason_of(code, reasons.UNSUBSCRIBED, "UNSUBACK") for code in codes)
    return Unsuback(packet_id, said, properties)


def _connack(fields: Fields, level: int) -> Connack:
    flags = fields.byte("the flags of CONNACK")
    if flags > 1:
        raise malformed("reserved flags of CONNACK are set")
    code = fields.byte("the reason")
    if level != MQTT_5:
        return Connack(reasons.connack_of_old(code), bool(flags))
    reason = reasons.reason_of(code, reasons.CONNECTED, "CONNACK")
    return Connack(reason, bool(flags), decode_properties(fields, Carrier.CONNACK))


def _pingreq(_: Fields, __: int) -> Pingreq:
    return Pingreq()


def _pingresp(_: Fields, __: int) -> Pingresp:
    return Pingresp()


def _goodbye(fields: Fields, level: int) -> Disconnect:
    return Disconnect(*_reason_and_properties(fields, level, reasons.GOODBYES, Carrier.DISCONNECT))


def _dismissal(fields: Fields, level: int) -> Disconnect:
    found = _reason_and_properties(fields, level, reasons.DISMISSED, Carrier.DISCONNECT)
    return Disconnect(*found)


def _proof(fields: Fields, level: int) -> Auth:
    return _auth(fields, level, reasons.PROOFS)


def _challenge(fields: Fields, level: int) -> Auth:
    return _auth(fields, level, reasons.CHALLENGES)


def _auth(fields: Fields, level: int, among: _Reasons) -> Auth:
    if level != MQTT_5:
        raise malformed("AUTH came with MQTT 5")
    if fields.at == fields.stop:
        return Auth(reasons.reason_of(0, among, "AUTH"))
    reason = reasons.reason_of(fields.byte("the reason"), among, "AUTH")
    return Auth(reason, decode_properties(fields, Carrier.AUTH))


_BOTH: Final[Mapping[int, Body]] = {0x40: _puback, 0x50: _pubrec, 0x62: _pubrel, 0x70: _pubcomp}
OF_CLIENT: Final[Mapping[int, Body]] = {
    **_BOTH,
    0x82: _subscribe,
    0xA2: _unsubscribe,
    0xC0: _pingreq,
    0xE0: _goodbye,
    0xF0: _proof,
}
"""By the first byte: the type, and the flags that it must have (2.1.3)."""
OF_SERVER: Final[Mapping[int, Body]] = {
    **_BOTH,
    0x20: _connack,
    0x90: _suback,
    0xB0: _unsuback,
    0xD0: _pingresp,
    0xE0: _dismissal,
    0xF0: _challenge,
}
