"""Room: node. What the rooms answer, with what each message needs, also of a room that does not say so."""

from typing import Any

from moorline.access.guard import Declarations, anybody, nodes_only
from moorline.wire.group import AskLeader, ForLeader, WatchStreams

BETWEEN_NODES = frozenset({AskLeader, ForLeader, WatchStreams})


def declarations_of(part: Any) -> Declarations:
    if hasattr(part, "declared"):
        declared: Declarations = part.declared()
        return declared
    return {
        kind: nodes_only(handler) if kind in BETWEEN_NODES else anybody(handler)
        for kind, handler in part.handlers().items()
    }
