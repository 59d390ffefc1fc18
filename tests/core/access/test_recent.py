"""What came lately is bounded within any span, and given back by the time."""

import random

import pytest

from moorline.core.access.quota import Quota
from moorline.core.access.recent import Recent
from moorline.limits import RECENT_MS


def test_all_of_it_or_nothing() -> None:
    recent = Recent(Quota.QUEUES, 0)
    assert recent.add(3, 5, 0) is None
    over = recent.add(3, 5, 0)
    assert over is not None
    assert (over.quota, over.bound, over.retry_ms) == (Quota.QUEUES, 5, RECENT_MS)
    assert recent.add(2, 5, 0) is None
    too_much = recent.add(6, 5, 0)
    assert too_much is not None
    assert too_much.is_too_much_at_once
    assert recent.count(RECENT_MS) == 5
    assert recent.count(2 * RECENT_MS) == 0


def test_never_more_than_the_bound_within_a_span() -> None:
    """By a model that keeps every moment."""
    chance = random.Random(7)
    recent, now_ms, given = Recent(Quota.QUEUES, 0), 0, list[tuple[int, int]]()
    for _ in range(20_000):
        now_ms += chance.randrange(RECENT_MS // 100)
        amount, bound = chance.randrange(1, 8), 40
        if recent.add(amount, bound, now_ms) is None:
            given.append((now_ms, amount))
        recent.check()
        given = [(at, some) for at, some in given if at > now_ms - 2 * RECENT_MS]
        within = sum(some for at, some in given if at > now_ms - RECENT_MS)
        assert within <= bound
        assert within <= recent.count(now_ms) <= sum(some for _, some in given)
    # What is refused by one is free again for another, and a long silence gives all back.
    assert recent.count(now_ms + 10 * RECENT_MS) == 0


def test_re1_less_than_nothing_is_a_mistake_of_ours() -> None:
    recent = Recent(Quota.QUEUES, 0)
    recent._now = -1
    with pytest.raises(AssertionError, match="RE1"):
        recent.check()
