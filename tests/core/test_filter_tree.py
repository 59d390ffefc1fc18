"""Filters by their levels: the same as when each of them is asked, whatever came and went before."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorline.core.filter_tree import FilterIndex, FilterTree
from moorline.core.topic import matches
from moorline.limits import FILTER_INDEX_KNOWN_MAX, FILTER_INDEX_READERS_KNOWN_MAX

LEVELS = st.sampled_from(["a", "b", "", "$x"])
TOPICS = st.lists(LEVELS, min_size=1, max_size=4).map("/".join).filter(bool)
FILTERS = st.builds(
    lambda levels, end: "/".join([*levels, *end]),
    st.lists(st.sampled_from(["a", "b", "", "+", "$x"]), min_size=1, max_size=4),
    st.sampled_from([[], ["#"]]),
).filter(bool) | st.just("#")


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.tuples(FILTERS, st.integers(0, 2), st.booleans()), max_size=20),
    st.lists(TOPICS, max_size=8),
)
def test_an_index_finds_each_reader_once(
    changes: list[tuple[str, int, bool]], topics: list[str]
) -> None:
    index: FilterIndex[int] = FilterIndex()
    held: set[tuple[str, int]] = set()
    for text, reader, is_put in changes:
        if is_put:
            index.put(text, reader)
            held.add((text, reader))
        else:
            index.remove(text, reader)
            held.discard((text, reader))
        for topic in topics:
            found = index.matching(topic)
            assert len(set(found)) == len(found)
            assert set(found) == {who for one, who in held if matches(one, topic)}
        index.check(matches)


def test_a_branch_that_leads_nowhere_goes() -> None:
    tree: FilterTree[int] = FilterTree()
    tree.put("a/b/c", 1)
    tree.put("a/b", 2)
    tree.remove("a/b/c")
    tree.check()
    assert dict(tree.items()) == {"a/b": 2}
    assert tree.get("a/b/c") is None
    tree.remove("a/b")
    assert not tree._root.below
    with pytest.raises(KeyError):
        tree.remove("a/b")


def test_a_branch_without_an_end_is_seen_by_the_check() -> None:
    tree: FilterTree[int] = FilterTree()
    tree.put("a/b", 1)
    tree._root.below["a"].below["b"].value = None
    with pytest.raises(AssertionError, match="T1"):
        tree.check()


def test_what_is_remembered_has_a_bound() -> None:
    index: FilterIndex[int] = FilterIndex()
    index.put("few/+", 1)
    for number in range(FILTER_INDEX_KNOWN_MAX + 10):
        assert index.matching(f"few/{number}") == (1,)
    assert len(index._known) <= FILTER_INDEX_KNOWN_MAX
    readers = range(FILTER_INDEX_READERS_KNOWN_MAX + 1)
    for reader in readers:
        index.put("many", reader)
    assert set(index.matching("many")) == set(readers)
    assert "many" not in index._known
    index._known["few/1"] = (2,)
    with pytest.raises(AssertionError, match="T2"):
        index.check(matches)
