"""Tables, subjects and paths drawn from few levels, and a model that walks over all rows."""

from collections.abc import Iterable, Iterator
from itertools import repeat

from hypothesis import strategies

from moorline.core.access.principal import level_of
from moorline.core.access.right import EVERYTHING, WRITE
from moorline.core.access.row import OWN_PATH, OWN_PLACES, Row, Subjects

LEVELS = ["a", "b", "ab", "", "$x", "$SYS", "alice", "%u", "b%2Fc"]
GROUPS = ["@everyone", "@sales", "@ops"]
PRINCIPALS = ["alice", "b", "b/c"]

subjects = strategies.builds(
    Subjects,
    strategies.sampled_from(PRINCIPALS),
    strategies.frozensets(strategies.sampled_from(GROUPS)),
)
bits = strategies.integers(0, EVERYTHING)


@strategies.composite
def paths(draw: strategies.DrawFn, *, levels: tuple[str, ...] = tuple(LEVELS)) -> str:
    root = draw(strategies.sampled_from(["topics", "topics", "topics", "queues"]))
    below = draw(strategies.lists(strategies.sampled_from(levels), max_size=4))
    if draw(strategies.integers(0, 9)) == 0:
        return "/"
    return "/" + "/".join([root, *below])


@strategies.composite
def row_paths(draw: strategies.DrawFn) -> str:
    if draw(strategies.integers(0, 6)) == 0:
        return OWN_PATH
    path = draw(paths())
    return path.rstrip("/") or "/"


rows = strategies.builds(
    Row, row_paths(), strategies.sampled_from([*GROUPS, *PRINCIPALS]), bits, bits
)
tables = strategies.lists(rows, max_size=12, unique_by=lambda row: (row.path, row.subject))


def split(path: str) -> list[str]:
    return [] if path == "/" else path[1:].split("/")


def spread(table: Iterable[Row]) -> Iterator[Row]:
    """A row for all that is somebody's own as a row at each place."""
    for row in table:
        if row.path != OWN_PATH:
            yield row
            continue
        for levels, letters in OWN_PLACES:
            path = "/" + "/".join(levels)
            yield Row(path, row.subject, row.grants & letters, row.denies & letters)


def naive(table: Iterable[Row], who: Subjects, path: str) -> int:
    """The rights at a path, by a look at every row for every level."""
    wanted = split(path)
    mine = [
        (split(row.path), row)
        for row in spread(table)
        if row.subject in {who.principal, *who.groups}
    ]
    found = 0
    for depth in range(len(wanted) + 1):
        granted = denied = 0
        for levels, row in mine:
            if len(levels) == depth and all(map(is_level, levels, wanted, repeat(who))):
                granted |= row.grants
                denied |= row.denies
        found = (found | granted) & ~denied
    if wanted[:2] in (["topics", "$SYS"], ["topics", "$dead"]):
        found &= ~WRITE
    return found


def is_level(of_row: str, of_path: str, who: Subjects) -> bool:
    """A level of a path that is called `%u` is not one that stands for somebody."""
    return of_path == (level_of(who.principal) if of_row == "%u" else of_row)
