"""Room: core/group. A lease: one stream, or ranges of one, in the hands of one Borrower, as the Leader
sees it. (The lease by which a Leader leads is given by `groups/leaders.py`, with `group_claim.sql`.)

Invariants, looked at by `Lease.check`; that its status moves as drawn is asserted at each move:

    E1  it is `confirmed` once it was GRANTED, and never before
    E2  what is open of a lease of ranges lies within them; a lease of a whole stream has nothing open,
        because the progress of its shard says it
    E3  only a lease of ranges can be of messages that are gone
"""

from collections.abc import Iterable, Mapping
from enum import Enum

from moorline.core.delivery.progress import Cursor
from moorline.core.group.message import FromLeader, Grant, Revoke, Revoked, lease_item, report_item
from moorline.core.ranges import Range, Ranges
from moorline.core.sets.digest import DIGEST_BYTES, Digest
from moorline.core.stream import Stream


class Status(Enum):
    """Of an assignment, as the specification has them."""

    GRANTING = "granting"
    GRANTED = "granted"
    REVOKING = "revoking"
    REVOKED = "revoked"


# From GRANTING straight to REVOKING too: a Borrower that never hears of its grant is asked for it back all
# the same, and says that it has nothing. Never back: a stream is granted again under another number.
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
        # Asked twice, as reminders and plans do, it must not begin its deadline anew.
        if status is self.status:
            return
        assert status in STATUS_MOVES[self.status], (
            f"no move of a lease from {self.status} to {status}"
        )
        self.status = status
        # A deadline runs from the move, not from what is said again later.
        self.since_ms = now_ms
        # For good: what is being revoked was confirmed before, and is still in the Borrower's digest.
        self.confirmed |= status is Status.GRANTED

    @property
    def is_sure(self) -> bool:
        """Whether the Borrower has it for certain: it said so, and was not told to forget it."""
        return self.confirmed and self.status is not Status.REVOKED

    def check(self) -> None:
        if self.status is Status.GRANTING:
            assert not self.confirmed, f"E1: lease {self.number} was not granted yet"
        if self.status is Status.GRANTED:
            assert self.confirmed, f"E1: lease {self.number} was granted"
        # Most have all of their ranges open, or nothing.
        if self.open and tuple(self.open) != self.ranges:
            within = Ranges(self.ranges or ())
            for first, upto in self.open:
                is_mine = not within.missing(first, upto)
                assert is_mine, f"E2: lease {self.number} has no {first}-{upto}"
        assert self.ranges is not None or not self.is_gone, f"E3: lease {self.number} is a stream"

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
                # Nothing is waited for: from here on the Borrower speaks.
                return None


def agrees(digest: bytes, leases: Iterable[Lease]) -> bool:
    """Whether a Borrower that holds leases of this digest can be right, as far as its Leader knows.

    It has those that it has for sure, and any of those that are on their way to it or away from it. The
    hash of the latter must be a XOR of some of theirs: that is whether it lies in what they span.
    """
    # What a peer sends is within its bound, and may still be no digest.
    if len(digest) != DIGEST_BYTES:
        return False
    # The count is compared too: two leases that cancel in the XOR would pass unseen.
    told, items, span, unsure = Digest.from_bytes(digest), [], _Span(), 0
    for lease in leases:
        item = lease_item(lease.number, lease.stream)
        # Sure is what it said itself and was not told to forget. A grant may not have come yet, and of a
        # lease that was to be forgotten the answer may be on its way: either is right.
        if lease.is_sure:
            items.append(item)
        else:
            span.add(_hash(Digest.of([item])))
            unsure += 1
    sure = Digest.of(items)
    return 0 <= told.count - sure.count <= unsure and _hash(told) ^ _hash(sure) in span


def reported(leases: Iterable[Lease]) -> bytes:
    """The digest of what their Borrower reported last."""
    # One without a report has no item. Its Borrower, which reports each as soon as it holds it, finds the
    # difference and reports again.
    return bytes(
        Digest.of(report_item(lease.number, lease.reported) for lease in leases if lease.reported)
    )


def _hash(digest: Digest) -> int:
    return int.from_bytes(digest.hash, "big")


class _Span:
    """All that is a XOR of some of the numbers put in: a Gaussian elimination over bits.

    Trying all subsets would do the same, and double with each lease that is on its way. A number of the basis
    lacks the highest bits of those before it, which is what makes one pass of `_reduced` enough.
    """

    def __init__(self) -> None:
        self._basis: list[int] = []

    def add(self, number: int) -> None:
        if number := self._reduced(number):
            self._basis.append(number)

    def __contains__(self, number: int) -> bool:
        return self._reduced(number) == 0

    def _reduced(self, number: int) -> int:
        for part in self._basis:
            # The smaller one is that without the highest bit of `part`.
            number = min(number, number ^ part)
        return number
