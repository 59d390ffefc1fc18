"""Room: wire/mqtt. PUBLISHes to bytes: many in one buffer, with topic aliases, within what the client takes.

A topic gets an alias the first time that it is sent, as long as there are any left; an alias that was given
is never another topic's (MQTT 5 would allow it), so that a packet that is dropped leaves nothing to mend:
its alias is given with the next one.
"""

import struct
from collections.abc import Sequence
from typing import Final

import msgspec

from moorline.core.mqtt.packets import MQTT_5, NONE, Properties, Publish
from moorline.limits import MQTT_TOPIC_KNOWN_BYTES_MAX, MQTT_TOPICS_KNOWN_MAX
from moorline.wire.mqtt.encoder import encode, publish_first
from moorline.wire.mqtt.fields import text_bytes
from moorline.wire.mqtt.properties import encode_message_properties

_HEAD: Final = struct.Struct(">BB")
_LONG_HEAD: Final = struct.Struct(">BBB")
_ID: Final = struct.Struct(">H")
_ID_AND_NOTHING: Final = struct.Struct(">Hx")
_ALIAS_WORTH_BYTES: Final = 4
"""Shorter topics are shorter than the property that stands for them."""


class PublishWriter:
    """Of one connection: it has the aliases that the client knows."""

    __slots__ = (
        "_aliases",
        "_last",
        "_last_bytes",
        "_names",
        "level",
        "packet_bytes_max",
        "topic_alias_max",
    )

    def __init__(self, level: int, packet_bytes_max: int = 0, topic_alias_max: int = 0) -> None:
        """`packet_bytes_max` and `topic_alias_max` are what the client takes; 0 is no bound, and none."""
        self.level = level
        self.packet_bytes_max = packet_bytes_max or 1 << 32
        self.topic_alias_max = topic_alias_max if level == MQTT_5 else 0
        self._aliases: dict[str, int] = {}
        self._names: dict[str, bytes] = {}
        # Messages of one block often have the very same properties.
        self._last: Properties = NONE
        self._last_bytes = b"\0"

    def write(self, publishes: Sequence[Publish]) -> tuple[bytes, list[Publish]]:
        """One buffer for all, and those that are larger than the client takes."""
        if self.topic_alias_max:
            return self._write_with_aliases(publishes)
        parts: list[bytes] = []
        add, names = parts.append, self._names
        head, id_and_nothing, bytes_max = (
            _HEAD.pack,
            (_ID_AND_NOTHING if self.level == MQTT_5 else _ID).pack,
            self.packet_bytes_max,
        )
        nothing = b"\0" if self.level == MQTT_5 else b""
        dropped: list[Publish] = []
        for one in publishes:
            topic, payload, qos = one.topic, one.payload, one.qos
            name = names.get(topic)
            if name is None:
                name = self._name(topic)
            if one.properties is NONE or not nothing:
                middle = id_and_nothing(one.packet_id) if qos else nothing
            else:
                middle = self._middle(one)
            size = len(name) + len(middle) + len(payload)
            if size + 2 > bytes_max or size >= 0x4000:
                self._write_rare(one, parts, dropped)
                continue
            first = 0x30 | qos << 1
            if one.dup or one.retain:
                first = publish_first(one)
            if size < 0x80:
                add(head(first, size))
            elif size + 3 > bytes_max:
                dropped.append(one)
                continue
            else:
                add(_LONG_HEAD.pack(first, size & 0x7F | 0x80, size >> 7))
            add(name)
            add(middle)
            add(payload)
        return b"".join(parts), dropped

    def _write_rare(self, one: Publish, parts: list[bytes], dropped: list[Publish]) -> bool:
        """A long one, or too long."""
        # Counted before it is copied.
        if len(one.payload) > self.packet_bytes_max:
            dropped.append(one)
            return False
        data = encode(one, self.level)
        if len(data) > self.packet_bytes_max:
            dropped.append(one)
            return False
        parts.append(data)
        return True

    def _write_with_aliases(self, publishes: Sequence[Publish]) -> tuple[bytes, list[Publish]]:
        parts: list[bytes] = []
        dropped: list[Publish] = []
        aliases = self._aliases
        for one in publishes:
            topic = one.topic
            alias = aliases.get(topic)
            if alias is None and (
                len(topic) < _ALIAS_WORTH_BYTES or len(aliases) == self.topic_alias_max
            ):
                self._write_rare(one, parts, dropped)
                continue
            number = alias or len(aliases) + 1
            properties = msgspec.structs.replace(one.properties, topic_alias=number)
            told = msgspec.structs.replace(
                one, topic=topic if alias is None else "", properties=properties
            )
            written: list[Publish] = []
            if self._write_rare(told, parts, written):
                aliases[topic] = number
            elif alias is not None or not self._write_rare(one, parts, []):
                # It may fit without the property that gives the alias.
                dropped.append(one)
        return b"".join(parts), dropped

    def _middle(self, one: Publish) -> bytes:
        if one.properties is not self._last:
            self._last_bytes = encode_message_properties(one.properties)
            self._last = one.properties
        return _ID.pack(one.packet_id) + self._last_bytes if one.qos else self._last_bytes

    def _name(self, topic: str) -> bytes:
        name = text_bytes(topic)
        if len(name) <= MQTT_TOPIC_KNOWN_BYTES_MAX:
            if len(self._names) == MQTT_TOPICS_KNOWN_MAX:
                self._names.clear()
            self._names[topic] = name
        return name
