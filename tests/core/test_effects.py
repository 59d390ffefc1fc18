"""Effects and events are values: equal if they say the same, and nobody changes one."""

import inspect

import pytest

from moorline.core import effects
from moorline.core.effects import Append, Effect, Event, Send, SetTimer, Synced

KINDS = [
    kind
    for _, kind in inspect.getmembers(effects, inspect.isclass)
    if kind.__module__ == effects.__name__
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_all_are_one_or_the_other_and_frozen(kind: type[Effect | Event]) -> None:
    assert issubclass(kind, Effect) != issubclass(kind, Event)
    assert kind.__struct_config__.frozen


def test_two_that_say_the_same_are_equal() -> None:
    assert Send("peer", (1, 2)) == Send("peer", (1, 2))
    assert SetTimer("t", 5) != SetTimer("t", 6)
    # An event is not the effect with the same fields: a test that compares lists would pass by mistake.
    effect: object = Append("f", b"")
    assert effect != Synced("f", 0)


def test_one_that_was_returned_cannot_be_changed() -> None:
    effect = SetTimer("t", 5)
    with pytest.raises(AttributeError):
        effect.after_ms = 6  # type: ignore[misc]
