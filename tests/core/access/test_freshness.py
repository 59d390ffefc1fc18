"""How long what is known of rights may be used without the catalog."""

from hypothesis import given
from hypothesis import strategies as st

from moorline.core.access.freshness import Freshness, Knowledge


def known(revocation_ms: int = 2_000, stale_ms: int = 60_000) -> Knowledge:
    return Knowledge(revocation_ms=revocation_ms, stale_ms=stale_ms, asked_ms=1_000)


def test_it_is_fresh_then_stale_then_expired() -> None:
    one = known()
    assert one.freshness(3_000) is Freshness.FRESH
    assert one.freshness(3_001) is Freshness.STALE
    assert one.freshness(61_000) is Freshness.STALE
    assert one.freshness(61_001) is Freshness.EXPIRED


def test_an_answer_counts_from_its_question() -> None:
    one = known()
    one.heard(asked_ms=50_000)
    assert one.freshness(52_000) is Freshness.FRESH
    one.heard(asked_ms=40_000)  # one that was long under way is no newer word
    assert one.freshness(52_001) is Freshness.STALE


def test_without_patience_it_expires_behind_the_bound_of_revocation() -> None:
    one = known(stale_ms=0)
    assert one.freshness(3_000) is Freshness.FRESH
    assert one.freshness(3_001) is Freshness.EXPIRED


@given(
    st.integers(200, 60_000), st.integers(0, 3_600_000), st.lists(st.integers(0, 10**7), max_size=9)
)
def test_it_never_gets_fresher_by_itself(
    revocation_ms: int, stale_ms: int, looks_ms: list[int]
) -> None:
    one = known(revocation_ms, stale_ms)
    order = [Freshness.FRESH, Freshness.STALE, Freshness.EXPIRED]
    found = [order.index(one.freshness(1_000 + look_ms)) for look_ms in sorted(looks_ms)]
    assert found == sorted(found)
