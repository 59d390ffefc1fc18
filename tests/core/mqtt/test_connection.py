"""One connection: CONNECT first and once, proofs in rounds, keep alive, every violation told and ended."""

import random

import pytest

from moorline.core.effects import Effect, SetTimer
from moorline.core.mqtt.connection import Connection, ConnectionState, ConnectionTerms
from moorline.core.mqtt.effects import (
    Authenticate,
    EndConnection,
    OpenSession,
    SayPacket,
    TakeAcks,
    TakePublishes,
    TakeSubscribe,
    TakeUnsubscribe,
)
from moorline.core.mqtt.packets import (
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Properties,
    Puback,
    Publish,
    Pubrel,
    Subscribe,
    Subscription,
    Unsubscribe,
)
from moorline.core.mqtt.reason import ReasonCode, Violation

R = ReasonCode
TERMS = ConnectionTerms(
    receive_max=100,
    packet_bytes_max=1_000,
    topic_alias_max=2,
    keep_alive_s_max=0,
    connect_timeout_ms=5_000,
    methods=frozenset({"GS2"}),
)
CONNECT = Connect(5, "c", True, 10)
WITH_METHOD = Connect(
    5, "c", True, 0, properties=Properties(authentication_method="GS2", authentication_data=b"1")
)


def proof(reason: R = R.CONTINUE_AUTHENTICATION, method: str = "GS2", data: bytes = b"2") -> Auth:
    return Auth(reason, Properties(authentication_method=method, authentication_data=data))


def opened(connect: Connect = CONNECT, terms: ConnectionTerms = TERMS) -> Connection:
    one = Connection(terms)
    one.opened(0)
    one.heard([connect], 0)
    one.accepted(False, 0)
    assert one.state is ConnectionState.OPEN
    return one


def told(effects: list[Effect]) -> R | None:
    """The reason that the client hears at the end."""
    assert isinstance(effects[-1], EndConnection)
    for one in effects:
        if isinstance(one, SayPacket) and isinstance(one.packet, Disconnect | Connack):
            return one.packet.reason
    return None


def test_a_client_is_let_in_and_speaks() -> None:
    one = Connection(TERMS)
    assert one.opened(0) == [SetTimer("connect", 5_000)]
    assert one.heard([CONNECT], 1) == [OpenSession(CONNECT, None)]
    effects = one.accepted(True, 2)
    said = Properties(receive_max=100, packet_bytes_max=1_000, topic_alias_max=2)
    assert effects == [SayPacket(Connack(R.SUCCESS, True, said)), SetTimer("keep-alive", 15_000)]
    packets: list[Packet] = [
        Publish("a", b"1"),
        Publish("b", b"2", 1, packet_id=1),
        Puback(1),
        Pubrel(2),
        Subscribe(3, (Subscription("a"),)),
        Unsubscribe(4, ("a",)),
        Pingreq(),
    ]
    assert one.heard(packets, 3) == [
        TakePublishes([Publish("a", b"1"), Publish("b", b"2", 1, packet_id=1)]),
        TakeAcks([Puback(1), Pubrel(2)]),
        TakeSubscribe(Subscribe(3, (Subscription("a"),))),
        TakeUnsubscribe(Unsubscribe(4, ("a",))),
        SayPacket(Pingresp()),
    ]
    one.check()


def test_q01_a_packet_before_connect() -> None:
    """MQTT-3.1.0-1"""
    one = Connection(TERMS)
    effects = one.heard([Pingreq()], 0)
    # Whoever speaks something else hears nothing of what this is.
    assert told(effects) is None
    assert one.state is ConnectionState.CLOSED
    assert one.heard([CONNECT], 0) == []


def test_q01_two_connects() -> None:
    """MQTT-3.1.0-2"""
    assert told(opened().heard([CONNECT], 0)) is R.PROTOCOL_ERROR
    deciding = Connection(TERMS)
    assert told(deciding.heard([CONNECT, CONNECT], 0)) is R.PROTOCOL_ERROR


def test_q01_a_connect_that_is_none_is_told_so_in_its_version() -> None:
    malformed = Violation(R.MALFORMED_PACKET, "no")
    assert told(Connection(TERMS).broke(malformed, 0, level=5)) is R.MALFORMED_PACKET
    assert told(Connection(TERMS).broke(malformed, 0, level=4)) is None
    assert told(Connection(TERMS).broke(malformed, 0)) is None
    unknown = Violation(R.UNSUPPORTED_PROTOCOL_VERSION, "no")
    assert told(Connection(TERMS).broke(unknown, 0, level=4)) is R.UNSUPPORTED_PROTOCOL_VERSION


