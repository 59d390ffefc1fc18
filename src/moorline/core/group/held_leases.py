"""Room: core/group. The leases that a Borrower holds or has held, and what it must say of them to its Leader.

    [never] ──hold──► GRANTED ──► REVOKING ──give_up──► over
       └──────────────────forget──────────────────────────┘      a Revoke that overtook its Grant

A lease never comes back: its number is over for good. Every message gets a number of its own, the next one,
so that the Leader knows which of two is newer whatever the net does to them.

Invariants, looked at by `check`:

    H1  what is held is not over: a late grant would begin it again beside itself
    H2  only what is held is unsure
    H3  a report is final only when the lease was asked for: else the Leader would give a stream to another
        that its client still reads
    H4  no number was given to two reports, and none that was not drawn
    H5  what is remembered of those that are over has a bound
"""

from enum import Enum

from moorline.core.delivery.progress import Cursor
from moorline.core.group.events import StreamProgress
from moorline.core.group.message import Grant, UpdateProgress, lease_item, report_item
from moorline.core.ranges import Range
from moorline.core.sets.digest import Digest
from moorline.core.stream import Gap, Stream
from moorline.limits import LEASES_REMEMBERED_MAX


class LeaseState(Enum):
    """Of a stream at the Borrower; [absent] -> granted -> revoking -> [absent]."""

    GRANTED = "granted"
    REVOKING = "revoking"


class Held:
    """A lease as the Borrower sees it."""

    __slots__ = (
        "cursor",
        "delivered",
        "final",
        "is_over",
        "lost",
        "number",
        "returned",
        "state",
        "stream",
        "telling",
    )

    def __init__(self, stream: Stream, cursor: Cursor) -> None:
        self.stream = stream
        self.cursor = cursor
        self.delivered = cursor.offset
        self.returned: tuple[Range, ...] = ()
        self.lost: tuple[Gap, ...] = ()
        self.telling = False
        """The client is just being told of a loss."""
        self.is_over = False
        """The Leader has said so, and only the client is waited for."""
        self.state = LeaseState.GRANTED
        self.final = False
        self.number = 0
        """That of its newest report."""

    def take_in(self, progress: StreamProgress) -> None:
        self.cursor, self.delivered = progress.cursor, progress.delivered
        self.returned, self.lost = progress.returned, progress.lost
        self.telling = progress.telling
        # A feed of ranges that is done is drained too; only what was asked for is given back by that (H3).
        self.final = progress.final and self.state is LeaseState.REVOKING


class HeldLeases:
    """All of one Borrower."""

    def __init__(self, borrower: str) -> None:
        self.held: dict[int, Held] = {}
        self.number = 0
        """The last that was given to a message."""
        self._borrower = borrower
        # Leases whose last report may not have come to the Leader.
        self._unsure: dict[int, None] = {}
        # Leases that are over, and what was lost of each: a grant of one that comes late must not begin it
        # again. Those that it has no room for are over up to a number.
        self._over: dict[int, tuple[Gap, ...]] = {}
        self._over_upto = 0

    def next_number(self) -> int:
        self.number += 1
        return self.number

    # --- holding them -----------------------------------------------------------------------------

    def hold(self, grant: Grant) -> None:
        self.held[grant.lease] = Held(grant.stream, grant.cursor)

    def is_over(self, lease: int) -> bool:
        # One below the mark that was never granted counts as over too. The Leader hears so and grants the
        # stream under another number: a delay, where to begin one again would be two readers.
        return lease in self._over or lease <= self._over_upto

    def give_up(self, lease: int) -> tuple[bool, tuple[Gap, ...]]:
        """It is over. Whether it was held until now, and what was lost of it."""
        held = self.held.pop(lease, None)
        self._unsure.pop(lease, None)
        self.forget(lease, held.lost if held is not None else ())
        return held is not None, self._over.get(lease, ())

    def forget(self, lease: int, lost: tuple[Gap, ...] = ()) -> None:
        """It is over, whether it ever began or not. The first word on what was lost of it stays."""
        self._over.setdefault(lease, lost)
        if len(self._over) > LEASES_REMEMBERED_MAX:
            oldest = next(iter(self._over))
            self._over_upto = max(self._over_upto, oldest)
            del self._over[oldest]

    def clear(self) -> list[int]:
        """Lets go of all; returns which those were."""
        leases = list(self.held)
        self.held.clear()
        self._unsure.clear()
        return leases

    # --- saying how they are ----------------------------------------------------------------------

    def report(self, lease: int, epoch: int) -> UpdateProgress:
        """All of a lease each time: a report that is lost takes nothing with it that the next one lacks."""
        held = self.held[lease]
        self.number += 1
        held.number = self.number
        self._unsure[lease] = None
        return UpdateProgress(
            self._borrower,
            epoch,
            held.number,
            lease,
            held.cursor,
            held.delivered,
            held.final,
            held.returned,
            held.lost,
        )

    def report_never(self, lease: int, epoch: int) -> UpdateProgress:
        """We have nothing of that lease, and never begin it."""
        return UpdateProgress(self._borrower, epoch, self.next_number(), lease, None, 0, True)

    def older_than(self, ping: int) -> list[int]:
        """Leases with a report that was made before that ping and may not have come."""
        return [lease for lease in self._unsure if self.held[lease].number < ping]

    def heard(self, leases: list[int]) -> None:
        """The Leader has the last reports of these."""
        for lease in leases:
            del self._unsure[lease]

    def digest(self) -> Digest:
        """Of the leases held: the Leader compares it with its own."""
        return Digest.of(lease_item(lease, held.stream) for lease, held in self.held.items())

    def reports_digest(self) -> bytes:
        """Of the last report of each: the answer to a ping has the Leader's."""
        items = (report_item(lease, held.number) for lease, held in self.held.items())
        return bytes(Digest.of(items))

    # --- what always holds ------------------------------------------------------------------------

    def check(self) -> None:
        """Asserts the invariants."""
        both = self.held.keys() & self._over.keys()
        assert not both, f"H1: {both} are held and over"
        assert self._unsure.keys() <= self.held.keys(), f"H2: {list(self._unsure)} are unsure"
        numbers = [held.number for held in self.held.values() if held.number]
        assert len(set(numbers)) == len(numbers), f"H4: two reports have one number of {numbers}"
        assert max(numbers, default=0) <= self.number, f"H4: {max(numbers)} was not drawn"
        for lease, held in self.held.items():
            is_asked = held.state is LeaseState.REVOKING
            assert is_asked or not held.final, f"H3: lease {lease} is final, and nobody wants it"
        assert len(self._over) <= LEASES_REMEMBERED_MAX, f"H5: {len(self._over)} are remembered"
