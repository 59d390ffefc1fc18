"""Paths in the order of their levels, whatever comes and goes."""

import random

from hypothesis import given
from hypothesis import strategies as st

from moorline.core.directory.ordered_paths import OrderedPaths
from moorline.core.directory.path import is_at_or_below
from moorline.limits import ORDERED_CHUNK_PATHS_MAX

LEVELS = st.lists(
    st.sampled_from(["a", "a-b", "a.b", "b", "-x", ".x", "é"]), min_size=1, max_size=3
)
PATHS = LEVELS.map(lambda levels: "/" + "/".join(levels))


def in_order(paths: set[str]) -> list[str]:
    return sorted(paths, key=lambda path: path.split("/"))


@given(st.lists(st.tuples(st.booleans(), PATHS), max_size=60), PATHS)
def test_it_is_the_sorted_set(changes: list[tuple[bool, str]], asked: str) -> None:
    ordered, model = OrderedPaths(), set[str]()
    for is_added, path in changes:
        if is_added and path not in model:
            model.add(path)
            ordered.add(path)
        elif not is_added and path in model:
            model.remove(path)
            ordered.remove(path)
    wanted = in_order(model)
    assert list(ordered) == wanted
    assert len(ordered) == len(wanted)
    behind = [path for path in wanted if path.split("/") > asked.split("/")]
    assert list(ordered.behind(asked)) == behind
    assert list(ordered.beyond(asked)) == [
        path for path in behind if not is_at_or_below(path, asked)
    ]
    assert list(ordered.behind("/")) == wanted
    assert list(ordered.beyond("/")) == []


def test_many_chunks_in_any_order_of_changes() -> None:
    chance = random.Random(7)
    count = 6 * ORDERED_CHUNK_PATHS_MAX
    paths = [f"/{number % 50}/{number:06}" for number in range(count)]
    for is_shuffled in (False, True):
        ordered, left = OrderedPaths(), list(paths)
        if is_shuffled:
            chance.shuffle(left)
        for path in left:
            ordered.add(path)
        assert list(ordered) == in_order(set(paths))
        chance.shuffle(left)
        while len(left) > 10:
            ordered.remove(left.pop())
        assert list(ordered) == in_order(set(left))
        for path in left:
            ordered.remove(path)
        assert list(ordered) == []
