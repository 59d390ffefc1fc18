"""Room: mqtt. A PUBLISH as a message of a stream, and back: properties as headers that everybody can read.

    mqtt.qos                 2, where it is 2; 0 is a flag of the frame
    mqtt.payload-format      1, where it is 1
    mqtt.content-type        as text
    mqtt.response-topic      as text
    mqtt.correlation-data    as bytes
    anything else            a user property, in its place; a name that would be one of ours, or one that is
                             kept so already, has `user.` before it

Headers of native publishers are user properties of an MQTT client, if they are text.
"""

import re
from typing import Final

from moorline.core.frames.frame import decode_headers, encode_headers
from moorline.core.mqtt.packets import NONE, Properties, Publish
from moorline.errors import Malformed

QOS: Final = "mqtt.qos"
PAYLOAD_FORMAT: Final = "mqtt.payload-format"
CONTENT_TYPE: Final = "mqtt.content-type"
RESPONSE_TOPIC: Final = "mqtt.response-topic"
CORRELATION_DATA: Final = "mqtt.correlation-data"

_NEEDS_PREFIX: Final = re.compile(r"(?:user\.)*mqtt\.")
_PREFIX: Final = "user."
_TEXT_MAX: Final = 16_383
"""Characters of a string of MQTT: each has up to four of its 65,535 bytes."""
_TOPIC: Final = re.compile(rf"[^+#\0]{{1,{_TEXT_MAX}}}")
"""What may be answered to (3.3.2.3.5); another one is left out: a client would cut the connection for it."""


def headers_of(publish: Publish) -> bytes:
    """Encoded as they are stored; empty for most messages."""
    properties = publish.properties
    if properties is NONE and publish.qos < 2:
        return b""
    headers: list[tuple[str, bytes]] = []
    if publish.qos == 2:
        headers.append((QOS, b"2"))
    if properties.payload_format:
        headers.append((PAYLOAD_FORMAT, b"1"))
    if properties.content_type is not None:
        headers.append((CONTENT_TYPE, properties.content_type.encode()))
    if properties.response_topic is not None:
        headers.append((RESPONSE_TOPIC, properties.response_topic.encode()))
    if properties.correlation_data is not None:
        headers.append((CORRELATION_DATA, properties.correlation_data))
    headers += [
        (_PREFIX + name if _NEEDS_PREFIX.match(name) else name, value.encode())
        for name, value in properties.user
    ]
    return encode_headers(headers)


def properties_of(headers: bytes) -> tuple[Properties, int]:
    """What an MQTT client gets of stored headers, and the QoS that they name; 1 where they name none."""
    if not headers:
        return NONE, 1
    try:
        pairs = decode_headers(headers)
    except Malformed:
        return NONE, 1  # stored by whoever sent bytes in place of headers
    qos, known, user = 1, dict[str, object](), list[tuple[str, str]]()
    for name, value in pairs:
        match name:
            case "mqtt.qos":
                qos = 2 if value == b"2" else 1
            case "mqtt.payload-format":
                known["payload_format"] = 1
            case "mqtt.correlation-data":
                known["correlation_data"] = value
            case "mqtt.content-type":
                known["content_type"] = _text(value.decode(errors="replace"))
            case "mqtt.response-topic":
                topic = value.decode(errors="replace")
                if _TOPIC.fullmatch(topic):
                    known["response_topic"] = topic
            case _:
                if _NEEDS_PREFIX.match(name):
                    name = name.removeprefix(_PREFIX)
                user.append((_text(name), _text(value.decode(errors="replace"))))
    if not known and not user:
        return NONE, qos
    return Properties(**known, user=tuple(user)), qos  # type: ignore[arg-type]


def _text(text: str) -> str:
    """What a string of MQTT may be (1.5.4): a native publisher may have put anything there."""
    return text.replace("\0", "�")[:_TEXT_MAX]
