"""Room: core/records. A subscription of a table's feed, where it stands, and the scan that it is in.

Invariant, looked at by `check`:

    SU1  whoever is behind can be brought on: by its step, from the ring; by snapshot and digest, from the log
"""

from collections.abc import Mapping
from enum import Enum

from moorline.core.records.audience import Audience
from moorline.core.records.feed_events import How, Wanted
from moorline.core.records.snapshot import Snapshot
from moorline.core.sets.digest import Digest


class Standing(Enum):
    WAITING = "waiting"
    SCANNING = "scanning"
    BEHIND = "behind"
    LIVE = "live"


STANDINGS: Mapping[Standing, frozenset[Standing]] = {
    Standing.WAITING: frozenset({Standing.SCANNING}),
    Standing.SCANNING: frozenset({Standing.BEHIND, Standing.WAITING}),
    Standing.BEHIND: frozenset({Standing.LIVE, Standing.WAITING}),
    Standing.LIVE: frozenset({Standing.BEHIND, Standing.WAITING}),
}


class Subscription:
    __slots__ = (
        "at",
        "audience",
        "connection",
        "digest",
        "full_ms",
        "is_alone",
        "is_partial",
        "is_proven",
        "is_torn",
        "number",
        "principal",
        "rights_version",
        "scan",
        "snapshot",
        "standing",
        "wanted",
    )  # fmt: skip

    def __init__(
        self,
        number: int,
        connection: int,
        wanted: Wanted,
        audience: Audience,
        principal: str = "",
    ) -> None:
        self.number = number
        self.principal = principal
        self.connection = connection
        self.wanted = wanted
        self.audience = audience
        self.rights_version = wanted.rights_version
        self.standing = Standing.WAITING
        self.at = 0
        """Its step, unless it is LIVE, which is at the feed's; what it was sent is the table there."""
        self.snapshot: Snapshot | None = None
        """That of its step, and its digest there: from where the log goes on, if the ring does not."""
        self.digest: Digest | None = None
        self.is_proven = False
        self.scan = 0
        self.full_ms: int | None = None
        """Since when its buffer is full."""
        self.is_partial = False
        """It was sent a part of a step: the ring tells what came and went in it, the log does not."""
        self.is_torn = False
        """It was sent what is in no step: only a scan tells."""
        self.is_alone = False
        """Too slow to scan with others, who would wait for it."""

    def move(self, standing: Standing) -> None:
        if standing is not self.standing:
            assert standing in STANDINGS[self.standing], (
                f"{self.number}: no move from {self.standing.name} to {standing.name}"
            )
        self.standing = standing

    def check(self) -> None:
        if self.standing is Standing.BEHIND:
            has_place = self.snapshot is not None and self.digest is not None
            assert has_place or self.is_torn, f"SU1: {self.number} is behind nothing"


class Scan:
    __slots__ = (
        "audience", "digest", "how", "members", "number", "principal", "snapshot", "step",
    )  # fmt: skip

    def __init__(
        self,
        number: int,
        how: How,
        audience: Audience,
        step: int,
        snapshot: Snapshot,
        members: set[int],
    ) -> None:
        self.number = number
        self.how = how
        self.audience = audience
        self.step = step
        self.snapshot = snapshot
        self.members = members
        self.principal = ""
        self.digest: Digest | None = None
