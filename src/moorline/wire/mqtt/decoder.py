"""Room: wire/mqtt. Bytes to packets.

    packet  type and flags  byte    the type above, 4 bits of flags below
            length          varint  bytes that follow
            body            by its type (wire/mqtt/bodies.py)

A read mostly holds many short PUBLISHes or acknowledgements, and whole ones: those are made here, in one
loop, with no call for each but that of the packet itself. All others go by their type.
"""

from typing import Final

from moorline.core.mqtt.packets import MQTT_5, NONE, Connect, Packet, Properties, Puback, Publish
from moorline.core.mqtt.reason import ReasonCode, Violation
from moorline.limits import (
    MQTT_CONNECT_BYTES_MAX,
    MQTT_PROPERTIES_KNOWN_BYTES_MAX,
    MQTT_PROPERTIES_KNOWN_MAX,
    MQTT_TOPIC_KNOWN_BYTES_MAX,
    MQTT_TOPICS_KNOWN_MAX,
)
from moorline.wire.mqtt.bodies import OF_CLIENT, OF_SERVER, Body
from moorline.wire.mqtt.connect import UnknownVersion, decode_connect, decode_level
from moorline.wire.mqtt.fields import Fields, malformed, protocol_error, text_of
from moorline.wire.mqtt.properties import Carrier, decode_properties

_CONNECT: Final = 0x10
_PUBLISH: Final = 0x30
_PUBACK: Final = 0x40
_HEAD_BYTES_MAX: Final = 5

# (qos, retain, dup) by the four flags of a PUBLISH; None where there is no such (3.3.1).
_FLAGS: Final = tuple(
    None if qos == 3 or (dup and not qos) else (qos, bool(flags & 1), dup)
    for flags in range(16)
    for qos, dup in [((flags >> 1) & 3, bool(flags & 8))]
)


