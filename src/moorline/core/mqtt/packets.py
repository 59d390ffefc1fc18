"""Room: core/mqtt. The packets of MQTT 5, 3.1.1 and 3.1, as values.

One struct for each of the 15 types, the same for all versions: what a version has no room for keeps its
default, and the codec (wire/mqtt) leaves it out. Reasons are always those of MQTT 5; the codec says them in
the codes of an older version.
"""

from typing import Final, TypeAlias

import msgspec

from moorline.core.mqtt.reason import ReasonCode

MQTT_3_1: Final = 3
MQTT_3_1_1: Final = 4
MQTT_5: Final = 5


class Properties(msgspec.Struct, frozen=True, gc=False):
    """The properties of one packet, or of a will (MQTT 5, 2.2.2); None is one that is not there.

    Which may stand in which packet is the codec's to know. `user` keeps order and duplicates.
    """

    payload_format: int | None = None
    message_expiry_s: int | None = None
    content_type: str | None = None
    response_topic: str | None = None
    correlation_data: bytes | None = None
    subscription_identifiers: tuple[int, ...] = ()
    session_expiry_s: int | None = None
    assigned_client_id: str | None = None
    server_keep_alive_s: int | None = None
    authentication_method: str | None = None
    authentication_data: bytes | None = None
    request_problem_information: int | None = None
    will_delay_s: int | None = None
    request_response_information: int | None = None
    response_information: str | None = None
    server_reference: str | None = None
    reason_string: str | None = None
    receive_max: int | None = None
    topic_alias_max: int | None = None
    topic_alias: int | None = None
    qos_max: int | None = None
    retain_available: int | None = None
    user: tuple[tuple[str, str], ...] = ()
    packet_bytes_max: int | None = None
    wildcards_available: int | None = None
    identifiers_available: int | None = None
    shared_available: int | None = None


NONE: Final = Properties()
"""A packet without any: the one object, so that `is` tells the common case."""


class Will(msgspec.Struct, frozen=True, gc=False):
    """What is published for a client that is lost."""

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    properties: Properties = NONE


class Connect(msgspec.Struct, frozen=True, gc=False):
    level: int
    """3, 4 or 5."""
    client_id: str
    clean_start: bool
    """"Clean session" before MQTT 5: then the session also ends with the connection."""
    keep_alive_s: int
    will: Will | None = None
    user_name: str | None = None
    password: bytes | None = None
    properties: Properties = NONE
    is_bridge: bool = False
    """The level was said as 0x83 or 0x84: a broker that does not want back what it sent."""

    @property
    def session_expiry_s(self) -> int:
        """How long the session outlives the connection; 0xFFFFFFFF is for ever."""
        if self.level == MQTT_5:
            return self.properties.session_expiry_s or 0
        return 0 if self.clean_start else 0xFFFF_FFFF


class Connack(msgspec.Struct, frozen=True, gc=False):
    reason: ReasonCode
    session_present: bool = False
    properties: Properties = NONE


class Publish(msgspec.Struct, frozen=True, gc=False):
    """`topic` is empty where an alias stands for it; `packet_id` is 0 at qos 0."""

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    dup: bool = False
    packet_id: int = 0
    properties: Properties = NONE


class Puback(msgspec.Struct, frozen=True, gc=False):
    packet_id: int
    reason: ReasonCode = ReasonCode.SUCCESS
    properties: Properties = NONE


class Pubrec(msgspec.Struct, frozen=True, gc=False):
    packet_id: int
    reason: ReasonCode = ReasonCode.SUCCESS
    properties: Properties = NONE


class Pubrel(msgspec.Struct, frozen=True, gc=False):
    packet_id: int
    reason: ReasonCode = ReasonCode.SUCCESS
    properties: Properties = NONE


class Pubcomp(msgspec.Struct, frozen=True, gc=False):
    packet_id: int
    reason: ReasonCode = ReasonCode.SUCCESS
    properties: Properties = NONE


class Subscription(msgspec.Struct, frozen=True, gc=False):
    """One filter of a SUBSCRIBE, with its options."""

    filter: str
    qos: int = 0
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: int = 0
    """0 sends what is retained, 1 only if the subscription is new, 2 never."""


class Subscribe(msgspec.Struct, frozen=True, gc=False):
    packet_id: int
    subscriptions: tuple[Subscription, ...]
    properties: Properties = NONE


class Suback(msgspec.Struct, frozen=True, gc=False):
    packet_id: int
    reasons: tuple[ReasonCode, ...]
    properties: Properties = NONE


class Unsubscribe(msgspec.Struct, frozen=True, gc=False):
    packet_id: int
    filters: tuple[str, ...]
    properties: Properties = NONE


class Unsuback(msgspec.Struct, frozen=True, gc=False):
    """Before MQTT 5 it has no reasons."""

    packet_id: int
    reasons: tuple[ReasonCode, ...] = ()
    properties: Properties = NONE


class Pingreq(msgspec.Struct, frozen=True, gc=False):
    pass


class Pingresp(msgspec.Struct, frozen=True, gc=False):
    pass


class Disconnect(msgspec.Struct, frozen=True, gc=False):
    reason: ReasonCode = ReasonCode.NORMAL_DISCONNECTION
    properties: Properties = NONE


class Auth(msgspec.Struct, frozen=True, gc=False):
    reason: ReasonCode = ReasonCode.SUCCESS
    properties: Properties = NONE


Packet: TypeAlias = (
    Connect
    | Connack
    | Publish
    | Puback
    | Pubrec
    | Pubrel
    | Pubcomp
    | Subscribe
    | Suback
    | Unsubscribe
    | Unsuback
    | Pingreq
    | Pingresp
    | Disconnect
    | Auth
)
