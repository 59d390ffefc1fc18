"""Room: core/group. A lease: one stream, or ranges of one, in the hands of one Borrower, as the Leader
sees it."""

from collections.abc import Iterable, Mapping
from enum import Enum

from moorline.core.delivery.progress import Cursor
from moorline.core.group.message import FromLeader, Grant, Revoke, Revoked, lease_item, report_item
from moorline.core.ranges import Range, Ranges
from moorline.core.sets.digest import DIGEST_BYTES, Digest
from moorline.core.stream import Stream


class Status(Enum):
    GRANTING = "granting"
    GRANTED = "granted"
    REVOKING = "revoking"
    REVOKED = "revoked"


STATUS_MOVES: Mapping[Status, frozenset[Status]] = {
    Status.GRANTING: frozenset({Status.GRANTED, Status.REVOKING}),
    Status.GRANTED: frozenset({Status.REVOKING}),
    Status.REVOKING: frozenset({Status.REVOKED}),
    Status.REVOKED: frozenset(),
}
"""From any of them a lease may also be dropped, when its Borrower is."""


class Lease:
    __slots__ = (
        "borrower",
        "confirmed",
        "delivered",
        "gone_ms",
        "is_gone",
        "number",
        "open",
        "progress_ms",
        "ranges",
        "reported",
        "sent_ms",
        "since_ms",
        "status",
        "stream",
    )

    def __init__(
        self,
        number: int,
        stream: Stream,
        borrower: str,
        now_ms: int,
        ranges: tuple[Range, ...] | None = None,
    ) -> None:
        self.number = number
        self.stream = stream
        self.borrower = borrower
        self.status = Status.GRANTING
        self.ranges = ranges
        self.open = Ranges(ranges or ())
        """Of a lease of ranges: what is not done yet."""
        self.since_ms = now_ms
        self.sent_ms = now_ms
        self.progress_ms = now_ms
        """When its member last got on with it: a lock lasts from then."""
        self.reported = 0
        """The number of the newest report."""
        self.confirmed = False
        """Whether the Borrower has said that it has it."""
        self.delivered = 0
        """Nothing at or above it was handed to the member."""
        self.gone_ms: int | None = None
        """When its stream was found to be gone: its member may finish what it has in hand, for a while."""
        self.is_gone = False
        """Of a lease of ranges: there is nothing left of them but to tell a client that they are gone."""

    def move(self, status: Status, now_ms: int) -> None:
        if status is self.status:
            return
        assert status in STATUS_MOVES[self.status], (
            f"no move of a lease from {self.status} to {status}"
        )
        self.status = status
        self.since_ms = now_ms
        self.confirmed |= status is Status.GRANTED

    @property
    def is_sure(self) -> bool:
        """Whether the Borrower has it for certain: it said so, and was not told to forget it."""
        return self.confirmed and self.status is not Status.REVOKED

    @property
    def is_leaving(self) -> bool:
        return self.status in (Status.REVOKING, Status.REVOKED)

    def message(self, epoch: int, cursor: Cursor, deliveries_max: int) -> FromLeader | None:
        """What the Borrower must hear while the lease is in this status, and hear again until it answers."""
        match self.status:
            case Status.GRANTING:
                return Grant(
                    self.borrower,
                    epoch,
                    self.number,
                    self.stream,
                    cursor,
                    deliveries_max,
                    self.ranges,
                )
            case Status.REVOKING:
                return Revoke(self.borrower, epoch, self.number)
            case Status.REVOKED:
                return Revoked(self.borrower, epoch, self.number)
            case Status.GRANTED:
                return None


def agrees(digest: bytes, leases: Iterable[Lease]) -> bool:
    """Whether a Borrower that holds leases of this digest can be right, as far as its Leader knows.

    It has those that it has for sure, and any of those that are on their way to it or away from it. The
    hash of the latter must be a XOR of some of theirs: that is whether it lies in what they span.
    """
    if len(digest) != DIGEST_BYTES:
        return False
    told, items, span, unsure = Digest.from_bytes(digest), [], _Span(), 0
    for lease in leases:
        item = lease_item(lease.number, lease.stream)
        if lease.is_sure:
            items.append(item)
        else:
            span.add(_hash(Digest.of([item])))
            unsure += 1
    sure = Digest.of(items)
    return 0 <= told.count - sure.count <= unsure and _hash(told) ^ _hash(sure) in span


def reported(leases: Iterable[Lease]) -> bytes:
    """The digest of what their Borrower reported last."""
    return bytes(
        Digest.of(report_item(lease.number, lease.reported) for lease in leases if lease.reported)
    )


def _hash(digest: Digest) -> int:
    return int.from_bytes(digest.hash, "big")


class _Span:
    """All that is a XOR of some of the numbers put in."""

    def __init__(self) -> None:
        self._basis: list[int] = []

    def add(self, number: int) -> None:
        if number := self._reduced(number):
            self._basis.append(number)

    def __contains__(self, number: int) -> bool:
        return self._reduced(number) == 0

    def _reduced(self, number: int) -> int:
        for part in self._basis:
            number = min(number, number ^ part)
        return number
