"""What a client publishes is answered in order, each kind in its way."""

import pytest

from moorline.core.effects import Effect
from moorline.core.mqtt.effects import ForgetReceived, Incoming, SayAcks, StorePublishes
from moorline.core.mqtt.inbound import Inbound
from moorline.core.mqtt.packets import Puback, Pubcomp, Publish, Pubrec, Pubrel
from moorline.core.mqtt.reason import ReasonCode, Violation

OK = ReasonCode.SUCCESS
DENIED = ReasonCode.NOT_AUTHORIZED


def publish(qos: int, packet_id: int = 0, dup: bool = False) -> Publish:
    return Publish("t", b"x", qos, False, dup, packet_id)


def inbound(receive_max: int = 10) -> Inbound:
    one = Inbound()
    one.connected(receive_max)
    return one


def numbers(effects: list[Effect]) -> list[int]:
    return [
        one.number
        for effect in effects
        if isinstance(effect, StorePublishes)
        for one in effect.incoming
    ]


def test_qos_0_is_stored_and_has_no_answer() -> None:
    one = inbound(receive_max=1)
    assert one.hear([publish(0)] * 3) == [
        StorePublishes([Incoming(number, publish(0)) for number in (1, 2, 3)])
    ]
    assert one.stored([(1, OK), (2, OK), (3, DENIED)]) == []
    assert one.out == 0


def test_q13_qos_1_is_answered_when_it_is_stored() -> None:
    one = inbound()
    assert one.hear([publish(1, 5)]) == [StorePublishes([Incoming(1, publish(1, 5))])]
    assert one.out == 1
    assert one.stored([(1, OK)]) == [SayAcks([Puback(5)])]
    assert one.out == 0
    one.check()


def test_q10_answers_go_in_the_order_of_their_publishes() -> None:
    """MQTT-4.6.0-2, MQTT-4.6.0-3"""
    one = inbound()
    one.hear([publish(1, 1), publish(2, 2), publish(1, 3)])
    assert one.stored([(3, OK)]) == []
    assert one.stored([(1, DENIED)]) == [SayAcks([Puback(1, DENIED)])]
    assert one.stored([(2, OK)]) == [SayAcks([Pubrec(2), Puback(3)])]
    one.check()


def test_q12_qos_2_is_received_once_and_released() -> None:
    one = inbound()
    assert one.hear([publish(2, 7)]) == [StorePublishes([Incoming(1, publish(2, 7), 1)])]
    assert one.stored([(1, OK)]) == [SayAcks([Pubrec(7)])]
    # Sent again, it is the same message (MQTT-4.3.3-10).
    assert one.hear([publish(2, 7, dup=True)]) == [SayAcks([Pubrec(7)])]
    assert one.hear([publish(2, 7)]) == [SayAcks([Pubrec(7)])]
    assert one.kept() == {7: 1}
    assert one.released([Pubrel(7)]) == [ForgetReceived([7])]
    assert one.forgotten([7]) == [SayAcks([Pubcomp(7)])]
    # Behind PUBCOMP the id is another message's (MQTT-4.3.3-12).
    assert one.hear([publish(2, 7)]) == [StorePublishes([Incoming(4, publish(2, 7), 2)])]
    one.check()


def test_a_pubrel_of_nothing_is_answered_and_one_too_early_is_a_violation() -> None:
    one = inbound()
    assert one.released([Pubrel(9)]) == [
        SayAcks([Pubcomp(9, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND)])
    ]
    one.hear([publish(2, 7)])
    with pytest.raises(Violation) as caught:
        one.released([Pubrel(9), Pubrel(7)])
    assert caught.value.reason is ReasonCode.PROTOCOL_ERROR
    assert len(caught.value.before) == 1


def test_what_is_refused_is_told_so_and_its_id_is_free() -> None:
    one = inbound()
    one.hear([publish(1, 1), publish(2, 2)])
    assert one.refused([(1, DENIED), (2, DENIED)]) == [
        SayAcks([Puback(1, DENIED), Pubrec(2, DENIED)])
    ]
    assert one.kept() == {}
    assert one.out == 0
    # One that was kept before it failed is forgotten first.
    one.hear([publish(2, 3)])
    assert one.stored([(3, DENIED)]) == [ForgetReceived([3])]
    assert one.kept() == {3: 2}
    assert one.forgotten([3]) == [SayAcks([Pubrec(3, DENIED)])]
    one.check()


def test_q07_no_more_than_the_receive_maximum_is_out() -> None:
    """MQTT-3.3.4-9"""
    one = inbound(receive_max=2)
    one.hear([publish(1, 1), publish(2, 2)])
    with pytest.raises(Violation) as caught:
        one.hear([publish(0), publish(1, 3)])
    assert caught.value.reason is ReasonCode.RECEIVE_MAXIMUM_EXCEEDED
    assert numbers(caught.value.before) == [3]
    # One that is sent again is no other one.
    assert one.hear([publish(2, 2, dup=True)]) == []
    one.stored([(1, OK), (2, OK)])
    assert one.out == 1
    one.hear([publish(1, 3)])
    one.check()


def test_q12_what_was_being_stored_is_answered_to_who_asks_again() -> None:
    one = inbound()
    one.hear([publish(1, 1), publish(2, 2)])
    one.connected(10)
    # Nobody of this connection waits for it.
    assert one.stored([(1, OK)]) == []
    assert one.hear([publish(2, 2, dup=True)]) == []
    assert one.stored([(2, OK)]) == [SayAcks([Pubrec(2)])]
    one.check()


def test_q03_a_restart_knows_what_was_not_finished() -> None:
    one = Inbound({7: 3, 8: 4}, sequence=9)
    one.connected(10)
    # What was kept is stored under the sequence that it had, and not kept again.
    again = publish(2, 7, dup=True)
    assert one.hear([again]) == [StorePublishes([Incoming(1, again, 3, is_kept=True)])]
    assert one.stored([(1, OK)]) == [SayAcks([Pubrec(7)])]
    # PUBREL alone: it was stored before the restart.
    assert one.released([Pubrel(8)]) == [ForgetReceived([8])]
    assert one.forgotten([8]) == [SayAcks([Pubcomp(8)])]
    # A new one has a sequence that none ever had.
    assert one.hear([publish(2, 9)]) == [StorePublishes([Incoming(2, publish(2, 9), 10)])]
    assert one.sequence == 10
    one.check()


def test_i1_a_sequence_is_of_one_exchange() -> None:
    one = inbound()
    one.hear([publish(2, 1), publish(2, 2)])
    one._exchanges[2].sequence = 1
    with pytest.raises(AssertionError, match="I1"):
        one.check()
    one._exchanges[2].sequence = 99
    with pytest.raises(AssertionError, match="I1"):
        one.check()


def test_i2_who_waits_stands_in_line_once() -> None:
    one = inbound()
    one.hear([publish(1, 1)])
    one._line.append(one._line[0])
    with pytest.raises(AssertionError, match="I2"):
        one.check()
    one._line.clear()
    with pytest.raises(AssertionError, match="I2"):
        one.check()
    two = inbound()
    two.hear([publish(2, 1)])
    two._storing.clear()
    with pytest.raises(AssertionError, match="I2"):
        two.check()


def test_i3_what_is_out_is_counted() -> None:
    one = inbound()
    one.hear([publish(1, 1)])
    one._out = 2
    with pytest.raises(AssertionError, match="I3"):
        one.check()
    one._out = 1
    one._receive_max = 0
    with pytest.raises(AssertionError, match="I3"):
        one.check()
