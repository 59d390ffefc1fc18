"""Topics and filters by the tables of MQTT 5, 4.7, and names of groups by 4.8.2."""

import pytest

from moorline.core.topic import Matcher, Mode, check_filter, check_topic, matches, shared_name
from moorline.errors import BadTopic
from moorline.limits import GROUP_NAME_BYTES_MAX, TOPIC_BYTES_MAX, TOPIC_LEVELS_MAX

MATCHES = [
    ("sport/tennis/player1/#", "sport/tennis/player1", True),
    ("sport/tennis/player1/#", "sport/tennis/player1/ranking", True),
    ("sport/tennis/player1/#", "sport/tennis/player1/score/wimbledon", True),
    ("sport/#", "sport", True),
    ("#", "sport/tennis", True),
    ("sport/tennis/+", "sport/tennis/player1", True),
    ("sport/tennis/+", "sport/tennis/player1/ranking", False),
    ("sport/+", "sport", False),
    ("sport/+", "sport/", True),
    ("+/+", "/finance", True),
    ("/+", "/finance", True),
    ("+", "/finance", False),
    ("+/monitor/Clients", "a/monitor/Clients", True),
    ("ACCOUNTS", "Accounts", False),
    ("Accounts payable", "Accounts payable", True),
    ("a/b", "a/b/c", False),
    ("a/b/c", "a/b", False),
    ("#", "$SYS/load", False),
    ("+/load", "$SYS/load", False),
    ("$SYS/#", "$SYS/load", True),
    ("$SYS/monitor/+", "$SYS/monitor/Clients", True),
    ("$dead/#", "$dead/group/orders", True),
    ("a/+/$x", "a/b/$x", True),
]


@pytest.mark.parametrize(("text", "topic", "expected"), MATCHES)
def test_a_filter_takes_what_the_standard_says(text: str, topic: str, expected: bool) -> None:
    check_filter(text)
    check_topic(topic)
    assert matches(text, topic) is expected
    matcher = Matcher(text)
    assert [matcher(topic), matcher(topic)] == [expected, expected]


@pytest.mark.parametrize(
    "text", ["", "a/#/b", "a#", "a/b#", "+a", "a/b+/c", "##", "a\0b", "\ud800", "#/"]
)
def test_a_bad_filter_is_refused(text: str) -> None:
    with pytest.raises(BadTopic):
        check_filter(text)


@pytest.mark.parametrize(
    "topic", ["", "a/+", "#", "a\0", "$shared/g/a", "$share/g/a", "$queue/g/a", "x" * 2_000]
)
def test_a_bad_topic_is_refused(topic: str) -> None:
    with pytest.raises(BadTopic):
        check_topic(topic)


def test_topics_are_bounded_in_bytes_and_levels() -> None:
    check_topic("x" * TOPIC_BYTES_MAX)
    check_topic("/" * (TOPIC_LEVELS_MAX - 1))
    for topic in ("é" * (TOPIC_BYTES_MAX // 2 + 1), "/" * TOPIC_LEVELS_MAX):
        with pytest.raises(BadTopic):
            check_topic(topic)


@pytest.mark.parametrize(
    ("text", "mode", "group", "filter_text"),
    [
        ("$share/g/a/b", Mode.SHARED, "g", "a/b"),
        ("$shared/g/#", Mode.SHARED, "g", "#"),
        ("$queue/g/+/x", Mode.QUEUE, "g", "+/x"),
        ("$share/g//a", Mode.SHARED, "g", "/a"),
        ("$share/g/$SYS/#", Mode.SHARED, "g", "$SYS/#"),
    ],
)
def test_a_shared_subscription_names_a_group_and_a_filter(
    text: str, mode: Mode, group: str, filter_text: str
) -> None:
    name = shared_name(text)
    assert name is not None
    assert (name.mode, name.group, name.filter) == (mode, group, filter_text)


def test_share_and_shared_are_the_same_group() -> None:
    assert shared_name("$share/g/a") == shared_name("$shared/g/a") != shared_name("$queue/g/a")
    assert str(shared_name("$share/g/a")) == "$shared/g/a"


@pytest.mark.parametrize("text", ["a/b", "#", "$SYS/x", "$shares/g/a", "share/g/a"])
def test_other_filters_name_no_group(text: str) -> None:
    assert shared_name(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "$share",
        "$share/",
        "$share/g",
        "$share/g/",
        "$share//a",
        "$share/+/a",
        "$share/a#/b",
        "$share/g/a#",
        "$share/g/$share/h/a",
        "$queue/g/$queue/h/a",
        "$share/" + "g" * (GROUP_NAME_BYTES_MAX + 1) + "/a",
    ],
)
def test_m7_a_bad_share_name_is_refused(text: str) -> None:
    with pytest.raises(BadTopic):
        shared_name(text)


@pytest.mark.parametrize("text", ["$share/\ud800/orders", "$queue/g/\udfff", "\ud800"])
def test_half_a_character_is_refused_by_name_wherever_it_stands(text: str) -> None:
    with pytest.raises(BadTopic, match="is not text"):  # noqa: PT012  one of the two
        shared_name(text)
        check_filter(text)
