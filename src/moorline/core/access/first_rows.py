"""Room: core/access. What each row is for that a catalog begins with, for whoever lists them.

The rows themselves are made by the catalog (`catalog/migrations/0007_access.sql`, and of a fresh one
`0021_two_rows.sql` in their place), in the transaction that makes the table; a test compares the two. Why
they are as many as they are: docs/decisions/0180.
"""

from collections.abc import Mapping
from typing import Final

from moorline.core.access.principal import AUTHENTICATED, LOOPBACK
from moorline.core.access.row import OWN_PATH

MADE_BY: Final = frozenset({"first start", "upgrade"})
"""Who made them, as the rows say. A row that somebody has changed since is that one's."""

PURPOSES: Final[Mapping[tuple[str, str], str]] = {
    ("/", LOOPBACK): "who is on the node's machine may do everything",
    (OWN_PATH, AUTHENTICATED): "all that is its own, and what is below its own name",
    ("/queues", AUTHENTICATED): "make queues; what it made is its own",
    ("/services", AUTHENTICATED): "open its service",
    ("/sessions", AUTHENTICATED): "open durable sessions; what it made is its own",
    ("/topics/%u", AUTHENTICATED): "topics below its own name",
    ("/groups/%u", AUTHENTICATED): "groups below its own name",
    ("/values/%u", AUTHENTICATED): "values below its own name",
    ("/topics", AUTHENTICATED): "all topics, as before the upgrade",
    ("/groups", AUTHENTICATED): "all groups, as before the upgrade",
}
"""By path and subject."""

OPERATOR: Final = "an operator of the old settings"


def purpose_of(path: str, subject: str, made_by: str) -> str:
    """Of a row that nobody has changed since it was made; empty for any other."""
    if made_by not in MADE_BY:
        return ""
    return PURPOSES.get((path, subject), OPERATOR if path == "/" else "")
