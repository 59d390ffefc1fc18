"""Room: core/directory. The tree of paths: who publishes each, and what is below what.

    tree.put("/oslo/fjord", publisher, flags)      whether the path is new
    tree.find("/oslo/fjord")                       its holders: the publishers with their flags
    tree.defaults("/oslo/fjord/x")                 who makes it on demand, the nearest first
    tree.next_child("/oslo", after)                one level, in order
    tree.match(glob, after, looked_max)            the published paths that match, in order

A publisher is a number here. Holders are shared by all paths that have the same ones, so that a path costs
its text, its place in a dict and eight bytes in the order (core/directory/ordered_paths.py). A branch is
there exactly if something is published in it: none is kept by itself, and none can be left behind.

What is above a path is found level by level: `/a` is the default of `/a/b`, whatever stands between the two
in any order of texts.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from moorline.core.directory.glob import MATCHES, NOT_YET, Glob
from moorline.core.directory.ordered_paths import OrderedPaths
from moorline.core.directory.path import DEFAULT, is_at_or_below, parent_of

Held = tuple[int, int]
"""A publisher, and its flags for a path."""


class Holders:
    """Those who publish a path, in the order of their numbers."""

    __slots__ = ("held", "is_default", "paths")

    def __init__(self, held: tuple[Held, ...]) -> None:
        self.held = held
        self.is_default = any(flags & DEFAULT for _, flags in held)
        """Found once: it is asked for each path that they come to hold."""
        self.paths = 0
        """How many paths have exactly these."""

    def flags_of(self, publisher: int) -> int | None:
        return next((flags for number, flags in self.held if number == publisher), None)


class Child(NamedTuple):
    path: str
    is_published: bool
    has_below: bool


class Found(NamedTuple):
    """A part of what matches: `last` is the path that was looked at last, empty at the end of the tree."""

    paths: list[str]
    last: str


class Tree:
    """All paths that are published."""

    def __init__(self) -> None:
        self._holders: dict[str, Holders] = {}
        self.holders_of: Final = self._holders.get
        """`find` without a step between: for whoever asks for a thousand paths."""
        self._ordered = OrderedPaths()
        self._defaults: dict[str, Holders] = {}
        """Those paths that somebody publishes as a default."""
        self._shared: dict[tuple[Held, ...], Holders] = {}

    def __len__(self) -> int:
        return len(self._holders)

    def __contains__(self, path: str) -> bool:
        return path in self._holders

    def __iter__(self) -> Iterator[str]:
        return iter(self._ordered)

    # --- changes ----------------------------------------------------------------------------------

    def put(self, path: str, publisher: int, flags: int) -> bool:
        """Whether nobody published it before."""
        before = self._holders.get(path)
        if before is None:
            self._set(path, ((publisher, flags),))
            self._ordered.add(path)
            return True
        others = [one for one in before.held if one[0] != publisher]
        self._set(path, tuple(sorted([*others, (publisher, flags)])))
        self._let_go(before)
        return False

    def remove(self, path: str, publisher: int) -> bool:
        """Whether nobody publishes it any more. The publisher does so now."""
        before = self._holders[path]
        left = tuple(one for one in before.held if one[0] != publisher)
        assert len(left) < len(before.held), f"{publisher} does not publish {path}"
        if left:
            self._set(path, left)
        else:
            del self._holders[path]
            self._defaults.pop(path, None)
            self._ordered.remove(path)
        self._let_go(before)
        return not left

    def _set(self, path: str, held: tuple[Held, ...]) -> None:
        holders = self._shared.get(held)
        if holders is None:
            holders = self._shared[held] = Holders(held)
        holders.paths += 1
        self._holders[path] = holders
        if holders.is_default:
            self._defaults[path] = holders
        elif self._defaults:
            self._defaults.pop(path, None)

    def _let_go(self, holders: Holders) -> None:
        holders.paths -= 1
        if not holders.paths:
            del self._shared[holders.held]

    # --- questions --------------------------------------------------------------------------------

    def find(self, path: str) -> Holders | None:
        return self._holders.get(path)

    def defaults(self, path: str) -> Iterator[Holders]:
        """The holders of the default paths above a path, from the nearest one up."""
        while self._defaults and path != "/":
            path = parent_of(path)
            found = self._defaults.get(path)
            if found is not None:
                yield found

    def next_child(self, path: str, after: str) -> Child | None:
        """The child of a path behind the child `after`; the first one where that is empty."""
        behind = self._ordered.beyond(after) if after else self._ordered.behind(path)
        first = next(behind, None)
        if first is None or not is_at_or_below(first, path):
            return None
        level = len(path) + 1 if path != "/" else 1
        end = first.find("/", level)
        if end >= 0:
            return Child(first[:end], is_published=False, has_below=True)
        following = next(behind, None)
        has_below = following is not None and is_at_or_below(following, first)
        return Child(first, is_published=True, has_below=has_below)

    def match(self, glob: Glob, after: str, looked_max: int) -> Found:
        """Looks at no more than so many paths behind `after`; from the beginning where that is empty.

        Otherwise `after` is a path that was looked at before.
        """
        root = glob.root
        found: list[str] = []
        if not after and root in self._holders and glob.matches(root):
            found.append(root)
        last = after or root
        behind = self._ordered.behind(last)
        for _ in range(looked_max):
            path = next(behind, None)
            if path is None or not is_at_or_below(path, root):
                return Found(found, "")
            last = path
            verdict = glob.judge(path)
            if verdict == MATCHES:
                found.append(path)
            elif verdict != NOT_YET:
                # Nothing of that subtree can: it may be nearly all there is.
                behind = self._ordered.beyond(_first_levels(path, verdict))
        return Found(found, last)

    # --- invariants -------------------------------------------------------------------------------

    def invariants(self) -> None:
        ordered = list(self._ordered)
        levels = [path.split("/") for path in ordered]
        assert levels == sorted(levels), "paths are out of order"
        assert len(ordered) == len(set(ordered)), "a path is there twice"
        assert set(ordered) == self._holders.keys(), "the order and the holders differ"
        wanted = {path for path, holders in self._holders.items() if holders.is_default}
        assert wanted == self._defaults.keys(), "the defaults are not those with the flag"
        counts: dict[tuple[Held, ...], int] = {}
        for holders in self._holders.values():
            assert holders.held, "a path without a publisher"
            assert self._shared[holders.held] is holders, "the same holders twice"
            counts[holders.held] = counts.get(holders.held, 0) + 1
        assert {key: one.paths for key, one in self._shared.items()} == counts, "shared counts"


def _first_levels(path: str, count: int) -> str:
    """The path of its first levels, that many."""
    end = 0
    for _ in range(count):
        end = path.find("/", end + 1)
        if end < 0:
            return path
    return path[:end]