def test_q01_keep_alive_passed_by_half() -> None:
    """MQTT-3.1.2-22"""
    one = opened()
    one.heard([Pingreq()], 10_000)
    assert one.timer("keep-alive", 15_000) == [SetTimer("keep-alive", 10_000)]
    assert told(one.timer("keep-alive", 25_000)) is R.KEEP_ALIVE_TIMEOUT


def test_keep_alive_0_is_none_and_the_server_may_have_its_own() -> None:
    """MQTT-3.2.2-21"""
    free = Connection(TERMS)
    free.heard([Connect(5, "c", True, 0)], 0)
    assert len(free.accepted(False, 0)) == 1
    for asked, given in ((0, 30), (60, 30), (20, None)):
        terms = ConnectionTerms(100, 1_000, 0, 30, 5_000)
        one = Connection(terms)
        one.heard([Connect(5, "c", True, asked)], 0)
        said, timer = one.accepted(False, 0)
        assert isinstance(said, SayPacket)
        assert isinstance(said.packet, Connack)
        assert said.packet.properties.server_keep_alive_s == given
        assert timer == SetTimer("keep-alive", (given or asked) * 1_500)


@pytest.mark.parametrize("asked", [None, 0, 1])
def test_nobody_is_told_where_answers_go(asked: int | None) -> None:
    """MQTT-3.1.2-28: response information is for who asked, and may be left out for that one too."""
    one = Connection(TERMS)
    wishes = Properties(request_response_information=asked)
    one.heard([Connect(5, "c", True, 0, properties=wishes)], 0)
    said = one.accepted(False, 0)[0]
    assert isinstance(said, SayPacket)
    assert isinstance(said.packet, Connack)
    assert said.packet.properties.response_information is None


def test_a_client_that_never_says_connect() -> None:
    one = Connection(TERMS)
    one.opened(0)
    assert isinstance(one.timer("connect", 5_000)[-1], EndConnection)
    assert opened().timer("connect", 5_000) == []


def test_q05_an_assigned_client_id_is_said() -> None:
    """MQTT-3.2.2-16"""
    one = Connection(TERMS)
    one.heard([Connect(5, "", True, 0)], 0)
    (said,) = one.accepted(False, 0, assigned_client_id="made")
    assert isinstance(said, SayPacket)
    assert isinstance(said.packet, Connack)
    assert said.packet.properties.assigned_client_id == "made"


def test_a_refused_connect_and_a_server_that_is_elsewhere() -> None:
    one = Connection(TERMS)
    one.heard([CONNECT], 0)
    effects = one.refused(R.USE_ANOTHER_SERVER, "there", "other:1883")
    assert effects[0] == SayPacket(
        Connack(
            R.USE_ANOTHER_SERVER,
            False,
            Properties(reason_string="there", server_reference="other:1883"),
        )
    )
    assert one.accepted(False, 0) == []
    old = Connection(TERMS)
    old.heard([Connect(4, "c", True, 0)], 0)
    assert told(old.refused(R.NOT_AUTHORIZED, "no")) is R.NOT_AUTHORIZED


def test_a_reason_that_connack_cannot_say_is_said_as_the_nearest() -> None:
    one = Connection(TERMS)
    one.heard([CONNECT], 0)
    assert told(one.refused(R.SESSION_TAKEN_OVER, "")) is R.SERVER_UNAVAILABLE
    assert told(opened().refused(R.BANNED, "")) is R.NOT_AUTHORIZED


def test_q04_q42_the_node_ends_an_open_connection() -> None:
    for reason in (R.SESSION_TAKEN_OVER, R.ADMINISTRATIVE_ACTION, R.SERVER_SHUTTING_DOWN):
        one = opened()
        assert told(one.refused(reason, "why")) is reason
        assert one.refused(reason, "why") == []
    # 3.1.1 has no word for it.
    assert told(opened(Connect(4, "c", True, 0)).refused(R.SESSION_TAKEN_OVER, "")) is None


def test_what_is_said_before_connack_is_heard_after_it() -> None:
    one = Connection(TERMS)
    assert one.heard([CONNECT, Publish("a", b"")], 0) == [OpenSession(CONNECT, None)]
    assert one.heard([Pingreq()], 0) == []
    one.check()
    effects = one.accepted(False, 0)
    assert effects[-2:] == [TakePublishes([Publish("a", b"")]), SayPacket(Pingresp())]


def test_q02_disconnect_changes_the_expiry() -> None:
    kept = Connect(5, "c", True, 0, properties=Properties(session_expiry_s=60))
    one = opened(kept)
    (end,) = one.heard([Disconnect(properties=Properties(session_expiry_s=90))], 0)
    assert isinstance(end, EndConnection)
    assert (end.is_normal, end.session_expiry_s) == (True, 90)
    # MQTT-3.14.2-2: one that was to end with its connection is not kept by its last word.
    over = opened()
    assert (
        told(over.heard([Disconnect(properties=Properties(session_expiry_s=90))], 0))
        is R.PROTOCOL_ERROR
    )


