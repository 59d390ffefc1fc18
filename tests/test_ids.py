"""Ids: their text, and what is refused."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorline.errors import Malformed
from moorline.ids import (
    HOME_BYTES,
    ID_BYTES,
    NO_HOME,
    drawn,
    drawn_home,
    home_number,
    id_of,
    text_of,
)


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


@given(home=st.binary(min_size=HOME_BYTES, max_size=HOME_BYTES), seed=st.integers(0, 2**32))
def test_the_id_of_a_queue_ends_with_its_home_and_begins_by_chance(home: bytes, seed: int) -> None:
    drawn_bytes: list[bytes] = []

    def draw(count: int) -> bytes:
        drawn_bytes.append(random.Random(f"{seed} {len(drawn_bytes)}").randbytes(count))
        return drawn_bytes[-1]

    queue_id = drawn(draw, home)
    assert len(queue_id) == ID_BYTES
    assert home_number(queue_id) == home
    assert queue_id[:-HOME_BYTES] == drawn_bytes[-1]
    assert len(drawn_bytes[-1]) == ID_BYTES - HOME_BYTES
    assert not text_of(queue_id).startswith("-")
    assert id_of(text_of(queue_id)) == queue_id


def test_the_number_of_no_home_is_never_drawn() -> None:
    answers = iter([NO_HOME, NO_HOME, b"home"])
    assert drawn_home(lambda _: next(answers)) == b"home"
