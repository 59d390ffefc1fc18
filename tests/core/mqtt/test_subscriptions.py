"""Filters that overlap grant one copy: the highest qos, all identifiers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorline.core.mqtt.packets import Subscription
from moorline.core.mqtt.subscriptions import Granted, Subscriptions
from moorline.core.topic import matches


def subscriptions(*filters: tuple[str, int, int | None]) -> Subscriptions:
    found = Subscriptions()
    for text, qos, identifier in filters:
        found.put(Subscription(text, qos), identifier)
    return found


def test_q20_overlapping_filters_grant_one_copy_with_all_identifiers() -> None:
    """MQTT-3.3.4-2, MQTT-3.3.4-3, MQTT-3.3.4-4"""
    one = subscriptions(("a/#", 0, 7), ("a/+", 2, None), ("+/b", 1, 300), ("c", 2, 9))
    granted = one.granted("a/b")
    assert granted is not None
    assert granted.qos == 2
    assert sorted(granted.identifiers) == [7, 300]
    assert one.granted("x") is None


def test_q22_a_filter_that_comes_again_replaces_what_it_was() -> None:
    """MQTT-3.8.4-3"""
    one = subscriptions(("a", 0, 7))
    assert one.granted("a") == Granted(0, (7,), False, True)
    assert not one.put(Subscription("a", 2, retain_as_published=True), None)
    assert one.granted("a") == Granted(2, (), True, True)
    assert len(one) == 1
    assert one.remove("a")
    assert not one.remove("a")
    assert one.granted("a") is None
    one.check()


def test_q21_no_local_leaves_out_what_the_client_published_itself() -> None:
    """MQTT-3.8.3-3"""
    one = Subscriptions()
    one.put(Subscription("a/#", 2, no_local=True), 1)
    assert one.granted("a/b", is_own=True) is None
    assert one.granted("a/b") == Granted(2, (1,), False, False)
    one.put(Subscription("a/b", 0), 2)
    assert one.granted("a/b", is_own=True) == Granted(0, (2,), False, True)


@pytest.mark.parametrize(
    ("text", "topic", "is_matched"),
    [
        ("#", "a/b", True),
        ("#", "$SYS/a", False),
        ("+/a", "$SYS/a", False),
        ("$SYS/#", "$SYS/a", True),
        ("$SYS/+", "$SYS/a", True),
        ("a/#", "a", True),
        ("a/#", "ab", False),
        ("a/+", "a", False),
        ("a/+", "a/", True),
        ("+", "a", True),
        ("+/+", "/a", True),
        ("/+", "/a", True),
        ("+", "/a", False),
        ("a/+/#", "a/b", True),
        ("A", "a", False),
    ],
)
def test_q23_filters(text: str, topic: str, is_matched: bool) -> None:
    """MQTT-4.7.1-1, MQTT-4.7.2-1, MQTT-4.7.3-4"""
    one = subscriptions((text, 1, None))
    assert (one.granted(topic) is not None) == is_matched == matches(text, topic)
    one.check()


levels = st.sampled_from(["a", "b", "", "$x", "ä"])
topics = st.lists(levels, min_size=1, max_size=4).map("/".join).filter(bool)
filters = st.builds(
    lambda parts, is_open: "/".join([*parts, "#"] if is_open else parts),
    st.lists(levels | st.just("+"), min_size=1, max_size=4),
    st.booleans(),
).filter(bool)


@given(st.lists(st.tuples(filters, st.booleans()), max_size=30), st.lists(topics, max_size=10))
def test_a_tree_of_filters_grants_what_each_of_them_matches(
    changes: list[tuple[str, bool]], asked: list[str]
) -> None:
    one = Subscriptions()
    there: dict[str, int] = {}
    for number, (text, is_put) in enumerate(changes, 1):
        if is_put:
            assert one.put(Subscription(text, number % 3), number) == (text not in there)
            there[text] = number
        else:
            assert one.remove(text) == (there.pop(text, None) is not None)
        for topic in asked:
            granted = one.granted(topic)
            wanted = {there[text] for text in there if matches(text, topic)}
            assert set(granted.identifiers if granted else ()) == wanted
            assert not granted or granted.qos == max(number % 3 for number in wanted)
        one.check()
    assert [subscription.filter for subscription, _ in one.all()] == list(there)
    assert all(text in one for text in there)


def test_what_is_known_of_topics_is_bounded() -> None:
    one = subscriptions(("#", 0, None))
    for number in range(3_000):
        one.granted(f"t/{number}")
    assert len(one._known) <= 1_024


def test_b1_the_tree_is_that_of_the_list() -> None:
    one = subscriptions(("a/b", 0, None))
    del one._by_filter["a/b"]
    with pytest.raises(AssertionError, match="B1"):
        one.check()


def test_b2_what_is_known_of_a_topic_is_what_is_granted() -> None:
    one = subscriptions(("a", 0, None))
    one._known["a"] = None
    with pytest.raises(AssertionError, match="B2"):
        one.check()
    one._known["a"] = Granted(2, (), False, True)
    with pytest.raises(AssertionError, match="B2"):
        one.check()
