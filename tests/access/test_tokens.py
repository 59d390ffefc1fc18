"""Tokens as text, what is stored of them, and how long they prove somebody."""

import pytest

from moorline.access.tokens import PREFIX, left_ms, new_token, token_hash


def test_a_token_is_drawn_and_known_by_its_hash() -> None:
    one, other = new_token(), new_token()
    assert one.startswith(PREFIX)
    assert token_hash(one) == token_hash(one) != token_hash(other)
    assert len(token_hash(one) or b"") == 32


@pytest.mark.parametrize(
    "text", ["", PREFIX, "moor_short", PREFIX + 44 * "a", PREFIX + 42 * "a" + "\n"]
)
def test_what_has_not_the_form_is_no_token(text: str) -> None:
    assert token_hash(text) is None


def test_a_token_is_good_up_to_its_last_millisecond() -> None:
    assert left_ms(None, 10) is None
    assert left_ms(11, 10) == 1
    assert left_ms(10, 10) == 0
    assert left_ms(9, 10) == 0
