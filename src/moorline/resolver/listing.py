"""Room: resolver. Lists and matches: pages in the order of the paths, in slices, of what the asker may list.

`next` of a page is the path that was looked at last, seen or not: a page may have few paths, or none, and
there may be more.
"""

from collections.abc import Generator
from typing import NamedTuple

from moorline.core.access.right import LIST
from moorline.core.directory.glob import Glob
from moorline.core.directory.ordered_paths import rank
from moorline.core.directory.registry import Registry
from moorline.core.directory.tree import Child
from moorline.limits import PATHS_LOOKED_AT_MAX
from moorline.net.session_rights import SessionRights
from moorline.resolver.delegations import Delegations
from moorline.resolver.rights import is_open, may_list

LOOKED_AT_ONCE = 100


class Page(NamedTuple):
    paths: list[str]
    next: str


class ChildrenPage(NamedTuple):
    children: list[Child]
    next: str


def listing(
    registry: Registry,
    delegations: Delegations,
    rights: SessionRights,
    path: str,
    after: str,
    count: int,
) -> Generator[None, None, ChildrenPage]:
    """The children of a path; a step looks at some of them."""
    sees_all = bool(rights.everywhere(path) & LIST) and not is_open(path)
    elsewhere = [one for one in delegations.children(path) if not after or rank(one) > rank(after)]
    seen: list[Child] = []
    for looked in range(PATHS_LOOKED_AT_MAX):
        child = registry.tree.next_child(path, after)
        while elsewhere and (child is None or rank(elsewhere[0]) <= rank(child.path)):
            other = elsewhere.pop(0)
            if child is not None and child.path == other:
                child = Child(other, child.is_published, has_below=True)
                break
            if len(seen) < count and may_list(rights, other):
                seen.append(Child(other, is_published=False, has_below=True))
        if child is None:
            return ChildrenPage(seen, "")
        after = child.path
        if (sees_all or may_list(rights, after)) and _is_there(registry, child):
            seen.append(child)
        if len(seen) >= count:
            break
        if looked % LOOKED_AT_ONCE == 0:
            yield
    return ChildrenPage(seen, after)


def _is_there(registry: Registry, child: Child) -> bool:
    """What only the dead have published is there until it is purged, and shown to nobody."""
    return child.has_below or registry.is_published(child.path)


def matching(
    registry: Registry, rights: SessionRights, glob: Glob, after: str, count: int
) -> Generator[None, None, Page]:
    """The published paths that match; a step looks at some of them."""
    seen: list[str] = []
    looked = 0
    while looked < PATHS_LOOKED_AT_MAX and len(seen) < count:
        some = registry.tree.match(glob, after, min(LOOKED_AT_ONCE, count - len(seen)))
        looked += LOOKED_AT_ONCE
        seen += [
            path for path in some.paths if registry.is_published(path) and may_list(rights, path)
        ]
        after = some.last
        if not after:
            break
        yield
    return Page(seen, after)
