"""Topics by their levels."""

import random

import pytest

from moorline.core.topic import check_filter, check_topic, matches
from moorline.core.topic_tree import TopicTree
from moorline.errors import BadTopic

LEVELS = ["", "a", "b", "$x", "c c"]


def found(tree: TopicTree[str], text: str) -> list[str]:
    return [one for one in tree.walk(text) if one is not None]


@pytest.mark.parametrize("seed", range(20))
def test_it_finds_what_matches_and_each_of_them_once(seed: int) -> None:
    draw = random.Random(seed)
    topics = {"/".join(draw.choices(LEVELS, k=draw.randint(1, 4))) for _ in range(60)} - {""}
    tree: TopicTree[str] = TopicTree()
    for topic in topics:
        check_topic(topic)
        tree.put(topic, topic)
    for _ in range(200):
        levels = draw.choices([*LEVELS, "+", "+"], k=draw.randint(1, 4))
        if draw.random() < 0.4:
            levels.append("#")
        text = "/".join(levels)
        try:
            check_filter(text)
        except BadTopic:
            continue
        assert sorted(found(tree, text)) == sorted(one for one in topics if matches(text, one))


def test_a_filter_without_wildcards_looks_at_its_own_levels_only() -> None:
    tree: TopicTree[str] = TopicTree()
    for number in range(1_000):
        tree.put(f"a/{number}", f"a/{number}")
    assert list(tree.walk("a/7")) == [None, None, "a/7"]
    assert list(tree.walk("b/#")) == [None]


def test_what_is_there_during_the_whole_walk_is_found_once() -> None:
    tree: TopicTree[str] = TopicTree()
    for number in range(100):
        tree.put(f"a/{number}", f"a/{number}")
    seen = []
    for step, one in enumerate(tree.walk("#")):
        tree.put(f"new/{step}", "new")
        tree.put(f"a/new {step}", "new")
        tree.put(f"a/{step % 100}", f"a/{step % 100}")
        seen.append(one)
    assert sorted(one for one in seen if one and one != "new") == sorted(
        f"a/{number}" for number in range(100)
    )


def test_a_newer_value_takes_the_place_of_the_older() -> None:
    tree: TopicTree[str] = TopicTree()
    tree.put("a", "old")
    tree.put("a", "new")
    assert found(tree, "#") == ["new"]
