"""Room: core/mqtt. The reason codes of MQTT 5 (2.4), by the standard's names.

Some numbers have several names, one for each packet that they stand in: the first is the enum's own, the
others are aliases. 0x80 and above are failures.
"""

from collections.abc import Sequence
from enum import IntEnum
from typing import Any, Final

from moorline.errors import WireError


class ReasonCode(IntEnum):
    SUCCESS = 0x00
    NORMAL_DISCONNECTION = 0x00
    GRANTED_QOS_0 = 0x00
    GRANTED_QOS_1 = 0x01
    GRANTED_QOS_2 = 0x02
    DISCONNECT_WITH_WILL_MESSAGE = 0x04
    NO_MATCHING_SUBSCRIBERS = 0x10
    NO_SUBSCRIPTION_EXISTED = 0x11
    CONTINUE_AUTHENTICATION = 0x18
    RE_AUTHENTICATE = 0x19
    UNSPECIFIED_ERROR = 0x80
    MALFORMED_PACKET = 0x81
    PROTOCOL_ERROR = 0x82
    IMPLEMENTATION_SPECIFIC_ERROR = 0x83
    UNSUPPORTED_PROTOCOL_VERSION = 0x84
    CLIENT_IDENTIFIER_NOT_VALID = 0x85
    BAD_USER_NAME_OR_PASSWORD = 0x86
    NOT_AUTHORIZED = 0x87
    SERVER_UNAVAILABLE = 0x88
    SERVER_BUSY = 0x89
    BANNED = 0x8A
    SERVER_SHUTTING_DOWN = 0x8B
    BAD_AUTHENTICATION_METHOD = 0x8C
    KEEP_ALIVE_TIMEOUT = 0x8D
    SESSION_TAKEN_OVER = 0x8E
    TOPIC_FILTER_INVALID = 0x8F
    TOPIC_NAME_INVALID = 0x90
    PACKET_IDENTIFIER_IN_USE = 0x91
    PACKET_IDENTIFIER_NOT_FOUND = 0x92
    RECEIVE_MAXIMUM_EXCEEDED = 0x93
    TOPIC_ALIAS_INVALID = 0x94
    PACKET_TOO_LARGE = 0x95
    MESSAGE_RATE_TOO_HIGH = 0x96
    QUOTA_EXCEEDED = 0x97
    ADMINISTRATIVE_ACTION = 0x98
    PAYLOAD_FORMAT_INVALID = 0x99
    RETAIN_NOT_SUPPORTED = 0x9A
    QOS_NOT_SUPPORTED = 0x9B
    USE_ANOTHER_SERVER = 0x9C
    SERVER_MOVED = 0x9D
    SHARED_SUBSCRIPTIONS_NOT_SUPPORTED = 0x9E
    CONNECTION_RATE_EXCEEDED = 0x9F
    MAXIMUM_CONNECT_TIME = 0xA0
    SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED = 0xA1
    WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED = 0xA2

    @property
    def is_failure(self) -> bool:
        return self >= 0x80


R = ReasonCode
CONNACK_REASONS: Final = frozenset(
    {
        R.SUCCESS,
        *(R(code) for code in range(R.UNSPECIFIED_ERROR, R.BANNED + 1)),
        R.BAD_AUTHENTICATION_METHOD,
        R.TOPIC_NAME_INVALID,
        R.PACKET_TOO_LARGE,
        R.QUOTA_EXCEEDED,
        R.PAYLOAD_FORMAT_INVALID,
        R.RETAIN_NOT_SUPPORTED,
        R.QOS_NOT_SUPPORTED,
        R.USE_ANOTHER_SERVER,
        R.SERVER_MOVED,
        R.CONNECTION_RATE_EXCEEDED,
    }
)
"""What CONNACK may say (3.2.2.2)."""

DISMISSALS: Final = frozenset(
    {
        R.NORMAL_DISCONNECTION,
        *(R(code) for code in range(R.UNSPECIFIED_ERROR, R.IMPLEMENTATION_SPECIFIC_ERROR + 1)),
        R.NOT_AUTHORIZED,
        R.SERVER_BUSY,
        R.SERVER_SHUTTING_DOWN,
        *(R(code) for code in range(R.KEEP_ALIVE_TIMEOUT, R.TOPIC_NAME_INVALID + 1)),
        *(
            R(code)
            for code in range(
                R.RECEIVE_MAXIMUM_EXCEEDED, R.WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED + 1
            )
        ),
    }
)
"""What DISCONNECT of a server may say (3.14.2.1)."""


class Violation(WireError):
    """What ends a connection: the client broke the protocol, or one of the bounds that it was told.

    `before` is what was whole, and good, in the same bytes: it was said before the mistake, and counts.
    """

    def __init__(self, reason: ReasonCode, text: str, before: Sequence[Any] = ()) -> None:
        super().__init__(f"{reason.name}: {text}")
        self.reason = reason
        self.text = text
        self.before = list(before)
