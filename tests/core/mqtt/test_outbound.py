"""What a client gets: packet ids, windows, exchanges, and what comes again."""

import pytest

from moorline.core.mqtt.effects import (
    Ack,
    ForgetSent,
    KeepReleased,
    KeepSent,
    MessagePosition,
    MessagesDone,
    MessagesFailed,
    SayAcks,
    SayPublishes,
    Sent,
)
from moorline.core.mqtt.outbound import NO_FEED, PACKET_ID_MAX, Outbound, Outgoing
from moorline.core.mqtt.packets import Properties, Puback, Pubcomp, Publish, Pubrec, Pubrel
from moorline.core.mqtt.reason import ReasonCode, Violation
from moorline.core.stream import Shard

SHARD = Shard("home", 0)
FAILED = ReasonCode.UNSPECIFIED_ERROR


def position(offset: int) -> MessagePosition:
    return MessagePosition("", SHARD, offset)


def message(offset: int, qos: int, feed: int = 1, expires_at_ms: int = 0) -> Outgoing:
    return Outgoing(position(offset), feed, "t", b"x", qos, expires_at_ms=expires_at_ms)


def publish(qos: int, packet_id: int = 0, dup: bool = False) -> Publish:
    return Publish("t", b"x", qos, False, dup, packet_id)


def outbound(receive_max: int = 10, window: int = 100) -> Outbound:
    one = Outbound(window)
    assert one.connected(receive_max) == []
    return one


def test_qos_0_is_done_when_it_is_said() -> None:
    one = outbound()
    assert one.deliver([message(3, 0)], 0) == [
        SayPublishes([publish(0)]),
        MessagesDone([(1, 3)]),
    ]
    assert one.room == 10


def test_qos_1_is_done_when_it_is_acknowledged() -> None:
    one = outbound()
    assert one.deliver([message(3, 1)], 0) == [SayPublishes([publish(1, 1)])]
    assert one.room == 9
    assert one.answered([Puback(1)]) == [MessagesDone([(1, 3)])]
    assert one.room == 10
    # Said twice: nothing more is done by it.
    assert one.answered([Puback(1)]) == []
    one.check()


def test_q12_qos_2_is_kept_before_each_step_that_the_client_builds_on() -> None:
    one = outbound()
    assert one.deliver([message(3, 2)], 0) == [KeepSent([Sent(1, position(3), 2)])]
    assert one.kept([1]) == [SayPublishes([publish(2, 1)])]
    assert one.answered([Pubrec(1)]) == [KeepReleased([1])]
    assert one.answered([Pubrec(1)]) == []
    assert one.kept([1]) == [SayAcks([Pubrel(1)])]
    assert one.answered([Pubrec(1)]) == [SayAcks([Pubrel(1)])]
    assert one.answered([Pubcomp(1)]) == [MessagesDone([(1, 3)]), ForgetSent([1])]
    assert one.room == 10
    # Its id is nobody else's until it is forgotten.
    assert one.unfinished() == [Sent(1, position(3), 2, is_released=True)]
    one.forgotten([1])
    assert one.unfinished() == []
    one.check()


def test_q07_no_more_is_out_than_the_client_takes() -> None:
    """MQTT-4.9.0-1, MQTT-4.9.0-2"""
    one = outbound(receive_max=2)
    one.deliver([message(1, 1), message(2, 2), message(3, 0)], 0)
    assert one.room == 0
    with pytest.raises(AssertionError):
        one.deliver([message(4, 1)], 0)


def test_the_window_of_the_node_bounds_it_too() -> None:
    one = outbound(receive_max=65_535, window=2)
    one.deliver([message(1, 1), message(2, 1)], 0)
    assert one.room == 0
    one.answered([Puback(2)])
    assert one.room == 1


def test_q11_what_was_out_comes_again_with_its_id_and_dup() -> None:
    """MQTT-4.4.0-1"""
    one = outbound()
    one.deliver([message(1, 1), message(2, 2), message(3, 1)], 0)
    one.kept([2])
    one.answered([Puback(3)])
    assert one.connected(10) == []
    again = [message(1, 1, feed=9), message(2, 2, feed=9), message(4, 1, feed=9)]
    assert one.deliver(again, 0) == [
        SayPublishes([publish(1, 1, dup=True), publish(2, 2, dup=True), publish(1, 4)])
    ]
    assert one.answered([Puback(1)]) == [MessagesDone([(9, 1)])]
    one.check()


def test_q11_a_pubrel_comes_again_alone() -> None:
    one = outbound()
    one.deliver([message(2, 2)], 0)
    one.kept([1])
    one.answered([Pubrec(1)])
    one.kept([1])
    assert one.connected(10) == [SayAcks([Pubrel(1)])]
    # The client has it: it is not sent again.
    assert one.deliver([message(2, 2, feed=5)], 0) == []
    assert one.answered([Pubcomp(1)]) == [MessagesDone([(5, 2)]), ForgetSent([1])]


def test_q03_an_exchange_of_before_a_restart_ends_when_its_message_is_there_again() -> None:
    one = Outbound(100, [Sent(5, position(2), 2, is_released=True), Sent(6, position(3), 2)])
    assert one.connected(10) == [SayAcks([Pubrel(5)])]
    assert one.answered([Pubcomp(5)]) == []
    assert one.deliver([message(2, 2), message(3, 2)], 0) == [
        SayPublishes([publish(2, 6, dup=True)]),
        MessagesDone([(1, 2)]),
        ForgetSent([5]),
    ]
    one.check()


