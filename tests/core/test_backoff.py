"""How long whoever was cut waits before it comes back."""

from hypothesis import given
from hypothesis import strategies as st

from moorline.core.backoff import pause_ms


@given(st.integers(0, 100), st.floats(0, 1), st.integers(1, 10_000), st.integers(1, 100_000))
def test_a_pause_is_within_its_bounds(tries: int, chance: float, first: int, most: int) -> None:
    assert 0 <= pause_ms(tries, chance, first_ms=first, most_ms=most) <= max(first, most)


def test_it_doubles_up_to_its_bound() -> None:
    longest = [pause_ms(tries, 1.0, first_ms=500, most_ms=3_000) for tries in range(5)]
    assert longest == [500, 1_000, 2_000, 3_000, 3_000]
