"""The tree against a plain dict of who publishes what."""

from hypothesis import given
from hypothesis import strategies as st

from moorline.core.directory.glob import Glob
from moorline.core.directory.path import DEFAULT, WRITABLE, is_at_or_below, parent_of
from moorline.core.directory.tree import Tree

LEVELS = st.lists(st.sampled_from(["a", "a-b", "a.b", "b"]), min_size=1, max_size=4)
PATHS = LEVELS.map(lambda levels: "/" + "/".join(levels))
CHANGES = st.lists(
    st.tuples(st.booleans(), PATHS, st.integers(1, 3), st.sampled_from([0, DEFAULT, WRITABLE])),
    max_size=40,
)
GLOBS = ["/**", "/a/**", "/*", "/a/*", "/**/b", "/a*/b", "/a/b", "/{a,b}/*/a"]
Model = dict[str, dict[int, int]]


def grown(changes: list[tuple[bool, str, int, int]]) -> tuple[Tree, Model]:
    tree, model = Tree(), Model()
    for is_put, path, publisher, flags in changes:
        if is_put:
            assert tree.put(path, publisher, flags) == (path not in model)
            model.setdefault(path, {})[publisher] = flags
        elif publisher in model.get(path, {}):
            del model[path][publisher]
            assert tree.remove(path, publisher) == (not model[path])
            if not model[path]:
                del model[path]
        tree.invariants()
    return tree, model


@given(CHANGES, PATHS)
def test_find_defaults_and_children(changes: list[tuple[bool, str, int, int]], asked: str) -> None:
    tree, model = grown(changes)
    holders = tree.find(asked)
    assert (dict(holders.held) if holders else None) == model.get(asked)
    wanted = []
    above = asked
    while above != "/":
        above = parent_of(above)
        if any(flags & DEFAULT for flags in model.get(above, {}).values()):
            wanted.append(model[above])
    assert [dict(one.held) for one in tree.defaults(asked)] == wanted
    for path in ("/", asked):
        depth = 1 if path == "/" else path.count("/") + 1
        below = [one for one in model if is_at_or_below(one, path) and one != path]
        names = sorted(
            {"/".join(one.split("/")[: depth + 1]) for one in below}, key=lambda one: one.split("/")
        )
        children, after = [], ""
        while (child := tree.next_child(path, after)) is not None:
            children.append(child)
            after = child.path
        assert [child.path for child in children] == names
        for child in children:
            assert child.is_published == (child.path in model)
            assert child.has_below == any(one.startswith(child.path + "/") for one in model)


@given(CHANGES, st.sampled_from(GLOBS), st.integers(1, 5))
def test_matches_in_pages_are_all_that_match(
    changes: list[tuple[bool, str, int, int]], text: str, looked_max: int
) -> None:
    tree, model = grown(changes)
    glob = Glob.parsed(text)
    found: list[str] = []
    after = ""
    while True:
        page = tree.match(glob, after, looked_max)
        found += page.paths
        if not (after := page.last):
            break
    assert found == sorted(filter(glob.matches, model), key=lambda path: path.split("/"))


def test_what_cannot_match_is_passed_over() -> None:
    tree = Tree()
    for number in range(1_000):
        tree.put(f"/a/x/{number}", 1, 0)
    tree.put("/a/y/b", 1, 0)
    page = tree.match(Glob.parsed("/a/[!x]/*"), "", 3)
    assert page.paths == ["/a/y/b"]
