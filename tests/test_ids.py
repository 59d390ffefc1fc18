"""Ids: their text, and what is refused."""

import random

import pytest

from moorline.errors import Malformed
from moorline.ids import ID_BYTES, drawn, id_of, text_of


def test_text_and_back() -> None:
    for seed in range(50):
        identifier = random.Random(seed).randbytes(ID_BYTES)
        assert len(text_of(identifier)) == 32
        assert id_of(text_of(identifier)) == identifier


@pytest.mark.parametrize("text", ["", "short", "x" * 31, "x" * 33, "ä" * 32, "+" * 32, "=" * 32])
def test_text_that_is_no_id_is_refused(text: str) -> None:
    with pytest.raises(Malformed, match="32 characters of base64url"):
        id_of(text)


def test_no_drawn_id_looks_like_an_option() -> None:
    chance = random.Random(1)
    texts = [text_of(drawn(chance.randbytes)) for _ in range(5_000)]
    assert not any(text.startswith("-") for text in texts)
    assert any("-" in text for text in texts)