def test_q14_what_has_expired_is_done_and_what_is_left_of_the_others_is_said() -> None:
    """MQTT-3.3.2-5, MQTT-3.3.2-6"""
    one = outbound()
    effects = one.deliver(
        [message(1, 1, expires_at_ms=1_000), message(2, 1, expires_at_ms=3_500)], 1_000
    )
    left = Publish("t", b"x", 1, False, False, 1, Properties(message_expiry_s=3))
    assert effects == [SayPublishes([left]), MessagesDone([(1, 1)])]
    assert one.expired == 1


def test_q14_what_was_sent_before_it_expired_comes_again() -> None:
    """MQTT-4.3.3-7"""
    one = outbound()
    one.deliver([message(1, 2, expires_at_ms=1_000)], 0)
    one.kept([1])
    one.connected(10)
    (said,) = one.deliver([message(1, 2, feed=2, expires_at_ms=1_000)], 9_000)
    over = Publish("t", b"x", 2, False, True, 1, Properties(message_expiry_s=0))
    assert said == SayPublishes([over])
    assert one.expired == 0


def test_pubrels_go_in_the_order_of_their_pubrecs() -> None:
    """MQTT-4.6.0-4"""
    one = outbound()
    one.deliver([message(offset, 2) for offset in (1, 2, 3)], 0)
    one.kept([1, 2, 3])
    assert one.answered([Pubrec(3), Pubrec(1), Pubrec(2)]) == [KeepReleased([3, 1, 2])]
    assert one.kept([3, 1, 2]) == [SayAcks([Pubrel(3), Pubrel(1), Pubrel(2)])]


def test_q07_what_is_too_large_is_done_as_if_it_had_been_sent_and_counted() -> None:
    """MQTT-3.1.2-25"""
    one = outbound()
    one.deliver([message(1, 0), message(2, 1), message(3, 2)], 0)
    one.kept([2])
    large = [publish(0), publish(1, 1), publish(2, 2)]
    assert one.dropped(large) == [MessagesDone([(1, 2), (1, 3)]), ForgetSent([2])]
    assert one.too_large == 3
    assert one.room == 10


def test_q34_an_answer_that_is_an_error_is_a_failure() -> None:
    one = outbound()
    one.deliver([message(1, 1), message(2, 2)], 0)
    one.kept([2])
    failures: list[Ack] = [Puback(1, FAILED), Pubrec(2, FAILED)]
    assert one.answered(failures) == [
        MessagesFailed([(1, 1, FAILED), (1, 2, FAILED)]),
        ForgetSent([2]),
    ]


def test_an_answer_to_nothing_and_one_of_another_kind() -> None:
    one = outbound()
    not_found = ReasonCode.PACKET_IDENTIFIER_NOT_FOUND
    assert one.answered([Pubrec(9), Puback(9), Pubcomp(9)]) == [SayAcks([Pubrel(9, not_found)])]
    one.deliver([message(1, 1)], 0)
    with pytest.raises(Violation) as caught:
        one.answered([Pubrec(1)])
    assert caught.value.reason is ReasonCode.PROTOCOL_ERROR


def test_what_never_comes_again_is_finished_without_it() -> None:
    one = outbound()
    one.deliver([message(1, 1), message(2, 2), message(3, 1)], 0)
    one.kept([2])
    one.connected(10)
    # At qos 2 the client may have it: it lets go of the id before another message has it.
    assert one.gone("", SHARD, 3) == [KeepReleased([2])]
    assert [sent.packet_id for sent in one.unfinished()] == [2, 3]
    assert one.kept([2]) == [SayAcks([Pubrel(2)])]
    assert one.answered([Pubcomp(2)]) == [ForgetSent([2])]
    one.check()


def test_a_retained_message_has_no_feed_to_tell() -> None:
    one = outbound()
    one.deliver([message(1, 1, feed=NO_FEED), message(2, 0, feed=NO_FEED)], 0)
    assert one.answered([Puback(1)]) == []


def test_packet_ids_go_around_and_pass_those_that_are_taken() -> None:
    """MQTT-2.2.1-4"""
    one = outbound(receive_max=65_535)
    one.deliver([message(0, 1)], 0)
    for offset in range(1, PACKET_ID_MAX):
        one.deliver([message(offset, 1)], 0)
        one.answered([Puback(offset + 1)])
    (said,) = one.deliver([message(70_000, 1)], 0)
    assert said == SayPublishes([publish(1, 2)])
    one.check()


def test_o1_an_exchange_is_found_by_its_id_and_its_place() -> None:
    one = outbound()
    one.deliver([message(1, 1)], 0)
    one._by_position.clear()
    with pytest.raises(AssertionError, match="O1"):
        one.check()


def test_o2_what_is_out_is_counted() -> None:
    one = outbound()
    one.deliver([message(1, 1)], 0)
    one._counted = 0
    with pytest.raises(AssertionError, match="O2"):
        one.check()
    one._counted = 1
    one._receive_max = 0
    with pytest.raises(AssertionError, match="O2"):
        one.check()


def test_o3_an_exchange_of_qos_1_is_never_kept() -> None:
    one = outbound()
    one.deliver([message(1, 2)], 0)
    one._by_id[1].qos = 1
    with pytest.raises(AssertionError, match="O3"):
        one.check()
