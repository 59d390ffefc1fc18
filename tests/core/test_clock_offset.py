"""How far one clock is ahead of another, by one question."""

from hypothesis import given
from hypothesis import strategies as st

from moorline.core.clock_offset import ahead_ms
from moorline.limits import CLOCK_QUESTION_MS_MAX

LONGEST_US = CLOCK_QUESTION_MS_MAX * 1_000


@given(
    real_us=st.integers(10**15, 2 * 10**15),
    ours_ahead_us=st.integers(-(10**12), 10**12),
    there_us=st.integers(0, LONGEST_US // 2),
    back_us=st.integers(0, LONGEST_US // 2),
)
def test_it_is_wrong_by_half_of_the_way_at_most(
    real_us: int, ours_ahead_us: int, there_us: int, back_us: int
) -> None:
    before_us = real_us + ours_ahead_us
    found = ahead_ms(before_us, real_us + there_us, before_us + there_us + back_us)
    assert found is not None
    assert abs(found * 1_000 - ours_ahead_us) <= (there_us + back_us) / 2 + 500


def test_a_question_that_took_long_or_over_which_our_clock_was_set_says_nothing() -> None:
    assert ahead_ms(0, 0, LONGEST_US) is not None
    assert ahead_ms(0, 0, LONGEST_US + 1) is None
    assert ahead_ms(5_000, 0, 4_999) is None
