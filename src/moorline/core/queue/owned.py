"""Room: core/queue. What one owner has in the queues of a node: how many, and the bytes that wait in them.

Every queue has the account of its owner at hand and keeps it in step with itself, so that nobody ever has to
add up all queues but at a start. Bytes are those of records: a message's body and 29 bytes.

Its bytes are always those of its queues: the simulation of the store adds up both.
"""

from typing import Final

UNBOUNDED: Final = 1 << 62
"""A bound that nobody meets."""


class Owned:
    __slots__ = ("bytes", "bytes_max", "queues")

    def __init__(self) -> None:
        self.queues = 0
        self.bytes = 0
        self.bytes_max = UNBOUNDED
        """What may wait in its queues; told by whoever knows the quotas."""

    def take_in(self, other: "Owned") -> None:
        """What was another's is its own from now on."""
        # The other is emptied in the same step: queues that still have it at hand must not be counted
        # twice.
        self.queues += other.queues
        self.bytes += other.bytes
        other.queues = other.bytes = 0


NOT_COUNTED: Final = Owned()
"""Of copies, and of queues that are only looked at."""