def test_q06_disconnect_with_will_is_not_normal() -> None:
    (end,) = opened().heard([Disconnect(R.DISCONNECT_WITH_WILL_MESSAGE)], 0)
    assert isinstance(end, EndConnection)
    assert not end.is_normal
    (lost,) = opened().lost()
    assert isinstance(lost, EndConnection)
    assert not lost.is_normal


def test_q15_aliases_are_written_out_and_those_beyond_the_maximum_end_it() -> None:
    one = opened()
    alias = Properties(topic_alias=1)
    said: list[Packet] = [Publish("a", b"", properties=alias), Publish("", b"", properties=alias)]
    assert one.heard(said, 0) == [TakePublishes([Publish("a", b"")] * 2)]
    far = Publish("a", b"", properties=Properties(topic_alias=3))
    effects = one.heard([Publish("b", b""), far], 0)
    assert effects[0] == TakePublishes([Publish("b", b"")])
    assert told(effects) is R.TOPIC_ALIAS_INVALID


def test_q08_a_proof_in_rounds() -> None:
    """MQTT-4.12.0-2, MQTT-4.12.0-3"""
    one = Connection(TERMS)
    assert one.heard([WITH_METHOD], 0) == [Authenticate("GS2", b"1", is_again=False)]
    one.check()
    assert one.auth_continues(b"?", 0) == [SayPacket(proof(data=b"?"))]
    assert one.heard([proof()], 0) == [Authenticate("GS2", b"2", is_again=False)]
    (opens,) = one.auth_accepted("olga", b"!", 0)
    assert isinstance(opens, OpenSession)
    assert opens.principal == "olga"
    said = one.accepted(False, 0)[0]
    assert isinstance(said, SayPacket)
    assert isinstance(said.packet, Connack)
    # MQTT-4.12.0-5: the method, and what the mechanism says last.
    assert said.packet.properties.authentication_method == "GS2"
    assert said.packet.properties.authentication_data == b"!"
    one.check()


def test_q08_a_method_that_is_not_taken_and_a_proof_that_is_none() -> None:
    """MQTT-4.12.0-1, MQTT-4.12.0-4"""
    other = Connect(5, "c", True, 0, properties=Properties(authentication_method="OTHER"))
    assert told(Connection(TERMS).heard([other], 0)) is R.BAD_AUTHENTICATION_METHOD
    one = Connection(TERMS)
    one.heard([WITH_METHOD], 0)
    assert told(one.auth_refused(R.NOT_AUTHORIZED, "no", 0)) is R.NOT_AUTHORIZED


@pytest.mark.parametrize(
    "packet",
    [
        proof(method="OTHER"),
        proof(R.RE_AUTHENTICATE),
        Publish("a", b""),
        Subscribe(1, (Subscription("a"),)),
        Pingreq(),
        WITH_METHOD,
    ],
)
def test_q08_what_may_not_come_within_a_proof(packet: Packet) -> None:
    """MQTT-3.1.2-30, MQTT-4.12.0-5"""
    one = Connection(TERMS)
    one.heard([WITH_METHOD], 0)
    one.auth_continues(b"?", 0)
    assert told(one.heard([packet], 0)) is R.PROTOCOL_ERROR


def test_q08_a_proof_without_end() -> None:
    one = Connection(TERMS)
    one.heard([WITH_METHOD], 0)
    for _ in range(8):
        one.auth_continues(b"?", 0)
        one.heard([proof()], 0)
    assert told(one.auth_continues(b"?", 0)) is R.NOT_AUTHORIZED


def with_proof() -> Connection:
    one = Connection(TERMS)
    one.heard([WITH_METHOD], 0)
    one.auth_accepted("olga", b"", 0)
    one.accepted(False, 0)
    return one


def test_q08_an_open_connection_proves_itself_anew() -> None:
    """MQTT-4.12.1-1"""
    one = with_proof()
    again = proof(R.RE_AUTHENTICATE)
    assert one.heard([again], 0) == [Authenticate("GS2", b"2", is_again=True)]
    # It goes on by the proof that it has.
    assert one.heard([Pingreq()], 0) == [SayPacket(Pingresp())]
    one.check()
    assert one.auth_continues(b"?", 0) == [SayPacket(proof(data=b"?"))]
    assert one.heard([proof()], 0) == [Authenticate("GS2", b"2", is_again=True)]
    assert one.auth_accepted("olga", b"", 0) == [
        SayPacket(Auth(R.SUCCESS, Properties(authentication_method="GS2")))
    ]
    assert one.heard([again], 0)
    # MQTT-4.12.1-2
    assert told(one.auth_refused(R.NOT_AUTHORIZED, "no", 0)) is R.NOT_AUTHORIZED


