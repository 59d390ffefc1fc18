"""Room: wire/mqtt. Which reasons may stand in which packet (2.4), and what older versions say for them."""

from typing import Final

from moorline.core.mqtt.reason import CONNACK_REASONS, DISMISSALS
from moorline.core.mqtt.reason import ReasonCode as R
from moorline.wire.mqtt.fields import malformed, protocol_error

_STORING = (
    R.SUCCESS,
    R.NO_MATCHING_SUBSCRIBERS,
    R.UNSPECIFIED_ERROR,
    R.IMPLEMENTATION_SPECIFIC_ERROR,
    R.NOT_AUTHORIZED,
    R.TOPIC_NAME_INVALID,
    R.PACKET_IDENTIFIER_IN_USE,
    R.QUOTA_EXCEEDED,
    R.PAYLOAD_FORMAT_INVALID,
)


def _table(*codes: R) -> dict[int, R]:
    return {int(code): code for code in codes}


STORED: Final = _table(*_STORING)
"""Of PUBACK and PUBREC."""
RELEASED: Final = _table(R.SUCCESS, R.PACKET_IDENTIFIER_NOT_FOUND)
"""Of PUBREL and PUBCOMP."""
CONNECTED: Final = _table(*CONNACK_REASONS)
SUBSCRIBED: Final = _table(
    R.GRANTED_QOS_0,
    R.GRANTED_QOS_1,
    R.GRANTED_QOS_2,
    R.UNSPECIFIED_ERROR,
    R.IMPLEMENTATION_SPECIFIC_ERROR,
    R.NOT_AUTHORIZED,
    R.TOPIC_FILTER_INVALID,
    R.PACKET_IDENTIFIER_IN_USE,
    R.QUOTA_EXCEEDED,
    R.SHARED_SUBSCRIPTIONS_NOT_SUPPORTED,
    R.SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED,
    R.WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED,
)
UNSUBSCRIBED: Final = _table(
    R.SUCCESS,
    R.NO_SUBSCRIPTION_EXISTED,
    R.UNSPECIFIED_ERROR,
    R.IMPLEMENTATION_SPECIFIC_ERROR,
    R.NOT_AUTHORIZED,
    R.TOPIC_FILTER_INVALID,
    R.PACKET_IDENTIFIER_IN_USE,
)
GOODBYES: Final = _table(
    R.NORMAL_DISCONNECTION,
    R.DISCONNECT_WITH_WILL_MESSAGE,
    R.UNSPECIFIED_ERROR,
    R.MALFORMED_PACKET,
    R.PROTOCOL_ERROR,
    R.IMPLEMENTATION_SPECIFIC_ERROR,
    R.TOPIC_NAME_INVALID,
    R.RECEIVE_MAXIMUM_EXCEEDED,
    R.TOPIC_ALIAS_INVALID,
    R.PACKET_TOO_LARGE,
    R.MESSAGE_RATE_TOO_HIGH,
    R.QUOTA_EXCEEDED,
    R.ADMINISTRATIVE_ACTION,
    R.PAYLOAD_FORMAT_INVALID,
)
"""Of a DISCONNECT of a client."""
DISMISSED: Final = _table(*DISMISSALS)
"""Of a DISCONNECT of a server."""
PROOFS: Final = _table(R.CONTINUE_AUTHENTICATION, R.RE_AUTHENTICATE)
"""Of an AUTH of a client."""
CHALLENGES: Final = _table(R.SUCCESS, R.CONTINUE_AUTHENTICATION)
"""Of an AUTH of a server."""


def reason_of(code: int, among: dict[int, R], what: str) -> R:
    reason = among.get(code)
    if reason is None:
        raise protocol_error(f"{what} has no reason {code:#x}")
    return reason


# --- before MQTT 5 --------------------------------------------------------------------------------

_OLD_CONNACK: Final = {
    R.SUCCESS: 0,
    R.UNSUPPORTED_PROTOCOL_VERSION: 1,
    R.CLIENT_IDENTIFIER_NOT_VALID: 2,
    R.BAD_USER_NAME_OR_PASSWORD: 4,
    R.BAD_AUTHENTICATION_METHOD: 4,
    R.NOT_AUTHORIZED: 5,
    R.BANNED: 5,
}
_SERVER_UNAVAILABLE: Final = 3
_OLD_REFUSED: Final = 0x80
_NEW_CONNACK: Final = {
    0: R.SUCCESS,
    1: R.UNSUPPORTED_PROTOCOL_VERSION,
    2: R.CLIENT_IDENTIFIER_NOT_VALID,
    3: R.SERVER_UNAVAILABLE,
    4: R.BAD_USER_NAME_OR_PASSWORD,
    5: R.NOT_AUTHORIZED,
}
_NEW_SUBACK: Final = _table(R.GRANTED_QOS_0, R.GRANTED_QOS_1, R.GRANTED_QOS_2, R.UNSPECIFIED_ERROR)


def old_connack(reason: R) -> int:
    """The return code of 3.1.1 (3.2.2.3) that is nearest: what it has no word for is "unavailable"."""
    return _OLD_CONNACK.get(reason, _SERVER_UNAVAILABLE)


def connack_of_old(code: int) -> R:
    reason = _NEW_CONNACK.get(code)
    if reason is None:
        raise malformed(f"no return code {code}")
    return reason


def old_suback(reason: R) -> int:
    return _OLD_REFUSED if reason.is_failure else int(reason)


def suback_of_old(code: int) -> R:
    return reason_of(code, _NEW_SUBACK, "SUBACK")
