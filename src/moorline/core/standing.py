"""Room: core. Of which node a client's list is, and what the refusals of a node mean for it.

A queue is of one node. A node that does not know a queue says NOT_FOUND, whether the queue was deleted or is
another node's. Only the list's own node can mean the first.
"""

from enum import Enum

NOT_FOUND = "NOT_FOUND"


class Standing(Enum):
    """What the node that we reached is to the list."""

    HOME = "home"
    UNKNOWN = "unknown"
    ELSEWHERE = "elsewhere"


def standing(home: bytes, node: bytes, *, is_empty: bool) -> Standing:
    """`home` is the node that the list is bound to, if it is."""
    # It has not said who it is: nothing may be concluded from what it lacks.
    if not node:
        return Standing.UNKNOWN
    if home == node or is_empty:
        # An empty list has no queues that could be anywhere else.
        return Standing.HOME
    return Standing.ELSEWHERE if home else Standing.UNKNOWN


def is_gone(code: str, node: Standing) -> bool:
    """Whether a refusal says that the queue is not the service's any more."""
    # Elsewhere a queue that is not found may be alive at home: to forget it would lose it in silence.
    return code != NOT_FOUND or node is Standing.HOME
