"""Room: core/access. A row of rights, whose rows count for somebody, and paths."""

from functools import lru_cache
from typing import Final

import msgspec

from moorline.core.access.principal import check_subject, level_of
from moorline.core.access.right import DEFAULT, EVERYTHING, NOTHING, PUBLISH, WRITE
from moorline.errors import BadGrant
from moorline.limits import GRANT_LEVELS_MAX, GRANT_PATH_BYTES_MAX, SUBJECTS_KNOWN_MAX

TOPICS: Final = "topics"
OWN: Final = "%u"
"""A level of a row's path that is the principal's own."""
OWN_PATH: Final = "/%u"
"""The path of a row for all that is a principal's own, wherever it is."""
OWN_PLACES: Final = (
    (("topics", OWN), EVERYTHING & ~DEFAULT),
    (("groups", OWN), EVERYTHING & ~DEFAULT & ~WRITE),
    (("values", OWN), EVERYTHING),
    (("queues",), PUBLISH),
    (("services",), PUBLISH),
    (("sessions",), PUBLISH),
)
"""Where that is, and which rights mean something there. What is called by no name below a principal's is its
own by having made it: there a row says whether it may make one."""
UNNAMED: Final = "\0"
"""A level that nobody can name: no topic has a zero character, and no row."""
RESERVED: Final = frozenset({"$SYS", "$dead"})
"""Below these only nodes publish, whatever the rows say."""

Levels = tuple[str, ...]


class Row(msgspec.Struct, frozen=True):
    """What one subject is granted and denied, at a path and all below it."""

    path: str
    subject: str
    grants: int = NOTHING
    denies: int = NOTHING


class Subjects(msgspec.Struct, frozen=True):
    """Whose rows count for somebody: its own, and those of the groups that it is in."""

    principal: str
    groups: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()
    level: str = ""

    def __post_init__(self) -> None:
        # Found once: each verdict needs them at each level.
        msgspec.structs.force_setattr(self, "names", self.groups | {self.principal})
        msgspec.structs.force_setattr(self, "level", level_of(self.principal))


@lru_cache(SUBJECTS_KNOWN_MAX)
def subjects_of(principal: str, groups: frozenset[str]) -> Subjects:
    """One for all connections of a principal: each would have three sets of its own."""
    return Subjects(principal, groups)


def check_row(row: Row) -> None:
    """Refuses what cannot be a row, or would not mean what it seems to."""
    path = row.path
    try:
        # In bytes and not in characters, as the catalog counts; halves of characters have no bytes.
        size = len(path.encode())
    except UnicodeEncodeError:
        raise BadGrant("this path is not text") from None
    if not path.startswith("/"):
        raise BadGrant(f"{path[:80]!r} is no path: those begin with /, as /topics/orders does")
    if size > GRANT_PATH_BYTES_MAX or path.count("/") > GRANT_LEVELS_MAX:
        raise BadGrant(
            f"a path has at most {GRANT_PATH_BYTES_MAX} bytes and {GRANT_LEVELS_MAX} levels"
        )
    # It is UNNAMED, by which filters are judged: a row there would decide for levels that nobody named.
    # Postgres has no such text either.
    if "\0" in path:
        raise BadGrant(f"{path!r} has a zero character")
    # An empty level at the end is a level: the row would be about one strange topic, and look as if it were
    # about all below.
    if path.endswith("/") and path != "/":
        raise BadGrant(f"{path!r} ends with /: leave it out, a row is for all that is below it")
    # A level of a topic cannot be called so; a row that seems to be for all would be for nobody.
    if "+" in path or "#" in path:
        raise BadGrant(f"{path!r} has a wildcard: a row is for all that is below it, without one")
    if path.startswith(f"{OWN_PATH}/"):
        raise BadGrant(
            f"{path!r}: {OWN_PATH} is all that is a principal's own and stands alone; name a place, as in "
            f"/topics/{OWN}{path.removeprefix(OWN_PATH)}"
        )
    for level in levels_of(path):
        # `%u-inbox` would be taken literally, which nobody means.
        if OWN in level and level != OWN:
            raise BadGrant(f"{path!r}: {OWN} is a level of its own")
    check_subject(row.subject)
    if not row.grants and not row.denies:
        raise BadGrant("a row grants or denies at least one right")
    if (row.grants | row.denies) & ~EVERYTHING:
        raise BadGrant("a row has a right that is none")


def levels_of(path: str) -> Levels:
    """`/` has none; a topic may have empty ones."""
    assert path.startswith("/"), path
    return () if path == "/" else tuple(path[1:].split("/"))
