"""Readers that sleep until something comes for them: woken by their topics alone, and by nothing too late."""

from moorline.topics.filtered_news import FilteredNews, Sleeper

SHARD = 3


def sleeper(news: FilteredNews, *filters: str) -> Sleeper:
    one = news.sleeper()
    for text in filters:
        one.add(text)
    return one


def test_only_who_has_a_filter_for_it_is_woken_once() -> None:
    news, woken = FilteredNews(), list[tuple[str, int]]()
    for name in ("a", "b"):
        one = sleeper(news, f"{name}/#", "both")
        assert one.wait(SHARD, 0, lambda first, name=name: woken.append((name, first)))  # type: ignore[misc]
    news.moved(SHARD, 0, 4, ["c", "a/1", "a/2"])
    assert woken == [("a", 0)]
    news.moved(SHARD + 1, 0, 1, ["both"])
    assert woken == [("a", 0)], "another shard"
    news.moved(SHARD, 4, 5, ["both"])
    assert woken == [("a", 0), ("b", 4)]


def test_who_sleeps_has_reached_what_came_meanwhile() -> None:
    news = FilteredNews()
    one = sleeper(news, "a")
    assert one.wait(SHARD, 2, lambda _: None)
    news.moved(SHARD, 2, 9, ["b"])
    assert one.reached(SHARD) == 9
    one.forget(SHARD)
    assert not one.reached(SHARD), "nobody looks for it any more"


def test_who_has_not_looked_at_all_of_it_may_not_sleep() -> None:
    news = FilteredNews()
    one = sleeper(news, "a")
    news.moved(SHARD, 0, 9, ["a"])
    assert not one.wait(SHARD, 8, lambda _: None)
    assert not one.reached(SHARD)
    assert one.wait(SHARD, 9, lambda _: None)


def test_filters_that_come_and_go_while_it_sleeps_count() -> None:
    news, woken = FilteredNews(), list[int]()
    one = sleeper(news, "a")
    one.wait(SHARD, 0, woken.append)
    one.remove("a")
    news.moved(SHARD, 0, 1, ["a"])
    assert not woken
    one.add("b")
    news.moved(SHARD, 1, 2, ["b"])
    assert woken == [1]
    one.wait(SHARD, 2, woken.append)
    one.close()
    news.moved(SHARD, 2, 3, ["b"])
    assert woken == [1]


def test_other_generations_wake_all_where_they_are() -> None:
    news, woken = FilteredNews(), list[int]()
    one = sleeper(news, "a")
    one.wait(SHARD, 0, woken.append)
    news.moved(SHARD, 0, 7, ["b"])
    news.reshaped(SHARD)
    assert woken == [7]
    assert not one.reached(SHARD)
