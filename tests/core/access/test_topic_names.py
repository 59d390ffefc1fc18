"""Topics that a principal publishes to, counted by name."""

import random

import pytest

from moorline.core.access.quota import Quota
from moorline.core.access.topic_names import TopicNames
from moorline.limits import TOPIC_NAMES_MS


def test_names_count_once_and_above_the_bound_none_of_a_call_is_taken() -> None:
    names = TopicNames(0)
    assert names.add([1, 2, 2], 3, 0) is None
    assert names.add([1, 2], 3, 0) is None
    over = names.add([3, 4], 3, 10)
    assert over is not None
    assert (over.quota, over.bound, over.retry_ms) == (Quota.TOPICS, 3, TOPIC_NAMES_MS - 10)
    assert names.count(10) == 2
    assert names.add([3], 3, 10) is None
    assert names.add([1, 2, 3], 3, 10) is None, "what is known is never refused"


def test_more_than_the_bound_at_once_is_never_given() -> None:
    over = TopicNames(0).add(range(4), 3, 0)
    assert over is not None
    assert over.is_too_much_at_once
    assert over.retry_ms is None


def test_a_name_that_is_not_used_is_given_back_by_the_time() -> None:
    names = TopicNames(0)
    names.add([1, 2], 2, 0)
    names.add([1], 2, TOPIC_NAMES_MS)
    assert names.count(TOPIC_NAMES_MS) == 2, "of the span before it counts on"
    assert names.add([3], 2, TOPIC_NAMES_MS) is not None
    assert names.add([3], 2, 2 * TOPIC_NAMES_MS) is None
    assert names.count(2 * TOPIC_NAMES_MS) == 2
    assert names.count(9 * TOPIC_NAMES_MS) == 0


@pytest.mark.parametrize("seed", range(20))
def test_it_agrees_with_a_plain_count(seed: int) -> None:
    chance, names, now_ms = random.Random(seed), TopicNames(0), 0
    used: dict[int, int] = {}
    for _ in range(300):
        now_ms += chance.randrange(TOPIC_NAMES_MS // 20)
        span = now_ms // TOPIC_NAMES_MS
        used = {name: last for name, last in used.items() if last >= span - 1}
        some = {chance.randrange(30) for _ in range(chance.randrange(4))}
        fits = len(used.keys() | some) <= 12 or some <= used.keys()
        assert (names.add(some, 12, now_ms) is None) == fits
        names.check()
        if fits:
            used |= dict.fromkeys(some, span)
        assert names.count(now_ms) == len(used)


def test_a_name_in_both_spans_is_found() -> None:
    """TN1."""
    names = TopicNames(0)
    names.add([1], 2, 0)
    names._before.add(1)
    with pytest.raises(AssertionError, match="TN1"):
        names.check()
