"""What a delivery asks for: each effect names its feed, and is answered by one call that the machine has."""

import inspect

import msgspec
import pytest

from moorline.core.delivery import effects
from moorline.core.delivery.delivery import Delivery
from moorline.core.effects import Effect

KINDS = [
    kind
    for _, kind in inspect.getmembers(effects, inspect.isclass)
    if kind.__module__ == effects.__name__
]

ANSWERS = {
    "ReadBlock": ("found", "unread"),
    "AwaitNews": ("moved",),
    "Bury": ("buried", "not_buried"),
}
"""What asks a question, and what is called with the answer."""


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_an_effect_is_a_value_of_a_feed(kind: type[Effect]) -> None:
    assert issubclass(kind, Effect)
    assert kind.__struct_config__.frozen
    assert "feed" in {field.name for field in msgspec.structs.fields(kind)}


def test_each_question_has_an_answer_that_its_text_names() -> None:
    for name, answers in ANSWERS.items():
        text = inspect.getdoc(getattr(effects, name)) or ""
        for answer in answers:
            assert f"`{answer}`" in text
            assert callable(getattr(Delivery, answer))
    calls = [f"`{name}`" for name, _ in inspect.getmembers(Delivery, inspect.isfunction)]
    asking = {
        kind.__name__ for kind in KINDS if any(one in (inspect.getdoc(kind) or "") for one in calls)
    }
    assert asking == set(ANSWERS), "a question that no test knows"