def test_q08_another_principal_another_method_and_none_at_all() -> None:
    other = with_proof()
    other.heard([proof(R.RE_AUTHENTICATE)], 0)
    assert told(other.auth_accepted("paul", b"", 0)) is R.NOT_AUTHORIZED
    assert told(with_proof().heard([proof(R.RE_AUTHENTICATE, "X")], 0)) is R.PROTOCOL_ERROR
    assert told(with_proof().heard([proof()], 0)) is R.PROTOCOL_ERROR
    # MQTT-4.12.0-6, MQTT-4.12.0-7
    assert told(opened().heard([proof(R.RE_AUTHENTICATE)], 0)) is R.PROTOCOL_ERROR
    twice = with_proof()
    twice.heard([proof(R.RE_AUTHENTICATE)], 0)
    assert told(twice.heard([proof()], 0)) is R.PROTOCOL_ERROR


def test_a_packet_of_a_server() -> None:
    assert told(opened().heard([Pingresp()], 0)) is R.PROTOCOL_ERROR


def test_what_the_client_takes() -> None:
    wishes = Properties(
        receive_max=3, packet_bytes_max=99, topic_alias_max=4, request_problem_information=0
    )
    one = opened(Connect(5, "c", True, 0, properties=wishes))
    assert (one.receive_max, one.packet_bytes_max, one.topic_alias_max) == (3, 99, 4)
    assert not one.has_problem_information
    free = opened()
    assert (free.receive_max, free.packet_bytes_max, free.topic_alias_max) == (65_535, 0, 0)
    assert free.has_problem_information


def test_q41_a_client_that_says_too_much_before_it_is_let_in() -> None:
    one = Connection(TERMS)
    one.heard([CONNECT], 0)
    assert told(one.heard([Pingreq()] * 4_097, 0)) is R.QUOTA_EXCEEDED


def judged(one: Connection, chance: random.Random, now_ms: int) -> list[Effect]:
    match chance.randrange(3):
        case 0:
            return one.auth_continues(b"", now_ms)
        case 1:
            return one.auth_accepted("olga", b"", now_ms)
        case _:
            return one.auth_refused(R.NOT_AUTHORIZED, "", now_ms)


def test_whatever_is_said_in_whatever_order_it_ends_once_and_says_nothing_behind_it() -> None:
    packets: list[Packet] = [
        CONNECT,
        WITH_METHOD,
        Connect(4, "c", False, 0),
        proof(),
        proof(R.RE_AUTHENTICATE),
        Publish("a", b"", properties=Properties(topic_alias=1)),
        Publish("", b"", properties=Properties(topic_alias=1)),
        Pingreq(),
        Puback(1),
        Disconnect(),
        Pingresp(),
    ]
    for seed in range(500):
        chance = random.Random(seed)
        one, ends = Connection(TERMS), 0
        one.opened(0)
        for now_ms in range(0, 40_000, 1_000):
            was_closed = one.state is ConnectionState.CLOSED
            effects: list[Effect] = []
            match chance.randrange(6):
                case 0 | 1:
                    effects = one.heard(chance.choices(packets, k=chance.randint(1, 3)), now_ms)
                case 2 if one._is_checking:
                    effects = judged(one, chance, now_ms)
                case 3 if one.state is ConnectionState.DECIDING:
                    effects = one.accepted(chance.random() < 0.5, now_ms)
                case 4:
                    effects = one.timer("keep-alive", now_ms) if one._keep_alive_ms else []
                case 5 if chance.random() < 0.1:
                    effects = one.lost()
            one.check()
            ends += sum(isinstance(effect, EndConnection) for effect in effects)
            assert not was_closed or not effects
        assert ends <= 1


def test_c1_nobody_is_open_without_a_connect_or_a_proof() -> None:
    one = Connection(TERMS)
    one.state = ConnectionState.OPEN
    with pytest.raises(AssertionError, match="C1"):
        one.check()
    other = with_proof()
    other._principal = None
    with pytest.raises(AssertionError, match="C1"):
        other.check()


def test_c2_a_proof_is_judged_only_where_one_was_asked_for() -> None:
    one = opened()
    one._is_checking = True
    with pytest.raises(AssertionError, match="C2"):
        one.check()


def test_c3_only_who_is_judged_is_held() -> None:
    one = opened()
    one._held.append(Pingreq())
    with pytest.raises(AssertionError, match="C3"):
        one.check()


def test_c4_one_that_is_closed_asks_for_nothing() -> None:
    one = Connection(TERMS)
    one.state = ConnectionState.CLOSED
    one._is_checking = True
    with pytest.raises(AssertionError, match="C4"):
        one.check()
