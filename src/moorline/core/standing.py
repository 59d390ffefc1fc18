"""Room: core. Of which home the parts of a client's list are, and what the refusals of a node mean for them.

A queue is of one home. A node that does not know a queue, nor a home that has it, says NOT_FOUND, whether the
queue was deleted or is one that nobody has told the cluster of yet. Only the node of the queue's own home can
mean the first.
"""

from collections.abc import Iterable
from enum import Enum
from typing import Protocol

NOT_FOUND = "NOT_FOUND"


class Standing(Enum):
    """What the node that we reached is to a part of the list."""

    HOME = "home"
    UNKNOWN = "unknown"


class KnownHome(Protocol):
    """What the cluster says of a home."""

    @property
    def number(self) -> bytes: ...

    @property
    def node_id(self) -> bytes: ...


def standing(node: bytes, homes: Iterable[KnownHome], *, is_empty: bool) -> bytes | None:
    """The home of a part that the cluster does not know by its number.

    `node` is the one that had it when it was last heard of, if anybody said so. Empty: nobody knows, and
    it may be tried. None: it is of another cluster, and nothing may be concluded from what this one lacks.
    """
    if is_empty:
        # It has no queues that could be anywhere else.
        return b""
    if not node:
        return b""
    return next((home.number for home in homes if home.node_id == node), None)


def is_gone(code: str, node: Standing) -> bool:
    """Whether a refusal says that the queue is not the service's any more."""
    # Elsewhere a queue that is not found may be alive at home: to forget it would lose it in silence.
    return code != NOT_FOUND or node is Standing.HOME
