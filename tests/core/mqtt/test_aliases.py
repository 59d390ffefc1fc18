"""Aliases of topics stand for what they were given for, on one connection, within the maximum."""

import pytest

from moorline.core.mqtt.aliases import Aliases
from moorline.core.mqtt.packets import NONE, Properties, Publish
from moorline.core.mqtt.reason import ReasonCode, Violation


def said(topic: str, alias: int, **others: str) -> Publish:
    return Publish(topic, b"x", properties=Properties(topic_alias=alias, **others))  # type: ignore[arg-type]


def test_q15_an_alias_is_given_used_and_given_anew() -> None:
    aliases = Aliases(2)
    found = aliases.resolve(
        [said("a", 1), said("", 1), said("b", 1), said("", 1), Publish("c", b"x")]
    )
    assert [one.topic for one in found] == ["a", "a", "b", "b", "c"]
    # It is of this connection, and no part of the message.
    assert all(one.properties is NONE for one in found)
    (kept,) = aliases.resolve([said("", 1, content_type="t")])
    assert kept.properties == Properties(content_type="t")
    aliases.check()


@pytest.mark.parametrize(
    ("topic", "alias", "reason"),
    [
        ("a", 3, ReasonCode.TOPIC_ALIAS_INVALID),
        ("a", 0, ReasonCode.TOPIC_ALIAS_INVALID),
        ("", 2, ReasonCode.PROTOCOL_ERROR),
    ],
)
def test_q15_aliases_beyond_the_maximum_and_unknown_ones(
    topic: str, alias: int, reason: ReasonCode
) -> None:
    aliases = Aliases(2)
    with pytest.raises(Violation) as caught:
        aliases.resolve([said("a", 1), said(topic, alias)])
    assert caught.value.reason is reason
    assert [one.topic for one in caught.value.before] == ["a"]


def test_q15_the_next_connection_begins_with_none() -> None:
    assert Aliases(2).resolve([said("a", 1)])
    with pytest.raises(Violation):
        Aliases(2).resolve([said("", 1)])


def test_a1_no_alias_is_above_the_maximum() -> None:
    aliases = Aliases(2)
    aliases.resolve([said("a", 2)])
    aliases.maximum = 1
    with pytest.raises(AssertionError, match="A1"):
        aliases.check()
