"""Filters of one client that began at different places."""

from moorline.core.frames.hidden import HIDDEN
from moorline.core.mqtt.packets import Subscription
from moorline.core.stream import Shard
from moorline.mqtt.filters import Filters
from moorline.topics.filtered_news import FilteredNews

SHARD, OTHER = Shard("a", 0), Shard("a", 1)


def late(*more: str) -> Filters:
    filters = Filters(FilteredNews().sleeper())
    filters.put(Subscription("a/#", 0), 1, None)
    starts = {SHARD: 10, OTHER: 5}
    for identifier, text in enumerate(("a/b", *more), 2):
        filters.put(Subscription(text, 1), identifier, starts)
    return filters


def test_a_filter_lets_through_what_came_behind_it() -> None:
    filters = late("c")
    before, behind = filters.granted_at("a/b", SHARD, 9), filters.granted_at("a/b", SHARD, 10)
    assert before is not None
    assert (before.qos, before.identifiers) == (0, (1,))
    assert behind is not None
    assert (behind.qos, sorted(behind.identifiers)) == (1, [1, 2])
    assert filters.granted_at("c", SHARD, 9) is None
    assert filters.granted_at("c", SHARD, 10) is not None


def test_a_filter_is_as_old_as_the_others_once_the_place_has_passed_it() -> None:
    filters = late("c", "d")
    filters.passed({SHARD: 10, OTHER: 4})
    assert filters.has_late
    filters.passed({SHARD: 10, OTHER: 5})
    assert not filters.has_late
    found = filters.granted_at("a/b", SHARD, 0)
    assert found is not None
    assert found.qos == 1


def test_no_filter_takes_what_is_of_a_deleted_topic() -> None:
    filters = late("#", "+", "+/#", "$/#", "$")
    assert filters(HIDDEN) is False
    assert filters.granted_at(HIDDEN, SHARD, 20) is None


def test_a_withheld_filter_lets_nothing_through_at_any_place() -> None:
    filters = late()
    filters.withhold("a/#")
    assert filters.granted_at("a/b", SHARD, 9) is None
    assert filters.granted_at("a/x", SHARD, 20) is None