class Decoder:
    """One end's hearing."""

    __slots__ = (
        "_carrier",
        "_properties",
        "_tail",
        "_topics",
        "_types",
        "_wanted",
        "hears_server",
        "level",
        "packet_bytes_max",
    )

    def __init__(
        self, packet_bytes_max: int, level: int = 0, *, hears_server: bool = False
    ) -> None:
        self.packet_bytes_max = packet_bytes_max
        """Of a client's CONNECT `MQTT_CONNECT_BYTES_MAX`, if that is less: nobody knows it yet."""
        self.level = level
        """0 until a CONNECT came. One of a version that is not spoken here leaves the level that it is
        answered in."""
        self.hears_server = hears_server
        self._types = OF_SERVER if hears_server else OF_CLIENT
        self._carrier = Carrier.DELIVERED if hears_server else Carrier.PUBLISH
        self._tail = bytearray()
        self._wanted = 0
        self._topics: dict[bytes, str] = {}
        self._properties: dict[bytes, Properties] = {}

    @property
    def waiting_bytes(self) -> int:
        """Bytes held of a packet that is not whole yet."""
        return len(self._tail)

    def feed(self, data: bytes) -> list[Packet]:
        """All packets that are whole now. `Violation`, whose `before` has those that were whole before it."""
        tail = self._tail
        if tail:
            tail += data
            if len(tail) < self._wanted:
                return []
            data = bytes(tail)
            tail.clear()
        packets: list[Packet] = []
        at = 0
        try:
            while True:
                # By halves: the short way as far as it goes, then one packet of another kind.
                at = self._short(data, at, packets)
                stop = self._one(data, at, packets)
                if stop < 0:
                    break
                at = stop
        except Violation as violation:
            violation.before = packets
            raise
        if at < len(data):
            tail += memoryview(data)[at:]
        return packets

    def _short(self, data: bytes, at: int, packets: list[Packet]) -> int:
        """PUBLISHes and PUBACKs of less than 16 KiB that are whole; returns where another packet begins."""
        end, level = len(data), self.level
        if not level:
            return at
        bytes_max, topics, is_new = self.packet_bytes_max, self._topics, level == MQTT_5
        append, flags_of = packets.append, _FLAGS
        while end - at >= 4:
            first, size = data[at], data[at + 1]
            body = at + 2
            if size >= 0x80:
                high = data[body]
                if high >= 0x80 or not high:
                    return at
                size += (high << 7) - 0x80
                body += 1
            stop = body + size
            if stop > end or stop - at > bytes_max:
                return at
            if first == _PUBACK and size == 2:
                packet_id = data[body] << 8 | data[body + 1]
                if not packet_id:
                    raise protocol_error("packet id 0")
                append(Puback(packet_id))
                at = stop
                continue
            if first & 0xF0 != _PUBLISH or size < 2:
                return at
            flags = flags_of[first & 0x0F]
            place = body + 2 + (data[body] << 8 | data[body + 1])
            # The longest that stands before properties: a packet id and their length.
            if flags is None or place + 3 > stop:
                return at
            name = data[body + 2 : place]
            topic = topics.get(name)
            if topic is None:
                topic = self._topic(name)
            qos, retain, dup = flags
            packet_id = 0
            if qos:
                packet_id = data[place] << 8 | data[place + 1]
                if not packet_id:
                    raise protocol_error("packet id 0")
                place += 2
            properties = NONE
            if is_new:
                length = data[place]
                place += 1
                if length:
                    properties, place = self._known_properties(data, place - 1, stop)
            if not topic and properties.topic_alias is None:
                raise _no_topic(level)
            append(Publish(topic, data[place:stop], qos, retain, dup, packet_id, properties))
            at = stop
        return at

    def _one(self, data: bytes, at: int, packets: list[Packet]) -> int:
        """One packet of any kind; -1 if it is not whole."""
        end = len(data)
        if at == end:
            self._wanted = 0
            return -1
        first = data[at]
        # Before its bytes are waited for: what is no packet costs no memory.
        body = self._body_of(first)
        size = shift = 0
        place = at + 1
        while True:
            if place == end:
                self._wanted = place - at + 1
                return -1
            byte = data[place]
            place += 1
            size |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if place - at == _HEAD_BYTES_MAX:
                raise malformed("the remaining length has more than 4 bytes")
        if shift and not byte:
            raise malformed("the remaining length is longer than it must be")
        stop = place + size
        most = self.packet_bytes_max
        if not self.level:
            most = min(most, MQTT_CONNECT_BYTES_MAX)
        if stop - at > most:
            text = f"a packet of {stop - at} bytes; at most {most} are taken"
            raise Violation(ReasonCode.PACKET_TOO_LARGE, text)
        if stop > end:
            self._wanted = stop - at
            return -1
        fields = Fields(data, place, stop)
        if first & 0xF0 == _PUBLISH:
            packets.append(self._publish(first, fields))
        elif body is None:
            packets.append(self._connect(fields))
        else:
            packets.append(body(fields, self.level))
            fields.end()
        return stop

    def _body_of(self, first: int) -> Body | None:
        """How the body of that type is read; None for PUBLISH and CONNECT, which need more than the body."""
        if first & 0xF0 == _PUBLISH:
            if _FLAGS[first & 0x0F] is None:
                raise malformed("a PUBLISH of qos 3, or of qos 0 that is sent again")
            body = None
        elif first == _CONNECT and not self.hears_server:
            return None
        else:
            body = self._types.get(first)
            if body is None:
                raise self._no_such(first)
        if not self.level:
            raise protocol_error("the first packet is no CONNECT")
        return body

    def _no_such(self, first: int) -> Violation:
        if not self.level:
            return protocol_error("the first packet is no CONNECT")
        others = (OF_CLIENT if self.hears_server else OF_SERVER).keys() | {_CONNECT}
        if first in others:
            return protocol_error(f"packets of type {first >> 4} do not come from this end")
        return malformed(f"no packet begins with {first:#04x}")

    def _connect(self, fields: Fields) -> Connect:
        try:
            level, is_bridge = decode_level(fields)
        except UnknownVersion as error:
            self.level = self.level or error.answer_level
            raise
        # That of the first: a second one is a violation, which is answered as the first asked for. Set before
        # the rest is read, so that what is wrong there can be answered.
        self.level = self.level or level
        return decode_connect(fields, level, is_bridge)

    def _publish(self, first: int, fields: Fields) -> Publish:
        """Any PUBLISH: too long for the short way, or at its bounds."""
        flags = _FLAGS[first & 0x0F]
        assert flags is not None, "looked at when the packet began"
        qos, retain, dup = flags
        topic = self._topic(fields.binary("the topic"))
        packet_id = fields.packet_id() if qos else 0
        properties = decode_properties(fields, self._carrier) if self.level == MQTT_5 else NONE
        if not topic and properties.topic_alias is None:
            raise _no_topic(self.level)
        payload = fields.data[fields.at : fields.stop]
        return Publish(topic, payload, qos, retain, dup, packet_id, properties)

    def _topic(self, name: bytes) -> str:
        topic = self._topics.get(name)
        if topic is not None:
            return topic
        topic = text_of(name, "the topic")
        if "+" in topic or "#" in topic:
            raise Violation(ReasonCode.TOPIC_NAME_INVALID, "a topic has a wildcard")
        if len(name) <= MQTT_TOPIC_KNOWN_BYTES_MAX:
            if len(self._topics) == MQTT_TOPICS_KNOWN_MAX:
                self._topics.clear()
            self._topics[name] = topic
        return topic

    def _known_properties(self, data: bytes, at: int, stop: int) -> tuple[Properties, int]:
        """Those of a PUBLISH from their length on, and where the payload begins."""
        size = data[at]
        behind = at + 1 + size
        if size >= 0x80 or behind > stop or size > MQTT_PROPERTIES_KNOWN_BYTES_MAX:
            fields = Fields(data, at, stop)
            return decode_properties(fields, self._carrier), fields.at
        # Most publishers say the same of every message.
        raw = data[at:behind]
        known = self._properties.get(raw)
        if known is None:
            known = decode_properties(Fields(raw, 0, len(raw)), self._carrier)
            if len(self._properties) == MQTT_PROPERTIES_KNOWN_MAX:
                self._properties.clear()
            self._properties[raw] = known
        return known, behind


def _no_topic(level: int) -> Violation:
    text = "a PUBLISH without a topic"
    if level == MQTT_5:
        return protocol_error(f"{text} and without an alias")
    return malformed(text)
