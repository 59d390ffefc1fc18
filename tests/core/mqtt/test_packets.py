"""Packets are values, and a CONNECT knows how long its session is to live, in each version."""

from moorline.core.mqtt.packets import NONE, Connect, Properties, Publish


def test_packets_are_values() -> None:
    assert Publish("a", b"x") == Publish("a", b"x", 0, False, False, 0, NONE)
    assert Properties() == NONE
    assert hash(Properties(user=(("a", "b"),))) == hash(Properties(user=(("a", "b"),)))


def test_q02_how_long_a_session_is_to_live() -> None:
    assert Connect(5, "c", True, 0).session_expiry_s == 0
    assert (
        Connect(5, "c", True, 0, properties=Properties(session_expiry_s=30)).session_expiry_s == 30
    )
    # Before MQTT 5 one flag says both: forget what was, and keep nothing.
    assert Connect(4, "c", True, 0).session_expiry_s == 0
    assert Connect(4, "c", False, 0).session_expiry_s == 0xFFFF_FFFF
