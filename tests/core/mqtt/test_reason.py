"""Reason codes have the numbers and the names of the standard, and a violation says one of them."""

from moorline.core.mqtt.reason import CONNACK_REASONS, DISMISSALS, ReasonCode, Violation
from moorline.errors import MoorlineError, WireError


def test_names_that_share_a_number_are_one_code() -> None:
    assert len({ReasonCode.GRANTED_QOS_0, ReasonCode.SUCCESS, ReasonCode.NORMAL_DISCONNECTION}) == 1
    assert ReasonCode(0x9C) is ReasonCode.USE_ANOTHER_SERVER
    assert ReasonCode(0xA2) is ReasonCode.WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED
    assert len(ReasonCode) == 43


def test_failures_begin_at_0x80() -> None:
    assert not ReasonCode.RE_AUTHENTICATE.is_failure
    assert ReasonCode.UNSPECIFIED_ERROR.is_failure


def test_what_a_server_may_say_at_a_refusal_and_at_an_end() -> None:
    assert ReasonCode.BANNED in CONNACK_REASONS - DISMISSALS
    assert ReasonCode.SESSION_TAKEN_OVER in DISMISSALS - CONNACK_REASONS
    assert ReasonCode.DISCONNECT_WITH_WILL_MESSAGE not in DISMISSALS


def test_a_violation_is_the_peers_mistake_and_keeps_what_was_good() -> None:
    violation = Violation(ReasonCode.PROTOCOL_ERROR, "twice", before=[1])
    assert isinstance(violation, WireError | MoorlineError)
    assert str(violation) == "PROTOCOL_ERROR: twice"
    assert violation.before == [1]
