"""A session lives as long as it was promised, and its will is published when the client is lost: once."""

import random

import pytest

from moorline.core.effects import CancelTimer, Effect, SetTimer
from moorline.core.mqtt.effects import EndSession, ForgetWill, KeepWill, PublishWill
from moorline.core.mqtt.packets import Properties, Will
from moorline.core.mqtt.session_life import NEVER, LifeState, SessionLife

WILL = Will("w", b"gone")
LATE = Will("w", b"gone", properties=Properties(will_delay_s=10))


def connected(expiry_s: int, will: Will | None = None) -> SessionLife:
    life = SessionLife()
    life.connected(expiry_s, will, False, 0)
    return life


def published(effects: list[Effect]) -> int:
    return sum(isinstance(one, PublishWill) for one in effects)


def test_q06_a_will_without_delay_is_published_when_the_client_is_lost() -> None:
    """MQTT-3.1.2-8"""
    life = connected(60, WILL)
    assert life.disconnected(False, 60, 1_000) == [
        PublishWill(WILL),
        ForgetWill(),
        SetTimer("session", 60_000),
    ]
    life.check()


def test_q06_not_on_a_normal_disconnect() -> None:
    """MQTT-3.1.2-10, MQTT-3.14.4-3"""
    life = connected(60, WILL)
    assert life.disconnected(True, 60, 0) == [ForgetWill(), SetTimer("session", 60_000)]


def test_q06_a_delay_is_waited_for_and_kept() -> None:
    life = connected(60, LATE)
    assert life.disconnected(False, 60, 0) == [
        KeepWill(LATE, 10_000),
        SetTimer("will", 10_000),
        SetTimer("session", 60_000),
    ]
    assert life.timer("will", 9_000) == [SetTimer("will", 1_000)]
    assert life.timer("will", 10_000) == [PublishWill(LATE), ForgetWill()]
    assert life.timer("will", 10_000) == []
    life.check()


def test_q06_a_return_within_the_delay_takes_it_away() -> None:
    """MQTT-3.1.3-9"""
    life = connected(60, LATE)
    life.disconnected(False, 60, 0)
    effects = life.connected(60, None, False, 5_000)
    assert effects == [CancelTimer("session"), CancelTimer("will"), ForgetWill()]
    assert life.timer("will", 10_000) == []


def test_q06_the_end_of_the_session_does_not_wait_for_the_delay() -> None:
    life = connected(5, LATE)
    assert life.disconnected(False, 5, 0) == [
        KeepWill(LATE, 5_000),
        SetTimer("will", 5_000),
        SetTimer("session", 5_000),
    ]
    effects = life.timer("session", 5_000)
    assert published(effects) == 1
    assert effects[-1] == EndSession()
    assert life.state is LifeState.ENDED
    assert published(connected(0, LATE).disconnected(False, 0, 0)) == 1


def test_q04_a_clean_start_ends_the_old_session_and_publishes_its_will() -> None:
    life = connected(60, LATE)
    life.disconnected(False, 60, 0)
    effects = life.connected(60, WILL, True, 1_000)
    assert published(effects) == 1
    assert effects[-2:] == [EndSession(), KeepWill(WILL, None)]
    assert life.state is LifeState.CONNECTED


def test_q04_a_take_over_is_a_loss_and_a_return() -> None:
    now = connected(60, WILL)
    assert published(now.connected(60, None, False, 1_000)) == 1
    late = connected(60, LATE)
    assert published(late.connected(60, None, False, 1_000)) == 0


def test_q02_a_session_ends_when_it_was_said_or_never() -> None:
    """MQTT-3.1.2-23"""
    life = connected(30)
    assert life.disconnected(True, 30, 0) == [SetTimer("session", 30_000)]
    assert life.timer("session", 29_999) == [SetTimer("session", 1)]
    assert life.timer("session", 30_000) == [CancelTimer("session"), EndSession()]
    assert connected(NEVER).disconnected(True, NEVER, 0) == []
    assert connected(30).disconnected(True, 0, 0) == [CancelTimer("session"), EndSession()]


def test_q02_the_expiry_is_that_of_disconnect() -> None:
    life = connected(30)
    assert life.disconnected(True, 90, 0) == [SetTimer("session", 90_000)]


def test_no_timer_waits_longer_than_a_loop_can() -> None:
    life = connected(10_000_000)
    (timer,) = life.disconnected(True, 10_000_000, 0)
    assert timer == SetTimer("session", 86_400_000)
    assert life.timer("session", 86_400_000) == [timer]


def test_q03_after_a_restart_what_was_due_meanwhile_is_due_now() -> None:
    life, effects = SessionLife.restored(60, LATE, 10_000, 0, 20_000)
    assert effects == [PublishWill(LATE), ForgetWill(), SetTimer("session", 40_000)]
    life, effects = SessionLife.restored(60, LATE, 10_000, 0, 4_000)
    assert effects == [SetTimer("will", 6_000), SetTimer("session", 56_000)]
    life.check()
    # It was connected when its node died.
    life, effects = SessionLife.restored(60, WILL, None, 0, 5_000)
    assert published(effects) == 1
    assert life.state is LifeState.AWAY
    life, effects = SessionLife.restored(5, LATE, None, 0, 90_000)
    assert published(effects) == 1
    assert effects[-1] == EndSession()
    life.check()


def test_an_operator_ends_a_session_and_its_will_is_published() -> None:
    life = connected(60, LATE)
    assert published(life.ended(1_000)) == 1
    assert life.ended(1_000) == []
    away = connected(NEVER, LATE)
    away.disconnected(False, NEVER, 0)
    assert published(away.ended(1_000)) == 1


def test_a_will_is_published_once_whatever_happens() -> None:
    for seed in range(300):
        chance = random.Random(seed)
        life = SessionLife()
        now_ms, armed, told = 0, 0, 0
        for _ in range(40):
            now_ms += chance.choice([0, 1, 1_000, 7_000, 30_000])
            will = chance.choice([None, WILL, LATE])
            effects: list[Effect] = []
            match chance.randrange(5):
                case 0:
                    effects = life.connected(
                        chance.choice([0, 5, 60, NEVER]), will, chance.random() < 0.3, now_ms
                    )
                    armed += will is not None
                case 1 if life.state is LifeState.CONNECTED:
                    effects = life.disconnected(
                        chance.random() < 0.3, chance.choice([0, 5, 60]), now_ms
                    )
                case 2:
                    effects = life.timer("will", now_ms)
                case 3:
                    effects = life.timer("session", now_ms)
                case 4 if chance.random() < 0.2:
                    effects = life.ended(now_ms)
            life.check()
            told += published(effects)
        ended = sum(isinstance(one, EndSession) for one in life.ended(now_ms))
        assert told <= armed
        assert ended <= 1


def test_s1_a_will_of_a_connected_client_is_not_due() -> None:
    life = connected(60, LATE)
    life.will_due_ms = 5
    with pytest.raises(AssertionError, match="S1"):
        life.check()
    life = connected(60)
    life.disconnected(False, 60, 0)
    life.will_due_ms = 5
    with pytest.raises(AssertionError, match="S1"):
        life.check()
    over = SessionLife()
    over._will = WILL
    with pytest.raises(AssertionError, match="S1"):
        over.check()


def test_s2_a_will_is_due_not_after_its_session() -> None:
    life = connected(60, LATE)
    life.disconnected(False, 60, 0)
    life.will_due_ms = 60_001
    with pytest.raises(AssertionError, match="S2"):
        life.check()
    here = connected(60)
    here.ends_ms = 1
    with pytest.raises(AssertionError, match="S2"):
        here.check()
